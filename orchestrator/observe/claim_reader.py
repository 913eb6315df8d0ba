"""Slices, classes and claims as they change, and what they mean for nodes and pods.

What a pod's claims ask for counts as GPUs of one of the pods that share them: of the oldest that has a node, else of
the oldest of each workload that waits; those that leave do not count beside others. The rest count nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeVar

from orchestrator.cluster.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from orchestrator.cluster.objects import Pod
from orchestrator.names import GPU_RESOURCE
from orchestrator.observe.claim_amounts import GpuClasses, claimed_gpus, held_gpus
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.extended_claims import NAME_INFIX, claim_name, extended_claim, part_claim
from orchestrator.observe.node_terms import Terms, both
from orchestrator.observe.published_gpus import PublishedGpus, gpus_by_node
from orchestrator.observe.request import has_gpus_of_plugin
from orchestrator.observe.resource_claims import read_allocation, read_claim, read_class, read_slice
from orchestrator.observe.unreadable import Boundary, SkippedObject, Unreadable, UnreadableRequest
from orchestrator.planner.devices import model as dra
from orchestrator.planner.devices.inventory import is_overfull
from orchestrator.planner.model import Request

DynamicObject = ResourceSlice | DeviceClass | ResourceClaim

T = TypeVar("T")

_NOBODY: Final[Mapping[str, Pod]] = MappingProxyType({})
_NO_SLICES: Final[Mapping[str, dra.ResourceSlice]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PodClaims:
    """What a pod's claims are to the planner: their keys, the GPUs that they count as, where they can be used.

    `devices` are the indices of the GPUs that they hold on the pod's node.
    """

    keys: tuple[str, ...]
    request: Request
    terms: Terms = ()
    devices: tuple[int, ...] = ()
    extended: dra.Claim | None = None


class ClaimReader:
    """The objects of dynamic resource allocation by name, kept current by `note`."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._slices: dict[str, dra.ResourceSlice] = {}
        self._classes: dict[str, dra.DeviceClass] = {}
        self._extended: dict[str, str] = {}
        self._claims: dict[str, dra.ObservedClaim | Unreadable] = {}
        self._objects: dict[str, ResourceClaim] = {}
        self._unreadable: dict[tuple[str, str], SkippedObject] = {}
        self._users: dict[str, dict[str, Pod]] = {}
        self._made_of: dict[str, str] = {}
        self._keys_on: dict[str, dict[str, str]] = {}
        self._holders: dict[dra.DeviceId, dict[str, str]] = {}
        self._keys_of: dict[str, tuple[str, ...]] = {}
        self._assumed: dict[str, dra.ObservedClaim] = {}
        self._changed: set[str] = set()
        self.assumed: Mapping[str, dra.ObservedClaim] = MappingProxyType(self._assumed)
        self._slices_of: dict[dra.PoolId, dict[str, dra.ResourceSlice]] = {}
        self._pools_of: dict[str, dict[dra.PoolId, None]] = {}
        self._gpus: dict[str, PublishedGpus] = {}
        self._gpu_classes: GpuClasses | None = None
        self._dynamic: dra.DynamicResources | None = dra.NO_DYNAMIC_RESOURCES

    def note(self, changed: DynamicObject, *, is_there: bool) -> tuple[set[str], set[str]]:
        """Take a change; return the names of nodes and the uids of pods that it may concern."""
        self._dynamic = None
        if isinstance(changed, ResourceClaim):
            return self._note_claim(changed, is_there=is_there)
        if isinstance(changed, DeviceClass):
            read = self._read("DeviceClass", changed, lambda: read_class(changed)) if is_there else None
            put(self._classes, changed.metadata.name, read)
            put(
                self._extended,
                changed.metadata.name,
                changed.spec.extended_resource_name if is_there else None,
            )
            self._gpu_classes = None
            return set(), self._with_claims()
        return self._note_slice(changed, is_there=is_there)

    def note_pod(self, pod: Pod, *, is_there: bool) -> set[str]:
        """Take a change of a pod that may have claims; return the uids of those that share them with it."""
        uid = pod.metadata.uid
        before = self._keys_of.get(uid, ())
        keys = _keys(pod) if is_there and may_have_claims(pod) else ()
        for key in before:
            discard(self._users, key, uid)
        for key in keys:
            self._users.setdefault(key, {})[uid] = pod
        put(self._keys_of, uid, keys or None)
        return {other for key in (*before, *keys) for other in self._users.get(key, _NOBODY)} - {uid}

    def assume(self, key: str, claim: dra.ObservedClaim) -> None:
        """Assume that the claim has what is being written on it, until `forget`."""
        self._assumed[key] = claim
        self._changed.add(key)

    def forget(self, key: str) -> None:
        """Assume nothing about the claim: it counts as the watch shows it."""
        self._assumed.pop(key, None)
        self._changed.add(key)

    def settle(self) -> set[str]:
        """Return the uids of the pods that assumptions since the last call may concern."""
        if not self._changed:
            return set()
        self._dynamic = None
        owners = {uid for uid, key in self._made_of.items() if key in self._changed}
        users = {uid for key in self._changed for uid in self._users.get(key, _NOBODY)}
        self._changed.clear()
        return users | owners

    @property
    def gpu_class(self) -> str | None:
        """The class that serves pods which ask for GPUs without a claim: of several the first by name."""
        return min(
            (name for name, resource in self._extended.items() if resource == GPU_RESOURCE), default=None
        )

    def gpus(self) -> Mapping[str, PublishedGpus]:
        """The GPUs that are published, by node."""
        return self._gpus

    def dynamic(self) -> dra.DynamicResources:
        """Everything in the planner's terms; the same object while nothing changes."""
        if self._dynamic is None:
            claims = {
                key: listed for key, listed in self._claims.items() if isinstance(listed, dra.ObservedClaim)
            }
            claims.update(self._assumed)
            self._dynamic = dra.DynamicResources(
                tuple(self._slices[name] for name in sorted(self._slices)),
                tuple(self._classes[name] for name in sorted(self._classes)),
                tuple(claims[key] for key in sorted(claims)),
            )
        return self._dynamic

    def claim(self, key: str) -> dra.ObservedClaim | None:
        """The claim as it is, or as it is being written."""
        listed = self._assumed.get(key) or self._claims.get(key)
        return listed if isinstance(listed, dra.ObservedClaim) else None

    def shown(self, key: str) -> ResourceClaim | None:
        """The claim as the API server has it, as far as the watch shows."""
        return self._objects.get(key)

    def other_holder(self, key: str, allocation: dra.Allocation) -> str | None:
        """Another claim that holds one of the devices as well, or too much of it, as far as the watch shows."""
        for result in allocation.results:
            others = [other for other in self._holders.get(result.device_id, ()) if other != key]
            if others and (not result.share_id or self._is_overfull(result.device_id)):
                return others[0]
        return None

    def _is_overfull(self, device_id: dra.DeviceId) -> bool:
        """Whether the claims that hold parts of the device have more of it than there is."""
        consumed: dict[str, int] = {}
        claims = (self._claims.get(key) for key in self._holders.get(device_id, ()))
        for listed in claims:
            if not isinstance(listed, dra.ObservedClaim) or listed.allocation is None:
                continue
            for result in listed.allocation.results:
                if result.device_id != device_id or result.admin_access:
                    continue
                if not result.share_id:
                    return True  # somebody has all of it
                for name, nano in result.consumed:
                    consumed[name] = consumed.get(name, 0) + nano
        return is_overfull(self._slices_of.get(device_id[:2], _NO_SLICES).values(), device_id, consumed)

    def foreign_gpus(self, node: str, is_ours: Callable[[str], bool]) -> tuple[int, ...]:
        """The indices of the GPUs of a node that claims hold which are reserved for nobody whom muster counts."""
        gpus = self.gpus().get(node)
        if gpus is None:
            return ()
        indices = {device_id: index for index, device_id in enumerate(gpus.ids)}
        held: set[int] = set()
        for key in self._keys_on.get(node, ()):
            listed = self.claim(key)
            if (
                listed is None
                or listed.allocation is None
                or not listed.reserved_for
                or any(map(is_ours, listed.reserved_for))
            ):
                continue
            held.update(
                indices[result.device_id]
                for result in listed.allocation.results
                if result.device_id in indices and not result.admin_access
            )
        return tuple(sorted(held))

    def has_made_one_for(self, uid: str) -> bool:
        """Whether there is a claim that was made for the GPUs of the pod with this uid, whether it says so or not."""
        return uid in self._made_of

    def nodes_of(self, pod: Pod) -> set[str]:
        """The nodes where the pod's claims hold devices: those that were noted of it, and those that it names now."""
        uid = pod.metadata.uid
        made = (self._made_of[uid],) if uid in self._made_of else ()
        return {
            name
            for key in {*self._keys_of.get(uid, ()), *_keys(pod), *made}
            if (listed := self.claim(key)) is not None and listed.allocation is not None
            for name in _nodes_of(listed.allocation)
        }

    def read_pod(
        self, pod: Pod, request: Request, node: str | None, workload: Collection[str] | None = None
    ) -> PodClaims | None:
        """What the pod's claims are on its node, or on any (None). Raises UnreadableRequest when it has to wait.

        `request` is what it asks for beside its claims, `workload` the uids of its workload's pods; None: only it.
        """
        made = self._made_for_gpus(pod, node)
        extended = self._extended_claim(pod, request) if node is None and made is None else None
        if made is None and not may_have_claims(pod):
            return None if extended is None else PodClaims((), request, extended=extended)
        parts = made if request.is_shared else None
        if made is not None:
            request = replace(request, gpu_count=0)  # they are what that claim holds
        keys = _keys(pod) if node else tuple(self._usable_keys(pod))
        if node is None and made is not None:
            keys = (*keys, made)
        held, missing, held_parts = [], [], []
        terms: Terms = ()
        for key in keys:
            listed = self.claim(key)
            if listed is None:
                continue
            is_counted = self._is_counted(key, pod, workload)
            if listed.allocation is None or (node is None and self._is_given_up(key)):
                missing.append((listed.claim.spec, is_counted))
                continue
            if node is None and listed.allocation.nodes is not None:
                where = listed.allocation.nodes
                terms = both(terms, ((*where.expressions, *where.fields),))
            if key == parts:  # counted by what the pod asks for, which is the same before and after
                held_parts.append(listed.allocation)
            elif is_counted:
                held.append(listed.allocation)
        gpus = self.gpus()
        amounts = claimed_gpus([spec for spec, is_counted in missing if is_counted], self._classes_of_gpus())
        indices: tuple[int, ...] = ()
        if held or held_parts:
            on_node = gpus.get(node) if node else _gpus_held_on((*held, *held_parts), gpus)
            amounts = amounts.plus(held_gpus(held, on_node))
            indices = held_gpus((*held, *held_parts), on_node).devices
        return PodClaims(
            keys,
            amounts.added_to(request, tuple(spec for spec, _ in missing)),
            terms,
            indices if node else (),
            extended,
        )

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the objects that cannot be read."""
        yield from self._unreadable.values()

    def _note_slice(self, changed: ResourceSlice, *, is_there: bool) -> tuple[set[str], set[str]]:
        name = changed.metadata.name
        published = self._read("ResourceSlice", changed, lambda: read_slice(changed)) if is_there else None
        before = self._slices.get(name)
        put(self._slices, name, published)
        if before is not None:
            discard(self._slices_of, before.pool_id, name)
        if published is not None:
            self._slices_of.setdefault(published.pool_id, {})[name] = published
        nodes = {node for node in self._near(before, published) if self._count_gpus(node)}
        if nodes:
            self._gpu_classes = None
        return nodes, self._with_claims() if nodes else set()

    def _with_claims(self) -> set[str]:
        """The uids of pods that have claims, or one that was made for their GPUs, whether they say so yet or not."""
        return {*self._keys_of, *self._made_of}

    def _near(self, *slices: dra.ResourceSlice | None) -> set[str]:
        """The nodes of these slices and of those of their pools, and note which pools the nodes have."""
        nodes: set[str] = set()
        for listed in filter(None, slices):
            for other in (listed, *self._slices_of.get(listed.pool_id, _NO_SLICES).values()):
                if other.nodes.node_name:
                    nodes.add(other.nodes.node_name)
                    self._pools_of.setdefault(other.nodes.node_name, {})[other.pool_id] = None
        return nodes

    def _count_gpus(self, node: str) -> bool:
        """Read the GPUs of a node off the slices of its pools; return whether they are others than before."""
        before = self._gpus.get(node)
        slices = (
            listed
            for pool_id in self._pools_of[node]
            for listed in self._slices_of.get(pool_id, _NO_SLICES).values()
        )
        put(self._gpus, node, gpus_by_node(slices).get(node))
        return self._gpus.get(node) != before

    def _note_claim(self, changed: ResourceClaim, *, is_there: bool) -> tuple[set[str], set[str]]:
        key = f"{changed.metadata.namespace}/{changed.metadata.name}"
        before = self._claims.get(key)
        put(self._objects, key, changed if is_there else None)
        read = self._boundary.read(f"ResourceClaim {key}", lambda: _observed(changed)) if is_there else None
        put(self._claims, key, read)
        self._remember("ResourceClaim", changed, read)
        nodes: set[str] = set()
        for listed, sign in ((before, -1), (read, 1)):
            if isinstance(listed, dra.ObservedClaim) and listed.allocation is not None:
                for result in listed.allocation.results:
                    if result.admin_access:
                        continue
                    if sign > 0:
                        self._holders.setdefault(result.device_id, {})[key] = key
                    else:
                        discard(self._holders, result.device_id, key)
                for name in _nodes_of(listed.allocation):
                    nodes.add(name)
                    if sign > 0:
                        self._keys_on.setdefault(name, {})[key] = key
                    else:
                        discard(self._keys_on, name, key)
        users = set(self._users.get(key, _NOBODY))
        if NAME_INFIX in key and changed.metadata.controller is not None:
            users.add(changed.metadata.controller.uid)
            put(self._made_of, changed.metadata.controller.uid, key if is_there else None)
        return nodes, users

    def _read(self, kind: str, changed: DynamicObject, read: Callable[[], T]) -> T | None:
        outcome = self._boundary.read(f"{kind} {changed.metadata.name}", read)
        self._remember(kind, changed, outcome)
        return None if isinstance(outcome, Unreadable) else outcome

    def _remember(self, kind: str, changed: DynamicObject, outcome: object) -> None:
        metadata = changed.metadata
        why = outcome.why if isinstance(outcome, Unreadable) else None
        entry = (
            None if why is None else SkippedObject(kind, metadata.namespace, metadata.name, metadata.uid, why)
        )
        put(self._unreadable, (kind, metadata.uid), entry)

    def _usable_keys(self, pod: Pod) -> Iterator[str]:
        """The claims of a pod that waits; raises UnreadableRequest if it has to wait for one of them."""
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for reference in pod.spec.resource_claims:
            name = reference.resource_claim_name
            if name is None:
                if reference.name not in made:
                    template = reference.resource_claim_template_name
                    raise UnreadableRequest(
                        f"its claim {reference.name} is not made from its template {template} yet"
                    )
                name = made[reference.name]
                if name is None:
                    continue
            key = f"{pod.metadata.namespace}/{name}"
            self._check_usable(pod, key, from_template=reference.resource_claim_name is None)
            yield key

    def _check_usable(self, pod: Pod, key: str, *, from_template: bool) -> None:
        listed, observed = self._claims.get(key), self._objects.get(key)
        if listed is None or observed is None:
            raise UnreadableRequest(f"there is no ResourceClaim {key}")
        if isinstance(listed, Unreadable):
            raise UnreadableRequest(f"its ResourceClaim {key} cannot be read: {listed.why}")
        if observed.metadata.deletion_timestamp is not None:
            raise UnreadableRequest(f"its ResourceClaim {key} is being deleted")
        owner = observed.metadata.controller
        if from_template and (owner is None or owner.uid != pod.metadata.uid):
            raise UnreadableRequest(f"its ResourceClaim {key} was not made for it")

    def _is_counted(self, key: str, pod: Pod, workload: Collection[str] | None) -> bool:
        """Whether the claim counts with this user of it: what it holds once, else once for each workload that waits.

        Of several workloads any may start first, and has to have the GPUs.
        """
        users = self._users.get(key, _NOBODY).values()
        if _leaves(pod) and not self._is_given_up(key):
            return False
        alike = [user for user in users if _leaves(user) == _leaves(pod)]
        if not any(user.spec.node_name for user in alike):
            together = workload or (pod.metadata.uid,)
            alike = [user for user in alike if user.metadata.uid in together]
        first = min(alike, key=_before_others, default=pod)
        return first.metadata.uid == pod.metadata.uid

    def _is_given_up(self, key: str) -> bool:
        """Whether all pods that run with the claim leave: it holds nothing any more when they are gone."""
        running = [user for user in self._users.get(key, _NOBODY).values() if user.spec.node_name]
        return bool(running) and all(map(_leaves, running))

    def _classes_of_gpus(self) -> GpuClasses:
        if self._gpu_classes is None:
            samples = {sample for gpus in self.gpus().values() for sample in gpus.samples}
            most = max((len(gpus.ids) for gpus in self.gpus().values()), default=0)
            self._gpu_classes = GpuClasses(self._classes, samples, most)
        return self._gpu_classes

    def _made_for_gpus(self, pod: Pod, node: str | None) -> str | None:
        """The key of the claim that was made for the pod's GPUs, if it is there and holds them.

        It is there before the pod says so: an operator may have ended in between.
        """
        key = self.made_for(pod) if node is None else None
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            key = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
        listed = None if key is None else self.claim(key)
        return None if listed is None or listed.allocation is None else key

    def made_for(self, pod: Pod) -> str | None:
        """The key of the claim that muster made for the pod's GPUs, if the watch shows that it holds some."""
        key = f"{pod.metadata.namespace}/{claim_name(pod)}"
        shown = self._objects.get(key)
        if shown is None or shown.status.allocation is None or shown.metadata.controller is None:
            return None
        return key if shown.metadata.controller.uid == pod.metadata.uid else None

    def _extended_claim(self, pod: Pod, request: Request) -> dra.Claim | None:
        """The claim for the pod's GPUs on a node that publishes them, if there is a class for that."""
        if (gpu_class := self.gpu_class) is None:
            return None
        if request.is_shared and not request.gpu_count:
            return part_claim(pod, gpu_class, request.shared_devices)
        return extended_claim(pod, gpu_class) if request.gpu_count else None


def _observed(claim: ResourceClaim) -> dra.ObservedClaim:
    return dra.ObservedClaim(
        read_claim(claim),
        read_allocation(claim),
        tuple(consumer.uid for consumer in claim.status.reserved_for if consumer.resource == "pods"),
    )


def may_have_claims(pod: Pod) -> bool:
    """Whether the pod has claims of its own, or one that was made for its GPUs."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def gets_gpus_by_claims(pod: Pod) -> bool:
    """Whether the pod has claims, and no device plugin gives it GPUs beside them."""
    return may_have_claims(pod) and not has_gpus_of_plugin(pod)


def named_claims(pod: Pod) -> tuple[str, ...]:
    """The keys of the claims that the pod names, or that were made from its templates."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (
        reference.resource_claim_name or made.get(reference.name) for reference in pod.spec.resource_claims
    )
    return tuple(dict.fromkeys(f"{pod.metadata.namespace}/{name}" for name in names if name))


def _keys(pod: Pod) -> tuple[str, ...]:
    """Those, and the claim that was made for the pod's GPUs."""
    extended = pod.status.extended_resource_claim_status
    if extended is None or not extended.resource_claim_name:
        return named_claims(pod)
    key = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
    return tuple(dict.fromkeys((*named_claims(pod), key)))


def _gpus_held_on(
    allocations: Iterable[dra.Allocation], gpus: Mapping[str, PublishedGpus]
) -> PublishedGpus | None:
    """The GPUs of the node that these are bound to."""
    names = (name for allocation in allocations for name in _nodes_of(allocation))
    return next((gpus[name] for name in names if name in gpus), None)


def _leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _before_others(pod: Pod) -> tuple[bool, str, str]:
    return not pod.spec.node_name, pod.metadata.creation_timestamp, pod.metadata.uid


def _nodes_of(allocation: dra.Allocation) -> Iterator[str]:
    """The names of the nodes that the allocation is bound to, as far as it names them."""
    for requirement in allocation.nodes.fields if allocation.nodes is not None else ():
        if requirement.key == "metadata.name" and requirement.operator == "In":
            yield from requirement.values
