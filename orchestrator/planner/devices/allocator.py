"""The allocator: can these claims be had together on that node, with what is held now, and what do they get?

A decision asks `allocate`, notes the answer with `ledger.take`, and goes back with `ledger.rollback` if it was a
what-if. Slices are told with `inventory.replace` through `observe`; what was evaluated on those that stay is kept.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.planner.devices.inventory import Inventory
from orchestrator.planner.devices.ledger import DeviceLedger
from orchestrator.planner.devices.matching import Matches
from orchestrator.planner.devices.model import (
    Allocated,
    Answer,
    Claim,
    DeviceClass,
    Failed,
    Features,
    ResourceSlice,
    Unsatisfiable,
    WorkBoundReached,
)
from orchestrator.planner.devices.pools import NodePlace
from orchestrator.planner.devices.results import allocation
from orchestrator.planner.devices.search import CannotAllocate, Search, WorkBoundExceeded

MAX_WORK: Final = 200_000
"""So many devices a search looks at before it is given up: a fraction of a second."""


class DeviceAllocator:
    """Slices and classes as they are now, and the ledger of what is held."""

    def __init__(self, features: Features | None = None) -> None:
        self._features = features or Features()
        self._inventory = Inventory(self._features)
        self._matches = Matches(self._features)
        self._classes: Mapping[str, DeviceClass] = {}
        self.ledger = DeviceLedger()

    def observe(self, slices: Sequence[ResourceSlice], classes: Mapping[str, DeviceClass]) -> None:
        """Take these for all slices and classes that there are. Slices that did not change are the same objects."""
        before = self._inventory.version
        self._inventory.replace(slices)
        if self._inventory.version != before:
            self._matches.keep(self._inventory.slices)
        self._classes = classes

    def allocate(self, place: NodePlace, claims: Sequence[Claim], max_work: int = MAX_WORK) -> Answer:
        """Return what the claims get on the node, all of them together, in this order; nothing is noted."""
        node = self._inventory.on_node(place)
        try:
            search = Search(
                node=node,
                claims=claims,
                classes=self._classes,
                features=self._features,
                ledger=self.ledger,
                matches=self._matches,
                max_work=max_work,
            )
            if not search.run():
                if node.invalid is None:
                    return Unsatisfiable()
                return Failed(
                    f"pool {'/'.join(node.invalid.pool_id)} is invalid: {node.invalid.invalid_because}",
                    only_this_node=True,
                )
            return self._answer(place, claims, search)
        except WorkBoundExceeded:
            return WorkBoundReached()
        except CannotAllocate as error:
            return Failed(str(error))

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
