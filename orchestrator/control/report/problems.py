"""Writes the problems of pods (stuck, node not ready) on them, as the condition `muster.dev/Stuck` and as an Event.

Users cannot read nodes, so `muster list` and `muster explain` read the problem from the condition. When the problem is
over, the condition becomes False.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from orchestrator.cluster.errors import ClusterError, Conflict, NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport
from orchestrator.cluster.wire import has_condition
from orchestrator.control.report.background import BackgroundWriter
from orchestrator.names import STUCK_CONDITION
from orchestrator.observe.stuck_pods import PodProblem

logger = logging.getLogger(__name__)

WRITES_IN_FLIGHT: Final = 8


class ProblemWriter:
    """Writes the problems of the last `want`. `pods` is the live cache; `warn` makes an Event on a pod.

    If `may_be_written` is false for a pod, because its namespace belongs to no project, no condition is written.
    """

    def __init__(
        self,
        transport: Transport,
        pods: Mapping[str, Pod],
        may_be_written: Callable[[Pod], bool],
        *,
        is_leader: Callable[[], bool],
        warn: Callable[[Pod, str, str], None],
    ) -> None:
        self._transport = transport
        self._pods = pods
        self._is_leader = is_leader
        self._warn = warn
        self._may_be_written = may_be_written
        self._wanted: Mapping[str, PodProblem] = {}
        self._marked: set[str] = set()
        self._background = BackgroundWriter(self._write_all)

    def recall(self, pods: Iterable[Pod]) -> None:
        """Store the pods on which an earlier leader wrote a problem."""
        self._marked.update(
            pod.metadata.uid for pod in pods if has_condition(pod.status.conditions, STUCK_CONDITION)
        )

    def want(self, problems: Mapping[str, PodProblem]) -> None:
        """Replace all problems by these: the problem of each pod that has one, by uid."""
        if problems == self._wanted and self._marked <= problems.keys():
            return
        for uid, problem in problems.items():
            if uid in self._pods and self._wanted.get(uid) != problem:
                self._warn(self._pods[uid], problem.code, problem.message)
        self._wanted = problems
        self._background.wake()

    async def run(self) -> None:
        """Write until cancelled."""
        await self._background.run()

    async def _write_all(self) -> bool:
        wanted = self._wanted
        due = [
            uid
            for uid in sorted({*wanted, *self._marked})
            if uid in self._pods and not _says(self._pods[uid], wanted.get(uid))
        ]
        self._marked = {uid for uid in self._marked if uid in self._pods and uid in wanted}
        written = True
        for start in range(0, len(due), WRITES_IN_FLIGHT):
            if not self._is_leader():
                return True
            writes = (self._write(uid, wanted.get(uid)) for uid in due[start : start + WRITES_IN_FLIGHT])
            written = all(await asyncio.gather(*writes)) and written
        return written

    async def _write(self, uid: str, problem: PodProblem | None) -> bool:
        pod = self._pods.get(uid)
        if pod is None or not self._may_be_written(pod):
            return True
        condition = {
            "type": STUCK_CONDITION,
            "status": "False" if problem is None else "True",
            "reason": "" if problem is None else problem.code,
            "message": "" if problem is None else problem.message,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        try:
            await self._transport.patch(path, body, content_type=STRATEGIC_MERGE_PATCH)
        except (NotFound, Conflict) as error:
            logger.debug("%s is gone: %s", path, error)
        except ClusterError as error:
            logger.warning("cannot write the problem of %s: %s", path, error)
            self._marked.add(uid)
            return False
        if problem is not None:
            self._marked.add(uid)
        return True


def _says(pod: Pod, problem: PodProblem | None) -> bool:
    known = has_condition(pod.status.conditions, STUCK_CONDITION)
    if known is None or problem is None:
        return known is None and problem is None
    return (known.reason, known.message) == (problem.code, problem.message)
