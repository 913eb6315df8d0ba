"""Failures that the state of pods does not show: refusals by the API server, and evictions of pods that did not start.

A new leader reads the evictions from their records. It does not know the refusals until it makes such a request again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from orchestrator.cluster.errors import ClusterError, Forbidden
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.intervals import FORBIDDEN_SECONDS
from orchestrator.control.report.audit import EvictionRecord, newest_evictions
from orchestrator.names import SCHEDULER_NAME
from orchestrator.observe.pod_status import never_started, start_problem
from orchestrator.observe.reader import Reader
from orchestrator.planner.actions.unstarted import RULE as START_TIMEOUT
from orchestrator.planner.actions.unstarted import is_failed_start
from orchestrator.planner.model import Eviction, FailureKind, Rejection

logger = logging.getLogger(__name__)

RECALL_SECONDS: Final = 2.0
"""Maximum time for which a new leader reads records before its first decision."""


class FailureNotes:
    """Notes failed starts in `reader`.

    Also notes pods whose eviction failed, and protects them from eviction for some time.

    `clock` returns seconds, `now_us` the time, and `warn` makes an Event on a pod.
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

    async def recall(self, transport: Transport, pods: Iterable[Pod]) -> None:
        """Read the evictions of pods that did not start, in the namespaces of pending pods."""
        namespaces = {
            pod.metadata.namespace
            for pod in pods
            if pod.spec.scheduler_name == SCHEDULER_NAME and not pod.spec.node_name
        }
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                for namespace in sorted(namespaces):
                    with suppress(Forbidden):  # the namespace does not belong to a project
                        self._recall_from(await newest_evictions(transport, [namespace]))
        except (ClusterError, TimeoutError) as error:
            logger.warning("not all pods are known that were evicted because they did not start: %r", error)

    def _recall_from(self, records: Iterable[EvictionRecord]) -> None:
        for record in records:
            if record.rule == START_TIMEOUT:
                why = record.message.partition(": ")[2] or record.message
                kind, at_us = FailureKind.NOT_STARTED, time_us(record.at)
                self._reader.note_failure(
                    Rejection(record.node, record.workload_id, record.pod_uid, why, kind, at_us)
                )

    def denied(self, pod: Pod, node: str, why: str) -> None:
        """Note that the API server finally refused the binding, a ResourceClaim or the nomination of the pod."""
        self._note(pod, node, why, FailureKind.REFUSED)

    def evicted(self, pod: Pod, eviction: Eviction) -> None:
        """Note an eviction. If containers of the pod could not start, the workload backs off."""
        problem = start_problem(pod) if never_started(pod) else ("", "")
        if is_failed_start(eviction, problem[0]):
            why = ": ".join(filter(None, problem)) or "the kubelet gives no reason"
            self._note(pod, pod.spec.node_name, why, FailureKind.NOT_STARTED)

    def eviction_blocked(self, pod: Pod, why: str) -> None:
        """Protect the pod for FORBIDDEN_SECONDS; then the status of its disruption budget counts again."""
        self._protected[pod.metadata.uid] = (self._clock() + FORBIDDEN_SECONDS, why)

    def eviction_denied(self, pod: Pod, why: str) -> None:
        """Protect the pod from eviction for a time that doubles with each refusal."""
        uid = pod.metadata.uid
        times = self._denied_evictions[uid] = self._denied_evictions.get(uid, 0) + 1
        self._protected[uid] = (self._clock() + FORBIDDEN_SECONDS * 2.0 ** min(times - 1, 8), why)
        self._warn(pod, "EvictionRefused", f"the API server refuses its eviction: {why}")

    def protected(self, pods: Mapping[str, Pod]) -> dict[str, str]:
        """Return, by uid, the reason why pods must not be evicted in this decision. `pods` has all existing pods."""
        now = self._clock()
        self._protected = {uid: entry for uid, entry in self._protected.items() if entry[0] > now}
        self._denied_evictions = {uid: times for uid, times in self._denied_evictions.items() if uid in pods}
        return {uid: why for uid, (_, why) in self._protected.items()}

    def _note(self, pod: Pod, node: str, why: str, kind: FailureKind) -> None:
        uid = pod.metadata.uid
        workload = self._reader.workload_of(uid)
        self._reader.note_failure(Rejection(node, workload, uid, why, kind, self._now_us()))
