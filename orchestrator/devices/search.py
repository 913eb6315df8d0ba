"""The search for devices: claim by claim, request by request, device by device, with backtracking.

The search returns the first solution. The order is that of kube-scheduler: pools by driver and name, slices by name,
devices as listed. So both choose the same subrequest. Pools with binding conditions are last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from orchestrator.devices.capacity import consumption
from orchestrator.devices.constraints import ConstraintState, attribute_values
from orchestrator.devices.counters import CounterBook
from orchestrator.devices.inventory import NodeDevices
from orchestrator.devices.ledger import DeviceLedger
from orchestrator.devices.matching import Matches, tolerates_taints
from orchestrator.devices.model import (
    MAX_RESULTS,
    Claim,
    Device,
    DeviceClass,
    DeviceId,
    Features,
    Request,
)
from orchestrator.devices.pools import Candidate
from orchestrator.devices.selectors import SelectorFailed

T = TypeVar("T")

_NOTHING: Mapping[str, int] = {}

_SELECTORS_A_WORK: Final = 8
"""Reading this number of cached selector outcomes costs as much work as examining one device."""


class CannotAllocate(Exception):
    """The claims cannot be allocated for a reason other than missing devices; the message is the reason."""


class WorkBoundExceeded(Exception):
    """The search has examined its maximum number of devices."""


@dataclass(frozen=True, slots=True)
class Position:
    """The next choice: a device for the chosen alternative of a request. If `alternative` is -1, the alternative
    itself is the next choice.
    """

    claim: int = 0
    request: int = 0
    alternative: int = -1
    device: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One chosen device. `consumed` is None if the device cannot be shared."""

    request: Request
    candidate: Candidate
    consumed: Mapping[str, int] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Demand:
    """A request with its selectors and number of devices. For mode All, `all_of_them` has the devices."""

    request: Request
    selectors: tuple[str, ...]
    count: int
    all_of_them: tuple[Candidate, ...] | None = None


@dataclass(slots=True)
class _Progress:
    """The choices so far."""

    choices: list[list[Choice]]
    alternatives: list[dict[int, int]]
    regular: dict[DeviceId, int] = field(default_factory=dict)
    in_claims: dict[DeviceId, list[int]] = field(default_factory=dict)
    shared: dict[DeviceId, list[Mapping[str, int]]] = field(default_factory=dict)


class Search:
    """One search for devices for several claims together on one node. `looked_at` is the number of examined devices."""

    def __init__(
        self,
        *,
        node: NodeDevices,
        claims: Sequence[Claim],
        classes: Mapping[str, DeviceClass],
        features: Features,
        ledger: DeviceLedger,
        matches: Matches,
        max_work: int,
        among: Mapping[str, Sequence[DeviceId]],
    ) -> None:
        self._node = node
        self._claims = claims
        self._candidates = [_chosen(node.candidates, among.get(claim.key)) for claim in claims]
        self._classes = classes
        self._features = features
        self._ledger = ledger
        self._matches = matches
        self._max_work = max_work
        self.looked_at = 0
        self._progress = _Progress([[] for _ in claims], [{} for _ in claims])
        self._counters = CounterBook(ledger)
        self._constraints = [
            [ConstraintState(constraint, features) for constraint in claim.spec.constraints]
            for claim in claims
        ]
        self._compared = sorted({state.attribute for states in self._constraints for state in states})
        for claim in claims:
            self._refuse_disabled(claim)
        self._demands = [
            [
                [self._demand_of(claim, request) for request in choice.alternatives]
                for choice in claim.spec.requests
            ]
            for claim in claims
        ]
        self._needed_after = [
            self._needed(claim, requests) for claim, requests in zip(claims, self._demands, strict=True)
        ]

    @property
    def choices(self) -> Sequence[Sequence[Choice]]:
        """The chosen devices of each claim."""
        return self._progress.choices

    @property
    def alternatives(self) -> Sequence[Mapping[int, int]]:
        """For each claim, the index of the chosen alternative by index of the request."""
        return self._progress.alternatives

    def run(self) -> bool:
        """Return whether devices for all claims were found. Raises CannotAllocate and WorkBoundExceeded."""
        decisions = [self._decide(Position())]
        while decisions:
            following = next(decisions[-1], None)
            if following is None:
                decisions.pop()
            elif following.claim == len(self._claims):
                return True
            else:
                decisions.append(self._decide(following))
        return False

    def _refuse_disabled(self, claim: Claim) -> None:
        """Raise CannotAllocate if the claim needs a disabled feature."""
        features = self._features
        for choice in claim.spec.requests:
            if choice.is_prioritized and not features.prioritized_list:
                raise CannotAllocate(f"{_name(claim)}: request {choice.name} has subrequests, which is off")
            for request in choice.alternatives:
                subject = f"{_name(claim)}: request {request.name} asks for"
                if request.capacity is not None and not features.consumable_capacity:
                    raise CannotAllocate(f"{subject} capacity, which is off")
                if request.admin_access is not None and not features.admin_access:
                    raise CannotAllocate(f"{subject} admin access, which is off")

    def _demand_of(self, claim: Claim, request: Request) -> _Demand:
        device_class = self._classes.get(request.class_name)
        if device_class is None:
            raise CannotAllocate(
                f"{_name(claim)}: request {request.name}: there is no device class {request.class_name}"
            )
        selectors = (*device_class.selectors, *request.selectors)
        if request.mode != "All":
            return _Demand(request, selectors, request.count)
        broken = next((p for p in self._node.pools if p.is_incomplete or p.invalid_because), None)
        if broken is not None:
            state = broken.invalid_because or "it is being updated"
            raise CannotAllocate(
                f"{_name(claim)}: request {request.name} asks for all devices, but not all are known: pool "
                f"{'/'.join(broken.pool_id)}: {state}"
            )
        demand = _Demand(request, selectors, 0)
        all_of_them = tuple(
            candidate
            for candidate in self._node.candidates
            if self._is_selected(claim, demand, candidate)
            and self._remaining_capacity(request, candidate) is not None
        )
        return _Demand(request, selectors, len(all_of_them), all_of_them)

    def _needed(self, claim: Claim, requests: Sequence[Sequence[_Demand]]) -> list[int]:
        """Return, by index of the request, the minimum number of devices for this and all later requests.

        Raises CannotAllocate.
        """
        needed = [0]
        for alternatives in reversed(requests):
            needed.append(needed[-1] + min(demand.count for demand in alternatives))
        needed.reverse()
        if needed[0] > MAX_RESULTS:
            raise CannotAllocate(f"{_name(claim)}: {needed[0]} devices, a claim can hold {MAX_RESULTS}")
        return needed

    def _decide(self, at: Position) -> Iterator[Position]:
        """Try the choices at this position.

        After each choice, yield the next position, and undo the choice when resumed.
        """
        claims = self._demands
        if at.claim == len(claims):
            yield at
        elif at.request == len(claims[at.claim]):
            yield Position(at.claim + 1)
        elif at.alternative < 0:
            yield from self._decide_alternative(at)
        else:
            demand = claims[at.claim][at.request][at.alternative]
            if demand.all_of_them is not None:
                yield from self._decide_all(at, demand, demand.all_of_them)
            elif at.device >= demand.count:
                yield Position(at.claim, at.request + 1)
            else:
                yield from self._decide_device(at, demand)

    def _decide_alternative(self, at: Position) -> Iterator[Position]:
        behind = self._needed_after[at.claim][at.request + 1]
        for index, demand in enumerate(self._demands[at.claim][at.request]):
            if len(self._progress.choices[at.claim]) + demand.count + behind > MAX_RESULTS:
                continue
            self._progress.alternatives[at.claim][at.request] = index
            yield Position(at.claim, at.request, index)

    def _decide_all(
        self, at: Position, demand: _Demand, all_of_them: Sequence[Candidate]
    ) -> Iterator[Position]:
        if not all_of_them:
            return
        if at.device >= len(all_of_them):
            yield Position(at.claim, at.request + 1)
            return
        candidate = all_of_them[at.device]
        self._work()
        if self._is_in_use(at.claim, demand.request, candidate):
            return
        if self._take(at.claim, demand.request, candidate, must=True):
            yield Position(at.claim, at.request, at.alternative, at.device + 1)
            self._give_back(at.claim)

    def _decide_device(self, at: Position, demand: _Demand) -> Iterator[Position]:
        claim = self._claims[at.claim]
        exhausted: set[object] = set()
        candidates = self._candidates[at.claim]
        for index in range(at.start, len(candidates)):
            candidate = candidates[index]
            self._work()
            if self._is_in_use(at.claim, demand.request, candidate):
                continue
            if not self._is_selected(claim, demand, candidate):
                continue
            if exhausted and self._likeness(candidate) in exhausted:
                continue
            if not self._take(at.claim, demand.request, candidate, must=False):
                continue
            yield Position(at.claim, at.request, at.alternative, at.device + 1, index + 1)
            self._give_back(at.claim)
            exhausted.add(self._likeness(candidate))

    def _work(self, amount: int = 1) -> None:
        self.looked_at += amount
        if self.looked_at > self._max_work:
            raise WorkBoundExceeded

    def _is_shareable(self, device: Device) -> bool:
        return device.shareable and self._features.consumable_capacity

    def _is_in_use(self, claim: int, request: Request, candidate: Candidate) -> bool:
        device_id = candidate.device_id
        progress = self._progress
        if not request.is_admin and self._ledger.is_held(device_id):
            return True
        if self._is_shareable(candidate.device):
            return False
        if claim in progress.in_claims.get(device_id, ()):
            return True
        return not request.is_admin and (device_id in progress.regular or self._ledger.is_shared(device_id))

    def _is_selected(self, claim: Claim, demand: _Demand, candidate: Candidate) -> bool:
        """Return whether class and request accept the device. Raises CannotAllocate if an expression fails."""
        if candidate.device.binding_conditions and not self._features.binding_conditions:
            return False
        self._work(len(demand.selectors) // _SELECTORS_A_WORK)
        try:
            is_accepted = self._matches.accepts(candidate, demand.selectors, claim.namespace)
        except SelectorFailed as failure:
            raise CannotAllocate(
                f"{_name(claim)}: request {demand.request.name}: device {'/'.join(candidate.device_id)}: {failure}"
            ) from failure
        return is_accepted and candidate.is_reachable

    def _remaining_capacity(self, request: Request, candidate: Candidate) -> Mapping[str, int] | None:
        """Return the amounts that the request would consume of the device's capacities; None if too little is left."""
        if not self._features.consumable_capacity:
            return _NOTHING
        device, device_id = candidate.device, candidate.device_id
        amounts = consumption(request, device)
        if amounts is None:
            return None
        before = (self._ledger.consumed(device_id), *self._progress.shared.get(device_id, ()))
        for name, nano in amounts.items():
            if nano + sum(consumed.get(name, 0) for consumed in before) > device.capacity[name].value_nano:
                return None
        return amounts

    def _take(self, claim: int, request: Request, candidate: Candidate, *, must: bool) -> bool:
        """Choose the device and return true if that is possible. Raises CannotAllocate if the request must get the
        device (`must`) and a constraint forbids it.
        """
        amounts = self._remaining_capacity(request, candidate)
        if (amounts is None and not must) or self._is_forbidden(request, candidate):
            return False
        if not self._add_to_constraints(claim, request, candidate):
            if must:
                raise CannotAllocate(
                    f"{_name(self._claims[claim])}: request {request.name} asks for all devices, but a constraint "
                    f"of the claim forbids {'/'.join(candidate.device_id)}"
                )
            return False
        if amounts is None:
            self._remove_from_constraints(claim, request)
            return False
        self._record(claim, request, candidate, amounts)
        return True

    def _is_forbidden(self, request: Request, candidate: Candidate) -> bool:
        """Return whether counters or taints exclude the device."""
        device = candidate.device
        if device.counters and not self._features.partitionable_devices:
            return True
        if self._charges_counters(candidate) and not self._counters.has_capacity(candidate):
            return True
        return self._features.device_taints and not tolerates_taints(request, device)

    def _add_to_constraints(self, claim: int, request: Request, candidate: Candidate) -> bool:
        states = self._constraints[claim]
        for index, state in enumerate(states):
            if not state.add(request, candidate.device_id[0], candidate.device):
                for added in states[:index]:
                    added.remove(request)
                return False
        return True

    def _remove_from_constraints(self, claim: int, request: Request) -> None:
        for state in self._constraints[claim]:
            state.remove(request)

    def _record(self, claim: int, request: Request, candidate: Candidate, amounts: Mapping[str, int]) -> None:
        progress, device_id = self._progress, candidate.device_id
        if self._charges_counters(candidate):
            self._counters.charge(candidate)
        is_shared = self._is_shareable(candidate.device)
        if is_shared:
            progress.shared.setdefault(device_id, []).append(amounts)
        else:
            progress.in_claims.setdefault(device_id, []).append(claim)
            if not request.is_admin:
                progress.regular[device_id] = claim
        progress.choices[claim].append(Choice(request, candidate, amounts if is_shared else None))

    def _give_back(self, claim: int) -> None:
        """Undo the latest choice for the claim."""
        progress = self._progress
        choice = progress.choices[claim].pop()
        request, device_id = choice.request, choice.candidate.device_id
        if choice.consumed is not None:
            _pop(progress.shared, device_id)
        else:
            _pop(progress.in_claims, device_id)
            if not request.is_admin:
                del progress.regular[device_id]
        if self._charges_counters(choice.candidate):
            self._counters.charge(choice.candidate, -1)
        self._remove_from_constraints(claim, request)

    def _charges_counters(self, candidate: Candidate) -> bool:
        """Return whether the choice consumes the device's counters.

        If the device or a share of it is in use already, it does not.
        """
        device_id = candidate.device_id
        return bool(candidate.device.counters) and not (
            self._ledger.is_occupied(device_id)
            or device_id in self._progress.shared
            or device_id in self._progress.in_claims
        )

    def _likeness(self, candidate: Candidate) -> object:
        """Return a key of the device.

        Devices with equal keys are interchangeable in the current state of the search.
        """
        device, device_id = candidate.device, candidate.device_id
        return (
            self._ledger.is_held(device_id),
            self._ledger.is_shared(device_id),
            tuple(self._progress.in_claims.get(device_id, ())),
            device_id in self._progress.regular,
            tuple(sorted(self._ledger.consumed(device_id).items())),
            tuple(tuple(sorted(amounts.items())) for amounts in self._progress.shared.get(device_id, ())),
            device.shareable,
            tuple(sorted(device.capacity.items(), key=lambda item: item[0])),
            device.taints,
            (id(candidate.pool), device.counters) if device.counters else None,
            tuple(attribute_values(device_id[0], device, name, self._features) for name in self._compared),
            tuple(
                self._outcome(claim, demand, candidate)
                for claim, requests in zip(self._claims, self._demands, strict=True)
                for alternatives in requests
                for demand in alternatives
            ),
        )

    def _outcome(self, claim: Claim, demand: _Demand, candidate: Candidate) -> bool | None:
        try:
            return self._is_selected(claim, demand, candidate)
        except CannotAllocate:
            return None


def _chosen(candidates: Sequence[Candidate], devices: Sequence[DeviceId] | None) -> Sequence[Candidate]:
    """Return the candidates with these devices, in the order of `devices`; all candidates if it is None."""
    if devices is None:
        return candidates
    by_id = {candidate.device_id: candidate for candidate in candidates}
    return [by_id[device_id] for device_id in devices if device_id in by_id]


def _pop(listed: dict[DeviceId, list[T]], device_id: DeviceId) -> None:
    listed[device_id].pop()
    if not listed[device_id]:
        del listed[device_id]


def _name(claim: Claim) -> str:
    return f"claim {claim.namespace}/{claim.name}" if claim.namespace else f"claim {claim.name}"
