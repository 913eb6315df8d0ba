"""Failures that only the operator knows: answers of the API server, and evictions of pods that did not start."""

from collections.abc import Callable, Mapping

from orchestrator.cluster.objects import Pod
from orchestrator.control.decide.intervals import FORBIDDEN_SECONDS
from orchestrator.observe.pod_status import start_problem
from orchestrator.observe.reader import Reader
from orchestrator.planner.actions.unstarted import RULE as START_TIMEOUT
from orchestrator.planner.model import Eviction, FailureKind


class FailureNotes:
    """Notes the failures of starts in `reader`, and remembers the pods that are not evicted again for a time.

    `clock` is in seconds, `now_us` is the time, `warn` makes an Event on a pod.
    """

    def __init__(
        self,
        reader: Reader,
        clock: Callable[[], float],
        now_us: Callable[[], int],
        warn: Callable[[Pod, str, str], None],
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._now_us = now_us
        self._warn = warn
        self._protected: dict[str, tuple[float, str]] = {}
        self._denied_evictions: dict[str, int] = {}

    def denied(self, pod: Pod, node: str, why: str) -> None:
        """The API server refused the binding, a claim or the nomination of the pod for good."""
        self._note(pod, node, why, FailureKind.REFUSED)

    def evicted(self, pod: Pod, eviction: Eviction) -> None:
        """The pod was evicted: if its containers did not start, its workload backs off."""
        if eviction.rule == START_TIMEOUT:
            why = ": ".join(filter(None, start_problem(pod))) or "the kubelet gives no reason"
            self._note(pod, pod.spec.node_name, why, FailureKind.NOT_STARTED)

    def eviction_blocked(self, pod: Pod, why: str) -> None:
        """Choose other victims for a while; afterwards the status of the budget counts."""
        self._protected[pod.metadata.uid] = (self._clock() + FORBIDDEN_SECONDS, why)

    def eviction_denied(self, pod: Pod, why: str) -> None:
        """Choose other victims for a time that doubles with each refusal."""
        uid = pod.metadata.uid
        times = self._denied_evictions[uid] = self._denied_evictions.get(uid, 0) + 1
        self._protected[uid] = (self._clock() + FORBIDDEN_SECONDS * 2.0 ** min(times - 1, 8), why)
        self._warn(pod, "EvictionRefused", f"the API server refuses its eviction: {why}")

    def protected(self, pods: Mapping[str, Pod]) -> dict[str, str]:
        """Return, by uid, why pods are not evicted in this decision; `pods` are all that there are."""
        now = self._clock()
        self._protected = {uid: entry for uid, entry in self._protected.items() if entry[0] > now}
        self._denied_evictions = {uid: times for uid, times in self._denied_evictions.items() if uid in pods}
        return {uid: why for uid, (_, why) in self._protected.items()}

    def _note(self, pod: Pod, node: str, why: str, kind: FailureKind) -> None:
        self._reader.note_failure(pod, node, why, kind, self._now_us())
