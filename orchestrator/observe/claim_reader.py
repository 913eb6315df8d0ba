"""Slices, classes and claims as they change, and their meaning for nodes and pods.

If several pods share a claim, its GPUs count as those of one of them. It is the oldest pod with a node, else the
oldest of each pending workload. Terminating pods do not count beside others. The other pods count nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from orchestrator.cluster.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from orchestrator.cluster.objects import Pod
from orchestrator.devices import model as dra
from orchestrator.observe.claim_amounts import claimed_gpus, held_gpus
from orchestrator.observe.claim_cache import ClaimCache, key_of, nodes_of
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.extended_claims import extended_claim, part_claim
from orchestrator.observe.node_terms import Terms, both
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.observe.request import has_gpus_of_plugin
from orchestrator.observe.slice_reader import SliceReader
from orchestrator.observe.unreadable import Boundary, SkippedObject, Unreadable, UnreadableRequest
from orchestrator.planner.model import Request

DynamicObject = ResourceSlice | DeviceClass | ResourceClaim

_NO_USERS: Final[Mapping[str, Pod]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod's claims for the planner: their keys, their GPUs in quotas, the nodes on which they can be used.

    `devices` are the indices of the GPUs that they hold on the pod's node.
    """

    keys: tuple[str, ...]
    request: Request
    terms: Terms = ()
    devices: tuple[int, ...] = ()
    extended: dra.Claim | None = None


class ClaimReader:
    """The pods that use claims. `slices` and `cache` have the objects of dynamic resource allocation."""

    def __init__(self, boundary: Boundary) -> None:
        self.slices = SliceReader(boundary)
        self.cache = ClaimCache(boundary, self.slices)
        self._users: dict[str, dict[str, Pod]] = {}
        self._keys_of: dict[str, tuple[str, ...]] = {}
        self._dynamic: dra.DynamicResources | None = dra.NO_DYNAMIC_RESOURCES

    def note(self, changed: DynamicObject, *, is_there: bool) -> tuple[set[str], set[str]]:
        """Take a change; return the names of nodes and the uids of pods that it may concern."""
        self._dynamic = None
        if isinstance(changed, ResourceClaim):
            users = self._users_of([key_of(changed)])
            if self.cache.is_made(changed) and changed.metadata.controller is not None:
                users.add(changed.metadata.controller.uid)
            return self.cache.note(changed, is_there=is_there), users
        if isinstance(changed, DeviceClass):
            self.slices.note_class(changed, is_there=is_there)
            return set(), self._with_claims()
        nodes = self.slices.note_slice(changed, is_there=is_there)
        return nodes, self._with_claims() if nodes else set()

    def settle(self) -> set[str]:
        """Return the uids of the pods that assumptions since the last call may concern."""
        changed, owners = self.cache.settle()
        if changed:
            self._dynamic = None
        return self._users_of(changed) | owners

    def dynamic(self) -> dra.DynamicResources:
        """Return everything in the planner's terms; the same object while nothing changes."""
        if self._dynamic is None:
            self._dynamic = dra.DynamicResources(self.slices.slices, self.slices.classes, self.cache.claims())
        return self._dynamic

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the objects that cannot be read."""
        yield from self.slices.skipped()
        yield from self.cache.skipped()

    def nodes_of(self, pod: Pod) -> set[str]:
        """The nodes where the pod's claims hold devices: its noted claims, and those that it names now."""
        uid = pod.metadata.uid
        made = self.cache.key_made_for(uid)
        return {
            name
            for key in {*self._keys_of.get(uid, ()), *_keys(pod), *([made] if made else ())}
            if (listed := self.cache.claim(key)) is not None and listed.allocation is not None
            for name in nodes_of(listed.allocation)
        }

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
        return {other for key in (*before, *keys) for other in self._users.get(key, _NO_USERS)} - {uid}

    def foreign_gpus(self, node: str, is_ours: Callable[[str], bool]) -> tuple[int, ...]:
        """The indices of the node's GPUs in claims that are reserved only for pods that muster does not count."""
        gpus = self.slices.gpus().get(node)
        if gpus is None:
            return ()
        indices = {device_id: index for index, device_id in enumerate(gpus.ids)}
        held: set[int] = set()
        for key in self.cache.keys_on(node):
            listed = self.cache.claim(key)
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

    def read_pod(
        self, pod: Pod, request: Request, node: str | None, workload: Collection[str] | None = None
    ) -> PodClaims | None:
        """The pod's claims on its node, or on any (None). Raises UnreadableRequest if it has to wait.

        `request` is the pod's request beside its claims, `workload` the uids of its workload's pods; None: only it.
        """
        made = self._made_for_gpus(pod, node)
        extended = self._extended_claim(pod, request) if node is None and made is None else None
        if made is None and not may_have_claims(pod):
            return None if extended is None else PodClaims((), request, extended=extended)
        parts = made if request.is_shared else None
        if made is not None:
            request = replace(request, gpu_count=0)  # they are the devices of that claim
        keys = _keys(pod) if node else tuple(self._usable_keys(pod))
        if node is None and made is not None:
            keys = (*keys, made)
        held, missing, held_parts = [], [], []
        terms: Terms = ()
        for key in keys:
            listed = self.cache.claim(key)
            if listed is None:
                continue
            is_counted = self._is_counted(key, pod, workload)
            if listed.allocation is None or (node is None and self._is_given_up(key)):
                missing.append((listed.claim.spec, is_counted))
                continue
            if node is None and listed.allocation.nodes is not None:
                where = listed.allocation.nodes
                terms = both(terms, ((*where.expressions, *where.fields),))
            if key == parts:  # counted by the pod's request, which is the same before and after
                held_parts.append(listed.allocation)
            elif is_counted:
                held.append(listed.allocation)
        gpus = self.slices.gpus()
        amounts = claimed_gpus(
            [spec for spec, is_counted in missing if is_counted], self.slices.classes_of_gpus()
        )
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

    def _users_of(self, keys: Iterable[str]) -> set[str]:
        return {uid for key in keys for uid in self._users.get(key, _NO_USERS)}

    def _with_claims(self) -> set[str]:
        """The uids of pods that have claims, or a claim for their GPUs that they may not name yet."""
        return {*self._keys_of, *self.cache.made_owners()}

    def _usable_keys(self, pod: Pod) -> Iterator[str]:
        """The claims of a pending pod; raises UnreadableRequest if it has to wait for one of them."""
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
        listed, observed = self.cache.read(key), self.cache.shown(key)
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
        """Whether the claim counts with this user: an allocation once, a request once for each pending workload.

        If several workloads share the claim, any of them can start first and then needs the GPUs.
        """
        users = self._users.get(key, _NO_USERS).values()
        if _leaves(pod) and not self._is_given_up(key):
            return False
        alike = [user for user in users if _leaves(user) == _leaves(pod)]
        if not any(user.spec.node_name for user in alike):
            together = workload or (pod.metadata.uid,)
            alike = [user for user in alike if user.metadata.uid in together]
        first = min(alike, key=_before_others, default=pod)
        return first.metadata.uid == pod.metadata.uid

    def _is_given_up(self, key: str) -> bool:
        """Whether all running users of the claim are terminating: after their end it has no devices."""
        running = [user for user in self._users.get(key, _NO_USERS).values() if user.spec.node_name]
        return bool(running) and all(map(_leaves, running))

    def _made_for_gpus(self, pod: Pod, node: str | None) -> str | None:
        """The key of the claim that was made for the pod's GPUs, if it is there and holds them.

        The claim can exist before the pod names it, if an operator ended in between.
        """
        key = self.cache.made_for(pod) if node is None else None
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            key = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
        listed = None if key is None else self.cache.claim(key)
        return None if listed is None or listed.allocation is None else key

    def _extended_claim(self, pod: Pod, request: Request) -> dra.Claim | None:
        """The claim for the pod's GPUs on a node that publishes them, if there is a class for that."""
        if (gpu_class := self.slices.gpu_class) is None:
            return None
        if request.is_shared and not request.gpu_count:
            return part_claim(pod, gpu_class, request.shared_devices)
        return extended_claim(pod, gpu_class) if request.gpu_count else None


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
    """The keys of these claims, and of the claim for the pod's GPUs."""
    extended = pod.status.extended_resource_claim_status
    if extended is None or not extended.resource_claim_name:
        return named_claims(pod)
    key = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
    return tuple(dict.fromkeys((*named_claims(pod), key)))


def _gpus_held_on(
    allocations: Iterable[dra.Allocation], gpus: Mapping[str, PublishedGpus]
) -> PublishedGpus | None:
    """The GPUs of the node that these are bound to."""
    names = (name for allocation in allocations for name in nodes_of(allocation))
    return next((gpus[name] for name in names if name in gpus), None)


def _leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _before_others(pod: Pod) -> tuple[bool, str, str]:
    return not pod.spec.node_name, pod.metadata.creation_timestamp, pod.metadata.uid
