"""The pools of devices for one node: the slices that it can use, and whether they are complete and valid."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.devices.model import (
    CounterSet,
    Device,
    DeviceId,
    Features,
    NodeChoice,
    NodeTerm,
    PoolId,
    ResourceSlice,
)
from orchestrator.labels import matches_requirement


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The properties of a node that decide which devices it can use."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A device of a usable pool. `is_reachable`: the node is in the device's own node selection, if it has one."""

    device_id: DeviceId
    device: Device
    published: ResourceSlice
    pool: "Pool"
    is_reachable: bool


@dataclass(slots=True, eq=False)
class Pool:
    """A node's view of a pool. An incomplete or invalid pool has no candidates.

    `others` are devices that the node cannot use, but that can consume counters of the pool.
    """

    pool_id: PoolId
    is_incomplete: bool = False
    invalid_because: str = ""
    candidates: tuple[Candidate, ...] = ()
    others: tuple[Device, ...] = ()
    counters: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def has_binding_conditions(self) -> bool:
        """Whether a device of the pool has binding conditions, which must be met before a pod is bound."""
        return any(candidate.device.binding_conditions for candidate in self.candidates)


def is_available(place: NodePlace, nodes: NodeChoice) -> bool:
    """Return whether the node is among `nodes`."""
    if nodes.node_name:
        return nodes.node_name == place.name
    return nodes.all_nodes or any(matches_term(place, term) for term in nodes.terms or ())


def matches_term(place: NodePlace, term: NodeTerm) -> bool:
    """Return whether the node matches all requirements.

    The only field is `metadata.name`. An empty term matches no node.
    """
    if not term.expressions and not term.fields:
        return False
    fields = {"metadata.name": place.name}
    return all(matches_requirement(place.labels, requirement) for requirement in term.expressions) and all(
        requirement.key in fields and matches_requirement(fields, requirement) for requirement in term.fields
    )


def gather_pools(
    place: NodePlace,
    nearby: Iterable[ResourceSlice],
    by_pool: Mapping[PoolId, Sequence[ResourceSlice]],
    features: Features,
) -> tuple[Pool, ...]:
    """Return the pools that the node can use, in the order in which their devices are tried.

    `nearby` are the slices that can concern this node, `by_pool` are all slices.
    """
    relevant: dict[PoolId, list[ResourceSlice]] = {}
    for published in nearby:
        if _is_relevant(place, published, features):
            relevant.setdefault(published.pool_id, []).append(published)
    pools = []
    for pool_id, slices in relevant.items():
        pool = _gathered(place, pool_id, slices, by_pool.get(pool_id, ()), features)
        if pool is not None:
            pools.append(pool)
    return tuple(sorted(pools, key=lambda pool: (pool.has_binding_conditions, pool.pool_id)))


def _is_relevant(place: NodePlace, published: ResourceSlice, features: Features) -> bool:
    if not features.partitionable_devices and (
        published.per_device_nodes is not None or published.counter_sets
    ):
        return False
    if published.counter_sets:
        return True  # counters count for every node that uses devices of the pool
    if not published.nodes.is_empty:
        return is_available(place, published.nodes)
    return bool(published.per_device_nodes) and any(
        is_available(place, device.nodes) for device in published.devices
    )


def _gathered(
    place: NodePlace,
    pool_id: PoolId,
    relevant: Sequence[ResourceSlice],
    all_of_pool: Sequence[ResourceSlice],
    features: Features,
) -> Pool | None:
    """Return the pool; None if its driver is replacing it by a generation that has no devices for the node."""
    generation = max(published.generation for published in relevant)
    slices = sorted(
        (published for published in relevant if published.generation == generation),
        key=lambda published: published.name,
    )
    others: list[ResourceSlice] = []
    if len(slices) != slices[0].slice_count:
        if any(published.generation > generation for published in all_of_pool):
            return None
        current = [published for published in all_of_pool if published.generation == generation]
        if len(current) != slices[0].slice_count:
            return Pool(pool_id, is_incomplete=True)
        names = {published.name for published in slices}
        others = [published for published in current if published.name not in names]
    pool = Pool(pool_id)
    pool.invalid_because = _fill(pool, place, slices, others, features)
    if pool.invalid_because:
        pool.candidates = ()
    return pool


def _fill(
    pool: Pool,
    place: NodePlace,
    slices: Sequence[ResourceSlice],
    others: Sequence[ResourceSlice],
    features: Features,
) -> str:
    """Put devices and counters of the slices into the pool. Return the first error in the slices, or ""."""
    with_counters = [s for s in slices if s.counter_sets] if features.partitionable_devices else []
    candidates: list[Candidate] = []
    for published in slices:
        if published in with_counters:
            continue
        for device in published.devices:
            is_reachable = not published.per_device_nodes or is_available(place, device.nodes)
            device_id = (*published.pool_id, device.name)
            candidates.append(Candidate(device_id, device, published, pool, is_reachable))
    pool.candidates = tuple(candidates)
    if len({candidate.device_id for candidate in candidates}) < len(candidates):
        return "a device name is not unique"
    if not features.partitionable_devices:
        return ""
    sets = [listed for published in with_counters for listed in published.counter_sets]
    if len({listed.name for listed in sets}) < len(sets):
        return "a counter set is not unique"
    pool.counters = {(listed.name, name): nano for listed in sets for name, nano in listed.counters}
    pool.others = tuple(device for published in others for device in published.devices)
    names = {listed.name for listed in sets}
    devices = [device for published in slices for device in published.devices]
    for device in (*devices, *pool.others):
        if not _consumes_known(device.counters, names, pool.counters):
            return f"device {device.name} consumes counters that are not there"
    return ""


def _consumes_known(
    amounts: Iterable[CounterSet], names: set[str], counters: Mapping[tuple[str, str], int]
) -> bool:
    return all(
        listed.name in names and all((listed.name, name) in counters for name, _ in listed.counters)
        for listed in amounts
    )
