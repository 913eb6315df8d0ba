"""Finds devices for a group of claims on a node, beside the current allocations.

A decision makes a `group` of a pod's claims once, calls `allocate` for each node, and records a result with
`ledger.take`. `ledger.rollback` undoes a trial. `observe` gets all slices and classes; results for unchanged slices are
kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from orchestrator.devices.inventory import Inventory, NodeDevices
from orchestrator.devices.ledger import DeviceLedger
from orchestrator.devices.matching import Matches, SelectorWorkExceeded
from orchestrator.devices.model import (
    Allocated,
    Answer,
    Claim,
    ClaimSpec,
    DeviceClass,
    DeviceId,
    Failed,
    Features,
    ResourceSlice,
    Unsatisfiable,
    WorkBoundReached,
)
from orchestrator.devices.pools import NodePlace
from orchestrator.devices.results import allocation
from orchestrator.devices.search import CannotAllocate, Search, WorkBoundExceeded

MAX_SHAPES: Final = 10_000
"""Number of different groups of claims after which the cached results are dropped."""

MAX_LOOSENED: Final = 10_000
"""Number of releases of devices after which the cached results of nodes are dropped."""

MAX_WORK: Final = 200_000
"""Maximum number of devices that a search examines: a fraction of a second."""


@dataclass(frozen=True, slots=True)
class ClaimGroup:
    """Claims that are allocated together, in this order. Groups with equal specifications have the same `shape`."""

    claims: tuple[Claim, ...]
    shape: int


class DeviceAllocator:
    """The published slices, the device classes, and the ledger of allocated devices.

    `looked_at` is the number of devices that searches examined plus the cost of new selectors. It counts for the bound
    of a decision.
    """

    def __init__(self, features: Features | None = None) -> None:
        self._features = features or Features()
        self._inventory = Inventory(self._features)
        self._matches = Matches(self._features)
        self._classes: Mapping[str, DeviceClass] = {}
        self._shapes: dict[tuple[ClaimSpec, ...], int] = {}
        self._unsatisfiable_nodes: dict[int, tuple[set[str], int]] = {}
        self.ledger = DeviceLedger()
        self.looked_at = 0

    def observe(self, slices: Sequence[ResourceSlice], classes: Mapping[str, DeviceClass]) -> None:
        """Replace all known slices and classes by these. Unchanged slices must be the same objects as before."""
        before = self._inventory.version
        self._inventory.replace(slices)
        if self._inventory.version != before:
            self._matches.keep(self._inventory.slices)
            self._unsatisfiable_nodes.clear()
        if classes != self._classes:
            self._unsatisfiable_nodes.clear()
        self._classes = classes

    def begin(self) -> None:
        """Begin a decision: add to the credit of each project for new selectors."""
        self._matches.begin()

    def group(self, claims: Sequence[Claim]) -> ClaimGroup:
        """Return the claims as a group for calls of `allocate`."""
        specs = tuple(claim.spec for claim in claims)
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
            self._unsatisfiable_nodes.clear()
        return ClaimGroup(tuple(claims), self._shapes.setdefault(specs, len(self._shapes)))

    def allocate(
        self,
        place: NodePlace,
        group: ClaimGroup,
        max_work: int = MAX_WORK,
        among: Mapping[str, Sequence[DeviceId]] = MappingProxyType({}),
    ) -> Answer:
        """Return devices on the node for all claims of the group together. The ledger is unchanged.

        If a node lacks the devices, later calls with an equal group fail without a search, until a pool of the node
        releases a device. `among` has, by claim key, the devices that the claim may get, best first. Other claims may
        get all devices, in the order of pools.
        """
        unsatisfiable = self._unsatisfiable_for(group)
        if place.name in unsatisfiable:
            return Unsatisfiable()
        answer = self._searched(self._inventory.on_node(place), group.claims, max_work, among)
        if isinstance(answer, Unsatisfiable) and not among and not any(map(_asks_for_all, group.claims)):
            unsatisfiable.add(place.name)
        return answer

    def worth_asking(self, candidates: Iterable[NodePlace], group: ClaimGroup) -> Iterator[NodePlace]:
        """Yield the nodes that are not known to lack devices for the group."""
        unsatisfiable = self._unsatisfiable_for(group)
        return (place for place in candidates if place.name not in unsatisfiable)

    def devices_on(self, place: NodePlace) -> Iterator[DeviceId]:
        """Yield all devices that claims can use on the node, also allocated devices, in the order of pools."""
        return (candidate.device_id for candidate in self._inventory.on_node(place).candidates)

    def overfull(self) -> frozenset[DeviceId]:
        """Return the devices that are allocated beyond their capacity.

        This happens only if two schedulers allocate them at the same time.
        """
        return frozenset(
            device_id
            for device_id in self.ledger.parted
            if self._inventory.is_overfull(device_id, self.ledger.consumed(device_id))
        )

    def is_overfull(self, device_id: DeviceId, consumed: Mapping[str, int]) -> bool:
        """Return whether an amount in `consumed` exceeds the device's capacity."""
        return self._inventory.is_overfull(device_id, consumed)

    def has_counters(self, device_id: DeviceId) -> bool:
        """Return whether the device takes shared counters, as partitions of a GPU do."""
        return self._inventory.has_counters(device_id)

    def _unsatisfiable_for(self, group: ClaimGroup) -> set[str]:
        """Return the nodes that lacked devices for the group and whose pools had no release since then."""
        loosened = self.ledger.loosened
        if len(loosened) > MAX_LOOSENED:
            loosened.clear()
            self._unsatisfiable_nodes.clear()
        names, known_to = self._unsatisfiable_nodes.get(group.shape, (set(), 0))
        for pool_id in loosened[known_to:]:
            names -= self._inventory.nodes_of(pool_id)
        self._unsatisfiable_nodes[group.shape] = names, len(loosened)
        return names

    def _searched(
        self,
        node: NodeDevices,
        claims: Sequence[Claim],
        max_work: int,
        among: Mapping[str, Sequence[DeviceId]],
    ) -> Answer:
        selector_work = self._matches.work
        try:
            search = Search(
                node=node,
                claims=claims,
                classes=self._classes,
                features=self._features,
                ledger=self.ledger,
                matches=self._matches,
                max_work=max_work,
                among=among,
            )
            try:
                is_possible = search.run()
            finally:
                self.looked_at += search.looked_at
            if is_possible:
                return self._answer(node.place, claims, search)
        except WorkBoundExceeded:
            return WorkBoundReached()
        except SelectorWorkExceeded:
            return WorkBoundReached(continues=True)
        except CannotAllocate as error:
            return Failed(str(error))
        finally:
            self.looked_at += self._matches.work - selector_work
        if node.invalid is None:
            return Unsatisfiable()
        return Failed(
            f"pool {'/'.join(node.invalid.pool_id)} is invalid: {node.invalid.invalid_because}",
            only_this_node=True,
        )

    def _answer(self, place: NodePlace, claims: Sequence[Claim], search: Search) -> Allocated:
        allocations = []
        alternatives: list[int] = []
        for claim, choices, chosen in zip(claims, search.choices, search.alternatives, strict=True):
            requests = [
                choice.alternatives[chosen[index]] for index, choice in enumerate(claim.spec.requests)
            ]
            alternatives += [
                chosen[index] for index, choice in enumerate(claim.spec.requests) if choice.is_prioritized
            ]
            allocations.append(
                allocation(
                    claim,
                    choices,
                    requests,
                    classes=self._classes,
                    features=self._features,
                    node_name=place.name,
                    ledger=self.ledger,
                )
            )
        return Allocated(tuple(allocations), tuple(alternatives))


def _asks_for_all(claim: Claim) -> bool:
    """Return whether the claim requests all devices.

    Such a request can become possible without a release, because a full device does not count among all devices.
    """
    return any(request.mode == "All" for choice in claim.spec.requests for request in choice.alternatives)
