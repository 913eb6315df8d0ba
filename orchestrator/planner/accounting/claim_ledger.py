"""The part of the ledger for ResourceClaims: the claims that hold devices during one decision.

Node accounts count GPUs by index, for quotas and the choice of victims. The allocator chooses the devices of a claim.
The ledger changes and rolls back both together.

    observed      allocations of claims in the cluster, by any scheduler
    releasing     claims whose users all terminate: their devices are free after these pods have ended
    granted       allocations of this decision
    joined        allocated claims that a pod of this decision uses too: they stay allocated
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from orchestrator.devices.model import (
    MAX_USERS,
    Allocated,
    Allocation,
    Answer,
    Claim,
    DeviceId,
    DynamicResources,
    Failed,
    ObservedClaim,
    WorkBoundReached,
)
from orchestrator.devices.pools import NodePlace, matches_term
from orchestrator.devices.quantity import MIB_NANO
from orchestrator.planner.model import ClaimGrant, Node, Pod

if TYPE_CHECKING:
    from orchestrator.devices.allocator import DeviceAllocator

_NONE: Final[Mapping[str, int]] = {}

_TOO_MANY_COMBINATIONS: Final = "the search for devices was given up: its claims have too many combinations"
_TO_BE_EVALUATED: Final = (
    "the selectors of its project's claims take longer than the time for them in one decision; "
    "the next decision continues"
)


@dataclass(frozen=True, slots=True)
class Granted:
    """The claims of a placed pod: the keys of all, and `new`: the allocations that this decision made for the pod.

    `is_short`: the pod cannot be bound yet, because devices are missing or terminating pods still use them.
    """

    keys: tuple[str, ...] = ()
    new: tuple[ClaimGrant, ...] = ()
    is_short: bool = False


_NOTHING: Final = Granted()


class ClaimLedger:
    """The claims with their devices and users, changed when a decision places or evicts pods.

    `problems` has, by pod id, the reason why the pod's claims cannot be allocated on any node. If only devices are
    missing, the pod has no entry. Two claims can hold the same device: `doubles` maps the claim that loses the device
    to the claim that keeps it. A claim of another scheduler always keeps its devices.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.doubles: dict[str, str] = {}
        self._claims: dict[str, ObservedClaim] = {}
        self._users: dict[str, int] = {}
        self._releasing: dict[str, int] = {}
        self._releasing_on: dict[str, dict[str, int]] = {}
        self._shared: dict[str, tuple[Allocation, int]] = {}
        self._joined: dict[str, int] = {}
        self._promised: set[str] = set()
        self._placed: dict[str, list[Granted]] = {}
        self._answers: dict[tuple[str, str], tuple[int, bool, tuple[ClaimGrant, ...]]] = {}
        self._indices: dict[str, tuple[tuple[DeviceId, ...], dict[DeviceId, int]]] = {}
        self._version = 0

    @cached_property
    def allocator(self) -> "DeviceAllocator":
        """The allocator of devices, imported at first use: it loads the CEL library, which most clusters do not
        need.
        """
        from orchestrator.devices.allocator import DeviceAllocator  # noqa: PLC0415

        return DeviceAllocator()

    def observe(self, dynamic: DynamicResources) -> None:
        """Replace the known ResourceSlices, DeviceClasses and ResourceClaims by these."""
        if not (dynamic.slices or dynamic.claims or self._claims or "allocator" in self.__dict__):
            return
        self.allocator.observe(dynamic.slices, {listed.name: listed for listed in dynamic.classes})
        before, self._claims = self._claims, {listed.claim.key: listed for listed in dynamic.claims}
        for key, known in before.items():
            now = self._claims.get(key)
            if known.allocation is not None and (now is None or now.allocation != known.allocation):
                self.allocator.ledger.release(known.allocation)
        for key, listed in self._claims.items():
            earlier = before.get(key)
            if listed.allocation is not None and (earlier is None or earlier.allocation != listed.allocation):
                self.allocator.ledger.take(listed.allocation)

    def _find_doubles(self) -> dict[str, str]:
        """Return, for each claim that loses a device to another claim, the key of the claim that keeps the device. If
        one of the claims belongs to another scheduler, this claim keeps the device. Otherwise the first claim by key
        does.

        On a shared device, the claims beyond its capacity lose it.
        """
        if "allocator" not in self.__dict__:
            return {}
        overfull = self.allocator.overfull()
        if not overfull and not self.allocator.ledger.has_doubles:
            return {}
        owners: dict[DeviceId, str] = {}
        consumed: dict[DeviceId, dict[str, int]] = {}
        doubles: dict[str, str] = {}
        for key in sorted(self._claims, key=lambda key: (key in self._users, key)):
            allocation = self._claims[key].allocation
            for result in allocation.results if allocation is not None else ():
                if result.admin_access or (result.share_id and result.device_id not in overfull):
                    continue
                owner = owners.setdefault(result.device_id, key)
                if result.share_id:
                    together = dict(consumed.get(result.device_id, _NONE))
                    for name, nano in result.consumed:
                        together[name] = together.get(name, 0) + nano
                    if not self.allocator.is_overfull(result.device_id, together):
                        consumed[result.device_id] = together
                        continue
                if owner != key and key in self._users:
                    doubles[key] = owner
        return doubles

    def begin(self) -> None:
        """Begin a decision: find claims with the same device, and clear cached results and the undo log."""
        self.doubles = self._find_doubles()
        if "allocator" in self.__dict__:
            self.allocator.ledger.forget_undo()
            self.allocator.begin()
        self._answers.clear()
        self.problems.clear()

    def concern(self, node: Node, pod: Pod) -> bool:
        """Return whether the pod gets devices on this node by ResourceClaims."""
        return bool(pod.claims or (node.published_gpus and pod.request.gpu_milli))

    def devices(
        self, node: Node, pod: Pod, *, later: bool, among: Sequence[int] | None = None
    ) -> tuple[int, ...] | None:
        """Return the indices of the GPUs that the pod's claims get on the node; None if they cannot be allocated.

        `among` are the GPUs (indices) that the claims may get, best first. None: all GPUs, in the order of pools.
        """
        grants = self._grants(node, pod, later=later, among=among)
        if grants is None:
            return None
        devices = self._devices(node, pod, grants)
        if pod.node is not None and node.published_gpus and len(devices) < pod.request.gpu_count:
            # A migrated pod must get the same number of GPUs, because its replacement requests them.
            return None
        self._answers[pod.id, node.name] = (self._version, later, grants)
        return devices

    def may_keep_devices(self, node: Node, pod: Pod) -> bool:
        """Return whether the pod's claims can keep their devices on the node.

        If they can, `choose` then returns these devices.
        """
        missing: list[Claim] = []
        held: dict[str, list[DeviceId]] = {}
        for key in pod.claims:
            listed = self._claims.get(key)
            if listed is None or listed.allocation is None:
                return False
            devices = _device_ids(listed.allocation)
            if key in self._shared:
                if _device_ids(self._shared[key][0]) != devices:
                    return False  # this decision has allocated the claim on another node for another user
            elif self._is_releasing(key):
                missing.append(listed.claim)
                held[key] = devices
        answer = self._allocate(NodePlace(node.name, node.labels), missing, held, later=True)
        if not isinstance(answer, Allocated):
            return False
        grants = tuple(map(ClaimGrant, missing, answer.allocations))
        if any(_device_ids(grant.allocation) != held[grant.claim.key] for grant in grants):
            return False
        self._answers[pod.id, node.name] = (self._version, True, grants)
        return True

    def choose(self, node: Node, pod: Pod, devices: Sequence[int]) -> Granted:
        """Return the pod's claims with their devices if the pod is placed on this node. The GPUs in `devices` come
        first, and a GPU fraction gets only these.
        """
        version, later, grants = self._answers.get((pod.id, node.name), (-1, False, ()))
        if version == self._version:
            return Granted(pod.claims, grants, is_short=later)
        others = () if pod.request.is_shared else range(node.gpu_count)
        among = tuple(dict.fromkeys((*devices, *others)))
        for later in (False, True):
            again = self._grants(node, pod, later=later, among=among)
            if again is not None:
                return Granted(pod.claims, again, is_short=later)
        return Granted(is_short=True)

    def enter(self, pod: Pod, granted: Granted) -> None:
        """Add a placed pod to the users of its claims, and take the devices of new allocations."""
        self._version += 1
        self._placed.setdefault(pod.id, []).append(granted)
        for grant in granted.new:
            self.allocator.ledger.take(self._held_by(grant.allocation, is_short=granted.is_short))
            if not grant.extended:
                self._shared[grant.claim.key] = (grant.allocation, 0)
                if granted.is_short:
                    self._promised.add(grant.claim.key)
        for key in granted.keys:
            if key in self._shared:
                allocation, users = self._shared[key]
                self._shared[key] = (allocation, users + 1)
            else:
                _add(self._joined, key, 1)

    def leave(self, pod: Pod) -> Granted:
        """Undo `enter`.

        Claims that other pods use keep their devices. Return the argument of `enter` that restores the state.
        """
        self._version += 1
        stack = self._placed[pod.id]
        granted = stack.pop()
        if not stack:
            del self._placed[pod.id]
        regained: list[ClaimGrant] = []
        for grant in granted.new:
            if grant.extended:
                self.allocator.ledger.release(self._held_by(grant.allocation, is_short=granted.is_short))
                regained.append(grant)
        for key in granted.keys:
            if key not in self._shared:
                _add(self._joined, key, -1)
                continue
            allocation, users = self._shared[key]
            if users > 1:
                self._shared[key] = (allocation, users - 1)
                continue
            del self._shared[key]
            self.allocator.ledger.release(self._held_by(allocation, is_short=key in self._promised))
            self._promised.discard(key)
            regained.append(ClaimGrant(self._claims[key].claim, allocation))
        return Granted(granted.keys, tuple(regained), granted.is_short)

    def use(self, pod: Pod, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a bound pod of the snapshot to or from the users of its claims."""
        for key in pod.claims:
            _add(self._users, key, sign)

    def give_back(self, pod: Pod, sign: int) -> None:
        """Mark (`sign` 1) or unmark (-1) a bound pod as terminating."""
        self._version += 1
        on_node = self._releasing_on.setdefault(pod.node or "", {})
        for key in pod.claims:
            _add(self._releasing, key, sign)
            _add(on_node, key, sign)
        if not on_node:
            del self._releasing_on[pod.node or ""]

    def holds_on(self, pod: Pod, devices: Collection[DeviceId]) -> bool:
        """Return whether a claim of the pod holds one of these devices and not all users of the claim terminate."""
        return any(
            result.device_id in devices
            for key in pod.claims
            if (listed := self._claims.get(key)) is not None and listed.allocation is not None
            for result in listed.allocation.results
            if not self._is_releasing(key)
        )

    def granted(self, node: Node, pod: Pod) -> tuple[tuple[ClaimGrant, ...], tuple[int, ...]] | None:
        """Return the new allocations of a placed pod's claims, and its GPU indices; None if devices are missing."""
        stack = self._placed.get(pod.id)
        granted = stack[-1] if stack else _NOTHING
        if granted.is_short or (not stack and self.concern(node, pod)):
            return None
        own = tuple(grant for grant in granted.new if grant.extended)
        keys = [key for key in granted.keys if key in self._shared]
        shared = [ClaimGrant(self._claims[key].claim, self._shared[key][0]) for key in keys]
        grants = (*shared, *own)
        return grants, self._devices(node, pod, grants)

    def allocated_only_to(self, pods: Iterable[Pod]) -> list[str]:
        """Return the keys of allocated claims that only these pending pods use."""
        waiting = {pod.id for pod in pods}
        keys = dict.fromkeys(key for pod in pods for key in pod.claims)
        return [
            key
            for key in keys
            if (listed := self._claims.get(key)) is not None
            and listed.allocation is not None
            and not self._users.get(key)
            and key not in self._joined
            and waiting.issuperset(listed.reserved_for)
        ]

    def _held_by(self, allocation: Allocation, *, is_short: bool) -> Allocation:
        """Return the allocation with the devices that count as taken for other claims.

        A claim with admin access takes no device from others. Exception: until a nominated pod is bound, its claim
        takes shared devices and devices with counters like any other claim.
        """
        if not is_short or not any(result.admin_access for result in allocation.results):
            return allocation
        results = [
            replace(result, admin_access=False)
            if result.share_id or self.allocator.has_counters(result.device_id)
            else result
            for result in allocation.results
        ]
        return replace(allocation, results=tuple(results))

    def _devices(self, node: Node, pod: Pod, grants: Iterable[ClaimGrant]) -> tuple[int, ...]:
        if not pod.request.gpu_milli and not pod.request.is_shared:
            return ()
        indices = self._indices_of(node)
        allocations = [grant.allocation for grant in grants]
        new = {grant.claim.key for grant in grants}
        for key in pod.claims:
            held = None if key in new else self._held(key)
            if held is not None:
                allocations.append(held)
        devices = {
            indices[result.device_id]
            for allocation in allocations
            for result in allocation.results
            if result.device_id in indices and not result.admin_access
        }
        return tuple(sorted(devices))

    def _indices_of(self, node: Node) -> dict[DeviceId, int]:
        known = self._indices.get(node.name)
        if known is None or known[0] is not node.published_gpus:
            indices = {device_id: index for index, device_id in enumerate(node.published_gpus)}
            known = self._indices[node.name] = (node.published_gpus, indices)
        return known[1]

    def _held(self, key: str) -> Allocation | None:
        """Return the allocation that the pod would share with other users; None if the claim must be allocated."""
        if key in self._shared:
            return self._shared[key][0]
        listed = self._claims.get(key)
        return None if listed is None or self._is_releasing(key) else listed.allocation

    def _is_releasing(self, key: str) -> bool:
        """Return whether all pods in the claim's `reservedFor` terminate; pods of other schedulers count as running."""
        users = self._users.get(key, 0)
        if not users or self._releasing.get(key, 0) < users or key in self._joined:
            return False
        listed = self._claims.get(key)
        return listed is None or len(listed.reserved_for) <= users

    def _grants(
        self, node: Node, pod: Pod, *, later: bool, among: Sequence[int] | None
    ) -> tuple[ClaimGrant, ...] | None:
        """Return the new allocations for the pod's claims on the node; None if the claims cannot be allocated there."""
        place = NodePlace(node.name, node.labels)
        missing = self._missing(place, pod, later=later)
        if missing is None:
            return None
        # the claim of a running pod exists and is among `pod.claims`
        extended = _claim_on(node, pod) if node.published_gpus and pod.node is None else None
        if extended is not None:
            missing.append(extended)
        elif not pod.claims:
            return None  # a node with published GPUs gives them only to claims
        if not missing:
            return ()
        open_to: dict[str, list[DeviceId]] = {}
        if among is not None and node.published_gpus:
            gpus = node.published_gpus
            open_gpus = [gpus[index] for index in among if index < len(gpus)]
            others = [listed for listed in self.allocator.devices_on(place) if listed not in gpus]
            open_to = {claim.key: [*open_gpus, *others] for claim in missing}
        answer = self._allocate(place, missing, open_to, later=later)
        if isinstance(answer, Allocated):
            return tuple(
                ClaimGrant(claim, allocation, claim is extended)
                for claim, allocation in zip(missing, answer.allocations, strict=True)
            )
        if isinstance(answer, Failed) and not answer.only_this_node:
            self.problems[pod.id] = answer.why
        elif isinstance(answer, WorkBoundReached):
            self.problems[pod.id] = _TO_BE_EVALUATED if answer.continues else _TOO_MANY_COMBINATIONS
        return None

    def _missing(self, place: NodePlace, pod: Pod, *, later: bool) -> list[Claim] | None:
        """Return the claims of the pod that have no devices yet. None if a claim that has devices cannot be used on
        this node.
        """
        missing: list[Claim] = []
        for key in pod.claims:
            if key in self._promised and not later:
                return None  # the claim gets its devices only after terminating pods have ended
            held = self._held(key)
            if held is not None:
                if held.nodes is not None and not matches_term(place, held.nodes):
                    return None
                if not self._has_place_for(key, pod):
                    return None
                continue
            listed = self._claims.get(key)
            if listed is None or (listed.allocation is not None and not later):
                return None  # all users of the claim terminate; it can get other devices only after their end
            missing.append(listed.claim)
        return missing

    def _has_place_for(self, key: str, pod: Pod) -> bool:
        """Return whether one more pod can use the claim."""
        if key in self._shared:
            return self._shared[key][1] < MAX_USERS
        users = self._claims[key].reserved_for
        return pod.id in users or len(users) < MAX_USERS

    def _allocate(
        self,
        place: NodePlace,
        claims: list[Claim],
        among: Mapping[str, Sequence[DeviceId]],
        *,
        later: bool,
    ) -> Answer:
        ledger = self.allocator.ledger
        mark = ledger.checkpoint()
        if later:
            for key in self._releasing_on.get(place.name, _NONE):
                listed = self._claims.get(key)
                if listed is not None and listed.allocation is not None and self._is_releasing(key):
                    ledger.release(listed.allocation)
        answer = self.allocator.allocate(place, self.allocator.group(claims), among=among)
        ledger.rollback(mark)
        return answer


def _device_ids(allocation: Allocation) -> list[DeviceId]:
    return sorted(result.device_id for result in allocation.results)


def _claim_on(node: Node, pod: Pod) -> Claim | None:
    """Return the claim to create for the pod's GPUs on the node. A GPU fraction requests an amount of GPU memory."""
    claim, request = pod.extended_claim, pod.request
    if claim is None or not request.is_shared:
        return claim
    part = (("memory", request.part_mib(node.gpu_memory_mib) * MIB_NANO),)
    choices = tuple(
        replace(choice, alternatives=tuple(replace(listed, capacity=part) for listed in choice.alternatives))
        for choice in claim.spec.requests
    )
    return replace(claim, spec=replace(claim.spec, requests=choices))


def _add(counts: dict[str, int], key: str, number: int) -> None:
    total = counts.get(key, 0) + number
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)
