"""Evicted jobs keep their place in the queue while they have no pod.

Kubernetes' Job controller makes the next pod of a job only after a back-off of ten seconds or more. Meanwhile the job
would be in no queue: GPUs that come free would go to younger jobs, and its project's fair share would be counted
without it. So the pod that was evicted stands in for the one that is to come: it is decided on like any other, and what
it is given stays free for its successor.

    evicted, goes on for its grace ──> ended, holds nothing ──────────────> successor there
                                       (in the caches until the Job
                                        controller has counted it, then gone)
    holds its GPUs itself              stands in                            stands for itself

All of it is read off the watch of the pods, where an end comes before the successor's beginning, whatever is answered
to the eviction and when. A pod that goes on is not stood in for: its job's next pod may be minutes away, and GPUs would
wait that long for it. This is a courtesy with an end, not state: a new leader finds what the caches still show of it,
and forgetting it costs the place in the queue.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from orchestrator.cluster.objects import FINISHED, Object, Pod, PodStatus
from orchestrator.cluster.reflector import Change
from orchestrator.names import (
    COMPLETION_INDEX_ANNOTATION,
    DISRUPTED_CONDITION,
    EVICTED_BECAUSE_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
)
from orchestrator.workloads.snapshot import owner_uid
from orchestrator.workloads.status import has_condition

PATIENCE_SECONDS: Final = 30.0
"""How long GPUs are kept free for a successor. The Job controller's back-off is 10 s after the first pod that failed
since one succeeded, and doubles with each (`pkg/controller/job/backoff_utils.go`); beyond the second the GPUs are of
more use to others."""

_OF_THIS_POD_ALONE: Final = (GPU_DEVICES_ANNOTATION, EVICTED_BECAUSE_ANNOTATION)
_SUFFIX: Final = "/returning"


@dataclass(slots=True)
class _Expected:
    """A successor that is to come; `until` is set once its predecessor has ended."""

    owner: str
    stand_in: Pod
    until: float | None = None


class Returning:
    """Remembers evicted pods of living jobs from when they leave until a successor is there, or for a while.

    `is_evicting` tells, for a uid, whether an eviction is under way that the watch has not shown yet.
    """

    def __init__(self, clock: Callable[[], float], is_evicting: Callable[[str], bool]) -> None:
        self._clock = clock
        self._is_evicting = is_evicting
        self._expected: dict[str, _Expected] = {}

    def recall(self, pods: Iterable[Pod]) -> None:
        """Take what the caches of a new leader show: pods that are being deleted, and successors of them."""
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
            # what was made beside those that leave is older than their start
            if since is not None and pod.metadata.creation_timestamp > since and not _leaves(pod):
                self.see(Change("added", pod))

    def see(self, change: Change[Any]) -> None:
        """Take a change of the caches, in the order of the watch."""
        pod, before = change.object, change.previous
        if not isinstance(pod, Pod):
            return
        is_gone = change.type == "deleted"
        if is_gone or _leaves(pod):
            if (before is None or not _leaves(before)) and self._is_evicted(pod):
                self._expected[pod.metadata.uid] = _Expected(owner_uid(pod), _stand_in(pod))
            self._see_leaving(pod, is_gone=is_gone)
        elif change.type == "added":
            self._see_new(pod)

    def stand_ins(self, jobs: Mapping[str, Object]) -> dict[str, Pod]:
        """Pods that are to come, by a uid of their own: of those that have ended and have no successor.

        `jobs` are all there are, by uid.
        """
        now = self._clock()
        for uid, each in list(self._expected.items()):
            job = jobs.get(each.owner)
            is_over = each.until is not None and each.until <= now
            if is_over or job is None or job.metadata.deletion_timestamp is not None:
                del self._expected[uid]
        return {
            each.stand_in.metadata.uid: each.stand_in
            for each in self._expected.values()
            if each.until is not None
        }

    def _is_evicted(self, pod: Pod) -> bool:
        return (
            EVICTED_BECAUSE_ANNOTATION in pod.metadata.annotations
            or has_condition(pod.status.conditions, DISRUPTED_CONDITION) is not None
            or self._is_evicting(pod.metadata.uid)
        )

    def _see_leaving(self, pod: Pod, *, is_gone: bool) -> None:
        uid = pod.metadata.uid
        if pod.status.phase == "Succeeded":
            self._expected.pop(uid, None)
        elif uid in self._expected and (is_gone or pod.status.phase == "Failed"):
            expected = self._expected[uid]
            expected.until = expected.until or self._clock() + PATIENCE_SECONDS

    def _see_new(self, pod: Pod) -> None:
        """One successor less to wait for: that of the same index, else the one that is waited for longest."""
        mine = [uid for uid, each in self._expected.items() if each.owner == owner_uid(pod)]
        if mine:
            del self._expected[min(mine, key=lambda uid: _index(self._expected[uid].stand_in) != _index(pod))]


def _leaves(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in FINISHED


def _index(pod: Pod) -> str | None:
    return pod.metadata.annotations.get(COMPLETION_INDEX_ANNOTATION)


def _stand_in(pod: Pod) -> Pod:
    """The pod as its successor will be: without a node, not being deleted."""
    annotations = {
        key: text for key, text in pod.metadata.annotations.items() if key not in _OF_THIS_POD_ALONE
    }
    changed: dict[str, Any] = {"deletion_timestamp": None, "annotations": annotations}
    metadata = msgspec.structs.replace(pod.metadata, uid=pod.metadata.uid + _SUFFIX, **changed)
    return msgspec.structs.replace(
        pod,
        metadata=metadata,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending"),
    )
