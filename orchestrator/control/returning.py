"""Evicted jobs keep their place in the queue while they have no pod.

After an eviction Kubernetes' Job controller makes the new pod only after its back-off of ten seconds. Meanwhile the
job would be in no queue: GPUs that come free would go to younger jobs, and its project's fair share would be counted
without it. So the pod that was evicted stands in for the one that is to come: it is decided on like any other, and what
it is given stays free for its successor. This is a courtesy with an end, not state: forgetting it costs the place in
the queue.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from orchestrator.cluster.objects import Object, Pod, PodStatus
from orchestrator.cluster.reflector import Change
from orchestrator.names import GPU_DEVICES_ANNOTATION
from orchestrator.workloads.snapshot import owner_uid

PATIENCE_SECONDS: Final = 30.0
"""How long a successor is waited for: the Job controller's first back-off is 10 s, its second 20 s."""


_SUFFIX: Final = "/returning"


class Returning:
    """Remembers evicted pods of living jobs until a successor is there, or for a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expected: dict[str, list[tuple[Pod, float]]] = {}

    def note(self, pod: Pod) -> None:
        """Expect a successor of this pod, which was evicted just now."""
        owner = owner_uid(pod)
        if owner != pod.metadata.uid:
            until = self._clock() + PATIENCE_SECONDS
            self._expected.setdefault(owner, []).append((_stand_in(pod), until))

    def see(self, change: Change[Any]) -> None:
        """Take a change of the caches: a pod that is new is the successor of one that is expected."""
        if self._expected and change.type == "added" and isinstance(change.object, Pod):
            del self._expected.get(owner_uid(change.object), [])[:1]

    def stand_ins(self, pods: Mapping[str, Pod], jobs: Mapping[str, Object]) -> dict[str, Pod]:
        """Pods that are to come, by a uid of their own; none for pods that are still going or have a successor.

        `pods` and `jobs` are all there are, by uid.
        """
        now = self._clock()
        for owner, expected in list(self._expected.items()):
            left = [each for each in expected if each[1] > now and owner in jobs]
            if left:
                self._expected[owner] = left
            else:
                del self._expected[owner]
        return {
            pod.metadata.uid: pod
            for expected in self._expected.values()
            for pod, _ in expected
            if pod.metadata.uid.removesuffix(_SUFFIX) not in pods
        }


def _stand_in(pod: Pod) -> Pod:
    """The pod as its successor will be: without a node, not being deleted."""
    annotations = {
        key: text for key, text in pod.metadata.annotations.items() if key != GPU_DEVICES_ANNOTATION
    }
    changed: dict[str, Any] = {"deletion_timestamp": None, "annotations": annotations}
    metadata = msgspec.structs.replace(pod.metadata, uid=pod.metadata.uid + _SUFFIX, **changed)
    return msgspec.structs.replace(
        pod,
        metadata=metadata,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending"),
    )
