"""The writes to ResourceClaims between a decision and the binding of a pod.

For each claim of the pod, in the order that Kubernetes requires of schedulers:

    finalizer ──> status: allocation, reservedFor ──> binding conditions, if any ──> seen on the watch ──> pod bound

All steps are safe to repeat. From the start of an allocation until the watch shows it, its devices count as allocated,
so no other pod gets them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakValueDictionary

from orchestrator.cluster.device_objects import ResourceClaim
from orchestrator.cluster.errors import AlreadyExists, ClusterError, Conflict, NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.resources import PODS, RESOURCE_CLAIMS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.control.carry_out.volume_claims import ClaimNotReady
from orchestrator.devices.model import MAX_USERS, Allocation, ObservedClaim
from orchestrator.names import CLAIM_FINALIZER
from orchestrator.observe.claim_cache import ClaimCache
from orchestrator.observe.claim_reader import named_claims
from orchestrator.observe.extended_claims import claim_name, claim_object, request_mappings
from orchestrator.observe.resource_claims import UnreadableDevices, allocation_object, read_allocation
from orchestrator.planner.model import Binding, ClaimGrant

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 5
POLL_SECONDS: Final = 1.0
SHOWN_SECONDS: Final = 5.0
"""Maximum time that a binding waits until the watch shows the writes to its claims."""
CONDITIONS_SECONDS: Final = 600.0
"""kube-scheduler's default time for binding conditions."""


class ClaimGrants:
    """Writes the allocations of claims. `cache` assumes each of them until the watch shows it."""

    def __init__(
        self,
        transport: Transport,
        cache: ClaimCache,
        *,
        version: str | None,
        shown_seconds: float = SHOWN_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._cache = cache
        self._claims = replace(RESOURCE_CLAIMS, version=version or RESOURCE_CLAIMS.version)
        self._shown_seconds = shown_seconds
        self._sleep = sleep
        self._seen: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """By claim key, the event that wakes the bindings that wait for a change of this claim."""
        self._writing: dict[str, int] = {}
        self._written: dict[str, str] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_echo(self, claim: object) -> bool:
        """Return whether this process has allocated the claim, and the watch has not shown the allocation."""
        if not isinstance(claim, ResourceClaim):
            return False
        return f"{claim.metadata.namespace}/{claim.metadata.name}" in self._cache.assumed

    def see(self, change: Change[Any]) -> None:
        """Wake the bindings that wait for this claim. Call it after the reader has processed the change."""
        changed = change.object
        if isinstance(changed, ResourceClaim):
            seen = self._seen.get(f"{changed.metadata.namespace}/{changed.metadata.name}")
            if seen is not None:
                seen.set()

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """Forget the assumed allocations that the watch shows, and the assumed allocations of deleted claims.

        An allocation that is being written stays assumed.

        If the state that the watch shows is older than the write, the allocation stays assumed.
        """
        for key in list(self._cache.assumed):
            if self._is_overtaken(key, pods):
                self._cache.forget(key)
                self._written.pop(key, None)

    def _is_overtaken(self, key: str, pods: Mapping[str, Pod]) -> bool:
        shown, assumed = self._cache.shown(key), self._cache.assumed[key]
        if shown is not None and shown.status.allocation is not None:
            return True
        if key in self._writing:
            return False
        if shown is None:  # deleted, or created by this process and not yet shown
            return bool(assumed.claim.uid) or pods.keys().isdisjoint(assumed.reserved_for)
        return key not in self._written or _is_as_new(shown.metadata.resource_version, self._written[key])

    def begin(self, pod: Pod, binding: Binding) -> tuple[str, ...]:
        """Assume the allocations of the pod's claims. Return the claim keys for `end`."""
        granted = _granted(pod, binding)
        for key, grant in granted.items():
            self._writing[key] = self._writing.get(key, 0) + 1
            known = self._cache.assumed.get(key)
            users = known.reserved_for if known else ()
            self._cache.assume(key, ObservedClaim(grant.claim, grant.allocation, (*users, pod.metadata.uid)))
        return tuple(granted)

    async def end(self, keys: Iterable[str], *, is_bound: bool) -> None:
        """End the assumption for these claims. If the pod is not bound, ask the API server if they are allocated."""
        for key in keys:
            if not is_bound and not await self._is_allocated(key) and self._writing.get(key) == 1:
                self._cache.forget(key)
                self._written.pop(key, None)
            count = self._writing.pop(key, 0) - 1
            if count > 0:
                self._writing[key] = count

    def concern(self, pod: Pod, binding: Binding) -> bool:
        """Return whether claims must be written before the pod is bound."""
        return bool(pod.spec.resource_claims or binding.grants or self._cache.made_for(pod))

    async def write(self, pod: Pod, binding: Binding) -> None:
        """Allocate and reserve all claims of the pod. Raises Conflict if another writer was faster."""
        granted = _granted(pod, binding)
        extended = [grant for grant in granted.values() if grant.extended]
        made = None if extended else self._cache.made_for(pod)
        for key in (*named_claims(pod), *([made] if made else ())):
            async with self._lock(key):  # without the lock, writes of pods that share a claim would conflict
                await self._reserve(key, pod, granted.get(key))
        for grant in extended:
            await self._make_extended(pod, grant)
        if extended or (made and pod.status.extended_resource_claim_status is None):
            await self._tell_kubelet(pod)

    async def wait_until_shown(self, pod: Pod, binding: Binding) -> None:
        """Wait until the watch shows the allocations, at most for `shown_seconds`.

        The watch has then also shown all earlier writes of other schedulers.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._shown_seconds):
                for key in _granted(pod, binding):
                    seen = self._seen.setdefault(key, asyncio.Event())
                    while (shown := self._cache.shown(key)) is None or shown.status.allocation is None:
                        seen.clear()
                        await seen.wait()

    async def give_way(self, pod: Pod, binding: Binding) -> None:
        """Release devices that another scheduler allocated at the same moment, and raise Conflict if there are any.

        The API server does not prevent such double allocations. If the other write comes later, the planner resolves
        it.
        """
        for key, grant in _granted(pod, binding).items():
            other = self._cache.other_holder(key, grant.allocation)
            if other is not None:
                shown = self._cache.shown(key)
                if shown is not None:
                    await self._clear(shown)
                raise _conflict(f"another scheduler gave a device of the claim {key} to the claim {other}")

    def has_conditions(self, pod: Pod, binding: Binding) -> bool:
        """Return whether drivers must prepare devices of the pod's claims before it is bound."""
        return any(
            result.binding_conditions
            for given in self._given(pod, binding).values()
            for result in given.results
        )

    async def wait_for_conditions(self, pod: Pod, binding: Binding, is_due: Callable[[], bool]) -> None:
        """Write the claims, and wait until the drivers have prepared the devices. Raises ClaimNotReady.

        If a device cannot be prepared, the claims are released, so that the next decision can choose other devices.
        """
        given = self._given(pod, binding)
        try:
            if is_due():
                await self.write(pod, binding)
            await self._wait(given, is_due)
        except _Unprepared:
            for key in given:
                await self._take_back(key, pod)
            raise
        except ClusterError as error:
            raise ClaimNotReady(str(error)) from error

    async def _wait(self, given: Mapping[str, Allocation], is_due: Callable[[], bool]) -> None:
        waited_seconds = 0.0
        while is_due():
            states = [await self._conditions(key, allocation) for key, allocation in given.items()]
            if all(states):
                return
            if waited_seconds >= CONDITIONS_SECONDS:
                raise _Unprepared(f"its devices were not ready after {CONDITIONS_SECONDS:.0f} s")
            await self._sleep(POLL_SECONDS)
            waited_seconds += POLL_SECONDS

    def _given(self, pod: Pod, binding: Binding) -> dict[str, Allocation]:
        """Return the allocations that the pod's claims have with this binding, by key."""
        made = self._cache.made_for(pod)
        keys = (*named_claims(pod), *([made] if made else ()))
        held = {key: listed.allocation for key in keys if (listed := self._cache.claim(key))}
        given = {key: allocation for key, allocation in held.items() if allocation is not None}
        return given | {key: grant.allocation for key, grant in _granted(pod, binding).items()}

    async def _take_back(self, key: str, pod: Pod) -> None:
        """Release the devices of the claim if no other pod uses it."""
        namespace, _, name = key.partition("/")
        try:
            claim = await self._transport.get(self._claims.path(namespace, name), ResourceClaim)
            if {user.uid for user in claim.status.reserved_for} <= {pod.metadata.uid}:
                await self._clear(claim)
        except ClusterError as error:
            logger.info("claim %s: its devices were not taken back: %s", key, error)

    def deallocation(
        self, key: str, is_waiting: Callable[[str], bool]
    ) -> Callable[[], Awaitable[None]] | None:
        """Return a call that releases the claim's devices. Return None if a pod uses the claim and is not pending
        (`is_waiting`).

        The patch names the version of the claim, so a repetition does not release a later allocation.
        """
        shown = self._cache.shown(key)
        if shown is None or shown.status.allocation is None or key in self._writing:
            return None
        users = [consumer.uid for consumer in shown.status.reserved_for]
        if not all(map(is_waiting, users)):
            return None

        async def take_back() -> None:
            async with self._lock(key):
                # In the meantime, a pod may have been bound with the claim's present devices.
                if key not in self._writing and all(map(is_waiting, users)):
                    await self._clear(shown)

        return take_back

    async def _clear(self, claim: ResourceClaim) -> None:
        metadata = claim.metadata
        path = self._claims.path(metadata.namespace, metadata.name)
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": version, "status": {"allocation": None, "reservedFor": None, "devices": None}}
        await self._transport.patch(f"{path}/status", body, content_type=MERGE_PATCH)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _reserve(self, key: str, pod: Pod, grant: ClaimGrant | None) -> None:
        namespace, _, name = key.partition("/")
        path = self._claims.path(namespace, name)
        claim = self._cache.shown(key)
        for attempt in range(ATTEMPTS):
            # The claim may have been released since the watch showed it. A write detects that by a conflict.
            # If no write follows, only a new read detects it.
            if claim is None or attempt or _is_user(claim, pod):
                claim = await self._transport.get(path, ResourceClaim)
            try:
                await self._reserve_as_it_is(path, claim, pod, grant)
            except _Changed:
                continue
            return
        raise Conflict(f"the claim {key} is changed by others all the time", status=409, reason="Conflict")

    async def _reserve_as_it_is(
        self, path: str, claim: ResourceClaim, pod: Pod, grant: ClaimGrant | None
    ) -> None:
        """Reserve the claim. Raises _Changed if the claim has changed since it was read, Conflict if the pod cannot
        use the claim.
        """
        metadata, status = claim.metadata, claim.status
        if grant is not None and not grant.extended and grant.claim.uid != metadata.uid:
            raise _conflict(f"the claim {path} was made anew")
        users = [consumer for consumer in status.reserved_for if consumer.uid != pod.metadata.uid]
        if status.allocation is not None:
            if grant is not None and not _is_same(claim, grant.allocation):
                raise _conflict(f"another allocator allocated the claim {path}")
            if len(users) < len(status.reserved_for):
                self._written[f"{metadata.namespace}/{metadata.name}"] = metadata.resource_version
                return
        elif grant is None:
            raise _conflict(f"the claim {path} has lost its devices")
        if metadata.deletion_timestamp is not None:
            raise _conflict(f"the claim {path} is being deleted")
        if len(users) >= MAX_USERS:
            raise _conflict(f"{MAX_USERS} pods use the claim {path} already")
        version = metadata.resource_version
        if grant is not None and status.allocation is None and CLAIM_FINALIZER not in metadata.finalizers:
            body = {
                "metadata": {
                    "uid": metadata.uid,
                    "resourceVersion": version,
                    "finalizers": [*metadata.finalizers, CLAIM_FINALIZER],
                }
            }
            changed = await self._patch(path, body)
            version = changed.metadata.resource_version
        written: dict[str, Any] = {
            "reservedFor": [
                *({"resource": user.resource, "name": user.name, "uid": user.uid} for user in users),
                {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid},
            ]
        }
        if grant is not None and status.allocation is None:
            written["allocation"] = _allocation(grant.allocation)
        after = await self._patch(
            f"{path}/status",
            {"metadata": {"uid": metadata.uid, "resourceVersion": version}, "status": written},
        )
        self._written[f"{metadata.namespace}/{metadata.name}"] = after.metadata.resource_version

    async def _patch(self, path: str, body: dict[str, Any]) -> ResourceClaim:
        try:
            return await self._transport.patch(path, body, ResourceClaim, content_type=MERGE_PATCH)
        except Conflict as error:
            raise _Changed from error

    async def _make_extended(self, pod: Pod, grant: ClaimGrant) -> None:
        """Create the claim for the pod's GPUs, and allocate it."""
        namespace, name = pod.metadata.namespace, claim_name(pod)
        path = self._claims.path(namespace, name)
        body = claim_object(pod, grant.claim, self._claims.api_version)
        body["metadata"]["finalizers"] = [CLAIM_FINALIZER]
        try:
            claim = await self._transport.create(self._claims.path(namespace), body, ResourceClaim)
        except AlreadyExists:
            claim = await self._transport.get(path, ResourceClaim)
            owner = claim.metadata.controller
            if owner is None or owner.uid != pod.metadata.uid:
                raise _conflict(f"the claim {path} has another owner") from None
        if claim.status.allocation is None or not claim.status.reserved_for:
            try:
                await self._reserve_as_it_is(path, claim, pod, grant)
            except _Changed as error:
                raise _conflict(f"the claim {path} was changed") from error
        elif not _is_same(claim, grant.allocation):
            raise _conflict(f"the claim {path} holds other devices")

    async def _tell_kubelet(self, pod: Pod) -> None:
        """Write into the pod's status which container uses which request of the created claim."""
        namespace = pod.metadata.namespace
        status = {
            "extendedResourceClaimStatus": {
                "resourceClaimName": claim_name(pod),
                "requestMappings": request_mappings(pod),
            }
        }
        await self._transport.patch(
            PODS.path(namespace, pod.metadata.name, "status"),
            {"metadata": {"uid": pod.metadata.uid}, "status": status},
            content_type=MERGE_PATCH,
        )

    async def _conditions(self, key: str, allocation: Allocation) -> bool:
        """Return whether the binding conditions of all devices are met. Raises _Unprepared if a device failed."""
        namespace, _, name = key.partition("/")
        claim = await self._transport.get(self._claims.path(namespace, name), ResourceClaim)
        for result in allocation.results:
            known = {
                condition.type: condition.status == "True"
                for device in claim.status.devices
                if (device.driver, device.pool, device.device) == result.device_id
                for condition in device.conditions
            }
            failed = [name for name in result.binding_failure_conditions if known.get(name)]
            if failed:
                raise _Unprepared(
                    f"the device {'/'.join(result.device_id)} could not be prepared: {failed[0]}"
                )
            if not all(known.get(name) for name in result.binding_conditions):
                return False
        return True

    async def _is_allocated(self, key: str) -> bool:
        """Return whether the claim has devices now. The request is repeated until the API server answers."""
        namespace, _, name = key.partition("/")
        while True:
            try:
                claim = await self._transport.get(self._claims.path(namespace, name), ResourceClaim)
            except NotFound:
                return False
            except ClusterError as error:
                logger.info("claim %s: not known whether it was allocated: %s", key, error)
                await self._sleep(POLL_SECONDS)
                continue
            if claim.status.allocation is not None:
                self._written[key] = claim.metadata.resource_version
            return claim.status.allocation is not None


class _Unprepared(ClaimNotReady):
    """Drivers did not prepare the devices."""


class _Changed(Exception):
    """The claim has changed since it was read, and must be read again."""


def _is_user(claim: ResourceClaim, pod: Pod) -> bool:
    return any(user.uid == pod.metadata.uid for user in claim.status.reserved_for)


def _is_as_new(shown: str, written: str) -> bool:
    """Return whether the shown resource version is the written version or a later one.

    Example: `_is_as_new("1024", "1023")` returns `True`.
    """
    if shown.isdecimal() and written.isdecimal():
        return int(shown) >= int(written)
    return shown == written


def _granted(pod: Pod, binding: Binding) -> dict[str, ClaimGrant]:
    """Return the binding's allocations by claim key. A claim to create gets its name here."""
    named = (
        replace(grant, claim=replace(grant.claim, name=claim_name(pod))) if grant.extended else grant
        for grant in binding.grants
    )
    return {grant.claim.key: grant for grant in named}


def _conflict(message: str) -> Conflict:
    return Conflict(message, status=409, reason="Conflict")


def _allocation(allocation: Allocation) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**allocation_object(allocation), "allocationTimestamp": now}


def _is_same(claim: ResourceClaim, allocation: Allocation) -> bool:
    """Return whether the claim is allocated with exactly these devices."""
    try:
        held = read_allocation(claim)
    except UnreadableDevices:
        return False
    return held is not None and [
        (result.request, result.device_id, result.share_id) for result in held.results
    ] == [(result.request, result.device_id, result.share_id) for result in allocation.results]
