"""Keeps the position of evicted jobs in the queue while they have no pod.

Kubernetes' Job controller creates the next pod of a job only after a back-off of ten seconds or more. The StatefulSet
controller creates it shortly after the end of the old pod. A decision can be made in between.

In the meantime the job would be in no queue. Younger jobs would get free GPUs, and the fair share of the job's project
would be computed without the job. So a copy of the evicted pod stands in for its successor. Decisions treat it like any
pending pod, and its placement is reserved for the successor.

    evicted, runs for its grace ──> ended, holds nothing ──────────────> successor there
                                    (in the caches until the Job
                                     controller has counted it)
    the pod holds its GPUs          the copy is pending                  the successor is pending

The only input is the watch of pods, which shows the end of a pod before the creation of its successor. A terminating
pod that still runs has no stand-in: its end can be minutes away, and GPUs would be reserved for that long.

A nomination of the successor continues with the stand-in. A new placement of the stand-in is reserved for the
successor, which inherits it.

This state is not stored. A new leader finds the part that the caches still show, with the nomination while the pod
exists. A job whose state the caches no longer show loses its position in the queue.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from orchestrator.cluster.objects import FINISHED, Object, Pod, PodStatus
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.resources import STATEFUL_SETS
from orchestrator.cluster.wire import has_condition
from orchestrator.names import (
    ADMITTED_ANNOTATION,
    COMPLETION_INDEX_ANNOTATION,
    DISRUPTED_CONDITION,
    EVICTION_REASON_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    NOMINATED_DEVICES_ANNOTATION,
    SCHEDULER_NAME,
    SUCCESSOR_NOMINATION_ANNOTATION,
)
from orchestrator.observe.nominations import nomination_of, with_nomination
from orchestrator.observe.snapshot import owner_uid
from orchestrator.planner.model import Plan
from orchestrator.planner.placements import Placement

PATIENCE_SECONDS: Final = 30.0
"""Time for which GPUs are reserved for a successor.

The Job controller's back-off is 10 s after the first failed pod since the last success, and doubles with each failure
(`pkg/controller/job/backoff_utils.go`). After the second failure, other jobs get the GPUs.
"""

_OF_THIS_POD_ALONE: Final = (
    ADMITTED_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    EVICTION_REASON_ANNOTATION,
    NOMINATED_DEVICES_ANNOTATION,
    SUCCESSOR_NOMINATION_ANNOTATION,
)
_SUFFIX: Final = "/returning"


@dataclass(slots=True)
class _Expected:
    """An expected successor. `until` is the end of the wait, set when the predecessor has ended."""

    owner: str
    placeholder: Pod
    until: float | None = None


class RequeueHolds:
    """Stores evicted pods of existing Jobs and StatefulSets until a successor exists, or for PATIENCE_SECONDS.

    `is_evicting` returns whether an eviction of the pod (uid) is running that the watch has not shown. `nomination_of`
    returns, for a terminating pod, the nomination of its successor.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        is_evicting: Callable[[str], bool],
        nomination_of: Callable[[Pod], Placement | None] = nomination_of,
    ) -> None:
        self._clock = clock
        self._is_evicting = is_evicting
        self._nomination_of = nomination_of
        self._expected: dict[str, _Expected] = {}
        self._inherited: dict[str, Placement] = {}

    def recall(self, pods: Iterable[Pod]) -> None:
        """Read terminating pods and their successors from the caches of a new leader."""
        known = list(pods)
        started: dict[str, str] = {}
        for pod in known:
            if pod.metadata.deletion_timestamp is None:
                continue
            self.see(Change("added", pod))
            if pod.metadata.uid in self._expected:
                start = pod.status.start_time or pod.metadata.creation_timestamp
                started[owner_uid(pod)] = max(start, started.get(owner_uid(pod), ""))
        for pod in known if started else ():
            since = started.get(owner_uid(pod))
            # only a pod that is newer than the start of the terminating pods can be a successor
            if since is not None and pod.metadata.creation_timestamp > since and not _leaves(pod):
                self.see(Change("added", pod))

    def see(self, change: Change[Any]) -> None:
        """Process a change of the caches. Changes must come in the order of the watch."""
        pod, before = change.object, change.previous
        if not isinstance(pod, Pod):
            return
        is_deleted = change.type == "deleted"
        if is_deleted or _leaves(pod):
            # Pods of other schedulers have no expected successors.
            is_ours = pod.spec.scheduler_name == SCHEDULER_NAME
            if is_ours and (before is None or not _leaves(before)) and self._is_evicted(pod):
                self._expected[pod.metadata.uid] = _Expected(
                    owner_uid(pod), _placeholder(pod, self._nomination_of(pod))
                )
            self._see_terminating(pod, is_deleted=is_deleted)
        elif change.type == "added":
            self._see_new(pod)

    def placeholders(self, *owners: Mapping[str, Object]) -> dict[str, Pod]:
        """Return the stand-ins by uid: one for each ended pod without a successor.

        `owners` are all Jobs and StatefulSets, by uid. If the owner of an ended pod is deleted, no successor is
        expected.
        """
        now = self._clock()
        for uid, expected in list(self._expected.items()):
            job = next((group[expected.owner] for group in owners if expected.owner in group), None)
            is_over = expected.until is not None and expected.until <= now
            if is_over or job is None or job.metadata.deletion_timestamp is not None:
                del self._expected[uid]
        return {
            expected.placeholder.metadata.uid: expected.placeholder
            for expected in self._expected.values()
            if expected.until is not None
        }

    @property
    def inherited(self) -> dict[str, Placement]:
        """The inherited nominations that no decision has received yet, by uid of the successor."""
        return dict(self._inherited)

    def take(self, decision: Plan, inherited: Iterable[str]) -> None:
        """Store a decision's placements for stand-ins. `inherited` are the successors (uids) whose inherited
        nominations the decision received.
        """
        for uid in inherited:
            self._inherited.pop(uid, None)
        if self._expected:
            bindings = (*decision.nominations, *decision.bindings)
            placements = {binding.pod: Placement(binding.node, binding.devices) for binding in bindings}
            for uid, expected in self._expected.items():
                place = placements.get(expected.placeholder.metadata.uid, placements.get(uid))
                expected.placeholder = with_nomination(expected.placeholder, place)

    def _is_evicted(self, pod: Pod) -> bool:
        return (
            EVICTION_REASON_ANNOTATION in pod.metadata.annotations
            or has_condition(pod.status.conditions, DISRUPTED_CONDITION) is not None
            or self._is_evicting(pod.metadata.uid)
        )

    def _see_terminating(self, pod: Pod, *, is_deleted: bool) -> None:
        uid = pod.metadata.uid
        if pod.status.phase == "Succeeded":
            self._expected.pop(uid, None)
        elif uid in self._expected and (is_deleted or pod.status.phase == "Failed"):
            expected = self._expected[uid]
            expected.until = expected.until or self._clock() + PATIENCE_SECONDS

    def _see_new(self, pod: Pod) -> None:
        """Match a new pod with the expected successor of the same name or index, else with the oldest one."""
        mine = [uid for uid, expected in self._expected.items() if expected.owner == owner_uid(pod)]
        if mine:
            expected = self._expected.pop(
                min(mine, key=lambda uid: _role(self._expected[uid].placeholder) != _role(pod))
            )
            place = nomination_of(expected.placeholder)
            has_ended = expected.until is not None  # until then the planner passes the nomination on
            if place is not None and has_ended:
                self._inherited[pod.metadata.uid] = place


def _leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED


def _role(pod: Pod) -> str | None:
    """Return the pod's name in a StatefulSet, its index in an indexed Job, else None."""
    controller = pod.metadata.controller
    if controller is not None and controller.kind == STATEFUL_SETS.kind:
        return pod.metadata.name
    return pod.metadata.annotations.get(COMPLETION_INDEX_ANNOTATION)


def _placeholder(pod: Pod, place: Placement | None) -> Pod:
    """Return the stand-in: the pod without a node, not terminating, and with the nomination."""
    annotations = {
        key: text for key, text in pod.metadata.annotations.items() if key not in _OF_THIS_POD_ALONE
    }
    changed: dict[str, Any] = {"deletion_timestamp": None, "annotations": annotations}
    metadata = msgspec.structs.replace(pod.metadata, uid=pod.metadata.uid + _SUFFIX, **changed)
    unbound = msgspec.structs.replace(
        pod,
        metadata=metadata,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending"),
    )
    return with_nomination(unbound, place)
