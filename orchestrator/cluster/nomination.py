"""Writes the nomination of a pod on the pod.

kube-scheduler uses `status.nominatedNodeName` in the same way, and `kubectl get pod -o wide` prints it. The nomination
is written as kube-scheduler and the kubelet do (`PatchPodStatus`): a strategic merge patch of the `status` subresource,
with the uid as a precondition.

The pod's own metadata can be written through that subresource too, except owner references (`podStatusStrategy` in
`pkg/registry/core/pod/strategy.go`). So node and annotations are one write, and no reader sees one without the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.cluster.transport import Transport


async def nominate(
    transport: Transport,
    *,
    namespace: str,
    name: str,
    uid: str,
    node: str | None,
    annotations: Mapping[str, str | None],
) -> None:
    """Set the nominated node of the unbound pod with that uid, and annotations.

    The value None removes the node or an annotation.

    Raises NotFound if there is no such pod. Raises Invalid if the pod of that name has another uid or, from Kubernetes
    1.35, is already bound. Raises the other subclasses of ClusterError. After Unreachable it is safe to repeat.
    """
    body: dict[str, Any] = {
        "metadata": {"uid": uid, "annotations": dict(annotations)},
        "status": {"nominatedNodeName": node},
    }
    await transport.patch(PODS.path(namespace, name, "status"), body, content_type=STRATEGIC_MERGE_PATCH)


async def annotate(
    transport: Transport, *, namespace: str, name: str, uid: str, annotations: Mapping[str, str | None]
) -> None:
    """Set annotations of the pod with that uid.

    The value None removes an annotation. Raises the errors of `nominate`. After Unreachable it is safe to repeat.
    """
    body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
    await transport.patch(PODS.path(namespace, name), body, content_type=MERGE_PATCH)
