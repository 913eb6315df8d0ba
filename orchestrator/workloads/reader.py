"""Snapshots one after the other, at a cost that follows what changed between them.

    changes of the caches ──> note ──> what is touched: workloads, nodes ──> read ──> snapshot
                                        ^
    bindings and evictions under way ───┘

What a change touches is read again when the next snapshot is asked for, and nothing else is. What comes out as it was
stays the very same object, by which the planner knows that it need not look: a pod whose status alone changed, a
node's heartbeat.
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from orchestrator.cluster.objects import FINISHED, Namespace, Node, Pod, Project
from orchestrator.cluster.reflector import Change
from orchestrator.names import SCHEDULER_NAME
from orchestrator.planner import model
from orchestrator.workloads.budgets import planner_budgets
from orchestrator.workloads.namespaces import NamespaceOwners
from orchestrator.workloads.node_reader import NodeReader
from orchestrator.workloads.owners import KindState
from orchestrator.workloads.project_reader import ProjectReader
from orchestrator.workloads.snapshot import Assumption, Observed, Reading
from orchestrator.workloads.unreadable import Boundary
from orchestrator.workloads.volumes import StorageObject, Volumes
from orchestrator.workloads.workload_reader import WorkloadReader

_NO_PODS: Final[Mapping[str, Pod]] = MappingProxyType({})
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
_NO_ASSUMPTIONS: Final[Mapping[str, Assumption]] = MappingProxyType({})
_NO_NOMINATIONS: Final[Mapping[str, Assumption | None]] = MappingProxyType({})
_DEFAULT_SETTINGS: Final = model.Settings()


def read(observed: Observed, settings: model.Settings = _DEFAULT_SETTINGS) -> Reading:
    """Build the planner's snapshot. What cannot be read is left out and named."""
    reader = Reader(settings)
    for observed_object in chain(
        observed.namespaces.values(),
        observed.projects.values(),
        observed.nodes.values(),
        observed.storage,
        *(owners.values() for owners in observed.owners),
        observed.pods.values(),
    ):
        reader.note(Change("added", observed_object))
    return reader.read(
        assumed=observed.assumed,
        evicted=observed.evicted,
        nominated=observed.nominated,
        now_us=observed.now_us,
        budgets=planner_budgets(observed.budgets.values(), observed.pods, observed.evicted, {}),
    )


class Reader:
    """Builds snapshots of the cluster, kept current by changes. `volumes` are the claims, volumes and storage classes.

    Kubernetes does not keep when a gang lost a member, so the first reading that shows it sets `stale_since_us`.
    """

    def __init__(self, settings: model.Settings = _DEFAULT_SETTINGS) -> None:
        self._settings = settings
        boundary = Boundary()
        self._namespaces = NamespaceOwners()
        self._projects = ProjectReader(boundary)
        self._nodes = NodeReader(boundary)
        self.volumes = Volumes()
        self._workloads = WorkloadReader(
            self._namespaces.project_of, self.volumes, settings.topology_levels, boundary
        )

    @property
    def behind(self) -> int:
        """How many workloads were touched and have not been read again."""
        return self._workloads.behind

    def is_of_a_project(self, namespace: str) -> bool:
        """Whether a namespace belongs to a project."""
        return namespace in self._namespaces.project_of

    def read_ahead(self, most: int, *, now_us: int = 0) -> None:
        """Read so many of the workloads that were touched, at most: the next snapshot has to read the others only."""
        self._workloads.read_touched(now_us, most)

    def note(self, change: Change[Any]) -> None:
        """Take one change: of a pod, node, namespace, project, of storage, of what kinds of owners can be read.

        Anything else is the owner of pods.
        """
        changed, is_there = change.object, change.type != "deleted"
        if isinstance(changed, Pod):
            self._note_pod(changed, is_there=is_there)
        elif isinstance(changed, Node):
            self._nodes.note(changed, is_there=is_there)
        elif isinstance(changed, Namespace):
            if self._namespaces.note_namespace(changed, is_there=is_there):
                self._workloads.note_namespace(changed.metadata.name)
        elif isinstance(changed, Project):
            self._projects.note(changed, is_there=is_there)
            for namespace in self._namespaces.note_project(changed, is_there=is_there):
                self._workloads.note_namespace(namespace)
        elif isinstance(changed, StorageObject):
            self._workloads.note_claims(self.volumes.note(changed, is_there=is_there))
        elif isinstance(changed, KindState):
            self._workloads.note_kind(changed)
        else:
            self._workloads.note_owner(changed, is_there=is_there)

    def read(
        self,
        *,
        assumed: Mapping[str, Assumption] = _NO_ASSUMPTIONS,
        evicted: frozenset[str] = frozenset(),
        placeholders: Mapping[str, Pod] = _NO_PODS,
        unschedulable: Mapping[str, str] = _NOBODY,
        nominated: Mapping[str, Assumption | None] = _NO_NOMINATIONS,
        now_us: int = 0,
        budgets: tuple[model.Budget, ...] = (),
        left_over: tuple[str, ...] = (),
    ) -> Reading:
        """Build the planner's snapshot. What cannot be read is left out and named.

        `assumed`, `evicted` and `nominated` are bindings, evictions and nominations, by pod uid, that the caches do not
        show yet; a nomination of None has ended. `placeholders` are pods that are to come; `unschedulable` has, by uid,
        why pods wait for something else than the planner. `now_us` is the time of the decision; 0: rules about
        time do not apply. `budgets` are the budgets for disruption, `left_over` the workloads that the last decision
        did not reach.
        """
        self._workloads.overlay(assumed, evicted, placeholders, unschedulable, nominated)
        workloads = self._workloads.read(now_us)
        self._nodes.hold(self._workloads.held_unread())
        snapshot = model.Snapshot(
            nodes=self._nodes.read(),
            projects=self._projects.read(),
            workloads=workloads,
            now_us=now_us,
            settings=self._settings,
            budgets=budgets,
            left_over=left_over,
        )
        unreadable = self._workloads.unreadable(now_us)
        set_aside = chain(
            self._nodes.set_aside(), self._projects.set_aside(), self._workloads.set_aside(unreadable)
        )
        return Reading(snapshot, unreadable, self._projects.unreadable(), tuple(sorted(set_aside)))

    def _note_pod(self, pod: Pod, *, is_there: bool) -> None:
        is_ours = pod.spec.scheduler_name == SCHEDULER_NAME
        runs_elsewhere = is_there and not is_ours and pod.status.phase not in FINISHED
        self._nodes.note_foreign(pod, pod.spec.node_name if runs_elsewhere else "")
        self._workloads.note_pod(pod, is_there=is_there and is_ours)
