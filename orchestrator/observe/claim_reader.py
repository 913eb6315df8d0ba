"""Computes the effects of ResourceSlices, DeviceClasses and ResourceClaims on nodes and pods, and updates them after
changes.

If several pods share a claim, its GPUs count only for the oldest bound pod. If none is bound, they count for the oldest
pod of each workload. A terminating pod is chosen only if all bound users terminate.
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
    """A pod's claims in the planner's terms: their keys, the request with their GPUs, and the nodes that can use them.

    `devices` are the indices of the GPUs that they hold on the pod's node. `extended` is the claim to create.
    """

    keys: tuple[str, ...]
    request: Request
    terms: Terms = ()
    devices: tuple[int, ...] = ()
    extended: dra.Claim | None = None


class ClaimReader:
    """The pods that use claims. `slices` and `cache` have the other objects of dynamic resource allocation."""

    def __init__(self, boundary: Boundary) -> None:
        self.slices = SliceReader(boundary)
        self.cache = ClaimCache(boundary, self.slices)
        self._users: dict[str, dict[str, Pod]] = {}
        self._keys_of: dict[str, tuple[str, ...]] = {}
        self._dynamic: dra.DynamicResources | None = dra.NO_DYNAMIC_RESOURCES

    def note(self, changed: DynamicObject, *, is_there: bool) -> tuple[set[str], set[str]]:
        """Apply a change. Return the names of nodes and the uids of pods that must be read again."""
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
        """Return the uids of pods that must be read again because assumptions changed since the last call."""
        changed, owners = self.cache.settle()
        if changed:
            self._dynamic = None
        return self._users_of(changed) | owners

    def dynamic(self) -> dra.DynamicResources:
        """Return all slices, classes and claims for the planner.

        If nothing changed, return the same object as before.
        """
        if self._dynamic is None:
            self._dynamic = dra.DynamicResources(self.slices.slices, self.slices.classes, self.cache.claims())
        return self._dynamic

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the objects that cannot be read."""
        yield from self.slices.skipped()
        yield from self.cache.skipped()

    def nodes_of(self, pod: Pod) -> set[str]:
        """Return the nodes on which claims of the pod hold devices, including claims that the pod no longer names."""
        uid = pod.metadata.uid
        made = self.cache.key_made_for(uid)
        return {
            name
            for key in {*self._keys_of.get(uid, ()), *_keys(pod), *([made] if made else ())}
            if (listed := self.cache.claim(key)) is not None and listed.allocation is not None
            for name in nodes_of(listed.allocation)
        }

    def note_pod(self, pod: Pod, *, is_there: bool) -> set[str]:
        """Apply a change of a pod. Return the uids of other pods that share its claims."""
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
        """Return the indices of the node's GPUs in claims that are reserved only for other pods. `is_ours` returns
        whether a pod (uid) is in a workload of muster.
        """
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
        """Return the pod's claims on `node` (None: unbound). Raises UnreadableRequest if a claim is not ready.

        `request` does not include the claims. `workload` are the uids of the workload's pods; None: only the pod.
        """
        made = self._made_for_gpus(pod, node)
        extended = self._extended_claim(pod, request) if node is None and made is None else None
        if made is None and not may_have_claims(pod):
            return None if extended is None else PodClaims((), request, extended=extended)
        parts = made if request.is_shared else None
        if made is not None:
            request = replace(request, gpu_count=0)  # the created claim has these GPUs
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
            if key == parts:  # the pod's request already has its fractions
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
        """Return the uids of pods with claims, including pods that do not name their created claim yet."""
        return {*self._keys_of, *self.cache.made_owners()}

    def _usable_keys(self, pod: Pod) -> Iterator[str]:
        """Yield the claim keys of a pending pod. Raises UnreadableRequest if one of them is not ready."""
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
        """Return whether the claim's GPUs count for this pod: an allocation counts once, a request once for each
        pending workload.

        If several pending workloads share the claim, its GPUs count for each of them, because each can be the first to
        start.
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
        """Return whether all bound users of the claim are terminating, so that it will lose its devices."""
        running = [user for user in self._users.get(key, _NO_USERS).values() if user.spec.node_name]
        return bool(running) and all(map(_leaves, running))

    def _made_for_gpus(self, pod: Pod, node: str | None) -> str | None:
        """Return the key of the claim that was created for the pod's GPUs, if it exists and is allocated; or None.

        If an operator ended in between, the claim can exist although the pod does not name it.
        """
        key = self.cache.made_for(pod) if node is None else None
        extended = pod.status.extended_resource_claim_status
        if extended is not None:
            key = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
        listed = None if key is None else self.cache.claim(key)
        return None if listed is None or listed.allocation is None else key

    def _extended_claim(self, pod: Pod, request: Request) -> dra.Claim | None:
        """Return the claim to create on nodes that publish their GPUs; None without a DeviceClass for GPUs."""
        if (gpu_class := self.slices.gpu_class) is None:
            return None
        if request.is_shared and not request.gpu_count:
            return part_claim(pod, gpu_class, request.shared_devices)
        return extended_claim(pod, gpu_class) if request.gpu_count else None


def may_have_claims(pod: Pod) -> bool:
    """Return whether the pod names claims, or a claim that was created for its GPUs."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def gets_gpus_by_claims(pod: Pod) -> bool:
    """Return whether the pod has claims and gets no GPUs from a device plugin."""
    return may_have_claims(pod) and not has_gpus_of_plugin(pod)


def named_claims(pod: Pod) -> tuple[str, ...]:
    """Return the keys of the claims that the pod names or that were created from its templates."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (
        reference.resource_claim_name or made.get(reference.name) for reference in pod.spec.resource_claims
    )
    return tuple(dict.fromkeys(f"{pod.metadata.namespace}/{name}" for name in names if name))


def _keys(pod: Pod) -> tuple[str, ...]:
    """Return the keys of `named_claims` and of the claim that was created for the pod's GPUs."""
    extended = pod.status.extended_resource_claim_status
    if extended is None or not extended.resource_claim_name:
        return named_claims(pod)
    key = f"{pod.metadata.namespace}/{extended.resource_claim_name}"
    return tuple(dict.fromkeys((*named_claims(pod), key)))


def _gpus_held_on(
    allocations: Iterable[dra.Allocation], gpus: Mapping[str, PublishedGpus]
) -> PublishedGpus | None:
    """Return the published GPUs of the node to which the allocations are bound; None if the node publishes no GPUs."""
    names = (name for allocation in allocations for name in nodes_of(allocation))
    return next((gpus[name] for name in names if name in gpus), None)


def _leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _before_others(pod: Pod) -> tuple[bool, str, str]:
    return not pod.spec.node_name, pod.metadata.creation_timestamp, pod.metadata.uid
