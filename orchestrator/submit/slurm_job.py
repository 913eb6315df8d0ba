"""Translates a batch script of Slurm into a command line of `muster submit`, or reports each line that has no
equivalent.

The container runs the script by its interpreter with `-c`. A line that sets the variables of Slurm and defines `srun`
replaces the first line, so line numbers in messages stay the same. Every pod of a job of several nodes runs the whole
script. `srun` starts the tasks of its own node.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from orchestrator.errors import UsageError
from orchestrator.submit import slurm_values as values
from orchestrator.submit.slurm_options import (
    ADVICE,
    COMMAND_ADVICE,
    LAUNCHERS,
    NO_EFFECT,
    OPTIONS,
    SHELLS,
    SLURM_COMMANDS,
    read_option,
)
from orchestrator.submit.slurm_prelude import MEMORY_VARIABLES, Job, first_line, variables
from orchestrator.submit.slurm_script import (
    Command,
    Script,
    commands,
    named_variables,
    option_words,
    quoted_names,
    unset_variables,
)

T = TypeVar("T")
JOB_ID_LABEL: Final = "slurm-job-id"
"""The label with the value of SLURM_JOB_ID, for `muster list -l`."""
_MAX_PREFIX: Final = 46
_VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Request:
    """The inputs beside the script.

    `project` is None if the command line does not name it. `job_id` is a new number.
    """

    name: str
    """The name of the script, for messages and as the default of the job's name."""
    options: Sequence[tuple[str, str]] = ()
    """Options of Slurm on the command line, which have precedence: full name and value."""
    own_words: Sequence[str] = ()
    """Options of `muster submit` on the command line."""
    arguments: Sequence[str] = ()
    """The arguments of the script."""
    project: str | None = None
    job_id: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Translation:
    """The command line of `muster submit`; `problems` are the reasons why a script has no such command line, `notes`
    the differences from Slurm.
    """

    words: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Option:
    """An option with its value, and where it stands: `line 5`, or empty on the command line."""

    value: str
    where: str


def translate(script: Script, request: Request) -> Translation:
    """Return the command line of `muster submit` for a script, or all reasons why the script has no such command
    line.
    """
    return _Translator(script, request).run()


class _Translator:
    def __init__(self, script: Script, request: Request) -> None:
        self._script = script
        self._request = request
        self._options: dict[str, _Option] = {}
        self._problems: list[tuple[str, str]] = []
        """Each problem: its location, such as `line 5`, and the text."""
        self._notes: list[tuple[str, str]] = []
        self._words: list[str] = []
        self._job = Job()
        self._variables: dict[str, str] = {}
        """Shell words by the name of the variable."""

    def run(self) -> Translation:
        own_words = [*self._read_options(), *self._request.own_words]
        self._refuse_unknown()
        self._words += ["--job-name-prefix", self._name(), "--backoff-limit", "0", "--large-shm"]
        self._words += ["--label", f"{JOB_ID_LABEL}={self._request.job_id}"]
        for step in (self._project, self._size, self._amounts, self._arrays, self._ends, self._surroundings):
            step(own_words)
        self._set_variables()
        self._check_body()
        shell = self._shell()
        binds = "gpus-per-task" in self._options
        body = f"{first_line(self._job, self._variables, binds)}\n{self._script.body}"
        tail = [*shell, "-c", body, self._request.name, *self._request.arguments]
        words = (*self._words, *own_words, "--command", "--", *tail)
        problems = self._in_order(self._problems)
        return Translation(() if problems else words, problems, self._in_order(self._notes))

    # --- options ------------------------------------------------------------------------------------

    def _read_options(self) -> list[str]:
        """Read the option lines and the command line; return the options of muster in the script."""
        for line in self._script.options:
            where = f"line {line.number}"
            try:
                words = option_words(line)
            except UsageError as error:
                self._problem(where, str(error))
                continue
            for name, value in self._options_of(words, where):
                self._options[name] = _Option(value, where)
        self._options |= {name: _Option(value, "") for name, value in self._request.options}
        own: list[str] = []
        for line in self._script.muster_options:
            try:
                own += option_words(line)
            except UsageError as error:
                self._problem(f"line {line.number}", str(error))
        for number in self._script.late:
            self._note(f"line {number}", "#SBATCH after the first command has no effect, as in Slurm")
        return own

    def _options_of(self, words: list[str], where: str) -> list[tuple[str, str]]:
        options: list[tuple[str, str]] = []
        rest = iter(words)
        for word in rest:
            try:
                options.append(read_option(word, rest))
            except UsageError as error:
                self._problem(where, str(error))
                return options
        return options

    def _refuse_unknown(self) -> None:
        for variable in self._request.environment:
            if variable.startswith("SBATCH_"):
                self._note("", f"{variable} of this shell has no effect; give the option instead")
        for name, option in self._options.items():
            if name in ADVICE:
                self._problem(option.where, f"--{name} is not possible; {ADVICE[name]}")
            elif name in NO_EFFECT:
                self._note(option.where, f"--{name} has no effect: {NO_EFFECT[name]}")

    def _read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Return the value of an option; a value that is not possible becomes a problem."""
        option = self._options.get(name)
        if option is None:
            return default
        try:
            return parse(option.value)
        except UsageError as error:
            self._problem(option.where, f"--{name} {option.value!r} {error}")
            return default

    def _problem(self, where: str, text: str) -> None:
        self._problems.append((where, text))

    def _note(self, where: str, text: str) -> None:
        self._notes.append((where, text))

    def _in_order(self, lines: list[tuple[str, str]]) -> tuple[str, ...]:
        """Return the lines in the order of the script, each once; lines about the whole script are first."""
        ordered = sorted(dict.fromkeys(lines), key=lambda line: int(line[0].removeprefix("line ") or 0))
        return tuple(f"{self._request.name}{', ' if where else ''}{where}: {text}" for where, text in ordered)

    def _refuse(self, name: str, text: str) -> None:
        self._problem(self._options[name].where, f"--{name} {text}")

    # --- the parts of the command line ----------------------------------------------------------------

    def _name(self) -> str:
        self._job.name = (
            self._options["job-name"].value if "job-name" in self._options else self._request.name
        )
        plain = re.sub(r"[^a-z0-9]+", "-", self._job.name.lower()).strip("-") or "job"
        prefix = plain if plain[0].isalpha() else f"job-{plain}"
        return prefix[:_MAX_PREFIX].rstrip("-")

    def _project(self, own_words: Collection[str]) -> None:
        names = [name for name in ("partition", "account") if name in self._options]
        if self._request.project is not None or {"-p", "--project"} & {
            word.partition("=")[0] for word in own_words
        }:
            for name in names:
                self._note(self._options[name].where, f"--{name} has no effect: the project is given by -p")
        elif len(names) == 2:
            self._refuse(
                "partition", "and --account can both be the project; give the project with --project"
            )
        elif names and "," in self._options[names[0]].value:
            self._refuse(names[0], "has several names; give one project with --project")
        elif names:
            project = self._options[names[0]].value
            self._note(self._options[names[0]].where, f"--{names[0]} {project} is the project")
            self._words += ["--project", project]

    def _size(self, _: Collection[str]) -> None:
        """Find the number of nodes, and the tasks and GPUs of each node."""
        job, read = self._job, self._read
        nodes, tasks = read("nodes", values.parse_nodes, 0), read("ntasks", values.parse_number, 0)
        per_node = read("ntasks-per-node", values.parse_number, 0)
        kind, total = read("gpus", values.parse_gpus, ("", 0))
        task_kind, per_task = read("gpus-per-task", values.parse_gpus, ("", 0))
        if total and per_task and not tasks and not total % per_task:
            tasks = total // per_task
        if tasks > 1 and not nodes and not per_node:
            self._note(self._where("ntasks"), f"the {tasks} tasks run in one pod; give --nodes for several")
        job.nodes = nodes or (-(-tasks // per_node) if tasks and per_node else 1)
        job.tasks = (tasks // job.nodes if tasks else per_node) or 1
        if tasks and (tasks % job.nodes or (per_node and job.tasks > per_node)):
            self._problem(self._where("ntasks"), f"--ntasks {tasks} is not the same on {job.nodes} nodes")
        gres, node = (
            read("gres", values.parse_gres, ("", 0)),
            read("gpus-per-node", values.parse_gpus, ("", 0)),
        )
        if total % job.nodes:
            self._refuse("gpus", f"{total} is not the same on {job.nodes} nodes; give --gpus-per-node")
        counts = {gres[1], node[1], per_task * job.tasks, total // job.nodes} - {0}
        if len(counts) > 1:
            self._problem(
                "", f"the options for GPUs contradict each other: {', '.join(map(str, sorted(counts)))}"
            )
        job.gpus = max(counts, default=0)
        job.gpu_type = gres[0] or node[0] or task_kind or kind
        if per_task > 1 and job.tasks > 1:
            self._refuse(
                "gpus-per-task", "with several tasks on a node is not possible but for 1; use torchrun"
            )

    def _where(self, name: str) -> str:
        return self._options[name].where if name in self._options else ""

    def _amounts(self, own_words: Collection[str]) -> None:
        job, read = self._job, self._read
        per_task = read("cpus-per-task", values.parse_number, 0)
        per_gpu = read("cpus-per-gpu", values.parse_number, 0)
        if per_task or job.tasks > 1 or not job.gpus:
            job.cpus = (per_task or 1) * job.tasks
        job.cpus = per_gpu * job.gpus or job.cpus
        memory = [
            read("mem", values.parse_memory_bytes, 0),
            read("mem-per-cpu", values.parse_memory_bytes, 0) * (job.cpus or job.gpus),
            read("mem-per-gpu", values.parse_memory_bytes, 0) * job.gpus,
        ]
        if sum(amount > 0 for amount in memory) > 1:
            self._problem("", "--mem, --mem-per-cpu and --mem-per-gpu exclude each other; give one of them")
        if job.nodes > 1:
            self._words += ["--nodes", str(job.nodes)]
        if job.gpus:
            self._words += ["--gpu", str(job.gpus)]
        if job.cpus:
            self._words += ["--cpu", str(job.cpus)]
        if any(memory):
            self._words += ["--memory", str(max(memory)), "--memory-limit", str(max(memory))]
        if job.gpu_type and "--node-type" not in {word.partition("=")[0] for word in own_words}:
            self._problem("", f"GPUs of type {job.gpu_type} are not known here; give --node-type TYPE")

    def _arrays(self, _: Collection[str]) -> None:
        self._job.array = array = self._read("array", values.parse_array, None)
        if array is None:
            return
        if self._job.nodes > 1:
            self._refuse("array", "is not possible with several nodes; submit each task by itself")
        self._words += ["--array", f"0-{len(array.tasks) - 1}%{array.at_once}"]
        if array.tasks != tuple(range(len(array.tasks))):
            text = f"task {array.tasks[0]} is index 0 of 'muster logs --index' and of 'muster get'"
            self._note(self._where("array"), text)

    def _ends(self, _: Collection[str]) -> None:
        seconds = self._read("time", values.parse_time_seconds, 0)
        if seconds:
            self._words += ["--time-limit", f"{seconds}s"]
        nothing: tuple[str, ...] = ()
        for state in self._read("dependency", values.parse_dependency, nothing):
            self._words += ["--after", state]
        if "wait" in self._options:
            self._words.append("--wait")
        if "parsable" in self._options:
            self._words += ["--output", "name"]

    def _surroundings(self, _: Collection[str]) -> None:
        if "chdir" in self._options:
            if not self._options["chdir"].value.startswith("/"):
                self._refuse("chdir", "must be an absolute path: it is a directory of the container")
            self._words += ["--working-dir", self._options["chdir"].value]
        if "input" in self._options and self._options["input"].value != "/dev/null":
            self._refuse("input", "is not possible; read the file in the script")
        for part in self._options["export"].value.split(",") if "export" in self._options else ():
            name, equals, value = part.partition("=")
            if part in ("NONE", "NIL"):
                continue
            if part == "ALL":
                text = "--export=ALL has no effect: the variables of this shell stay here; give --export=NAME"
                self._note(self._where("export"), text)
            elif not _VARIABLE_NAME.fullmatch(name):
                self._refuse("export", f"{part!r} is not possible; give NAME or NAME=VALUE")
            elif not equals and name not in self._request.environment:
                self._refuse("export", f"{name} is not set in this shell; give {name}=VALUE")
            else:
                self._words += [
                    "--environment",
                    f"{name}={value if equals else self._request.environment[name]}",
                ]

    # --- the body -------------------------------------------------------------------------------------

    def _set_variables(self) -> None:
        texts = {name: option.value for name, option in self._options.items()}
        memory = {name: self._read(name, values.parse_memory_bytes, 0) for name in MEMORY_VARIABLES}
        self._variables = variables(self._job, self._request.job_id, texts, memory)

    def _shell(self) -> tuple[str, ...]:
        shell = self._script.interpreter
        if not any(shell[-1].split()[-1:] == [name] or shell[0].endswith(f"/{name}") for name in SHELLS):
            self._problem("line 1", f"{' '.join(shell)} is no shell; write the command in a script of bash")
        return shell

    def _check_body(self) -> None:
        several = self._job.nodes > 1
        if several:
            self._note(
                "", f"all {self._job.nodes} pods run the whole script; in Slurm only srun runs on each node"
            )
        try:
            body = list(commands(self._script))
        except UsageError as error:
            self._problem("", str(error))
            return
        for command in body:
            self._check_command(command, several)
        for number, name in quoted_names(self._script, SLURM_COMMANDS):
            self._note(f"line {number}", f"{name} stands in text, and the container has no commands of Slurm")
        for number, name in named_variables(self._script, frozenset(self._variables)):
            self._note(f"line {number}", f"{name} is not set here")
        for number, name in unset_variables(self._script, frozenset(self._variables)):
            self._problem(f"line {number}", f"{name} is not set here; {_variable_advice(name)}")

    def _check_command(self, command: Command, several: bool) -> None:
        where, program = f"line {command.line}", command.program
        if program == "srun":
            if command.words[1:2] and command.words[1].startswith("-"):
                text = f"srun {command.words[1]} is not possible; write srun COMMAND, which runs all tasks"
                self._problem(where, text)
        elif "srun" in command.words:
            self._problem(where, f"srun behind {program} is not possible; write srun first")
        elif program in COMMAND_ADVICE:
            self._problem(where, f"{program} is not possible; {COMMAND_ADVICE[program]}")
        elif program in LAUNCHERS and several:
            self._problem(where, f"{program} would start in each pod; use srun or torchrun")
        elif program in LAUNCHERS and not {"-n", "-np", "--np"} & set(command.words):
            self._problem(where, f"{program} does not know the number of processes; give it with -np")


def _variable_advice(name: str) -> str:
    by_variable = {variable: option for option, variable in OPTIONS.items() if variable}
    option = {"SLURM_NTASKS": "ntasks", "SLURM_NPROCS": "ntasks", "SLURM_MEM_PER_NODE": "mem"}.get(name)
    option = option or by_variable.get(name) or ("array" if name.startswith("SLURM_ARRAY_") else None)
    if option is not None:
        return f"give --{option}"
    return f"write a value, or a default as in ${{{name}:-VALUE}}"
