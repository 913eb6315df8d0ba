"""The minimal sets of candidates whose eviction makes one pod fit on one node, computed from amounts alone.

A set is minimal if all its candidates are needed. A node has few candidates, so all sets up to a bound are tried,
smaller sets first.

Example: a pod needs 2 GPUs, and the candidates hold 1, 1 and 2 GPUs. The minimal sets are {third} and {first, second}.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from orchestrator.planner.accounting.amounts import summed_scalars
from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Request, Scalars
from orchestrator.planner.preemption.candidates import Candidate
from orchestrator.planner.preemption.victims import class_of_lost_time

MAX_SETS = 300
MAX_CANDIDATES = 12
MAX_EXHAUSTIVE = 8
"""Up to this number of candidates, MAX_SETS is large enough for all sets."""
_SMALLEST = 8
"""Number of least entitled candidates that are tried on a node with more than MAX_CANDIDATES. The rest are the
largest.
"""


Harm = tuple[int, bool, int, int, int, int]
"""The sort key of an option, most important first:

- the policy's own count (`protected` of `Option.harm`)
- whether a container has started
- thousandths of GPUs that are freed beyond the need of the pod
- urgency
- class of lost GPU time (`class_of_lost_time`)
- number of evicted pods
"""
NO_HARM: Harm = (0, False, 0, 0, 0, 0)


class Option(NamedTuple):
    """A set of candidates. `excess_milli` is the GPUs that their eviction frees beyond the need of the pod.

    `pod_count` is the number of evicted pods, `covered` the number of candidates within quota, and `urgency` the
    highest urgency of a candidate. Each of the `projects` loses its `freed_milli`. `lost_gpu_ns` is the GPU time that
    the candidates lose, in nanoseconds.
    """

    candidates: Sequence[Candidate]
    excess_milli: int
    pod_count: int
    projects: tuple[str, ...]
    freed_milli: tuple[int, ...]
    covered: int
    urgency: int
    lost_gpu_ns: int
    has_started: bool

    def harm(self, protected: int) -> Harm:
        """Return the harm.

        `protected` is the count that the eviction policy keeps lowest, such as the candidates within quota.
        """
        return (
            protected,
            self.has_started,
            self.excess_milli,
            self.urgency,
            class_of_lost_time(self.lost_gpu_ns),
            self.pod_count,
        )


class Need(NamedTuple):
    """The amounts that a node lacks for a pod. The pod needs `portion_milli` of each of its devices."""

    devices: int
    portion_milli: int
    cpu_milli: int
    memory_bytes: int
    slots: int
    scalars: Scalars


def minimal_options(
    account: NodeAccount,
    request: Request,
    candidates: Sequence[Candidate],
    allowed: Callable[[Sequence[Candidate]], bool] | None = None,
) -> tuple[list[Option], int]:
    """Return all minimal options on this node, and the number of tried sets. `allowed` can exclude sets."""
    if len(candidates) > MAX_CANDIDATES:
        ranked = sorted(candidates, key=lambda candidate: candidate.order)
        others = sorted(ranked[_SMALLEST:], key=lambda candidate: -candidate.gpu_milli)
        candidates = [*ranked[:_SMALLEST], *others[: MAX_CANDIDATES - _SMALLEST]]
    node = _Node(account, missing_on(account, request), candidates)
    if node.excess_milli(range(len(candidates))) is None:
        return [], 1
    options: list[Option] = []
    enough: list[int] = []
    looked = 1
    for indices in _sets(node.fewest_candidates(), len(candidates), enough):
        looked += 1
        if looked > MAX_SETS and options:
            break
        members = sum(1 << index for index in indices)
        if any(fewer & members == fewer for fewer in enough):
            continue
        excess = node.excess_milli(indices)
        if excess is None:
            continue
        chosen = tuple(candidates[index] for index in indices)
        if allowed is not None and not allowed(chosen):
            continue
        enough.append(members)
        options.append(option_of(chosen, excess))
    return options, looked


def includes_all(candidates: Sequence[Candidate], pods: Collection[str]) -> bool:
    """Return whether all these pods (ids) belong to the candidates."""
    return {pod.id for candidate in candidates for pod in candidate.pods}.issuperset(pods)


def option_of(candidates: Sequence[Candidate], excess_milli: int) -> Option:
    """Return the option of evicting these candidates."""
    if len(candidates) == 1:
        candidate = candidates[0]
        return Option(
            candidates,
            excess_milli,
            candidate.pod_count,
            (candidate.project,),
            (candidate.gpu_milli,),
            int(candidate.is_covered),
            candidate.urgency,
            candidate.lost_gpu_ns,
            candidate.has_started and not candidate.is_harmless,
        )
    freed: dict[str, int] = {}
    pod_count = covered = urgency = lost_ns = 0
    has_started = False
    for candidate in candidates:
        freed[candidate.project] = freed.get(candidate.project, 0) + candidate.gpu_milli
        pod_count += candidate.pod_count
        covered += candidate.is_covered
        urgency = max(urgency, candidate.urgency)
        lost_ns += candidate.lost_gpu_ns
        has_started = has_started or (candidate.has_started and not candidate.is_harmless)
    projects = tuple(sorted(freed))
    freed_milli = tuple([freed[name] for name in projects])
    return Option(
        candidates, excess_milli, pod_count, projects, freed_milli, covered, urgency, lost_ns, has_started
    )


def _sets(fewest: int, count: int, enough: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the sets of at least `fewest` indices below `count`, smaller sets first.

    `enough` has the sets (bit masks) that are enough. An index that is enough alone is in no larger set, because that
    set would not be minimal.
    """
    rest = list(range(count))
    if fewest <= 1:
        yield from ((index,) for index in rest)
        rest = [index for index in rest if 1 << index not in enough]
    for size in range(max(2, fewest), len(rest) + 1):
        yield from combinations(rest, size)


def missing_on(account: NodeAccount, request: Request) -> Need:
    """Return the amounts that the node lacks for a pod with this request after terminating pods have ended.

    An amount of 0 or less: nothing is missing.
    """
    cpu = account.cpu_used_milli - account.cpu_releasing_milli + request.cpu_milli - account.node.cpu_milli
    memory = (
        account.memory_used_bytes
        - account.memory_releasing_bytes
        + request.memory_bytes
        - account.node.memory_bytes
    )
    return Need(
        devices=request.shared_devices if request.is_shared else request.gpu_count,
        portion_milli=account.share_milli(request) if request.is_shared else DEVICE_MILLI,
        cpu_milli=cpu,
        memory_bytes=memory,
        slots=account.pods_used - account.pods_releasing + 1 - account.node.pod_slots,
        scalars=_missing_scalars(account, request.scalars) if request.scalars else (),
    )


def _missing_scalars(account: NodeAccount, requested: Scalars) -> Scalars:
    missing = ((name, amount - account.free_scalar(name, later=True)) for name, amount in requested)
    return tuple((name, amount) for name, amount in missing if amount > 0)


class _Node:
    """The devices of one node, with the share of each candidate in them."""

    def __init__(self, account: NodeAccount, need: Need, candidates: Sequence[Candidate]) -> None:
        self._need = need
        self._lost = account.lost
        count = account.node.gpu_count
        self._free = [account.free_milli(device, later=True) for device in range(count)]
        self._blocked = account.blocked
        self._fitting = sum(
            free >= need.portion_milli and device not in account.blocked
            for device, free in enumerate(self._free)
        )
        self._held: list[dict[int, int]] = []
        self._amounts: list[tuple[int, int, int, int]] = []
        for candidate in candidates:
            held: dict[int, int] = {}
            cpu = memory = slots = 0
            for pod in candidate.pods_on[account.position]:
                share = account.share_milli(pod.request)
                for device in pod.devices:
                    if device < count and device not in account.blocked:
                        held[device] = held.get(device, 0) + share
                cpu += pod.request.cpu_milli
                memory += pod.request.memory_bytes
                slots += 1
            self._held.append(held)
            self._amounts.append((candidate.gpu_milli, cpu, memory, slots))
        self._scalars = [
            dict(summed_scalars(pod.request.scalars for pod in candidate.pods_on[account.position]))
            for candidate in (candidates if need.scalars else ())
        ]

    def fewest_candidates(self) -> int:
        """Return a lower bound of the number of candidates, from the candidates with the largest shares of devices."""
        free = sum(min(self._need.portion_milli, free) for free in self._free)
        missing = self._need.devices * self._need.portion_milli - free
        held = sorted((sum(shares.values()) for shares in self._held), reverse=True)
        for count, share in enumerate(held):
            if missing <= 0:
                return count
            missing -= share
        return len(held)

    def excess_milli(self, indices: Sequence[int]) -> int | None:
        """Return the GPUs, in thousandths, that these candidates free beyond the need; None if they are not enough."""
        need = self._need
        total = cpu = memory = slots = 0
        for index in indices:
            amounts = self._amounts[index]
            total += amounts[0]
            cpu += amounts[1]
            memory += amounts[2]
            slots += amounts[3]
        if cpu < need.cpu_milli or memory < need.memory_bytes or slots < need.slots:
            return None
        if need.scalars and not self._frees_scalars(indices):
            return None
        if not need.devices:
            return total
        if len(indices) == 1:
            freed = self._held[indices[0]]
        else:
            freed = {}
            for index in indices:
                for device, share in self._held[index].items():
                    freed[device] = freed.get(device, 0) + share
        excess_of_devices = self._excess_without_lost if self._lost else self._excess_of_devices
        return excess_of_devices(freed, total)

    def _frees_scalars(self, indices: Sequence[int]) -> bool:
        return all(
            sum(self._scalars[index].get(name, 0) for index in indices) >= amount
            for name, amount in self._need.scalars
        )

    def _excess_of_devices(self, freed: Mapping[int, int], total: int) -> int | None:
        """Return the part of the freed GPUs (`total`) that the pod does not need; None if the devices are not enough.

        The pod first gets devices that are free already. Then it gets the devices on which it needs the least of the
        freed amount.
        """
        portion, free = self._need.portion_milli, self._free
        missing = self._need.devices - self._fitting
        costs = [
            portion - free[device]
            for device, share in freed.items()
            if free[device] < portion <= free[device] + share
        ]
        if len(costs) < missing:
            return None
        costs.sort()
        return total - sum(costs[: max(0, missing)])

    def _excess_without_lost(self, freed: Mapping[int, int], total: int) -> int | None:
        """Return the result of `_excess_of_devices` for a node that lost N GPUs with unknown indices. N free whole
        GPUs do not count.
        """
        portion, lost = self._need.portion_milli, self._lost
        costs: list[int] = []
        for device, free in enumerate(self._free):
            then = free + freed.get(device, 0)
            if then < portion or device in self._blocked:
                continue
            if lost and then >= DEVICE_MILLI:
                lost -= 1
                continue
            costs.append(max(0, portion - free))
        if len(costs) < self._need.devices:
            return None
        costs.sort()
        return total - sum(costs[: self._need.devices])
