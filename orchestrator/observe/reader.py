"""Makes the next snapshot from the changes since the last one.

    changes of the caches ──────────> note ──> touched workloads, nodes ──> read ──> snapshot
                                       ^
    requests under way ──> PodCache ───┘

For the next snapshot, only the objects that a change concerns are read again. If the result is equal, it stays the same
object, so the planner can skip it. Examples: a pod whose status alone changed, or a node's heartbeat.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

from orchestrator.cluster.gpu_nodes import GpuNode, given_gpus
from orchestrator.cluster.last_object import LastObject
from orchestrator.cluster.objects import FINISHED, Namespace, Node, Pod, Project
from orchestrator.cluster.reflector import Change
from orchestrator.names import SCHEDULER_NAME
from orchestrator.observe.budgets import planner_budgets
from orchestrator.observe.claim_reader import (
    ClaimReader,
    DynamicObject,
    gets_gpus_by_claims,
    may_have_claims,
)
from orchestrator.observe.device_reader import DeviceReader, Miscounted
from orchestrator.observe.dict_ops import put
from orchestrator.observe.failed_starts import FailedStarts
from orchestrator.observe.grace_periods import MAX_GRACE_SECONDS
from orchestrator.observe.namespaces import NamespaceOwners
from orchestrator.observe.node_reader import NodeReader
from orchestrator.observe.outsider_reader import OutsiderReader
from orchestrator.observe.owners import KindState
from orchestrator.observe.pod_cache import PodCache
from orchestrator.observe.project_reader import ProjectReader
from orchestrator.observe.request import concerns_gpus
from orchestrator.observe.snapshot import NO_HINTS, Hints, Observed, Reading
from orchestrator.observe.stuck_pods import StuckPods
from orchestrator.observe.unreadable import Boundary
from orchestrator.observe.volumes import StorageObject, Volumes
from orchestrator.observe.workload_reader import WorkloadReader
from orchestrator.planner import model
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings

Workloads = tuple[model.Workload, ...]


def read(observed: Observed, settings: Settings = DEFAULT_SETTINGS, hints: Hints = NO_HINTS) -> Reading:
    """Return the planner's snapshot. Unreadable objects are left out and listed."""
    reader = Reader(settings)
    for observed_object in chain(
        observed.namespaces.values(),
        observed.projects.values(),
        observed.nodes.values(),
        observed.storage,
        observed.dynamic,
        *(owners.values() for owners in observed.owners),
        observed.pods.values(),
    ):
        reader.note(Change("added", observed_object))
    return reader.read(
        now_us=observed.now_us,
        budgets=planner_budgets(observed.budgets.values(), observed.pods, (), {}),
        hints=hints,
    )


class Reader:
    """Builds snapshots of the cluster from changes. `volumes` has the PVCs, PersistentVolumes and StorageClasses.

    The executor assumes its requests in `pods` and `claims`, so a snapshot shows them as already carried out.
    Kubernetes does not store when a gang lost a pod, so the first snapshot without the pod sets `stale_since_us`.
    `last` notes the object that is being read.
    """

    def __init__(
        self,
        settings: Settings = DEFAULT_SETTINGS,
        *,
        max_checkpoint_grace_seconds: int = MAX_GRACE_SECONDS,
        last: LastObject | None = None,
    ) -> None:
        self._settings = settings
        boundary = Boundary(last)
        self.pods = PodCache(self._note_pod, max_checkpoint_grace_seconds=max_checkpoint_grace_seconds)
        self._namespaces = NamespaceOwners()
        self._others: dict[str, Pod] = {}
        self._merged: tuple[Workloads, Workloads, Workloads] = ((), (), ())
        self._projects = ProjectReader(boundary)
        self._devices = DeviceReader()
        self.claims = ClaimReader(boundary)
        self._nodes = NodeReader(self._devices, self.claims, boundary, self._is_ours)
        self.volumes = Volumes()
        self._stuck = StuckPods(max_checkpoint_grace_seconds)
        self._workloads = WorkloadReader(
            self._namespaces.project_of,
            self.volumes,
            self._devices,
            self.claims,
            self._stuck,
            levels=settings.topology_levels,
            max_checkpoint_grace_seconds=max_checkpoint_grace_seconds,
            boundary=boundary,
        )
        self._failed = FailedStarts(self._workloads.workload_of, self._workloads.pods_of, self._stuck.pods_on)
        self._outsiders = OutsiderReader(
            self._devices,
            self.claims,
            self._namespaces.project_of,
            self._stuck,
            max_checkpoint_grace_seconds,
        )

    @property
    def behind(self) -> int:
        """The number of workloads that must be read again."""
        return self._workloads.behind

    def is_of_a_project(self, namespace: str) -> bool:
        """Return whether a namespace belongs to a project."""
        return namespace in self._namespaces.project_of

    def note_failure(self, failure: model.Rejection) -> None:
        """Store a failed start that no object shows."""
        self._failed.note(failure)

    def workload_of(self, uid: str) -> str:
        """Return the id of the workload of a pod."""
        return self._workloads.workload_of(uid)

    def miscounted(self) -> Iterator[Miscounted]:
        """Yield the pods whose annotations differ from the kubelets' GPUs, as of the last snapshot."""
        return self._devices.miscounted()

    def read_ahead(self, most: int, *, now_us: int = 0) -> None:
        """Read at most this number of the workloads that must be read again; the next `read` reads the rest."""
        self._settle()
        self._workloads.read_touched(now_us, most)

    def note(self, change: Change[Any]) -> None:
        """Apply a change of any observed object.

        An object of an unlisted type is an owner of pods.
        """
        changed, is_there = change.object, change.type != "deleted"
        if isinstance(changed, Pod):
            self.pods.note(change)
        elif isinstance(changed, Node):
            self._nodes.note(changed, is_there=is_there)
            self._stuck.note_node(changed, is_there=is_there)
            self._devices.note_node(changed, is_there=is_there)
        elif isinstance(changed, GpuNode):
            self._devices.note_given(changed.metadata.name, given_gpus(changed) if is_there else {})
        elif isinstance(changed, Namespace):
            if self._namespaces.note_namespace(changed, is_there=is_there):
                self._change_owner(changed.metadata.name)
        elif isinstance(changed, Project):
            self._projects.note(changed, is_there=is_there)
            for namespace in self._namespaces.note_project(changed, is_there=is_there):
                self._change_owner(namespace)
        elif isinstance(changed, DynamicObject):
            self._note_dynamic(changed, is_there=is_there)
        elif isinstance(changed, StorageObject):
            self._workloads.note_claims(self.volumes.note(changed, is_there=is_there))
        elif isinstance(changed, KindState):
            self._workloads.note_kind(changed)
        else:
            self._workloads.note_owner(changed, is_there=is_there)

    def read(
        self,
        *,
        now_us: int = 0,
        budgets: tuple[model.Budget, ...] = (),
        hints: Hints = NO_HINTS,
    ) -> Reading:
        """Return the planner's snapshot. Unreadable objects are left out and listed.

        `now_us` is the time of the decision; 0: rules about time do not apply. `budgets` are the budgets for
        disruption.
        """
        self._settle()
        self._workloads.take(hints)
        self._touch((), self._stuck.read(now_us))
        self._read_devices()
        workloads = self._workloads.read(now_us)
        outsiders = self._outsiders.read()
        if outsiders:
            workloads = self._merge(workloads, outsiders)
        snapshot = model.Snapshot(
            nodes=self._nodes.read(),
            projects=self._projects.read(),
            workloads=workloads,
            now_us=now_us,
            settings=self._settings,
            budgets=budgets,
            left_over=hints.left_over,
            dynamic=self.claims.dynamic(),
            rejections=self._failed.read(now_us),
        )
        unreadable = self._workloads.unreadable(now_us)
        skipped = chain(
            self._nodes.skipped(),
            self.claims.skipped(),
            self._projects.skipped(),
            self._workloads.skipped(unreadable),
            (entry for entry in self._devices.skipped() if entry.uid not in unreadable),
        )
        return Reading(
            snapshot,
            unreadable,
            self._projects.unreadable(),
            tuple(sorted(skipped)),
            self._stuck.problems(),
        )

    def _settle(self) -> None:
        """Apply the assumptions that changed since the last call."""
        self.pods.settle()
        self._touch((), self.claims.settle())

    def _read_devices(self) -> None:
        """Compute the devices of pods that muster did not bind, before these pods are read."""
        for tenant in self._devices.read():
            if tenant.is_foreign:
                self._nodes.touch(tenant.pod.spec.node_name)
            else:
                self._workloads.touch([tenant.pod.metadata.uid])
                self._outsiders.touch([tenant.pod.metadata.uid])

    def _merge(self, workloads: Workloads, outsiders: Workloads) -> Workloads:
        """Return all workloads sorted by id; the same object as before if neither input changed."""
        known = self._merged
        if known[0] is not workloads or known[1] is not outsiders:
            known = (workloads, outsiders, tuple(sorted((*workloads, *outsiders), key=attrgetter("id"))))
            self._merged = known
        return known[2]

    def _note_pod(self, pod: Pod, is_there: bool) -> None:
        is_ours = is_there and pod.spec.scheduler_name == SCHEDULER_NAME
        runs_elsewhere = bool(
            is_there and not is_ours and pod.spec.node_name and pod.status.phase not in FINISHED
        )
        has_claims = may_have_claims(pod)
        has_gpus = runs_elsewhere and (has_claims or concerns_gpus(pod))
        is_outsider = has_gpus and bool(self._namespaces.project_of.get(pod.metadata.namespace))
        put(self._others, pod.metadata.uid, pod if has_gpus else None)
        is_active = is_there and pod.status.phase not in FINISHED
        self._workloads.note_pod(pod, is_there=is_ours)
        self._workloads.note_claims(
            self.volumes.note_pod(pod, is_active=is_active and (is_ours or runs_elsewhere))
        )
        self._outsiders.note(pod, is_there=is_outsider)
        self._stuck.note_pod(pod, is_there=is_ours or is_outsider)
        self._failed.note_pod(pod, is_there=is_ours)
        self._nodes.note_foreign(pod, pod.spec.node_name if runs_elsewhere and not is_outsider else "")
        # GPUs by claims are counted from the claims
        by_claims = gets_gpus_by_claims(pod)
        self._devices.note_pod(
            pod, is_there=is_there and not by_claims, is_foreign=not (is_ours or is_outsider)
        )
        if has_claims:
            self._touch(self.claims.nodes_of(pod), self.claims.note_pod(pod, is_there=is_active))
        elif self.claims.cache.key_made_for(pod.metadata.uid):
            self._touch(self.claims.nodes_of(pod), ())

    def _note_dynamic(self, changed: DynamicObject, *, is_there: bool) -> None:
        gpu_class = self.claims.slices.gpu_class
        self._touch(*self.claims.note(changed, is_there=is_there))
        # A change of the class of GPUs also affects pods without claims.
        if self.claims.slices.gpu_class != gpu_class:
            self._workloads.touch_all()

    def _is_ours(self, uid: str) -> bool:
        """Return whether the pod (uid) belongs to a workload of the snapshot."""
        return uid in self._outsiders or self._workloads.pod(uid) is not None

    def _touch(self, nodes: Iterable[str], pods: Collection[str]) -> None:
        """Mark these nodes and pods to be read again."""
        for name in nodes:
            self._nodes.touch(name)
        self._workloads.touch(pods)
        self._outsiders.touch(pods)

    def _change_owner(self, namespace: str) -> None:
        """Mark all pods of the namespace to be read again, because it belongs to another project now."""
        self._workloads.note_namespace(namespace)
        for pod in [pod for pod in self._others.values() if pod.metadata.namespace == namespace]:
            self._note_pod(pod, True)
