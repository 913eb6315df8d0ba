"""The ResourceClaims, as if all started allocations were already written.

watch ──> note ──────────────┐
grants ──> assume ──> the claim as it will be ──> Reader
       ──> forget: refused, or shown by the watch
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from orchestrator.cluster.device_objects import ResourceClaim
from orchestrator.cluster.objects import Pod
from orchestrator.devices import model as dra
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.extended_claims import NAME_INFIX, claim_name
from orchestrator.observe.resource_claims import read_allocation, read_claim
from orchestrator.observe.slice_reader import SliceReader
from orchestrator.observe.unreadable import Boundary, ReadObjects, SkippedObject, Unreadable

_NO_KEYS: Final[Mapping[str, str]] = MappingProxyType({})


class ClaimCache:
    """The claims by key (namespace and name). `assumed` are the claims with started allocations."""

    def __init__(self, boundary: Boundary, slices: SliceReader) -> None:
        self._objects = ReadObjects(boundary)
        self._slices = slices
        self._shown: dict[str, ResourceClaim] = {}
        self._claims: dict[str, dra.ObservedClaim | Unreadable] = {}
        self._assumed: dict[str, dra.ObservedClaim] = {}
        self._changed: set[str] = set()
        self._made_of: dict[str, str] = {}
        self._keys_on: dict[str, dict[str, str]] = {}
        self._holders: dict[dra.DeviceId, dict[str, str]] = {}
        self.assumed: Mapping[str, dra.ObservedClaim] = MappingProxyType(self._assumed)

    def note(self, changed: ResourceClaim, *, is_there: bool) -> set[str]:
        """Apply a change of a claim. Return the names of the nodes on which it had or has devices."""
        key = key_of(changed)
        before = self._claims.get(key)
        put(self._shown, key, changed if is_there else None)
        read: dra.ObservedClaim | Unreadable | None = None
        if is_there:
            read = self._objects.read("ResourceClaim", changed.metadata, lambda: _observed(changed))
        else:
            self._objects.forget(changed.metadata)
        put(self._claims, key, read)
        if self.is_made(changed) and changed.metadata.controller is not None:
            put(self._made_of, changed.metadata.controller.uid, key if is_there else None)
        nodes: set[str] = set()
        for listed, sign in ((before, -1), (read, 1)):
            if isinstance(listed, dra.ObservedClaim) and listed.allocation is not None:
                self._count(key, listed.allocation, sign)
                nodes.update(nodes_of(listed.allocation))
        return nodes

    def assume(self, key: str, claim: dra.ObservedClaim) -> None:
        """Assume, until `forget`, that the claim has the state `claim`."""
        self._assumed[key] = claim
        self._changed.add(key)

    def forget(self, key: str) -> None:
        """End the assumption about the claim: the state that the watch shows counts."""
        self._assumed.pop(key, None)
        self._changed.add(key)

    def settle(self) -> tuple[set[str], set[str]]:
        """Return the claims (keys) whose assumption changed since the last call, and the owners (uids) of claims that
        muster created.
        """
        changed, self._changed = self._changed, set()
        owners = {uid for uid, key in self._made_of.items() if key in changed} if changed else set()
        return changed, owners

    def claims(self) -> tuple[dra.ObservedClaim, ...]:
        """Return all readable claims with their assumptions, sorted by key."""
        claims = {
            key: listed for key, listed in self._claims.items() if isinstance(listed, dra.ObservedClaim)
        }
        claims.update(self._assumed)
        return tuple(claims[key] for key in sorted(claims))

    def claim(self, key: str) -> dra.ObservedClaim | None:
        """Return the claim with its assumption; None if it is unknown or unreadable."""
        listed = self._assumed.get(key) or self._claims.get(key)
        return listed if isinstance(listed, dra.ObservedClaim) else None

    def shown(self, key: str) -> ResourceClaim | None:
        """Return the object that the watch shows, or None."""
        return self._shown.get(key)

    def read(self, key: str) -> dra.ObservedClaim | Unreadable | None:
        """Return the claim that the watch shows, without assumptions, or the reason why it cannot be read."""
        return self._claims.get(key)

    def keys_on(self, node: str) -> Iterable[str]:
        """Return the keys of the claims that hold devices of a node, without assumptions."""
        return self._keys_on.get(node, _NO_KEYS)

    @staticmethod
    def is_made(claim: ResourceClaim) -> bool:
        """Return whether the claim was created for the GPUs of the pod that owns it."""
        return NAME_INFIX in key_of(claim) and claim.metadata.controller is not None

    def made_for(self, pod: Pod) -> str | None:
        """Return the key of the claim that was created for the pod's GPUs if the watch shows its devices, or None."""
        key = f"{pod.metadata.namespace}/{claim_name(pod)}"
        shown = self._shown.get(key)
        if shown is None or shown.status.allocation is None or shown.metadata.controller is None:
            return None
        return key if shown.metadata.controller.uid == pod.metadata.uid else None

    def key_made_for(self, uid: str) -> str | None:
        """Return the key of the claim that was created for this pod (uid), even if the pod does not name it."""
        return self._made_of.get(uid)

    def made_owners(self) -> Iterable[str]:
        """Return the uids of the pods for whose GPUs a claim was created."""
        return self._made_of

    def other_holder(self, key: str, allocation: dra.Allocation) -> str | None:
        """Return the key of another claim that holds one of the devices, or that shares one beyond its capacity.

        None if there is none.
        """
        for result in allocation.results:
            others = [other for other in self._holders.get(result.device_id, ()) if other != key]
            if others and (not result.share_id or self._is_overfull(result.device_id)):
                return others[0]
        return None

    def skipped(self) -> Iterable[SkippedObject]:
        """Return the claims that cannot be read."""
        return self._objects.skipped()

    def _count(self, key: str, allocation: dra.Allocation, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) the devices of the claim and their nodes."""
        for result in allocation.results:
            if result.admin_access:
                continue
            if sign > 0:
                self._holders.setdefault(result.device_id, {})[key] = key
            else:
                discard(self._holders, result.device_id, key)
        for name in nodes_of(allocation):
            if sign > 0:
                self._keys_on.setdefault(name, {})[key] = key
            else:
                discard(self._keys_on, name, key)

    def _is_overfull(self, device_id: dra.DeviceId) -> bool:
        """Return whether the claims that share the device have more than its capacity."""
        consumed: dict[str, int] = {}
        claims = (self._claims.get(key) for key in self._holders.get(device_id, ()))
        for listed in claims:
            if not isinstance(listed, dra.ObservedClaim) or listed.allocation is None:
                continue
            for result in listed.allocation.results:
                if result.device_id != device_id or result.admin_access:
                    continue
                if not result.share_id:
                    return True  # a claim holds the whole device
                for name, nano in result.consumed:
                    consumed[name] = consumed.get(name, 0) + nano
        return self._slices.is_overfull(device_id, consumed)


def key_of(claim: ResourceClaim) -> str:
    """Return the key of a claim: `namespace/name`."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def nodes_of(allocation: dra.Allocation) -> Iterator[str]:
    """Yield the names of the nodes to which the allocation is bound by name."""
    for requirement in allocation.nodes.fields if allocation.nodes is not None else ():
        if requirement.key == "metadata.name" and requirement.operator == "In":
            yield from requirement.values


def _observed(claim: ResourceClaim) -> dra.ObservedClaim:
    return dra.ObservedClaim(
        read_claim(claim),
        read_allocation(claim),
        tuple(consumer.uid for consumer in claim.status.reserved_for if consumer.resource == "pods"),
    )
