"""Makes nodes pull images before the first measurement, with a pod for each node and image that ends immediately.

The pod names its node, so no scheduler is involved, and requests no GPU. Its command is `true`. If the image has no
such command, the pod fails, but the image is on the node.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from orchestrator.cluster.errors import AlreadyExists, ClusterError, Forbidden, NotFound
from orchestrator.cluster.resources import NAMESPACES, PODS
from orchestrator.cluster.transport import Transport
from validation.errors import TargetError

NAMESPACE: Final = "muster-validation-images"
PULL_SECONDS: Final = 1800.0
"""Maximum duration of the pull of an image: images for training have several GB."""
RETRY_SECONDS: Final = 30.0
"""Maximum time from the first failure of a pull to its success: the kubelet tries again after 10 s."""
_POLL_SECONDS: Final = 0.5
_ACCOUNT_SECONDS: Final = 30.0
"""Maximum time until a new namespace has its service account. Before that time the API server admits no pod."""
_FAILED: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
    | {"RegistryUnavailable", "SignatureValidationFailed"}
)
_BACK_OFF: Final = "ImagePullBackOff"


class Pull(NamedTuple):
    """The pull of an image on a node: its digest, its duration and the message of the kubelet, or the problem."""

    node: str
    image: str
    digest: str = ""
    took_ms: int = 0
    message: str = ""
    problem: str = ""


async def pull_images(transport: Transport, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
    """Let all nodes pull all images, and delete the pods.

    Return the pull of each image on each node. Raises TargetError.
    """
    try:
        with contextlib.suppress(AlreadyExists):
            await transport.create(
                NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            )
        try:
            pulls = (_pull(transport, node, image) for image in images for node in nodes)
            return list(await asyncio.gather(*pulls))
        finally:
            with contextlib.suppress(NotFound):
                await transport.delete(NAMESPACES.path(name=NAMESPACE))
    except ClusterError as error:
        raise TargetError(f"the images cannot be pulled: {error}") from error


async def _pull(transport: Transport, node: str, image: str) -> Pull:
    began = time.monotonic()
    name = await _create(transport, node, image)
    failed_at: float | None = None
    why = ""
    while True:
        try:
            pod: dict[str, Any] = await transport.get(PODS.path(NAMESPACE, name))
        except NotFound:
            return Pull(node, image, problem=f"the pod {name} that pulls it was deleted by another program")
        if is_on_node(pod):
            took_ms = int((time.monotonic() - began) * 1000)
            message = await _kubelet_says(transport, name)
            return Pull(node, image, digest_of(pod), took_ms, message)
        reason, message = failure_of(pod)
        if reason and failed_at is None:
            failed_at = time.monotonic()
        if message and (reason != _BACK_OFF or not why):
            why = message
        now = time.monotonic()
        if failed_at is not None and now - failed_at > RETRY_SECONDS:
            return Pull(node, image, problem=" ".join((why or reason).split()))
        if now - began > PULL_SECONDS:
            return Pull(node, image, problem=f"not there after {PULL_SECONDS:g} s")
        await asyncio.sleep(_POLL_SECONDS)


async def _create(transport: Transport, node: str, image: str) -> str:
    """Create the pod that pulls the image; return the pod's name."""
    container = {
        "name": "pull",
        "image": image,
        "command": ["true"],
        "imagePullPolicy": "IfNotPresent",
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pull-", "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }
    deadline = time.monotonic() + _ACCOUNT_SECONDS
    while True:
        try:
            answer: dict[str, Any] = await transport.create(PODS.path(NAMESPACE), body)
        except (Forbidden, NotFound):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return str(answer["metadata"]["name"])


async def _kubelet_says(transport: Transport, pod: str) -> str:
    """Return the message of the kubelet on the pull; empty if there is none."""
    selector = {"fieldSelector": f"involvedObject.name={pod},reason=Pulled"}
    answer: dict[str, Any] = await transport.get(f"/api/v1/namespaces/{NAMESPACE}/events", params=selector)
    return next((str(event.get("message") or "") for event in answer["items"]), "")


def is_on_node(pod: Mapping[str, Any]) -> bool:
    """Return whether the node has the image.

    It has if the pod's container was created, even if the container then failed.
    """
    status = _container_status(pod)
    waiting = (status.get("state") or {}).get("waiting") or {}
    made = str(waiting.get("reason") or "").startswith(("CreateContainer", "RunContainer"))
    has_ended = pod.get("status", {}).get("phase") in {"Running", "Succeeded", "Failed"}
    return bool(status.get("imageID")) or made or (has_ended and not failure_of(pod)[0])


def digest_of(pod: Mapping[str, Any]) -> str:
    """Return the digest of the container's image; empty if the node does not report it."""
    return str(_container_status(pod).get("imageID") or "").rpartition("@")[2]


def failure_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kubelet's reason and message if the pull has failed, or two empty strings."""
    waiting = (_container_status(pod).get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    return (reason, str(waiting.get("message") or "")) if reason in _FAILED else ("", "")


def _container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses: Sequence[Mapping[str, Any]] = pod.get("status", {}).get("containerStatuses") or [{}]
    return statuses[0]
