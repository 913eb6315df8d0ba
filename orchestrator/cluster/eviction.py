"""Evicting a pod, with the reason on record before it goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orchestrator.cluster.errors import Conflict, Invalid, NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import format_time
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.cluster.transport import Transport

CONDITION = "DisruptionTarget"


async def evict(
    transport: Transport,
    *,
    namespace: str,
    name: str,
    uid: str,
    reason: str,
    message: str,
    grace_seconds: int | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Delete the pod with that uid, after a condition on it has said why.

    The condition is `DisruptionTarget=True` with `reason` (a word) and `message` (a sentence); the Job
    controller and people read it. `grace_seconds` None leaves the pod its own grace. A pod that is gone,
    or whose name another pod has taken, is success: the one that was meant is no more.
    Raises the other leaves of ClusterError; after Unreachable, evicting again is safe.
    """
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(int(clock()) * 1_000_000, places=0),
    }
    patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    try:
        await transport.patch(PODS.path(namespace, name, "status"), patch, content_type=STRATEGIC_MERGE_PATCH)
        await transport.delete(PODS.path(namespace, name), uid=uid, grace_seconds=grace_seconds)
    except NotFound:
        return
    except (
        Conflict,
        Invalid,
    ):  # another uid in a patch is Invalid (uid is immutable), in a deletion Conflict
        if await _is_there(transport, namespace, name, uid):
            raise


async def _is_there(transport: Transport, namespace: str, name: str, uid: str) -> bool:
    try:
        pod = await transport.get(PODS.path(namespace, name), Pod)
    except NotFound:
        return False
    return pod.metadata.uid == uid
