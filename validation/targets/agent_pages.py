"""The metrics page of a node's agent: the utilization of each GPU, and the pods that hold it.

The kubelet reports the holders, not the scheduler. A page that is not newer than the previous page gives no event. So
an agent that hangs is visible as a gap.
"""

import re
from collections.abc import Iterator
from typing import Final

from validation.errors import TargetError
from validation.judge.events import GpuSampled, SamplesSeen

ROUNDS: Final = "muster_agent_samples_total"
SOURCE: Final = "muster_agent_source_up"
HEALTHY: Final = "muster_gpu_healthy"
USE: Final = "muster_gpu_utilization_ratio"
HELD: Final = "muster_gpu_allocated"
_READ: Final = frozenset({ROUNDS, SOURCE, HEALTHY, USE, HELD})
_LINE: Final = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class AgentPages:
    """The pages of one node's agent, in the order in which they were read."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._rounds = ""
        self._problem = ""

    def read(self, text: str, t_ms: int) -> SamplesSeen | None:
        """Return the content of the page that was read at `t_ms`; None if the page is not newer than the last page.

        Raises TargetError if the page cannot be parsed.
        """
        percents: dict[int, int] = {}
        holders: dict[int, dict[str, None]] = {}
        rounds, silent = "", ""
        for name, labels, value in _lines(text):
            if name == ROUNDS:
                rounds = value
            elif name == SOURCE:
                silent = silent if value == "1" else labels.get("source", "one of its sources")
            elif name == HEALTHY:
                holders.setdefault(_index(self.node, labels), {})
            elif name == USE:
                percents[_index(self.node, labels)] = self._percent(labels["gpu"], value)
            else:
                pod = f"{labels['namespace']}/{labels['pod']}"
                holders.setdefault(_index(self.node, labels), {})[pod] = None
        if not rounds:
            raise TargetError(f"the agent of {self.node} does not answer with its metrics")
        if rounds == self._rounds:
            return None
        self._rounds = rounds
        if silent:
            return self.problem(f"its agent is not answered by {silent}", t_ms)
        self._problem = ""
        indices = sorted(percents.keys() | holders.keys())
        gpus = (GpuSampled(index, percents.get(index), tuple(holders.get(index, ()))) for index in indices)
        return SamplesSeen(t_ms, self.node, tuple(gpus))

    def problem(self, why: str, t_ms: int) -> SamplesSeen | None:
        """Return the event that the node has no values; None if the last event already says so."""
        if why == self._problem:
            return None
        self._problem = why
        return SamplesSeen(t_ms, self.node, problem=why)

    def _percent(self, gpu: str, value: str) -> int:
        try:
            percent = round(float(value) * 100)
        except (ValueError, OverflowError):
            percent = -1
        if not 0 <= percent <= 100:
            raise TargetError(f"the agent of {self.node} says that GPU {gpu} is used at {value}")
        return percent


def _index(node: str, labels: dict[str, str]) -> int:
    index = labels.get("gpu", "")
    if not index.isdecimal():
        raise TargetError(f"the agent of {node} speaks of a GPU without an index")
    return int(index)


def _lines(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None and match["name"] in _READ:
            yield match["name"], dict(_LABEL.findall(match["labels"] or "")), match["value"]
