"""Reads the output of tools on hosts, and gathers the outputs that cannot be read."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from hostfacts.errors import UnreadableOutput
from orchestrator.progress import printable
from validation.judge.check_verdict import Judgement
from validation.judge.events import Event, ToolRan
from validation.judge.hosts.host_facts import HostGpus, some
from validation.judge.hosts.host_layer import MISSING_TOOL, DeclaredHost, HostScope
from validation.judge.verdict import Verdict
from validation.layers import tools
from validation.layers.bounds import UnreadableFigure, read_bounded
from validation.layers.known_lines import unknown_lines
from validation.layers.nvidia_smi import read_nvidia_smi, read_samples

T = TypeVar("T")
NOT_KNOWN: Final = "muster does not know this"
_CRASHED: Final = re.compile(
    r"Segmentation fault|core dumped|\bAborted\b|Bus error|\bKilled\b"
    r"|[Cc](?:UDA|uda) (?:error|failure)|CUDA_ERROR_|\bECC error"
)
"""Words of a crashed load. They count even if it printed good results before."""
_WARNED: Final = re.compile(r"NCCL WARN")
_FAILED: Final = re.compile(r"\bFAILED\b")
"""The word for a failure in test programs. It counts beside any other output of the program."""


@dataclass(slots=True)
class Readings:
    """The parsed output of tools on hosts. `problems` gathers the outputs that cannot be read."""

    scope: HostScope
    events: Sequence[Event]
    problems: list[Judgement] = field(default_factory=list)
    outputs: int = 0
    _runs: dict[tuple[str, str], list[ToolRan]] = field(init=False, default_factory=dict)
    """The runs by host and tool."""

    def __post_init__(self) -> None:
        for event in self.events:
            if isinstance(event, ToolRan):
                self._runs.setdefault((event.host, event.tool), []).append(event)

    def read(self, tool: str, parse: Callable[[str], T], *, first: bool = False) -> dict[str, T]:
        """Return the last (or first) output of the tool by host. For a host without readable output, add a problem."""
        values: dict[str, T] = {}
        for host in self.scope.site.hosts:
            if not tools.TOOLS[tool].line(self.scope.site, host):
                continue
            runs = self._runs.get((host.name, tool), [])
            problem = _problem(tool, host, runs)
            if problem is not None:
                self.problems.append(problem)
                continue
            run = runs[0 if first else -1]
            self.problems += _ill_words(tool, host, run.output)
            try:
                values[host.name] = read_once(parse, run.output)
                self.outputs += 1
                self.problems += _not_known(tool, host, run.output)
            except UnreadableFigure as error:
                reason = f"{host.name}: {tool}: {error}"
                self.problems.append(Judgement(Verdict.INCONCLUSIVE, reason))
            except UnreadableOutput as error:
                self.problems.append(Judgement(Verdict.ERROR, f"{host.name}: {error}"))
        return values

    def samples(self) -> dict[str, list[HostGpus]]:
        """Return the readings of nvidia-smi under load, by host. For an unreadable output, add a problem."""
        values: dict[str, list[HostGpus]] = {}
        for event in self.events:
            if not isinstance(event, ToolRan) or event.tool != tools.SAMPLES:
                continue
            problem = event.problem or (f"exit code {event.exit_code}" if event.exit_code else "")
            try:
                if not problem:
                    read = read_bounded(read_samples, event.output)
                    values.setdefault(event.host, []).extend(read)
                    self.outputs += 1
            except UnreadableOutput as error:
                problem = str(error)
            if problem:
                reason = f"{event.host}: not read under load: {problem}"
                self.problems.append(Judgement(Verdict.INCONCLUSIVE, reason))
        return values

    def models(self) -> dict[str, str]:
        """Return the model of each host."""
        return {host.name: host.model for host in self.scope.site.hosts}

    def ran_ms(self, tool: str) -> dict[str, int]:
        """Return the run time of the tool by host, for hosts on which it ended successfully."""
        runs = [e for e in self.events if isinstance(e, ToolRan) and e.tool == tool]
        return {e.host: e.ran_ms for e in runs if not (e.problem or e.exit_code)}

    def boots(self) -> dict[str, list[str]]:
        """Return the boot ids of all readings by host."""
        ids: dict[str, list[str]] = {}
        for event in self.events:
            if isinstance(event, ToolRan) and not event.problem:
                ids.setdefault(event.host, []).append(event.boot_id)
        return ids

    def runs(self, tool: str) -> int:
        """Return the number of runs of the tool on the host with the fewest runs."""
        counts = (len(self._runs.get((host.name, tool), ())) for host in self.scope.site.hosts)
        return min(counts, default=0)

    def gpus(self) -> dict[str, HostGpus]:
        """Return the GPUs of each host, from nvidia-smi."""
        return self.read("nvidia-smi", read_nvidia_smi)


read_once: Final = functools.lru_cache(1024)(read_bounded)
"""Many checks read the same output, so its facts are cached: those of 64 hosts and 16 tools. Do not change them."""


def _not_known(tool: str, host: DeclaredHost, output: str) -> list[Judgement]:
    """Return the judgement on the lines and texts that muster does not know. Raises LayerError."""
    unknown = read_bounded(lambda text: unknown_lines(tool, text), output)
    lines = some([f"{host.name}: {tool}: {printable(line[:100])}" for line in unknown])
    return [Judgement(Verdict.INCONCLUSIVE, f"{NOT_KNOWN}: {lines}")] if unknown else []


def _ill_words(tool: str, host: DeclaredHost, output: str) -> list[Judgement]:
    """Return the judgements on lines about failures: FAILED in any output, crashes and warnings in the output of
    loads.
    """
    if tool not in _LOADS and "FAILED" not in output:
        return []
    patterns = [(_FAILED, Verdict.FAIL)]
    if tool in _LOADS:
        patterns += [(_CRASHED, Verdict.FAIL), (_WARNED, Verdict.INCONCLUSIVE)]
    found = [(match, verdict) for pattern, verdict in patterns if (match := pattern.search(output))]
    judgements = []
    for match, verdict in found:
        start = output.rfind("\n", 0, match.start()) + 1
        line = printable(output[max(start, match.start() - 80) : match.end() + 40].splitlines()[0])
        judgements.append(Judgement(verdict, f"{host.name}: {tool} says: {line}"))
    return judgements


_LOADS: Final = frozenset({"nccl", "fio", "burn-in"})


def _problem(tool: str, host: DeclaredHost, runs: Sequence[ToolRan]) -> Judgement | None:
    """Return the verdict on a tool without readable output on a host; None if it has output."""
    if not runs:
        return Judgement(Verdict.ERROR, f"{host.name}: {tool} was not run")
    last = runs[-1]
    if last.problem:
        return Judgement(Verdict.ERROR, f"{host.name}: {last.problem}")
    if last.exit_code == MISSING_TOOL:
        program = tools.TOOLS[tool].program.replace(" ", " or ")
        return Judgement(Verdict.INCONCLUSIVE, f"{host.name} has no {program}")
    if last.exit_code:
        words = (last.error_output.strip() or last.output.strip()).splitlines()
        reason = f"{host.name}: {tool} ended with exit code {last.exit_code}"
        return Judgement(
            tools.TOOLS[tool].failure, f"{reason}: {printable(words[-1][:200])}" if words else reason
        )
    return None
