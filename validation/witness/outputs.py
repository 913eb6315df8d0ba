"""Reads the log of a container or its last line, and how the container ended."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import urllib3.exceptions

from validation.witness import names
from validation.witness.reader import ReadFailed

if TYPE_CHECKING:
    import kubernetes.client

MAX_BYTES: Final = 1 << 20
_SECONDS: Final = 10


def read_last_line(client: kubernetes.client.ApiClient, namespace: str, pod: str, container: str) -> str:
    """Return the last line of the log of a pod's container. Raises ReadFailed."""
    query = [("container", container), ("tailLines", "1")]
    return _read(client, namespace, pod, query).rstrip("\n")


def read_log(client: kubernetes.client.ApiClient, namespace: str, pod: str, container: str) -> str:
    """Return the first MAX_BYTES of the log of a pod's container. Raises ReadFailed."""
    return _read(client, namespace, pod, [("container", container)])


def _read(client: kubernetes.client.ApiClient, namespace: str, pod: str, query: list[tuple[str, str]]) -> str:
    parameters = client.param_serialize(
        method="GET",
        resource_path=f"/api/v1/namespaces/{namespace}/pods/{pod}/log",
        query_params=[*query, ("limitBytes", str(MAX_BYTES))],
        auth_settings=["BearerToken"],
    )
    try:
        response = client.call_api(*parameters, _request_timeout=_SECONDS).response
        content = response.read()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ReadFailed(str(error)) from error
    if response.status != 200:
        raise ReadFailed(f"{response.status} {response.reason}")
    return str(content.decode(errors="replace"))


def main_container(pod: dict[str, Any]) -> str:
    """Return the name of the main container. Other containers may have been added before or after it.

    The main container is named in kubectl's annotation. Without it, it is the container with the workload's name, else
    the first container.
    """
    metadata = pod["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    containers: list[str] = [container["name"] for container in pod["spec"]["containers"]]
    for name in (annotations.get(names.DEFAULT_CONTAINER_ANNOTATION), labels.get(names.WORKLOAD_LABEL)):
        if name in containers:
            return str(name)
    return containers[0]


def ended(pod: dict[str, Any], container: str) -> dict[str, Any]:
    """Return the `terminated` state of the pod's container with its `imageID`; empty if the container has no status."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    status = next((status for status in statuses if status["name"] == container), None)
    if status is None:
        return {}
    terminated = status.get("state", {}).get("terminated") or {}
    return {**terminated, "imageID": status.get("imageID", "")}


def ran_ms(terminated: dict[str, Any]) -> int:
    """Return the run time of the container in milliseconds, in whole seconds. 0 if a time is unknown."""
    times = [terminated.get(name) or "" for name in ("startedAt", "finishedAt")]
    if not all(times):
        return 0
    started, finished = (datetime.fromisoformat(time) for time in times)
    return round((finished - started).total_seconds()) * 1000
