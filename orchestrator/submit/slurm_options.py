"""The options and commands of Slurm: those that muster translates, those without an effect, and those that it refuses
with advice.

The names are those of sbatch, Slurm 20.11 (https://slurm.schedmd.com/sbatch.html), and of pyxis
(https://github.com/NVIDIA/pyxis). A name that is not here is refused too.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.errors import UsageError

OPTIONS: Final[Mapping[str, str]] = {
    "account": "SLURM_JOB_ACCOUNT",
    "array": "",
    "chdir": "SLURM_SUBMIT_DIR",
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "dependency": "SLURM_JOB_DEPENDENCY",
    "export": "",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "gres": "",
    "input": "",
    "job-name": "",
    "mem": "",
    "mem-per-cpu": "",
    "mem-per-gpu": "",
    "nodes": "",
    "ntasks": "",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "parsable": "",
    "partition": "SLURM_JOB_PARTITION",
    "requeue": "",
    "time": "",
    "use-min-nodes": "",
    "wait": "",
}
"""The options that muster translates, and the variable that has their value."""

_LOGS: Final = "the output is in 'muster logs JOB'"
NO_EFFECT: Final[Mapping[str, str]] = {
    "acctg-freq": "muster measures GPUs by its agent",
    "comment": "it is a remark",
    "error": _LOGS,
    "mail-type": "muster sends no mail; 'muster wait JOB' waits for the end",
    "mail-user": "muster sends no mail; 'muster wait JOB' waits for the end",
    "open-mode": _LOGS,
    "output": _LOGS,
    "profile": "muster measures GPUs by its agent",
    "quiet": "it is about messages of sbatch",
    "verbose": "it is about messages of sbatch",
    "wait-all-nodes": "all pods of a job start together",
    "wckey": "it is a remark",
}
"""The options that muster ignores because they do not change the result of a job, with the reason."""

_IMAGE: Final = "give the image with '#MUSTER --image=IMAGE' and remove it"
_NODE_TYPE: Final = "give the type of the nodes with '#MUSTER --node-type=TYPE'"
ADVICE: Final[Mapping[str, str]] = {
    "begin": "submit the job when it is to start",
    "clusters": "give the cluster with --context",
    "constraint": _NODE_TYPE,
    "container-image": _IMAGE,
    "container-mounts": "give volumes with '#MUSTER --pvc=NAME:PATH' or '#MUSTER --volume=DIRECTORY:PATH'",
    "container-workdir": "give --chdir",
    "deadline": "use --time",
    "exclude": _NODE_TYPE,
    "exclusive": "ask for all GPUs of a node with --gpus-per-node",
    "export-file": "give '#MUSTER --env-file=FILE'",
    "get-user-env": "give variables with --export=NAME=VALUE",
    "gpus-per-socket": "give --gpus-per-node",
    "hold": "use 'muster suspend JOB' after the submission",
    "licenses": "muster counts no licenses; remove it if the job needs none",
    "mincpus": "give --cpus-per-task",
    "nice": "the scheduler orders jobs by fair share; remove it",
    "no-requeue": "a job whose node fails starts again; write the script so that it can, and give --requeue",
    "nodefile": _NODE_TYPE,
    "nodelist": _NODE_TYPE,
    "priority": "the scheduler orders jobs by fair share; remove it",
    "qos": "the project has the quota and the limits; remove it",
    "reservation": "the project has a quota; remove it",
    "signal": "no signal precedes the time limit; SIGTERM comes at the limit, 30 seconds before SIGKILL",
    "switches": "give '#MUSTER --required-pod-topology-key=LABEL'",
    "test-only": "give --dry-run=server",
    "time-min": "give --time",
    "tmp": "give a volume with '#MUSTER --pvc=:SIZE:PATH'",
}
"""The advice for each option that is refused."""

WITHOUT_VALUE: Final = frozenset(
    ("exclusive", "get-user-env", "hold", "nice", "no-requeue", "parsable", "quiet", "requeue", "test-only")
) | {"use-min-nodes", "verbose", "wait"}
"""Options without a value, or with one only after `=`."""

LETTERS: Final[Mapping[str, str]] = {
    "A": "account", "C": "constraint", "D": "chdir", "F": "nodefile", "G": "gpus", "H": "hold", "J": "job-name",
    "L": "licenses", "M": "clusters", "N": "nodes", "Q": "quiet", "W": "wait", "a": "array", "b": "begin",
    "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "n": "ntasks", "o": "output",
    "p": "partition", "q": "qos", "t": "time", "v": "verbose", "w": "nodelist", "x": "exclude",
}  # fmt: skip

SHELLS: Final = ("sh", "bash", "dash", "ksh")
LAUNCHERS: Final = frozenset(("mpirun", "mpiexec", "orterun", "prun", "horovodrun", "deepspeed"))
"""Programs that start processes on the nodes that Slurm names to them."""

_SLURM: Final = "the container has no commands of Slurm; remove the line"
_MODULES: Final = (
    "the container has no environment modules; choose an image with the software and remove the line"
)
_CONTAINER: Final = (
    "the script runs in a container; give the image with '#MUSTER --image=IMAGE' and write the command"
)
SLURM_COMMANDS: Final = frozenset(
    ("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag")
) | {"sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat", "strigger"}
"""The commands of https://slurm.schedmd.com/man_index.html."""
COMMAND_ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys(SLURM_COMMANDS, _SLURM),
    "scontrol": "SLURM_JOB_NODELIST has the host names, separated by commas, and MASTER_ADDR the first of several",
    **dict.fromkeys(("module", "ml"), _MODULES),
    **dict.fromkeys(("apptainer", "singularity", "enroot", "shifter", "podman", "docker"), _CONTAINER),
}
"""The advice for each command that the container does not have."""


def read_option(word: str, rest: Iterator[str]) -> tuple[str, str]:
    """Return the full name and the value of an option.

    If the value is a separate word, remove it from `rest`. Raises UsageError.
    """
    letter = LETTERS.get(word[1:2]) if word.startswith("-") else None
    if letter is not None:
        name, equals, value = letter, bool(word[2:]), word[2:]
    elif word.startswith("--") and len(word) > 2:
        name, sign, value = word[2:].partition("=")
        equals = bool(sign)
    else:
        raise UsageError(
            f"{word} is no option of sbatch that muster knows; remove it if the job runs without it"
        )
    name = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir"}.get(name, name)
    if name not in OPTIONS and name not in ADVICE and name not in NO_EFFECT:
        raise UsageError(
            f"--{name} is no option of sbatch that muster knows; remove it if the job runs without it"
        )
    if not equals and name not in WITHOUT_VALUE:
        value = value_of(f"--{name}", rest)
    return name, value


def value_of(option: str, rest: Iterator[str]) -> str:
    """Return the next word, which is the value of an option. Raises UsageError if there is none."""
    value = next(rest, None)
    if value is None:
        raise UsageError(f"{option} needs a value")
    return value
