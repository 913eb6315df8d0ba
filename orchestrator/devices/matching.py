"""Evaluates the selectors of requests on devices. Bounds the processor time that the selectors of each project can use.

An expression is compiled once, also if several claims contain it. It is evaluated once for all devices that are equal
in the properties that it reads: `device.driver == "gpu.nvidia.com"` once for all GPUs of this driver. The outcomes are
cached up to a total size; the least recently used expression is dropped first.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from orchestrator.devices.model import Device, Features, Request, ResourceSlice
from orchestrator.devices.pools import Candidate
from orchestrator.devices.selectors import Content, DeviceView, Program, SelectorFailed, Selectors

MAX_BYTES: Final = 48 * 1024 * 1024
"""Approximate maximum size of all cached expressions and outcomes."""
_PROGRAM_BYTES: Final = 20_000
_CHARACTER_BYTES: Final = 150
_OUTCOME_BYTES: Final = 120

MAX_CREDIT: Final = 1_000_000
"""Maximum cost of new selectors of one project in one decision, in microseconds."""
REFILL: Final = 100_000
"""Credit in microseconds that each decision divides among the projects that have used up their credit."""
_COMPILE_WORK: Final = 500
_CHARACTER_WORK: Final = 20
_VALUE_NS: Final = 2_000
"""Cost of passing one attribute or capacity to the library."""

Outcome = bool | SelectorFailed


class SelectorWorkExceeded(Exception):
    """The project has used up its credit for new selectors. The next decision continues from here."""


@dataclass(slots=True)
class _Known:
    """A compiled expression or the reason of its failure, with its cached outcomes.

    `outcomes` has them by device, `by_content` by the properties that the expression reads.
    """

    program: Program | SelectorFailed
    length: int
    outcomes: dict[Device, Outcome] = field(default_factory=dict)
    by_content: dict[Content, Outcome] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return (
            _PROGRAM_BYTES
            + _CHARACTER_BYTES * self.length
            + _OUTCOME_BYTES * (len(self.outcomes) + len(self.by_content))
        )


class Matches:
    """The cached outcomes of expressions on devices. If a slice is replaced, the outcomes of its devices are dropped.

    `work` is the cost of all compilations and evaluations in microseconds, `evaluated` the number of evaluations.
    """

    def __init__(self, features: Features, *, max_bytes: int = MAX_BYTES) -> None:
        self._selectors = Selectors(features)
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._size = 0
        self._credit: dict[str, int] = {}
        self._short: set[str] = set()
        self._viewed: Device | None = None
        self._view: DeviceView | None = None
        self.work = 0
        self.evaluated = 0

    def begin(self) -> None:
        """Begin a decision: add to the credits of the projects."""
        refill = REFILL // max(1, len(self._short))
        self._short.clear()
        self._credit = {
            project: credit + refill
            for project, credit in self._credit.items()
            if credit + refill < MAX_CREDIT
        }

    def keep(self, slices: Iterable[ResourceSlice]) -> None:
        """Drop the outcomes of devices that are in none of these slices."""
        devices = {device for published in slices for device in published.devices}
        for known in self._known.values():
            known.outcomes = {
                device: outcome for device, outcome in known.outcomes.items() if device in devices
            }
        self._size = sum(known.size for known in self._known.values())

    def accepts(self, candidate: Candidate, expressions: Iterable[str], project: str) -> bool:
        """Return whether all expressions are true for the device. Raises SelectorFailed and SelectorWorkExceeded."""
        for expression in expressions:
            known, outcome = self._known.get(expression), None
            if known is not None:
                self._known.move_to_end(expression)
                outcome = known.outcomes.get(candidate.device)
            if outcome is None:
                outcome = self._evaluate(candidate, expression, project)
            if isinstance(outcome, SelectorFailed):
                raise SelectorFailed(*outcome.args)
            if not outcome:
                return False
        return True

    def _evaluate(self, candidate: Candidate, expression: str, project: str) -> Outcome:
        known = self._compiled(expression, project)
        if isinstance(known.program, SelectorFailed):
            return known.program
        view = self._view
        if view is None or self._viewed is not candidate.device:
            self._viewed = candidate.device
            view = self._view = DeviceView(candidate.device_id[0], candidate.device)
        content = self._selectors.content(known.program, view)
        outcome = None if content is None else known.by_content.get(content)
        if outcome is None:
            outcome = self._evaluate_anew(known.program, view, project)
            if content is not None:
                known.by_content[content] = outcome
                self._grow(_OUTCOME_BYTES)
        known.outcomes[candidate.device] = outcome
        self._grow(_OUTCOME_BYTES)
        return outcome

    def _evaluate_anew(self, program: Program, view: DeviceView, project: str) -> Outcome:
        cost_ns = program.cost.on(view.max_list_length) + _VALUE_NS * view.value_count
        self._spend(project, cost_ns // 1000)
        self.evaluated += 1
        try:
            return self._selectors.evaluate(program, view)
        except SelectorFailed as failure:
            return failure

    def _compiled(self, expression: str, project: str) -> _Known:
        known = self._known.get(expression)
        if known is not None:
            return known
        self._spend(project, _COMPILE_WORK + _CHARACTER_WORK * len(expression))
        program: Program | SelectorFailed
        try:
            program = self._selectors.compile(expression)
        except SelectorFailed as failure:
            program = failure
        known = self._known[expression] = _Known(program, len(expression))
        self._grow(known.size)
        return known

    def _grow(self, size: int) -> None:
        """Add to the total size, and drop expressions while the size is above the maximum."""
        self._size += size
        while self._size > self._max_bytes and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= oldest.size

    def _spend(self, project: str, work: int) -> None:
        """Subtract the cost from the project's credit. Raises SelectorWorkExceeded if the credit is used up already."""
        credit = self._credit.get(project, MAX_CREDIT)
        if credit <= 0:
            self._short.add(project)
            raise SelectorWorkExceeded
        self._credit[project] = credit - work
        self.work += work


def tolerates_taints(request: Request, device: Device) -> bool:
    """Return whether the request tolerates the taints of the device. Only NoSchedule and NoExecute count."""
    return all(
        taint.effect not in {"NoSchedule", "NoExecute"}
        or any(
            toleration.effect in {None, "", taint.effect}
            and toleration.key in {None, "", taint.key}
            and (
                toleration.operator == "Exists"
                or (toleration.operator in {None, "", "Equal"} and (toleration.value or "") == taint.value)
            )
            for toleration in request.tolerations
        )
        for taint in device.taints
    )
