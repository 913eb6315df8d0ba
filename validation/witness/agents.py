"""Reads the pages of the nodes' agents through the API server's proxy, which finds the port of a pod itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import urllib3.exceptions

from validation.witness import names
from validation.witness.reader import ReadFailed

if TYPE_CHECKING:
    import kubernetes.client

MAX_BYTES: Final = 4 << 20
_SECONDS: Final = 4
"""Timeout of a request. It is shorter than the time after which the values of a GPU count as unknown."""


class AgentPod(NamedTuple):
    """The pod of a node's agent."""

    node: str
    namespace: str
    pod: str


PageReader = Callable[[AgentPod], str]
"""Returns the page of an agent. Raises ReadFailed."""


def agent_of(pod: dict[str, Any]) -> AgentPod | None:
    """Return the agent's pod, node and namespace. None if the pod is not an agent, or has no node yet."""
    metadata, node = pod["metadata"], pod["spec"].get("nodeName") or ""
    is_agent = (metadata.get("labels") or {}).get("app.kubernetes.io/name") == names.AGENT_ACCOUNT
    if not is_agent or not node or metadata["namespace"] != names.AGENT_NAMESPACE:
        return None
    return AgentPod(node, metadata["namespace"], metadata["name"])


def runs(pod: dict[str, Any]) -> bool:
    """Return whether the pod runs, and is not being deleted."""
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def read_page(client: kubernetes.client.ApiClient, agent: AgentPod) -> str:
    """Return the agent's page of metrics. Raises ReadFailed."""
    parameters = client.param_serialize(
        method="GET",
        resource_path=f"/api/v1/namespaces/{agent.namespace}/pods/{agent.pod}/proxy/metrics",
        auth_settings=["BearerToken"],
    )
    try:
        response = client.call_api(*parameters, _request_timeout=_SECONDS).response
        content = response.read(MAX_BYTES)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ReadFailed(str(error)) from error
    if response.status != 200:
        raise ReadFailed(f"{response.status} {response.reason}")
    return str(content.decode(errors="replace"))
