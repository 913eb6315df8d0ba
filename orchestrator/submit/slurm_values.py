"""The notations of Slurm's options: time, memory, array, GPUs, and numbers (https://slurm.schedmd.com/sbatch.html).

Each parser returns a value. It raises UsageError with a text that continues the name of the option.
"""

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.submit.name_rules import is_workload_name

MAX_ARRAY_TASKS: Final = 100_000
MAX_NUMBER: Final = 10_000
"""Maximum number of nodes, tasks, CPUs and GPUs; each node has its name in a variable."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_GPUS = re.compile(r"(?:([^:,=\d][^:,=]*):)?(\d+)", re.ASCII)
_STATES: Final = {"afterok": "succeeded", "afterany": "ended", "afternotok": "failed"}
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class Array:
    """The numbers of a job array, ascending, and the maximum number of tasks that run at the same time."""

    tasks: tuple[int, ...]
    at_once: int

    @property
    def step(self) -> int:
        """The difference between neighbouring numbers: 0 if the differences are not equal, 1 for a single task."""
        steps = {later - earlier for earlier, later in zip(self.tasks, self.tasks[1:], strict=False)} or {1}
        return steps.pop() if len(steps) == 1 else 0


def parse_number(text: str) -> int:
    """Return a whole number from 1 to `MAX_NUMBER`."""
    if text.isascii() and text.isdecimal() and len(text) <= 9 and 0 < int(text) <= MAX_NUMBER:
        return int(text)
    raise UsageError(f"is not possible; give a whole number from 1 to {MAX_NUMBER}")


def parse_nodes(text: str) -> int:
    """Return MIN of `MIN[-MAX]`, because Slurm may start the job on this number of nodes too.

    Example: `parse_nodes("2-4")` returns `2`.
    """
    least, dash, most = text.partition("-")
    nodes = parse_number(least)
    if dash and parse_number(most) < nodes:
        raise UsageError("is not possible; the second number is smaller than the first")
    return nodes


def parse_time_seconds(text: str) -> int:
    """Return seconds, rounded up to whole minutes as Slurm does; 0 is no limit.

    Example: `parse_time_seconds("1-2:30")` returns `95400`.
    """
    match = _TIME.fullmatch(text)
    if match is None or len(text) > 20:
        raise UsageError(
            "is not a time; give minutes, minutes:seconds, hours:minutes:seconds, days-hours, "
            "days-hours:minutes or days-hours:minutes:seconds"
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, *(*numbers, 0)[:2]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    return -(-total // 60) * 60


def parse_memory_bytes(text: str) -> int:
    """Return bytes of `SIZE[K|M|G|T]`, in units of 1024; without a unit it is megabytes.

    Example: `parse_memory_bytes("2K")` returns `2048`.
    """
    match = _MEMORY.fullmatch(text)
    if match is None or len(text) > 16:
        raise UsageError("is not an amount of memory; give one such as 64G or 4096")
    amount = int(match[1]) * _UNITS[match[2].upper()]
    if not amount:
        raise UsageError(
            "means all memory of the node, which muster does not reserve; give an amount such as 64G"
        )
    return amount


def parse_gpus(text: str) -> tuple[str, int]:
    """Return type and number of `[TYPE:]NUMBER`; the type is empty if none is given.

    Example: `parse_gpus("a100:4")` returns `('a100', 4)`.
    """
    match = _GPUS.fullmatch(text)
    if match is None or len(text) > 64 or not 0 < int(match[2]) <= MAX_NUMBER:
        raise UsageError("is not possible; give one number of GPUs, such as 4 or a100:4")
    return match[1] or "", int(match[2])


def parse_gres(text: str) -> tuple[str, int]:
    """Return type and number of GPUs of `gpu[[:TYPE]:NUMBER]`; the number is 1 if none is given.

    Example: `parse_gres("gpu:a100")` returns `('a100', 1)`.
    """
    name, colon, rest = text.partition(":")
    if name != "gpu" or "," in text:
        raise UsageError("is not possible; muster knows gpu[[:TYPE]:NUMBER] alone")
    if not colon:
        return "", 1
    return parse_gpus(rest if rest[-1:].isdecimal() and (":" in rest or rest.isdecimal()) else f"{rest}:1")


def parse_dependency(text: str) -> tuple[str, ...]:
    """Return `JOB:STATE` for each job of `afterok:JOB[:JOB][,TYPE:JOB]`; all states must be reached.

    Example: `parse_dependency("afterok:a:b,afterany:c")` returns `('a:succeeded', 'b:succeeded', 'c:ended')`.
    """
    states: list[str] = []
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind not in _STATES or not jobs:
            raise UsageError(f"is not possible; muster knows {', '.join(_STATES)}, each with names of jobs")
        for job in jobs:
            if not is_workload_name(job):
                raise UsageError(
                    f"has no name of a job in {job!r}; give the name that 'muster sbatch' printed"
                )
            states.append(f"{job}:{_STATES[kind]}")
    return tuple(states)


def parse_array(text: str) -> Array:
    """Return the tasks of `0-15`, `1,3,5-7` or `0-15:4`, each with `%AT_ONCE` or without.

    Example: `parse_array("0-8:4%2")` returns `Array(tasks=(0, 4, 8), at_once=2)`.
    """
    indexes, percent, limit = text.partition("%")
    tasks: set[int] = set()
    for part in indexes.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or len(part) > 30:
            raise UsageError("is not an array; give one such as 0-15, 1,3,5-7, 0-15:4 or 1-100%10")
        first, step = int(match[1]), int(match[3] or 1)
        last = int(match[2] or first)
        if last < first or not step or (last - first) // step >= MAX_ARRAY_TASKS:
            raise UsageError(f"is not possible; give ascending numbers and at most {MAX_ARRAY_TASKS} tasks")
        tasks.update(range(first, last + 1, step))
    if len(tasks) > MAX_ARRAY_TASKS:
        raise UsageError(f"is not possible; give at most {MAX_ARRAY_TASKS} tasks")
    at_once = parse_number(limit) if percent else len(tasks)
    return Array(tuple(sorted(tasks)), min(at_once, len(tasks)))
