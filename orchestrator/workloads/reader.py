"""Snapshots one after the other, at a cost that follows what changed between them.

    changes of the caches ──> note ──> what is touched: workloads, nodes ──> read ──> snapshot
                                        ^
    bindings and evictions under way ───┘

What a change touches is read again when the next snapshot is asked for, and nothing else is. What comes out as it was
stays the very same object, by which the planner knows that it need not look: a pod whose status alone changed, a
node's heartbeat.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.objects import FINISHED, Namespace, Node, Object, Pod, Project
from orchestrator.cluster.reflector import Change
from orchestrator.names import PROJECT_LABEL, SCHEDULER_NAME
from orchestrator.planner import model
from orchestrator.workloads.budgets import planner_budgets
from orchestrator.workloads.request import UnreadableRequest
from orchestrator.workloads.snapshot import (
    Assumption,
    Observed,
    Reading,
    Together,
    belongs,
    owner_uid,
    planner_node,
    planner_pod,
    planner_project,
    planner_workload,
)
from orchestrator.workloads.tables import discard, put
from orchestrator.workloads.volumes import Key, StorageObject, Volumes, claims_of

if TYPE_CHECKING:
    from orchestrator.workloads.node_terms import Terms

_NO_PODS: Final[Mapping[str, Pod]] = MappingProxyType({})
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
_NO_ASSUMPTIONS: Final[Mapping[str, Assumption]] = MappingProxyType({})
_MANY: Final = 1000
"""Of more changes than this at once, sorting all again costs less than putting each in its place."""
_ID: Final = attrgetter("id")
_DEFAULT_SETTINGS: Final = model.Settings()


def read(observed: Observed, settings: model.Settings = _DEFAULT_SETTINGS) -> Reading:
    """Build the planner's snapshot. What cannot be read is left out and named."""
    reader = Reader(settings)
    for each in chain(
        observed.namespaces.values(),
        observed.projects.values(),
        observed.nodes.values(),
        observed.storage,
        *(owners.values() for owners in observed.owners),
        observed.pods.values(),
    ):
        reader.note(Change("added", each))
    return reader.read(
        assumed=observed.assumed,
        evicted=observed.evicted,
        now_us=observed.now_us,
        budgets=planner_budgets(observed.budgets.values(), observed.pods, observed.evicted, {}),
    )


class Reader:
    """Builds snapshots from the changes that it is told of. `volumes` is what they tell of storage.

    Kubernetes does not keep when a gang lost a member, so the first reading that shows it sets `stale_since_us`.
    """

    def __init__(self, settings: model.Settings = _DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self._projects: dict[str, model.Project | str] = {}
        self._project_of: dict[str, str] = {}
        self._nodes = _Nodes()
        self.volumes = Volumes()
        self._workloads = _Workloads(self._project_of, self.volumes, settings.topology_levels)
        self._project_tuple: tuple[model.Project, ...] = ()

    @property
    def behind(self) -> int:
        """How many workloads were touched and have not been read again."""
        return self._workloads.behind

    def read_ahead(self, most: int, *, now_us: int = 0) -> None:
        """Read so many of the workloads that were touched, at most: the next snapshot has to read the others only."""
        self._workloads.read_touched(now_us, most)

    def note(self, change: Change[Any]) -> None:
        """Take one change: of a pod, node, namespace, project, of storage, or of anything else as the owner of pods."""
        each, is_there = change.object, change.type != "deleted"
        if isinstance(each, Pod):
            self._note_pod(each, is_there=is_there)
        elif isinstance(each, Node):
            self._nodes.note(each, is_there=is_there)
        elif isinstance(each, Namespace):
            self._note_namespace(each, is_there=is_there)
        elif isinstance(each, Project):
            self._note_project(each, is_there=is_there)
        elif isinstance(each, StorageObject):
            self._workloads.note_claims(self.volumes.note(each, is_there=is_there))
        else:
            self._workloads.note_owner(each, is_there=is_there)

    def read(
        self,
        *,
        assumed: Mapping[str, Assumption] = _NO_ASSUMPTIONS,
        evicted: frozenset[str] = frozenset(),
        stand_ins: Mapping[str, Pod] = _NO_PODS,
        aside: Mapping[str, str] = _NOBODY,
        now_us: int = 0,
        budgets: tuple[model.Budget, ...] = (),
    ) -> Reading:
        """Build the planner's snapshot. What cannot be read is left out and named.

        `assumed` and `evicted` are bindings and evictions, by pod uid, that the caches do not show yet; `stand_ins`
        are pods that are to come; `aside`, by uid with the reason, pods that wait for something else than the planner.
        `now_us` is the time of the decision; 0: rules about time do not apply.
        `budgets` are the budgets for disruption.
        """
        self._workloads.overlay(assumed, evicted, stand_ins, aside)
        snapshot = model.Snapshot(
            nodes=self._nodes.read(),
            projects=self._project_tuple,
            workloads=self._workloads.read(now_us),
            now_us=now_us,
            settings=self._settings,
            budgets=budgets,
        )
        unreadable = {name: why for name, why in self._projects.items() if isinstance(why, str)}
        return Reading(snapshot, self._workloads.unreadable(), unreadable)

    def _note_pod(self, pod: Pod, *, is_there: bool) -> None:
        is_ours = pod.spec.scheduler_name == SCHEDULER_NAME
        runs_elsewhere = is_there and not is_ours and pod.status.phase not in FINISHED
        self._nodes.note_foreign(pod, pod.spec.node_name if runs_elsewhere else "")
        self._workloads.note_pod(pod, is_there=is_there and is_ours)

    def _note_namespace(self, namespace: Namespace, *, is_there: bool) -> None:
        name = namespace.metadata.name
        project = namespace.metadata.labels.get(PROJECT_LABEL, "") if is_there else ""
        if project != self._project_of.get(name, ""):
            self._project_of[name] = project
            self._workloads.note_namespace(name)

    def _note_project(self, project: Project, *, is_there: bool) -> None:
        name = project.metadata.name
        made: model.Project | str | None = None
        if is_there:
            try:
                made = planner_project(project)
            except ValueError as error:
                made = str(error)
        if made != self._projects.get(name):  # otherwise its status alone has changed
            put(self._projects, name, made)
            self._project_tuple = tuple(
                each for _, each in sorted(self._projects.items()) if isinstance(each, model.Project)
            )


class _Nodes:
    """The nodes with what other schedulers' pods hold on them, sorted by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._foreign: dict[str, dict[str, Pod]] = {}
        self._node_of_foreign: dict[str, str] = {}
        self._made: dict[str, model.Node] = {}
        self._touched: set[str] = set()
        self._sorted: tuple[model.Node, ...] | None = None

    def note(self, node: Node, *, is_there: bool) -> None:
        put(self._nodes, node.metadata.name, node if is_there else None)
        self._touched.add(node.metadata.name)

    def note_foreign(self, pod: Pod, node: str) -> None:
        """A pod of another scheduler, and the node where it runs; "" if it runs nowhere."""
        uid = pod.metadata.uid
        before = self._node_of_foreign.get(uid, "")
        if before:
            discard(self._foreign, before, uid)
            self._touched.add(before)
        if node:
            self._foreign.setdefault(node, {})[uid] = pod
            self._touched.add(node)
        put(self._node_of_foreign, uid, node or None)

    def read(self) -> tuple[model.Node, ...]:
        for name in self._touched:
            node = self._nodes.get(name)
            made = None if node is None else planner_node(node, self._foreign.get(name, _NO_PODS).values())
            if made != self._made.get(name):
                put(self._made, name, made)
                self._sorted = None
        self._touched.clear()
        if self._sorted is None:
            self._sorted = tuple(self._made[name] for name in sorted(self._made))
        return self._sorted


class _Workloads:
    """Our pods by what they belong to, and the workloads that they make, sorted by id."""

    def __init__(self, project_of: Mapping[str, str], volumes: Volumes, levels: tuple[str, ...]) -> None:
        self._project_of = project_of
        self._volumes = volumes
        self._levels = levels
        self._pods: dict[str, Pod] = {}
        self._members: dict[str, dict[str, Pod]] = {}
        self._succeeded: dict[str, dict[str, Pod]] = {}
        self._owners: dict[str, Object] = {}
        self._assumed: Mapping[str, Assumption] = {}
        self._evicted: frozenset[str] = frozenset()
        self._stand_ins: Mapping[str, Pod] = {}
        self._aside: Mapping[str, str] = {}
        self._users: dict[Key, dict[str, Pod]] = {}
        self._read_pods: dict[str, tuple[Pod, Assumption | None, bool, Terms, model.Pod]] = {}
        self._unreadable: dict[str, dict[str, str]] = {}
        self._touched: set[str] = set()
        self._stale_since_us: dict[str, int] = {}
        self._read_since: set[str] = set()
        self._made: dict[str, model.Workload] = {}
        self._sorted: list[model.Workload] | None = None
        self._tuple: tuple[model.Workload, ...] | None = None

    def note_pod(self, pod: Pod, *, is_there: bool) -> None:
        uid = pod.metadata.uid
        before = self._pods.get(uid)
        if before is not None:
            owner = owner_uid(before)
            discard(self._members, owner, uid)
            discard(self._succeeded, owner, uid)
            self._touched.add(owner)
            for key in claims_of(before):
                discard(self._users, key, uid)
        put(self._pods, uid, pod if is_there else None)
        if not is_there:
            self._read_pods.pop(uid, None)
            return
        owner = owner_uid(pod)
        if pod.status.phase not in FINISHED:
            self._members.setdefault(owner, {})[uid] = pod
        elif pod.status.phase == "Succeeded":
            self._succeeded.setdefault(owner, {})[uid] = pod
        for key in claims_of(pod):
            self._users.setdefault(key, {})[uid] = pod
        self._touched.add(owner)

    def note_claims(self, keys: Iterable[Key]) -> None:
        """What these claims ask of a node may have changed."""
        for key in keys:
            self._touched.update(map(owner_uid, self._users.get(key, _NO_PODS).values()))

    def note_owner(self, owner: Object, *, is_there: bool) -> None:
        """Of an owner only its age counts; most of what changes about a job is its status."""
        uid = owner.metadata.uid
        known = self._owners.get(uid)
        created = owner.metadata.creation_timestamp if is_there else None
        if created != (None if known is None else known.metadata.creation_timestamp):
            self._touched.add(uid)
        put(self._owners, uid, owner if is_there else None)

    def note_namespace(self, name: str) -> None:
        """The namespace went to another project, with all that is in it."""
        self._touched.update(
            owner
            for owner, pods in self._members.items()
            if any(each.metadata.namespace == name for each in pods.values())
        )

    def overlay(
        self,
        assumed: Mapping[str, Assumption],
        evicted: frozenset[str],
        stand_ins: Mapping[str, Pod],
        aside: Mapping[str, str],
    ) -> None:
        """Replace what is known beyond the caches; what differs from the last time is touched."""
        for uid in _different(self._stand_ins, stand_ins):
            pod = stand_ins.get(uid)
            self.note_pod(self._stand_ins[uid] if pod is None else pod, is_there=pod is not None)
        changed = _different(self._assumed, assumed) + _different(self._aside, aside)
        for uid in chain(changed, self._evicted ^ evicted):
            if uid in self._pods:
                self._touched.add(owner_uid(self._pods[uid]))
        self._assumed, self._evicted, self._stand_ins = dict(assumed), evicted, dict(stand_ins)
        self._aside = dict(aside)

    def unreadable(self) -> dict[str, str]:
        """By uid, why pods could not be read."""
        return {uid: why for each in self._unreadable.values() for uid, why in each.items()}

    @property
    def behind(self) -> int:
        return len(self._touched)

    def read(self, now_us: int) -> tuple[model.Workload, ...]:
        self.read_touched(now_us, len(self._touched))
        for uid in self._read_since:  # what was read ahead may have lacked what `overlay` knows
            made = self._made.get(uid)
            put(self._stale_since_us, uid, (made.stale_since_us or None) if made else None)
        self._read_since.clear()
        if self._sorted is None:
            self._sorted = [self._made[uid] for uid in sorted(self._made)]
        if self._tuple is None:
            self._tuple = tuple(self._sorted)
        return self._tuple

    def read_touched(self, now_us: int, most: int) -> None:
        if len(self._touched) > _MANY:
            self._sorted = None
        for uid in list(islice(self._touched, most)):
            before = self._made.get(uid)
            made = self._workload(uid, now_us)
            self._read_since.add(uid)
            if made != before:
                self._tuple = None
                put(self._made, uid, made)
                if self._sorted is not None:
                    _replace(self._sorted, uid, made)
            self._touched.discard(uid)

    def _workload(self, uid: str, now_us: int) -> model.Workload | None:
        readable: list[tuple[Pod, model.Pod]] = []
        unreadable: dict[str, str] = {}
        for pod in _oldest_first(self._members.get(uid, _NO_PODS).values()):
            if not belongs(pod, self._assumed):
                continue
            if pod.metadata.uid in self._aside:
                unreadable[pod.metadata.uid] = self._aside[pod.metadata.uid]
                continue
            try:
                readable.append((pod, self._read_pod(pod)))
            except UnreadableRequest as error:
                unreadable[pod.metadata.uid] = str(error)
        put(self._unreadable, uid, unreadable or None)
        if not readable:
            return None
        return planner_workload(
            Together(
                uid=uid,
                pods=readable,
                owner=self._owners.get(uid),
                project=self._project_of.get(readable[0][0].metadata.namespace, ""),
                has_succeeded=uid in self._succeeded,
                stale_since_us=self._stale_since_us.get(uid, now_us),
            ),
            self._levels,
        )

    def _read_pod(self, pod: Pod) -> model.Pod:
        uid = pod.metadata.uid
        assumed = self._assumed.get(uid)
        evicted = uid in self._evicted
        volumes = self._volumes.terms(pod)
        known = self._read_pods.get(uid)
        if (
            known is not None
            and known[0] is pod
            and known[1] is assumed
            and known[2] is evicted
            and known[3] == volumes
        ):
            return known[4]
        made = planner_pod(pod, assumed, evicted=evicted, levels=self._levels, volumes=volumes)
        if known is not None and known[4] == made:
            made = known[4]
        self._read_pods[uid] = (pod, assumed, evicted, volumes, made)
        return made


def _replace(workloads: list[model.Workload], uid: str, made: model.Workload | None) -> None:
    """Put the workload where it belongs in the sorted list, or take it out."""
    start = bisect_left(workloads, uid, key=_ID)
    stop = start + (start < len(workloads) and workloads[start].id == uid)
    workloads[start:stop] = [] if made is None else [made]


def _oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    found = list(pods)
    if len(found) > 1:
        found.sort(key=lambda each: (each.metadata.creation_timestamp, each.metadata.name, each.metadata.uid))
    return found


def _different(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Keys of which one has not what the other has."""
    found = [key for key, each in after.items() if before.get(key) is not each]
    found += [key for key in before if key not in after]
    return found
