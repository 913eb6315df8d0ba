"""Binding a pod to a node.

The API server answers a `Status`, not a Binding. The API server copies the Binding's annotations to the pod in the
write that sets its node, so devices and node are always consistent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cluster.errors import Conflict, NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.cluster.transport import Transport


async def bind(
    transport: Transport, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> None:
    """Bind the pod with that uid to a node, and put `annotations` on it in the same write.

    If the pod already has exactly this binding, that is success. So if a bind gets no answer, the caller can repeat it.

    Raises NotFound if there is no such pod. Raises Conflict if the pod of that name has another uid, is being deleted,
    or is bound elsewhere or with other annotations. Raises the other subclasses of ClusterError. After Unreachable the
    pod may be bound or not: repeat the bind, or wait for the watch.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "annotations": dict(annotations)},
        "target": {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node},
    }
    try:
        await transport.create(PODS.path(namespace, name, "binding"), body)
    except Conflict as conflict:
        try:
            pod = await transport.get(PODS.path(namespace, name), Pod)
        except NotFound as error:
            raise NotFound(
                f"pod {namespace}/{name} was deleted while it was bound", status=404, reason="NotFound"
            ) from error
        if not _bound_so(pod, uid, node, annotations):
            raise _explained(conflict, pod, uid, node) from conflict


def _bound_so(pod: Pod, uid: str, node: str, annotations: Mapping[str, str]) -> bool:
    return (
        pod.metadata.uid == uid
        and pod.spec.node_name == node
        and all(pod.metadata.annotations.get(key) == value for key, value in annotations.items())
    )


def _explained(conflict: Conflict, pod: Pod, uid: str, node: str) -> Conflict:
    name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    if pod.metadata.uid != uid:
        message = f"{name} is another pod now: its uid is {pod.metadata.uid}, not {uid}"
    elif pod.spec.node_name == node:
        message = f"{name} is bound to {node} already, with other annotations"
    elif pod.spec.node_name:
        message = f"{name} is bound to {pod.spec.node_name} already, not to {node}"
    else:
        message = f"{name} cannot be bound: {conflict.message}"
    return Conflict(message, status=conflict.status, reason=conflict.reason)
