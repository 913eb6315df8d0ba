"""Finds the workload of a pod by following its owners to the topmost one that counts. Pure.

    pod ──> Job ──> JobSet            the workload is the JobSet
    pod ──> ReplicaSet ──> Deployment the Deployment
    pod ──> Job ──> CronJob           the Job: each Job of a CronJob is a workload of its own
    pod ──> Thing                     the Thing, of any kind
    pod                               the pod; or all pods of its name, if they request a gang

An owner of a kind that `controllers` does not know counts if it can be read. An owner in another namespace does not
count, because users can write any owner reference into a pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from orchestrator.cluster.objects import Metadata, Object, Pod
from orchestrator.cluster.wire import OwnerReference
from orchestrator.names import (
    MIN_MEMBER_ANNOTATION,
    PRIORITY_ANNOTATION,
    PRIORITY_CLASSES,
    QUEUED_SINCE_ANNOTATION,
    SUB_GROUPS_ANNOTATION,
    WORKLOAD_LABEL,
)
from orchestrator.observe.controllers import CONTROLLERS, Controller, Gang, climbs, key_of
from orchestrator.observe.dict_ops import discard, put

MAX_OWNERS: Final = 8
"""Maximum number of owners that are followed."""
_ANNOTATIONS: Final = (MIN_MEMBER_ANNOTATION, PRIORITY_ANNOTATION, QUEUED_SINCE_ANNOTATION)
"""The annotations of an owner that concern its pods."""
POD_KIND: Final = ("", "Pod")


class Reading(Enum):
    """The state of a kind of owner: being looked up, watched, or unreadable."""

    PENDING = "pending"
    CURRENT = "current"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class KindState:
    """Whether owners of a kind can be read. `kind` is API group and kind."""

    kind: tuple[str, str]
    reading: Reading


class Chain(msgspec.Struct, frozen=True, gc=False):
    """The workload of a pod: its id, name and kind, and the owners between the pod and the workload.

    `owner` is the topmost owner that was read. `uids` are the uids of all owners that were looked up, lowest first.
    `gang` is the gang that a controller implies. `is_open`: the last owner is unknown. `complete` is false if the last
    owner can still become known.
    """

    id: str
    name: str
    kind: str
    owner: Object | None = None
    uids: tuple[str, ...] = ()
    gang: Gang | None = None
    is_open: bool = False
    complete: bool = True


class Owners:
    """The known owners by uid. `pods` are the pods by uid, which can be owners too."""

    def __init__(self, pods: Mapping[str, Pod], owners: Iterable[Object] = ()) -> None:
        self._pods = pods
        self._known: dict[str, Object] = {owner.metadata.uid: owner for owner in owners}
        self._kinds: dict[tuple[str, str], Reading] = {}

    def put(self, owner: Object, *, is_there: bool) -> bool:
        """Store or remove an owner. Return whether its pods can be affected; most changes concern only its status."""
        uid = owner.metadata.uid
        before = self._known.get(uid)
        put(self._known, uid, owner if is_there else None)
        if before is None or not is_there:
            return True
        return _matter(before) != _matter(owner)

    def put_kind(self, state: KindState) -> None:
        """Note whether owners of a kind can be read."""
        self._kinds[state.kind] = state.reading

    def chain(self, pod: Pod) -> Chain:
        """Follow the owners of a pod, and return its workload."""
        metadata = pod.metadata
        reference = metadata.controller
        if reference is None:
            return _bare(pod)
        top = below = reference
        uids = [reference.uid]
        owner: Object | None = None
        gang: Gang | None = None
        is_open, complete = False, True
        for _ in range(MAX_OWNERS):
            parent = self._find(reference)
            if parent is None:
                is_open, complete = True, not self._is_awaited(reference)
                break
            if parent.metadata.namespace not in {"", metadata.namespace}:
                if owner is None:
                    return _bare(pod)
                top = below
                break
            top, owner = reference, parent
            if isinstance(parent, Controller):
                gang = gang or parent.gang
            above = parent.metadata.controller
            if above is None or above.uid in uids or not climbs(key_of(reference), key_of(above)):
                break
            below, reference = reference, above
            uids.append(above.uid)
            if key_of(above) in CONTROLLERS:
                top = above
        identifier, name = _name(top, pod)
        if is_open and top is reference:
            # a user can have written the uid of an owner in another namespace
            identifier = f"{metadata.namespace}/{identifier}"
        return Chain(identifier, name, top.kind, owner, tuple(uids), gang, is_open, complete)

    def is_part(self, owner: Object) -> bool:
        """Return whether an object belongs to the workload of one of its owners, so it is not a workload itself."""
        above = owner.metadata.controller
        if above is None or not climbs((owner.resource.group, owner.resource.kind), key_of(above)):
            return False
        return key_of(above) in CONTROLLERS or self._find(above) is not None

    def _find(self, reference: OwnerReference) -> Object | None:
        if reference.kind == "Pod" and key_of(reference) == POD_KIND:
            return self._pods.get(reference.uid)
        return self._known.get(reference.uid)

    def _is_awaited(self, reference: OwnerReference) -> bool:
        return self._kinds.get(key_of(reference), Reading.UNREADABLE) is not Reading.UNREADABLE


class Membership:
    """The workloads of pods, updated by changes."""

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._owners = Owners(pods)
        self._chains: dict[str, Chain] = {}
        self._under: dict[str, dict[str, Pod]] = {}
        self._open: dict[str, Pod] = {}

    def join(self, pod: Pod) -> str:
        """Add a pod. Return the id of its workload."""
        uid = pod.metadata.uid
        chain = self._chains[uid] = self._owners.chain(pod)
        for owner in chain.uids:
            if owner != chain.id:  # the caller has the pods of a workload by its id
                self._under.setdefault(owner, {})[uid] = pod
        if chain.is_open:
            self._open[uid] = pod
        return chain.id

    def leave(self, uid: str) -> str:
        """Remove a pod. Return the id of the workload to which it belonged."""
        chain = self._chains.pop(uid)
        for owner in chain.uids:
            discard(self._under, owner, uid)
        self._open.pop(uid, None)
        return chain.id

    def id_of(self, uid: str) -> str:
        """Return the id of the workload of an added pod."""
        return self._chains[uid].id

    def chain_of(self, uid: str) -> Chain:
        """Return the owners of an added pod."""
        return self._chains[uid]

    def note(self, owner: Object, *, is_there: bool) -> bool:
        """Apply a change of an owner. Return whether the pods below it must be added again."""
        return self._owners.put(owner, is_there=is_there)

    def note_kind(self, state: KindState) -> list[Pod]:
        """Apply a change of a kind's state. Return the pods with an unknown owner, which must be added again."""
        self._owners.put_kind(state)
        return list(self._open.values())

    def under(self, uid: str) -> list[Pod]:
        """Return the pods below this owner, except those whose workload is this owner."""
        return list(self._under.get(uid, {}).values())


def chosen_priority_class(metadata: Metadata) -> str:
    """Return the PriorityClass in the annotation of a workload; "" if this is no class of muster."""
    name = metadata.annotations.get(PRIORITY_ANNOTATION, "")
    return name if name in PRIORITY_CLASSES else ""


def _matter(owner: Object) -> object:
    metadata, above = owner.metadata, owner.metadata.controller
    gang = owner.gang if isinstance(owner, Controller) else None
    return (
        metadata.creation_timestamp,
        *(metadata.annotations.get(key) for key in _ANNOTATIONS),
        None if above is None else above.uid,
        gang,
    )


def _bare(pod: Pod) -> Chain:
    """Return the workload of a pod without an owner: the pod, or the gang of its name in the namespace."""
    metadata = pod.metadata
    name = metadata.labels.get(WORKLOAD_LABEL)
    is_gang = MIN_MEMBER_ANNOTATION in metadata.annotations or SUB_GROUPS_ANNOTATION in metadata.annotations
    if name and is_gang:
        return Chain(f"{metadata.namespace}/{name}", name, "Pod")
    return Chain(metadata.uid, metadata.name, "Pod")


def _name(top: OwnerReference, pod: Pod) -> tuple[str, str]:
    """Return id and name of the workload of a pod below the topmost owner."""
    known = CONTROLLERS.get(key_of(top))
    group = pod.metadata.labels.get(known.group_label) if known is not None and known.group_label else None
    return (top.uid, top.name) if group is None else (f"{top.uid}/{group}", f"{top.name}-{group}")
