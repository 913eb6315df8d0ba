"""A faster `minimal_options` for whole devices. Freed amounts of whole devices simply add up, so fewer sets are tried.

Candidates of one kind free the same amounts with the same harm to the same project. They differ only in their order.
Within a kind, the least entitled candidate is evicted first, so a set is described by a count for each kind.

Example: a node runs five equal jobs of 1 GPU, and a pod needs 2 GPUs. Instead of ten sets there is one: the first two
jobs.
"""

from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter

from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Request
from orchestrator.planner.preemption.candidates import Candidate
from orchestrator.planner.preemption.node_options import MAX_EXHAUSTIVE, Option, missing_on, option_of
from orchestrator.planner.preemption.victims import class_of_lost_time

_ORDER = attrgetter("order")
_Amounts = tuple[int, int, int, int]
"""Devices, CPU, memory and pod slots."""
_WORK_OF_COUNT = 2
_WORK_OF_SEARCH = 4


class _Kind:
    """Equal candidates of a node, least entitled first."""

    __slots__ = ("amounts", "candidates")

    def __init__(self, amounts: _Amounts) -> None:
        self.amounts = amounts
        self.candidates: list[Candidate] = []


def whole_device_options(
    account: NodeAccount, request: Request, candidates: Sequence[Candidate]
) -> tuple[list[Option], int] | None:
    """Return the minimal options on this node, and the cost of the search; None if this method does not apply.

    The method needs whole GPUs, no other resources, no lost or unhealthy GPUs, and few candidates, sorted by `order`.
    """
    is_counted_otherwise = request.is_shared or account.lost or account.blocked or request.scalars
    if is_counted_otherwise or len(candidates) > MAX_EXHAUSTIVE:
        return None
    need = missing_on(account, request)
    free = _free_devices(account)
    missing = need.devices - len(free)
    # If the node lacks only devices, the CPU, memory and pod slots of candidates do not matter.
    counts_rest = need.cpu_milli > 0 or need.memory_bytes > 0 or need.slots > 0
    excess_less = DEVICE_MILLI * max(0, missing)
    if not counts_rest and missing <= 1:
        singles = _singles(account.position, candidates, free, missing)
        if singles is None:
            return None
        return [
            option_of((candidate,), candidate.gpu_milli - excess_less) for candidate in singles
        ], _WORK_OF_COUNT * len(singles)
    kinds = _kinds(account.position, candidates, free, counts_rest=counts_rest)
    if kinds is None:
        return None
    if not counts_rest:
        sets, steps = _sets_of_devices(kinds, missing)
        options = [
            option_of(members, sum([candidate.gpu_milli for candidate in members]) - excess_less)
            for members in sets
        ]
        return options, _WORK_OF_COUNT * steps
    search = _Search(kinds, (missing, need.cpu_milli, need.memory_bytes, need.slots))
    options = [
        option_of(members, sum([candidate.gpu_milli for candidate in members]) - excess_less)
        for members in search.run()
    ]
    return options, _WORK_OF_SEARCH * search.steps


def _free_devices(account: NodeAccount) -> set[int]:
    used, releasing = account.used_milli, account.releasing_milli
    if not account.pods_releasing:
        return (
            {device for device, milli in enumerate(used) if milli <= 0} if account.unused_devices else set()
        )
    return {device for device, milli in enumerate(used) if milli <= releasing[device]}


def _singles(
    position: int, candidates: Sequence[Candidate], free: set[int], missing: int
) -> Collection[Candidate] | None:
    """Return the first candidate of each kind that alone frees `missing` devices; None in the cases of `_kinds`."""
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        devices = 0
        for pod in candidate.pods_on[position]:
            request = pod.request
            if request.gpu_portion_milli or request.gpu_memory_mib:
                return None
            if free and not free.isdisjoint(pod.devices):
                return None
            devices += len(pod.devices)
        if devices >= missing:
            first.setdefault(_harm_of(candidate), candidate)
    return first.values()


def _harm_of(candidate: Candidate) -> tuple[object, ...]:
    """Return a key that is equal for victims with the same project, GPUs and harm."""
    lost = class_of_lost_time(candidate.lost_gpu_ns)
    harm = (candidate.is_covered, candidate.has_started, candidate.urgency, lost, candidate.pod_count)
    return candidate.project, candidate.gpu_milli, *harm


def _kinds(
    position: int, candidates: Sequence[Candidate], used: set[int], *, counts_rest: bool
) -> list[_Kind] | None:
    """Return the candidates by kind. None if a candidate holds a GPU fraction, or a device that is also free or held
    by another candidate.
    """
    kinds: dict[tuple[object, ...], _Kind] = {}
    devices: list[int] = [*used]
    for candidate in candidates:
        before = len(devices)
        cpu = memory = slots = 0
        for pod in candidate.pods_on[position]:
            request = pod.request
            if request.gpu_portion_milli or request.gpu_memory_mib:
                return None
            devices += pod.devices
            if counts_rest:
                cpu += request.cpu_milli
                memory += request.memory_bytes
                slots += 1
        amounts = (len(devices) - before, cpu, memory, slots)
        key = (amounts, *_harm_of(candidate))
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _Kind(amounts)
        kind.candidates.append(candidate)
    return list(kinds.values()) if len(devices) == len(set(devices)) else None


def _sets_of_devices(kinds: Sequence[_Kind], missing: int) -> tuple[list[list[Candidate]], int]:
    """Return all minimal sets that free `missing` devices, and the number of steps. No other resource is missing.

    Kinds with the most devices come first, so the last candidate of a set frees the fewest devices. If this candidate
    is needed, the set is minimal.
    """
    # candidates without devices do not help
    ranked = sorted((kind for kind in kinds if kind.amounts[0]), key=lambda kind: -kind.amounts[0])
    rest = [0]
    for kind in reversed(ranked):
        rest.append(rest[-1] + kind.amounts[0] * len(kind.candidates))
    rest.reverse()
    sets: list[list[Candidate]] = []
    steps = 0
    open_sets: list[tuple[int, int, tuple[Candidate, ...]]] = [(0, missing, ())]
    while open_sets:
        index, missing, chosen = open_sets.pop()
        steps += 1
        if rest[index] < missing:
            continue
        kind = ranked[index]
        size = kind.amounts[0]
        needed = -(-missing // size)
        count = len(kind.candidates)
        if needed <= count:
            # stop: a larger count of this kind has a candidate that is not needed
            sets.append(sorted([*chosen, *kind.candidates[:needed]], key=_ORDER))
            count = needed - 1
        open_sets += [
            (index + 1, missing - number * size, (*chosen, *kind.candidates[:number]))
            for number in range(count + 1)
        ]
    return sets, steps


class _Search:
    """The search for all minimal sets of candidates that free `need`."""

    def __init__(self, kinds: Sequence[_Kind], need: _Amounts) -> None:
        self._kinds = kinds
        self._need = need
        self.steps = 0
        self._rest = [(0, 0, 0, 0)]
        for kind in reversed(kinds):
            self._rest.append(_plus(self._rest[-1], kind.amounts, len(kind.candidates)))
        self._rest.reverse()

    def run(self) -> Iterator[list[Candidate]]:
        """Return the first candidates of each kind, for each minimal combination of kinds."""
        return self._extend(0, (0, 0, 0, 0), [])

    def _extend(self, index: int, freed: _Amounts, counts: list[int]) -> Iterator[list[Candidate]]:
        self.steps += 1
        need = self._need
        if any(counts) and _covers(freed, need):
            if self._is_minimal(freed, counts):
                yield sorted(self._first(counts), key=_ORDER)
            return
        if index == len(self._kinds) or not _covers(_plus(freed, self._rest[index], 1), need):
            return
        kind = self._kinds[index]
        for count in range(len(kind.candidates) + 1):
            then = _plus(freed, kind.amounts, count)
            yield from self._extend(index + 1, then, [*counts, count])
            if count and _covers(then, need):
                return  # with a larger count, one candidate would not be needed

    def _first(self, counts: Sequence[int]) -> Iterator[Candidate]:
        for kind, count in zip(self._kinds, counts, strict=False):
            yield from kind.candidates[:count]

    def _is_minimal(self, freed: _Amounts, counts: list[int]) -> bool:
        if sum(counts) == 1:
            return True
        return not any(
            count and _covers(_plus(freed, kind.amounts, -1), self._need)
            for kind, count in zip(self._kinds, counts, strict=False)
        )


def _covers(freed: _Amounts, need: _Amounts) -> bool:
    return freed[0] >= need[0] and freed[1] >= need[1] and freed[2] >= need[2] and freed[3] >= need[3]


def _plus(first: _Amounts, second: _Amounts, times: int) -> _Amounts:
    return (
        first[0] + second[0] * times,
        first[1] + second[1] * times,
        first[2] + second[2] * times,
        first[3] + second[3] * times,
    )
