"""What the agents of the nodes say on their pages of metrics: how much each GPU is used, and who holds it.

Who holds a GPU is the kubelet's word, not the scheduler's. A page that is no newer than the one before it makes no
sample: an agent that stands still leaves a gap.
"""

import re
from collections.abc import Iterator
from typing import Final

from validation.errors import TargetError
from validation.judge.utilization import Gpu, UtilizationSample

ROUNDS: Final = "muster_agent_samples_total"
USE: Final = "muster_gpu_utilization_ratio"
HELD: Final = "muster_gpu_allocated"
_LINE: Final = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class AgentPages:
    """The pages of one node's agent, in the order in which they were read."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.samples: list[UtilizationSample] = []
        self._held: dict[Gpu, list[tuple[int, int, str]]] = {}
        self._rounds = ""
        self._before: tuple[int, set[tuple[int, str]]] | None = None

    def read(self, text: str, t_ms: int) -> bool:
        """Take a page that was read at `t_ms`; returns whether it says anything new.

        Raises TargetError if it makes no sense.
        """
        uses: dict[int, int] = {}
        holders: set[tuple[int, str]] = set()
        rounds = ""
        for name, labels, value in _lines(text):
            if name == ROUNDS:
                rounds = value
            elif name == USE:
                uses[int(labels["gpu"])] = self._percent(labels["gpu"], value)
            elif name == HELD:
                holders.add((int(labels["gpu"]), f"{labels['namespace']}/{labels['pod']}"))
        if not rounds:
            raise TargetError(f"the agent of {self.node} does not answer with its metrics")
        if rounds == self._rounds:
            return False
        self._rounds = rounds
        self.samples += [UtilizationSample(t_ms, self.node, gpu, uses[gpu]) for gpu in sorted(uses)]
        if self._before is not None:
            since_ms, previous = self._before
            for gpu, holder in sorted(holders & previous):
                self._extend((self.node, gpu), since_ms, t_ms, holder)
        self._before = (t_ms, holders)
        return True

    def held(self) -> dict[Gpu, list[tuple[int, int, str]]]:
        """When each GPU was held and by which pod: from page to page on which it says so."""
        return {gpu: sorted(spans) for gpu, spans in self._held.items()}

    def _extend(self, gpu: Gpu, since_ms: int, t_ms: int, holder: str) -> None:
        spans = self._held.setdefault(gpu, [])
        for number, (start, end, name) in enumerate(spans):
            if name == holder and end == since_ms:
                spans[number] = (start, t_ms, holder)
                return
        spans.append((since_ms, t_ms, holder))

    def _percent(self, gpu: str, value: str) -> int:
        try:
            percent = round(float(value) * 100)
        except (ValueError, OverflowError):
            percent = -1
        if not 0 <= percent <= 100:
            raise TargetError(f"the agent of {self.node} says that GPU {gpu} is used at {value}")
        return percent


def _lines(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None and match["name"] in {ROUNDS, USE, HELD}:
            yield match["name"], dict(_LABEL.findall(match["labels"] or "")), match["value"]
