"""Evicts a pod through the Eviction API, after the reason was recorded on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.cluster.errors import Conflict, EvictionBlocked, Invalid, NotFound, ServerFault
from orchestrator.cluster.nomination import annotate
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.cluster.transport import Transport

_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


async def evict(
    transport: Transport,
    *,
    namespace: str,
    name: str,
    uid: str,
    annotations: Mapping[str, str | None],
    grace_seconds: int | None = None,
) -> None:
    """Write `annotations` with the reason on the pod with that uid, then evict it.

    The value None removes an annotation.

    The containers can read the annotations (downward API) before they get the signal to end. The API server itself
    adds the condition `DisruptionTarget`, which the Job controller reads. `grace_seconds` None uses the pod's own
    grace. If the pod was deleted, or another pod has its name, that is success.

    Raises EvictionBlocked if a PodDisruptionBudget forbids it, after the annotations were removed again. Raises the
    other subclasses of ClusterError. After Unreachable, evicting again is safe.
    """
    path = PODS.path(namespace, name)
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    try:
        await annotate(transport, namespace=namespace, name=name, uid=uid, annotations=annotations)
        try:
            await transport.create(f"{path}/eviction", body)
        except (EvictionBlocked, ServerFault) as error:
            if not isinstance(error, EvictionBlocked) and _SEVERAL_BUDGETS not in error.message:
                raise
            taken_away = dict.fromkeys(annotations)
            await annotate(transport, namespace=namespace, name=name, uid=uid, annotations=taken_away)
            raise EvictionBlocked(error.message, status=error.status, reason=error.reason) from error
    except NotFound:
        return
    except (Conflict, Invalid):
        # If the pod has another uid, the patch fails with Invalid, because a uid is immutable, and the eviction
        # with Conflict.
        if await _is_there(transport, namespace, name, uid):
            raise


async def _is_there(transport: Transport, namespace: str, name: str, uid: str) -> bool:
    try:
        pod = await transport.get(PODS.path(namespace, name), Pod)
    except NotFound:
        return False
    return pod.metadata.uid == uid
