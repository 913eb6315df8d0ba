"""Events on pods, which show decisions in `kubectl describe`, `muster get` and the event list of a namespace.

Events have low importance: no action waits for them, their rate is limited, and a repeated message about a pod is sent
once.
"""

import asyncio
import hashlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from orchestrator.cluster.errors import AlreadyExists, ClusterError
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import format_time
from orchestrator.cluster.resources import (
    EVENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PROJECTS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.background import BackgroundWriter
from orchestrator.observe.unreadable import SkippedObject

logger = logging.getLogger(__name__)

COMPONENT: Final = "muster"
EVENTS_PER_SECOND: Final = 5.0
MAX_WAITING: Final = 50
"""Maximum number of queued events. The oldest are dropped beyond it: the pod's condition has the same message."""

MAX_CHARACTERS: Final = 1000
"""Maximum length of a message. Kubernetes allows 1024 characters in its own events."""

MAX_REMEMBERED: Final = 10_000
"""Maximum number of stored warnings, which decisions do not repeat."""


_KINDS: Final[Mapping[str, Resource]] = {
    resource.kind: resource for resource in (PODS, NODES, PROJECTS, POD_DISRUPTION_BUDGETS)
}


def pod_event(
    *, namespace: str, pod: str, uid: str, name: str, reason: str, message: str, at_us: int
) -> dict[str, Any]:
    """Return an Event of type Warning about a pod. `name` makes its object name unique. Times are microseconds."""
    return _event(
        PODS, namespace=namespace, about=pod, uid=uid, name=name, reason=reason, message=message, at_us=at_us
    )


def _event(
    kind: Resource,
    *,
    namespace: str,
    about: str,
    uid: str,
    name: str,
    reason: str,
    message: str,
    at_us: int,
) -> dict[str, Any]:
    at = format_time(at_us, places=0)
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        # Kubernetes keeps events of objects without a namespace in the namespace `default`
        "metadata": {"name": f"{about[:180]}.{name}"[:253].lower(), "namespace": namespace or "default"},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            **({"namespace": namespace} if namespace else {}),
            "name": about,
            "uid": uid,
        },
        "type": "Warning",
        "reason": reason,
        "message": message[:MAX_CHARACTERS],
        "source": {"component": COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


class Announcer:
    """Creates Events in the background: reasons of pending pods (once for each code), warnings, skipped objects."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._sleep = sleep
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque(maxlen=MAX_WAITING)
        self._background = BackgroundWriter(self._create_all)
        self._sent: dict[tuple[str, str], None] = {}
        self._avoided: set[str] = set()

    def waits(self, pod: Pod, message: str) -> None:
        """Queue the Event of a pending pod. `message` begins with the reason's code. Never waits and never fails."""
        metadata = pod.metadata
        code = message.partition(":")[0]
        self._announce(pod, f"{metadata.uid[:8]}.{code}", "Unschedulable", message)

    def warns(self, pod: Pod, reason: str, message: str) -> None:
        """Queue a warning about a pod, once for each message."""
        known = (pod.metadata.uid, message)
        if known in self._sent:
            return
        self._sent[known] = None
        while len(self._sent) > MAX_REMEMBERED:
            del self._sent[next(iter(self._sent))]
        self._announce(pod, f"{pod.metadata.uid[:8]}.{_digest(message)}", reason, message)

    def note_skipped(self, entry: SkippedObject) -> None:
        """Queue the Event of a skipped object, if Events refer to objects of its kind. Never waits and never fails."""
        kind = _KINDS.get(entry.kind)
        if kind is None:
            return
        event = _event(
            kind,
            namespace=entry.namespace,
            about=entry.name,
            uid=entry.uid,
            name=f"{entry.uid[:8] or entry.kind}.{_digest(entry.why)}",
            reason="Skipped",
            message=entry.why,
            at_us=int(self._clock() * 1_000_000),
        )
        self._waiting.append((entry.namespace or "default", event))
        self._background.wake()

    def note_avoided(self, nodes: Mapping[str, str]) -> None:
        """Queue an Event on each newly avoided node. `nodes` are all avoided nodes with the reasons."""
        for name in nodes.keys() - self._avoided:
            event = _event(
                NODES,
                namespace="",
                about=name,
                uid=name,  # the kubelet uses the node's name as the uid, too
                name=f"avoided.{int(self._clock())}",
                reason="NodeAvoided",
                message=nodes[name],
                at_us=int(self._clock() * 1_000_000),
            )
            self._waiting.append(("default", event))
            self._background.wake()
        self._avoided = set(nodes)

    def _announce(self, pod: Pod, name: str, reason: str, message: str) -> None:
        metadata = pod.metadata
        event = pod_event(
            namespace=metadata.namespace,
            pod=metadata.name,
            uid=metadata.uid,
            name=name,
            reason=reason,
            message=message,
            at_us=int(self._clock() * 1_000_000),
        )
        self._waiting.append((metadata.namespace, event))
        self._background.wake()

    async def run(self) -> None:
        """Create the queued events, EVENTS_PER_SECOND, until cancelled."""
        await self._background.run()

    async def _create_all(self) -> bool:
        while self._waiting:
            await self._create(*self._waiting.popleft())
            await self._sleep(1 / EVENTS_PER_SECOND)
        return True

    async def _create(self, namespace: str, event: dict[str, Any]) -> None:
        try:
            await self._transport.create(EVENTS.path(namespace), event)
        except AlreadyExists:
            logger.debug("the event %s is there already", event["metadata"]["name"])
        except ClusterError as error:
            logger.info("no event %s: %s", event["metadata"]["name"], error)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
