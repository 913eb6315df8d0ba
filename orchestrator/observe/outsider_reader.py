"""Outsiders: bound pods with GPUs that muster did not schedule, in namespaces of projects. Each is one workload.

An outsider counts for its project like any other pod, and its GPUs over quota can be reclaimed. No other decision
concerns an outsider: no successor is started, it is not migrated, and no gang is assumed.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.cluster.objects import Pod
from orchestrator.labels import LabelRequirement
from orchestrator.names import WORKLOAD_LABEL
from orchestrator.observe.claim_reader import ClaimReader
from orchestrator.observe.device_reader import DeviceReader
from orchestrator.observe.dict_ops import put
from orchestrator.observe.request import readable_request
from orchestrator.observe.snapshot import created_at_us, held_pod, started_at_us
from orchestrator.planner import model

_NOWHERE: Final = model.Constraints(node_terms=((LabelRequirement("metadata.name", "In"),),))
"""Terms that match no node, so that the pod cannot be migrated."""


class OutsiderReader:
    """The workloads of outsiders, sorted by id."""

    def __init__(
        self,
        devices: DeviceReader,
        claims: ClaimReader,
        project_of: Mapping[str, str],
        stuck: Container[str],
        max_checkpoint_grace_seconds: int,
    ) -> None:
        self._devices = devices
        self._claims = claims
        self._project_of = project_of
        self._stuck = stuck
        self._max_checkpoint_grace_seconds = max_checkpoint_grace_seconds
        self._pods: dict[str, Pod] = {}
        self._made: dict[str, model.Workload] = {}
        self._touched: set[str] = set()
        self._sorted: tuple[model.Workload, ...] = ()

    def note(self, pod: Pod, *, is_there: bool) -> None:
        """Apply a change of a pod. `is_there`: the pod exists and is an outsider."""
        uid = pod.metadata.uid
        if is_there or uid in self._pods:
            put(self._pods, uid, pod if is_there else None)
            self._touched.add(uid)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def touch(self, uids: Iterable[str]) -> None:
        """Mark the outsiders among these pods to be read again, because their devices changed."""
        self._touched.update(uid for uid in uids if uid in self._pods)

    def read(self) -> tuple[model.Workload, ...]:
        """Read the changed pods, and return all workloads sorted by id."""
        changed = False
        for uid in self._touched:
            pod = self._pods.get(uid)
            workload = None if pod is None else self._workload(pod)
            if workload != self._made.get(uid):
                put(self._made, uid, workload)
                changed = True
        self._touched.clear()
        if changed:
            self._sorted = tuple(self._made[uid] for uid in sorted(self._made))
        return self._sorted

    def _workload(self, pod: Pod) -> model.Workload:
        metadata = pod.metadata
        controller = metadata.controller
        planned = held_pod(
            pod,
            devices=self._devices.devices(metadata.uid),
            claims=self._claims.read_pod(pod, readable_request(pod), pod.spec.node_name),
            stuck=metadata.uid in self._stuck,
            max_checkpoint_grace_seconds=self._max_checkpoint_grace_seconds,
        )
        return model.Workload(
            id=metadata.uid,
            name=metadata.labels.get(WORKLOAD_LABEL)
            or (metadata.name if controller is None else controller.name),
            project=self._project_of.get(metadata.namespace, ""),
            priority=pod.spec.priority,
            preemptible=True,
            created_at_us=created_at_us(None, [pod]),
            pods=(replace(planned, constraints=_NOWHERE),),
            started_at_us=started_at_us([pod]),
        )
