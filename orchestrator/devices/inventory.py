"""All published ResourceSlices, and the pools that each node can use of them. Both are kept between decisions."""

from collections.abc import Iterable, Mapping, Set

from orchestrator.devices.model import DeviceId, Features, PoolId, ResourceSlice
from orchestrator.devices.pools import Candidate, NodePlace, Pool, gather_pools


class NodeDevices:
    """The view of a node: the pools that it can use, in order, and their devices (`candidates`)."""

    __slots__ = ("candidates", "invalid", "place", "pool_ids", "pools")

    def __init__(self, place: NodePlace, pools: tuple[Pool, ...]) -> None:
        self.place = place
        self.pools = pools
        self.pool_ids = tuple(pool.pool_id for pool in pools)
        self.candidates: tuple[Candidate, ...] = tuple(
            candidate for pool in pools for candidate in pool.candidates
        )
        self.invalid = next((pool for pool in pools if pool.invalid_because), None)


def is_overfull(slices: Iterable[ResourceSlice], device_id: DeviceId, consumed: Mapping[str, int]) -> bool:
    """Return whether an amount exceeds the device's capacity in these slices of its pool.

    False for an unknown device.
    """
    listed = tuple(slices)
    newest = max((published.generation for published in listed), default=0)
    for published in listed:
        for device in published.devices if published.generation == newest else ():
            if device.name == device_id[2]:
                return any(
                    name in device.capacity and nano > device.capacity[name].value_nano
                    for name, nano in consumed.items()
                )
    return False


class Inventory:
    """All slices. `replace` gets every slice each time; unchanged slices must be the same objects as before."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.version = 0
        self._slices: frozenset[ResourceSlice] = frozenset()
        self._by_pool: dict[PoolId, list[ResourceSlice]] = {}
        self._by_node: dict[str, list[ResourceSlice]] = {}
        self._anywhere: list[ResourceSlice] = []
        self._views: dict[str, NodeDevices] = {}
        self._nodes_of: dict[PoolId, set[str]] = {}

    @property
    def slices(self) -> frozenset[ResourceSlice]:
        """All published slices."""
        return self._slices

    def replace(self, slices: Iterable[ResourceSlice]) -> None:
        """Replace all slices by these, and drop the views of nodes that a changed slice concerns."""
        now = frozenset(slices)
        changed = now ^ self._slices
        if not changed:
            return
        self.version += 1
        self._slices = now
        self._by_pool, self._by_node, self._anywhere = {}, {}, []
        for published in sorted(now, key=lambda published: published.name):
            self._by_pool.setdefault(published.pool_id, []).append(published)
            node = published.nodes.node_name
            if node and not published.counter_sets:
                self._by_node.setdefault(node, []).append(published)
            else:
                self._anywhere.append(published)
        self._forget(changed)

    def on_node(self, place: NodePlace) -> NodeDevices:
        """Return the view of the node, cached until one of its slices or labels changes."""
        view = self._views.get(place.name)
        if view is None or (view.place.labels is not place.labels and view.place.labels != place.labels):
            nearby = (*self._by_node.get(place.name, ()), *self._anywhere)
            view = NodeDevices(place, gather_pools(place, nearby, self._by_pool, self.features))
            self._views[place.name] = view
            for pool_id in view.pool_ids:
                self._nodes_of.setdefault(pool_id, set()).add(place.name)
        return view

    def nodes_of(self, pool_id: PoolId) -> Set[str]:
        """Return the names of the nodes whose views have had the pool."""
        return self._nodes_of.get(pool_id, frozenset())

    def is_overfull(self, device_id: DeviceId, consumed: Mapping[str, int]) -> bool:
        """Return whether `consumed` exceeds the device's capacity; false for an unknown device."""
        return is_overfull(self._by_pool.get(device_id[:2], ()), device_id, consumed)

    def has_counters(self, device_id: DeviceId) -> bool:
        """Return whether the device consumes counters of its pool."""
        return any(
            device.counters
            for published in self._by_pool.get(device_id[:2], ())
            for device in published.devices
            if device.name == device_id[2]
        )

    def _forget(self, changed: frozenset[ResourceSlice]) -> None:
        pools = {published.pool_id for published in changed}
        nodes = {published.nodes.node_name for published in changed}
        if any(not published.nodes.node_name or published.counter_sets for published in changed):
            self._views.clear()
            return
        self._views = {
            name: view
            for name, view in self._views.items()
            if name not in nodes and not any(pool.pool_id in pools for pool in view.pools)
        }
