"""Says on every waiting pod why it waits: the condition `PodScheduled`, written only when it changes."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport

logger = logging.getLogger(__name__)

_WRITES_IN_FLIGHT = 8


async def say_why_pods_wait(
    transport: Transport, reasons: Mapping[str, tuple[str, str]], pods: Mapping[str, Pod]
) -> None:
    """Write the condition of each pod in `reasons` (uid to code and message) that does not carry it already."""
    slots = asyncio.Semaphore(_WRITES_IN_FLIGHT)

    async def write(pod: Pod, message: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": _waiting_since(pod),
        }
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "status")
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        async with slots:
            try:
                await transport.patch(path, body, content_type=STRATEGIC_MERGE_PATCH)
            except NotFound:
                logger.debug("%s went away before it was told why it waits", path)
            except ClusterError as error:
                logger.warning("cannot tell %s why it waits: %s", path, error)

    changed = [
        (pods[uid], f"{code}: {message}")
        for uid, (code, message) in reasons.items()
        if uid in pods and _said(pods[uid]) != f"{code}: {message}"
    ]
    await asyncio.gather(*(write(pod, message) for pod, message in changed))


def _waiting_since(pod: Pod) -> str:
    known = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    unchanged = known is not None and known.status == "False" and known.last_transition_time
    return unchanged or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(pod: Pod) -> str | None:
    return next(
        (
            each.message
            for each in pod.status.conditions
            if each.type == "PodScheduled" and each.status == "False"
        ),
        None,
    )
