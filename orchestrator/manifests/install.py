"""Puts the operator YAML into a cluster, and writes kubeconfigs for the operator's own ServiceAccount."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import yaml

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.resources import PROJECTS, SERVICE_ACCOUNTS, resource_of
from orchestrator.cluster.transport import Transport
from orchestrator.errors import ConfigurationError
from orchestrator.manifests.render import documents, render
from orchestrator.names import OPERATOR_ACCOUNT, SYSTEM_NAMESPACE

FIELD_MANAGER = "muster-install"
_SERVED_SECONDS = 30
_POLL_SECONDS = 0.1
_TOKEN_SECONDS = 24 * 3600


async def install(transport: Transport, cluster: str, *, replicas: int) -> int:
    """Apply the operator YAML and wait until the API serves projects; returns the number of objects.

    It can be applied repeatedly. Raises subclasses of ClusterError, and ConfigurationError when the CRD is not served
    in time.
    """
    objects = documents(render(cluster, replicas=replicas))
    for body in objects:
        await apply(transport, body)
    await _projects_are_served(transport)
    return len(objects)


async def apply(transport: Transport, body: dict[str, Any]) -> dict[str, Any]:
    """Apply one object by server-side apply; return the resulting object."""
    metadata = body["metadata"]
    resource = resource_of(body["apiVersion"], body["kind"])
    path = resource.path(metadata.get("namespace"), metadata["name"])
    applied: dict[str, Any] = await transport.apply(path, body, field_manager=FIELD_MANAGER)
    return applied


async def service_account_kubeconfig(transport: Transport, kubeconfig: Path, output: Path) -> Path:
    """Write a kubeconfig for the operator's ServiceAccount, on the cluster of `kubeconfig`'s current context."""
    path = SERVICE_ACCOUNTS.path(SYSTEM_NAMESPACE, OPERATOR_ACCOUNT, "token")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    answer: dict[str, Any] = await transport.create(path, request)
    admin = yaml.safe_load(kubeconfig.read_text())
    name = admin.get("current-context")
    context = next((entry["context"] for entry in admin.get("contexts", ()) if entry["name"] == name), None)
    if context is None:
        raise ConfigurationError(
            f"{kubeconfig}: there is no current context; choose one with `kubectl config use-context`"
        )
    cluster = next(entry for entry in admin["clusters"] if entry["name"] == context["cluster"])
    authority = cluster["cluster"].pop("certificate-authority", None)
    if authority:
        data = (kubeconfig.parent / authority).read_bytes()
        cluster["cluster"]["certificate-authority-data"] = base64.b64encode(data).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": OPERATOR_ACCOUNT, "user": {"token": answer["status"]["token"]}}],
        "contexts": [
            {
                "name": OPERATOR_ACCOUNT,
                "context": {
                    "cluster": cluster["name"],
                    "user": OPERATOR_ACCOUNT,
                    "namespace": SYSTEM_NAMESPACE,
                },
            }
        ],
        "current-context": OPERATOR_ACCOUNT,
    }
    output.touch(mode=0o600)
    output.write_text(yaml.safe_dump(document, sort_keys=False))
    return output


async def _projects_are_served(transport: Transport) -> None:
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while not await _lists_projects(transport):  # noqa: ASYNC110 - one object, for a second at most
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise ConfigurationError(
            f"the API server does not serve projects.muster.dev after {_SERVED_SECONDS} s: "
            "look at the conditions of that CustomResourceDefinition"
        ) from error


async def _lists_projects(transport: Transport) -> bool:
    """Return whether the API server serves projects.

    A CRD has the condition Established a moment before it is served, so this function sends a request for projects.
    """
    try:
        await transport.get(PROJECTS.path())
    except NotFound:
        return False
    return True
