"""Parses the command lines of a scenario into the workloads that they submit or delete, and the resulting demands.

The oracle must derive these demands independently of the system under test.
"""

import shlex
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from validation.judge.scheduling import oracle
from validation.scenario.schema import milli

_WITH_VALUE = frozenset(
    [
        "-g",
        "--gpu",
        "-p",
        "--project",
        "-i",
        "--image",
        "--service-type",
        "-s",
        "--port",
        "--command",
        "--args",
        "--parallelism",
        "--completions",
        "--min-member",
        "--name",
        "-v",
        "--volume",
        "--pvc",
        "-e",
        "--environment",
        "--cpu",
        "--memory",
        "--node-type",
        "--working-dir",
        "--backoff-limit",
        "--clone-of",
    ]
)
_SWITCHES = frozenset(
    [
        "--interactive",
        "--jupyter",
        "--preemptible",
        "--large-shm",
        "--local-image",
        "--host-ipc",
        "--host-network",
        "--all",
        "-A",
    ]
)
_SHORT = {
    "-g": "--gpu",
    "-p": "--project",
    "-i": "--image",
    "-s": "--service-type",
    "-A": "--all",
    "-v": "--volume",
    "-e": "--environment",
}


@dataclass(frozen=True, slots=True)
class Submit:
    """One workload: `pods` pods of `gpu_milli` each."""

    project: str
    name: str
    gpu_milli: int
    preemptible: bool
    pods: int
    min_member: int
    interactive: bool
    image: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Workloads by name."""

    project: str
    names: tuple[str, ...]


Action = Submit | Delete


def parse(line: str) -> Action:
    """Return the action of a `muster submit` or `muster delete` line. Its project is "" if the line names none.

    Raises ValueError with the error in the line.
    """
    words = shlex.split(line)
    if words[:1] != ["muster"] or len(words) < 3 or words[1] not in {"submit", "delete"}:
        raise ValueError("a step runs `muster submit …` or `muster delete …`")
    names, options = _split(words[2:])
    project = options.get("--project", "")
    if words[1] == "delete":
        if not names:
            raise ValueError("`muster delete` names no workload")
        return Delete(project, tuple(names))
    names += [options["--name"]] if "--name" in options else []
    if len(names) != 1:
        raise ValueError("`muster submit` needs exactly one NAME")
    return _submission(project, names[0], options)


def demands(history: list[Action]) -> list[oracle.Demand]:
    """Return the workloads that exist after `history`, in order of submission."""
    alive: dict[tuple[str, str], oracle.Demand] = {}
    for action in history:
        if isinstance(action, Submit):
            alive[action.project, action.name] = oracle.Demand(
                project=action.project,
                name=action.name,
                gpu_milli=action.gpu_milli,
                preemptible=action.preemptible,
                priority=100 if action.interactive else 50,
                pods=action.pods,
                min_member=action.min_member,
            )
        else:
            for name in action.names:
                alive.pop((action.project, name), None)
    return list(alive.values())


def _submission(project: str, name: str, options: dict[str, str]) -> Submit:
    interactive = "true" in {options.get("--interactive"), options.get("--jupyter")}
    pods = _whole(options, "--parallelism", 1)
    try:
        gpu_milli = milli(Decimal(options.get("--gpu", "0")))
    except InvalidOperation as error:
        raise ValueError(f"-g {options['--gpu']} is not a number") from error
    return Submit(
        project=project,
        name=name,
        gpu_milli=gpu_milli,
        preemptible=not interactive or options.get("--preemptible", "false") == "true",
        pods=pods,
        min_member=_whole(options, "--min-member", 1),
        interactive=interactive,
        image=options.get("--image", ""),
    )


def _whole(options: dict[str, str], option: str, default: int) -> int:
    text = options.get(option, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{option} {text} is not a whole number above 0")
    return int(text)


def _split(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the positional words and the options. A value may begin with a dash, as in `--args "--x=1"`."""
    names: list[str] = []
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            names.append(word)
        elif option in _SWITCHES:
            options[_SHORT.get(option, option)] = value if equals else "true"
        elif option in _WITH_VALUE:
            option_value = value if equals else next(rest, None)
            if option_value is None:
                raise ValueError(f"{option} needs a value")
            options[_SHORT.get(option, option)] = option_value
        else:
            raise ValueError(f"option {option} is not known to the harness")
    return names, options
