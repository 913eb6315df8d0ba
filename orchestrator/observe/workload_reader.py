"""The workloads of a snapshot. A workload is read again after a change of its pods, owners or other inputs."""

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from orchestrator.cluster.objects import FINISHED, Object, Pod
from orchestrator.names import PREEMPTIBLE_ANNOTATION
from orchestrator.observe.claim_reader import ClaimReader, PodClaims
from orchestrator.observe.controllers import Gang
from orchestrator.observe.device_reader import DeviceReader
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.node_terms import Terms, both, not_on
from orchestrator.observe.owners import Chain, KindState, Membership
from orchestrator.observe.replacements import with_replaced
from orchestrator.observe.request import asks_the_same, pod_request, readable_request
from orchestrator.observe.snapshot import (
    NO_HINTS,
    Hints,
    Together,
    belongs,
    held_pod,
    held_workload,
    is_preemptible,
    planner_pod,
    planner_workload,
)
from orchestrator.observe.unreadable import Boundary, SkippedObject, Unreadable
from orchestrator.observe.volumes import Key, Volumes, claims_of
from orchestrator.planner import model

_Known = tuple[Terms, str, tuple[int, ...] | None, PodClaims | None, bool]
"""The inputs of a pod other than the pod object, in this order:

- the node terms of its volumes
- the name of its role in the gang, which its controller defines
- its devices, if they replace its annotation
- its resource claims
- whether it is stuck
"""


class _ReadPod(NamedTuple):
    """The last reading of a pod: its request without ResourceClaims, its other inputs, and the result for the
    planner.
    """

    pod: Pod
    request: model.Request
    around: _Known
    planned: model.Pod


_NO_PODS: Final[Mapping[str, Pod]] = MappingProxyType({})
_ABSENT: Final = object()
_MANY: Final = 1000
"""If more workloads changed, sorting all of them costs less than inserting each."""
_OWNER_PATIENCE_US: Final = 5_000_000
"""Time for which a pod waits for its owner, or the look-up of the owner's kind, before the wait is reported."""
_MIXED: Final = (
    "it is not preemptible, and other pods of its workload are: "
    f"its annotation {PREEMPTIBLE_ANNOTATION} must be the same on all of them"
)
"""Why a pod is refused. Placed with preemptible pods beyond the quota, it would stay there after those are evicted."""
_ID: Final = attrgetter("id")


class WorkloadReader:
    """The pods that muster schedules by workload, and the workloads sorted by id."""

    def __init__(
        self,
        project_of: Mapping[str, str],
        volumes: Volumes,
        devices: DeviceReader,
        claims: ClaimReader,
        stuck: Container[str],
        *,
        levels: tuple[str, ...],
        max_checkpoint_grace_seconds: int,
        boundary: Boundary,
    ) -> None:
        self._boundary = boundary
        self._devices = devices
        self._claims = claims
        self._stuck = stuck
        self._max_checkpoint_grace_seconds = max_checkpoint_grace_seconds
        self._project_of = project_of
        self._volumes = volumes
        self._levels = levels
        self._pods: dict[str, Pod] = {}
        self._members: dict[str, dict[str, Pod]] = {}
        self._succeeded: dict[str, dict[str, Pod]] = {}
        self._failed: dict[str, dict[str, Pod]] = {}
        self._membership = Membership(self._pods)
        self._waits_since_us: dict[str, int] = {}
        self._hints = NO_HINTS
        self._users: dict[Key, dict[str, Pod]] = {}
        self._read_pods: dict[str, _ReadPod] = {}
        self._unreadable: dict[str, dict[str, str]] = {}
        self._touched: set[str] = set()
        self._stale_since_us: dict[str, int] = {}
        self._read_since: set[str] = set()
        self._made: dict[str, model.Workload] = {}
        self._sorted: list[model.Workload] | None = None
        self._tuple: tuple[model.Workload, ...] | None = None

    def note_pod(self, pod: Pod, *, is_there: bool) -> None:
        """Apply a change of a pod that muster schedules. Pods that it owns are assigned to workloads again."""
        uid = pod.metadata.uid
        before = self._pods.get(uid)
        if before is not None:
            owner = self._membership.leave(uid)
            discard(self._members, owner, uid)
            discard(self._succeeded, owner, uid)
            discard(self._failed, owner, uid)
            self._touched.add(owner)
            for key in claims_of(before):
                discard(self._users, key, uid)
        put(self._pods, uid, pod if is_there else None)
        if not is_there:
            self._read_pods.pop(uid, None)
            self._waits_since_us.pop(uid, None)
            self._join_again(self._membership.under(uid))
            return
        owner = self._membership.join(pod)
        if pod.status.phase not in FINISHED:
            self._members.setdefault(owner, {})[uid] = pod
        elif pod.status.phase == "Succeeded":
            self._succeeded.setdefault(owner, {})[uid] = pod
        else:
            self._failed.setdefault(owner, {})[uid] = pod
        for key in claims_of(pod):
            self._users.setdefault(key, {})[uid] = pod
        self._touched.add(owner)
        if before is None:
            self._join_again(self._membership.under(uid))

    def note_claims(self, keys: Iterable[Key]) -> None:
        """Mark the workloads that use these PVCs to be read again, because node terms can have changed."""
        for key in keys:
            self._touched.update(map(self._membership.id_of, self._users.get(key, _NO_PODS)))

    def note_owner(self, owner: Object, *, is_there: bool) -> None:
        """Apply a change of an owner. Pods below the owner that it can affect are assigned to workloads again."""
        uid = owner.metadata.uid
        if self._membership.note(owner, is_there=is_there):
            groups = (self._members, self._succeeded, self._failed)
            members = chain.from_iterable(group.get(uid, _NO_PODS).values() for group in groups)
            self._join_again([*members, *self._membership.under(uid)])

    def note_kind(self, state: KindState) -> None:
        """Apply a change: the owners of a kind can be read from now on, or no longer."""
        self._join_again(self._membership.note_kind(state))

    def _join_again(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self.note_pod(self._pods[pod.metadata.uid], is_there=True)

    def note_namespace(self, name: str) -> None:
        """Mark the workloads of the namespace to be read again, because it belongs to another project now."""
        self._touched.update(
            owner
            for owner, pods in self._members.items()
            if any(pod.metadata.namespace == name for pod in pods.values())
        )

    def take(self, hints: Hints) -> None:
        """Replace the hints, and mark the workloads for which they changed."""
        before, self._hints = self._hints, hints
        self.touch(_different(before.put_off, hints.put_off))
        self.touch(_different(before.avoided, hints.avoided))

    def unreadable(self, now_us: int) -> dict[str, str]:
        """Return, by uid, the reasons of unreadable pods. A wait for an owner counts after _OWNER_PATIENCE_US."""
        reasons = {uid: why for unreadable in self._unreadable.values() for uid, why in unreadable.items()}
        for uid, since_us in self._waits_since_us.items():
            if now_us - since_us > _OWNER_PATIENCE_US:
                owners = self._membership.chain_of(uid)
                reasons[uid] = f"its owner {owners.kind} {owners.name}, or the owner of that, cannot be found"
        return reasons

    def pod(self, uid: str) -> Pod | None:
        """Return the pod with this uid if muster schedules it, or None."""
        return self._pods.get(uid)

    def workload_of(self, uid: str) -> str:
        """Return the id of the workload of a pod; the pod's own id if muster does not schedule it."""
        return self._membership.id_of(uid) if uid in self._pods else uid

    def pods_of(self, workload: str) -> Collection[Pod]:
        """Return the pods of a workload that have not ended."""
        return self._members.get(workload, _NO_PODS).values()

    def touch(self, uids: Iterable[str]) -> None:
        """Mark the workloads of these pods, as far as muster schedules them, to be read again."""
        self._touched.update(self._membership.id_of(uid) for uid in uids if uid in self._pods)

    def touch_all(self) -> None:
        """Mark all workloads to be read again."""
        self._touched.update(map(self._membership.id_of, self._pods))

    def skipped(self, unreadable: Mapping[str, str]) -> Iterator[SkippedObject]:
        """Yield the unreadable pods, except pods that are put off or cannot mount a PVC yet."""
        for uid, why in unreadable.items():
            if uid not in self._hints.put_off and uid in self._pods:
                if self._volumes.obstacle(self._pods[uid]):
                    continue
                yield SkippedObject.of("Pod", self._pods[uid].metadata, why)

    @property
    def behind(self) -> int:
        """The number of workloads that must be read again."""
        return len(self._touched)

    def read(self, now_us: int) -> tuple[model.Workload, ...]:
        """Read the marked workloads, and return all workloads sorted by id."""
        self.read_touched(now_us, len(self._touched))
        # Set `read_touched` may have read these workloads before the facts of this decision were known.
        for uid in self._read_since:
            planned = self._made.get(uid)
            put(self._stale_since_us, uid, (planned.stale_since_us or None) if planned else None)
        self._read_since.clear()
        if self._sorted is None:
            self._sorted = [self._made[uid] for uid in sorted(self._made)]
        if self._tuple is None:
            self._tuple = tuple(self._sorted)
        return self._tuple

    def read_touched(self, now_us: int, most: int) -> None:
        """Read at most this number of marked workloads."""
        if len(self._touched) > _MANY:
            self._sorted = None
        for uid in list(islice(self._touched, most)):
            before = self._made.get(uid)
            planned = self._workload(uid, now_us)
            self._read_since.add(uid)
            if planned != before:
                self._tuple = None
                put(self._made, uid, planned)
                if self._sorted is not None:
                    _replace(self._sorted, uid, planned)
            self._touched.discard(uid)

    def _workload(self, uid: str, now_us: int) -> model.Workload | None:
        readable: list[tuple[Pod, model.Pod]] = []
        unreadable: dict[str, str] = {}
        holds_unread = False
        pods = _oldest_first(self._members.get(uid, _NO_PODS).values())
        if not pods:
            put(self._unreadable, uid, None)
            return None
        owners = self._owners_of(pods)
        is_borrowed = any(map(is_preemptible, pods))
        for pod in pods:
            if not belongs(pod):
                self._waits_since_us.pop(pod.metadata.uid, None)
                continue
            if self._waits_for_owner(pod, now_us):
                continue
            if pod.metadata.uid in self._hints.put_off:
                unreadable[pod.metadata.uid] = self._hints.put_off[pod.metadata.uid]
                continue
            if not pod.spec.node_name and (obstacle := self._volumes.obstacle(pod)):
                unreadable[pod.metadata.uid] = obstacle
                continue
            if is_borrowed and not is_preemptible(pod) and not pod.spec.node_name:
                unreadable[pod.metadata.uid] = _MIXED
                continue
            planned = self._boundary.read("Pod", pod.metadata, lambda: self._read_pod(pod, owners.gang))  # noqa: B023 - called at once
            if isinstance(planned, Unreadable):
                unreadable[pod.metadata.uid] = planned.why
                holds_unread = holds_unread or bool(pod.spec.node_name)
            else:
                readable.append((pod, planned))
        workload: model.Workload | Unreadable | None = None
        if holds_unread:
            workload = Unreadable(next(iter(unreadable.values())))
        elif readable:
            together = self._together(uid, readable, owners, now_us)
            workload = self._boundary.read(
                "Pod", readable[0][0].metadata, lambda: planner_workload(together, self._levels)
            )
        if isinstance(workload, Unreadable):
            held = self._held(workload.why, readable, unreadable)
            workload = held_workload(self._together(uid, held, owners, now_us)) if held else None
        put(self._unreadable, uid, unreadable or None)
        return workload

    def _owners_of(self, pods: list[Pod]) -> Chain:
        """Return the owners of the youngest pod whose owners imply a gang. Other pods can have unknown owners."""
        chains = [self._membership.chain_of(pod.metadata.uid) for pod in reversed(pods)]
        return next((candidate for candidate in chains if candidate.gang is not None), chains[0])

    def _held(
        self,
        why: str,
        readable: list[tuple[Pod, model.Pod]],
        unreadable: dict[str, str],
    ) -> list[tuple[Pod, model.Pod]]:
        """Return the bound pods of an unreadable workload, oldest first.

        All pods of the workload are added to `unreadable` with this reason.
        """
        held = [(pod, planned) for pod, planned in readable if planned.node is not None]
        unread = [self._pods[planned] for planned in unreadable]
        unreadable.update((pod.metadata.uid, why) for pod, _ in readable)
        held += [(pod, self._held_pod(pod)) for pod in unread if pod.spec.node_name]
        held.sort(key=lambda pair: _age(pair[0]))
        return held

    def _held_pod(self, pod: Pod) -> model.Pod:
        uid = pod.metadata.uid
        return held_pod(
            pod,
            devices=self._devices.devices(uid),
            claims=self._claims.read_pod(pod, readable_request(pod), pod.spec.node_name or None),
            stuck=uid in self._stuck,
            max_checkpoint_grace_seconds=self._max_checkpoint_grace_seconds,
        )

    def _together(self, uid: str, pods: list[tuple[Pod, model.Pod]], owners: Chain, now_us: int) -> Together:
        return Together(
            uid=uid,
            pods=with_replaced(pods),
            chain=owners,
            project=self._project_of.get(pods[0][0].metadata.namespace, ""),
            succeeded=tuple(self._succeeded.get(uid, _NO_PODS).values()),
            stale_since_us=self._stale_since_us.get(uid, now_us),
        )

    def _read_pod(self, pod: Pod, gang: Gang | None) -> model.Pod:
        uid = pod.metadata.uid
        part = "" if gang is None else gang.part_of(pod.metadata.labels)
        devices = self._devices.devices(uid)
        known = self._read_pods.get(uid)
        current = known if known is not None and known.pod is pod else None
        is_known = known is not None and (current is not None or asks_the_same(known.pod, pod))
        request = known.request if known is not None and is_known else pod_request(pod)
        siblings = self._members.get(self._membership.id_of(uid))
        claims = self._claims.read_pod(pod, request, pod.spec.node_name or None, siblings)
        terms = both(self._volumes.terms(pod), not_on(self._hints.avoided.get(uid)))
        stuck = uid in self._stuck
        around: _Known = (terms, part, devices, claims, stuck)
        if current is not None and current.around == around:
            return current.planned
        planned = planner_pod(
            pod,
            request,
            levels=self._levels,
            volumes=terms,
            part=part,
            devices=devices,
            claims=claims,
            stuck=stuck,
            max_checkpoint_grace_seconds=self._max_checkpoint_grace_seconds,
        )
        if known is not None and known.planned == planned:
            planned = known.planned
        self._read_pods[uid] = _ReadPod(pod, request, around, planned)
        return planned

    def _waits_for_owner(self, pod: Pod, now_us: int) -> bool:
        """Return whether the pod is unbound and an owner must be read before its gang is known."""
        uid = pod.metadata.uid
        waits = not (self._membership.chain_of(uid).complete or pod.spec.node_name)
        put(self._waits_since_us, uid, self._waits_since_us.get(uid, now_us) if waits else None)
        return waits


def _replace(workloads: list[model.Workload], uid: str, replacement: model.Workload | None) -> None:
    """Insert or replace the workload in the sorted list, or remove it (None)."""
    start = bisect_left(workloads, uid, key=_ID)
    stop = start + (start < len(workloads) and workloads[start].id == uid)
    workloads[start:stop] = [] if replacement is None else [replacement]


def _oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    newest = list(pods)
    if len(newest) > 1:
        newest.sort(key=_age)
    return newest


def _age(pod: Pod) -> tuple[str, str, str]:
    return pod.metadata.creation_timestamp, pod.metadata.name, pod.metadata.uid


def _different(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the keys whose values differ, and the keys that only one of the mappings has."""
    keys = [key for key, value in after.items() if before.get(key, _ABSENT) is not value]
    keys += [key for key in before if key not in after]
    return keys
