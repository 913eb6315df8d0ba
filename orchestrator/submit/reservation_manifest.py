"""Reservations: pods of muster that each hold one GPU of a device plugin for pods with fractions of that GPU.

A device plugin knows only whole GPUs, and can allocate every GPU that no pod holds. Pure.
"""

from typing import Any, Final

from orchestrator.cluster.resources import PODS
from orchestrator.names import GPU_RESOURCE, RESERVATION_LABEL, RESERVATION_PRIORITY_CLASS, SYSTEM_NAMESPACE
from orchestrator.submit.protection import RESTRICTED_POD, restricted

NAME_PREFIX: Final = "gpu-reservation-"


def reservation_pod(name: str, node: str, image: str) -> dict[str, Any]:
    """Return the pod that reserves a GPU of the node: it sleeps, has no rights, and tolerates every taint."""
    container = {
        "name": "reservation",
        "image": image,
        "command": ["sleep", "2147483647"],
        "resources": {"limits": {GPU_RESOURCE: "1", "cpu": "10m", "memory": "32Mi"}},
        "securityContext": restricted({}),
    }
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": name,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "muster", RESERVATION_LABEL: "true"},
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "priorityClassName": RESERVATION_PRIORITY_CLASS,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": RESTRICTED_POD | {"runAsUser": 65532},
            "containers": [container],
        },
    }
