"""Writes the reason of every pending pod as the condition `PodScheduled`, in the background.

A new code of a reason is written immediately. If only amounts in the message change (free GPUs, GPUs in use), it is
written at intervals. So thousands of pending pods do not cost thousands of writes for every decision.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from orchestrator.cluster.errors import ClusterError, Conflict, Forbidden, Invalid, NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport

logger = logging.getLogger(__name__)

WRITES_IN_FLIGHT: Final = 8
REFRESH_SECONDS: Final = 3.0
REFRESHES_PER_SECOND: Final = 40.0
OVERTAKEN_SECONDS: Final = 0.2
"""Time after which a condition is written again if the pod changed meanwhile (Conflict). Example: its nomination was
written just before.
"""
MAX_WAIT_FOR_BINDINGS_SECONDS: Final = 1.0


class ConditionWriter:
    """Writes the reasons of the last `want`. `pods` is the live cache; `bindings_done` waits for running bindings.

    `on_new_reason` is called with a pod and the message if the code of its reason changed. If `may_be_written` is false
    for a pod, because its namespace belongs to no project, the pod gets only the Event.
    """

    def __init__(
        self,
        transport: Transport,
        pods: Mapping[str, Pod],
        *,
        is_leader: Callable[[], bool],
        bindings_done: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        on_new_reason: Callable[[Pod, str], None] = lambda _pod, _message: None,
        may_be_written: Callable[[Pod], bool] = lambda _pod: True,
    ) -> None:
        self._transport = transport
        self._pods = pods
        self._is_leader = is_leader
        self._bindings_done = bindings_done
        self._clock = clock
        self._on_new_reason = on_new_reason
        self._may_be_written = may_be_written
        self._wanted: Mapping[str, str] = {}
        self._written: dict[str, tuple[str, float]] = {}
        self._changed = asyncio.Event()
        self._overtaken = False
        self._refused = False

    def want(self, reasons: Mapping[str, tuple[str, str]]) -> None:
        """Replace all reasons by these: code and message of every pending pod, by uid."""
        self._wanted = {uid: f"{code}: {message}" for uid, (code, message) in reasons.items()}
        self._written = {uid: known for uid, known in self._written.items() if uid in self._wanted}
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._overtaken = self._refused = False
            later = await self._write_due()
            if self._overtaken:
                await self._wait_for_change(OVERTAKEN_SECONDS)
            elif later or self._refused:
                await self._wait_for_change(REFRESH_SECONDS)
            else:
                await self._changed.wait()
            self._changed.clear()

    async def _wait_for_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _write_due(self) -> bool:
        """Write the due conditions. Return true if others must be refreshed later."""
        due, later = self._split()
        for start in range(0, len(due), WRITES_IN_FLIGHT):
            try:
                async with asyncio.timeout(MAX_WAIT_FOR_BINDINGS_SECONDS):
                    await self._bindings_done()
            except TimeoutError:
                logger.debug("conditions: written beside bindings")
            if not self._is_leader():
                return True
            await asyncio.gather(*(self._write(uid) for uid in due[start : start + WRITES_IN_FLIGHT]))
        return later

    def _split(self) -> tuple[list[str], bool]:
        """Return the uids to write now, new codes first, and whether others must be refreshed later."""
        now = self._clock()
        interval = max(REFRESH_SECONDS, len(self._wanted) / REFRESHES_PER_SECOND)
        first: list[str] = []
        refreshed: list[str] = []
        later = False
        for uid, message in self._wanted.items():
            pod = self._pods.get(uid)
            if pod is None:
                continue
            known, at = self._written.get(uid, (_said(pod), -interval))
            if known == message:
                continue
            if known is None or _code(known) != _code(message):
                first.append(uid)
            elif now - at >= interval:
                refreshed.append(uid)
            else:
                later = True
        allowed = int(interval * REFRESHES_PER_SECOND)
        return first + refreshed[:allowed], later or len(refreshed) > allowed

    async def _write(self, uid: str) -> None:
        pod, message = self._pods.get(uid), self._wanted.get(uid)
        if pod is None or message is None or pod.spec.node_name:
            return
        if not self._may_be_written(pod):
            self._written[uid] = (message, self._clock())
            self._on_new_reason(pod, message)
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": _waiting_since(pod),
        }
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        # The version makes a condition fail that would arrive after a binding.
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": version, "status": {"conditions": [condition]}}
        try:
            await self._transport.patch(path, body, content_type=STRATEGIC_MERGE_PATCH)
        except (NotFound, Conflict, Invalid) as error:
            self._overtaken |= isinstance(error, Conflict)
            logger.debug("%s changed before its pending reason was written: %s", path, error)
        except (
            Forbidden
        ) as error:  # the RoleBinding in the namespace is new, or was deleted and is being restored
            self._refused = True
            logger.info("cannot write the pending reason of %s yet: %s", path, error)
        except ClusterError as error:
            logger.warning("cannot write the pending reason of %s: %s", path, error)
        else:
            self._written[uid] = (message, self._clock())
            if _code(_said(pod) or "") != _code(message):
                self._on_new_reason(pod, message)


def _code(message: str) -> str:
    return message.partition(":")[0]


def _waiting_since(pod: Pod) -> str:
    known = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    unchanged = known is not None and known.status == "False" and known.last_transition_time
    return unchanged or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(pod: Pod) -> str | None:
    return next(
        (
            condition.message
            for condition in pod.status.conditions
            if condition.type == "PodScheduled" and condition.status == "False"
        ),
        None,
    )
