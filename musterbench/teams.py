"""The teams of a benchmark in a lab: projects that share its GPUs, and the namespaces in which pods are made."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.resources import (
    NAMESPACES,
    PODS,
    PROJECTS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.control.projects.project_controller import OPERATOR_SUBJECT, role_binding
from orchestrator.names import (
    GPU_RESOURCE,
    NAMESPACE_PREFIX,
    OPERATOR_BINDING,
    PROJECT_LABEL,
    WRITER_ROLE,
)

GPUS_OF_NODE: Final = 8
RAW: Final = "bench-raw-"
"""Prefix of the names of the namespaces whose pods the raw client binds."""
_TEAMS: Final = 4
_POLL_SECONDS: Final = 0.1
_ACCOUNT_SECONDS: Final = 60.0


def team_namespaces(prefix: str = NAMESPACE_PREFIX) -> list[str]:
    """Names of the namespaces of all teams."""
    return [f"{prefix}{name}" for name in _names()]


async def make_projects(transport: Transport, nodes: int) -> None:
    """Make the projects, each with an equal part of the nodes' GPUs as its quota, and their namespaces."""
    quota = nodes * GPUS_OF_NODE // _TEAMS
    for name in _names():
        namespace = f"{NAMESPACE_PREFIX}{name}"
        project = {
            "apiVersion": PROJECTS.api_version,
            "kind": PROJECTS.kind,
            "metadata": {"name": name},
            "spec": {"gpu": {"quota": quota}, "namespace": namespace},
        }
        await transport.create(PROJECTS.path(), project)
        await _make_namespace(transport, namespace, {PROJECT_LABEL: name})


async def make_raw_namespaces(transport: Transport) -> None:
    """Make namespaces that belong to no project, for the raw client.

    The operator's account has the same rights there as in the namespaces of projects.
    """
    for namespace in team_namespaces(RAW):
        await _make_namespace(transport, namespace, {})
        binding = role_binding(namespace, OPERATOR_BINDING, WRITER_ROLE, [OPERATOR_SUBJECT])
        await transport.create(ROLE_BINDINGS.path(namespace), binding)


async def have_accounts(transport: Transport) -> None:
    """Wait until pods can be created in the namespaces of all teams."""
    async with asyncio.timeout(_ACCOUNT_SECONDS):
        for namespace in team_namespaces():
            await _until_account(transport, namespace)


async def _until_account(transport: Transport, namespace: str) -> None:
    """Wait until pods can be created in the namespace: a controller creates a service account in it."""
    while True:
        with suppress(NotFound):
            await transport.get(SERVICE_ACCOUNTS.path(namespace, "default"))
            return
        await asyncio.sleep(_POLL_SECONDS)


def gpu_pod(
    name: str,
    phase: str,
    scheduler_name: str,
    limits: Mapping[str, int] = MappingProxyType({GPU_RESOURCE: 1}),
) -> dict[str, Any]:
    """Return a pod with these limits, by default one GPU. Its label lets a `Stopwatch` count it to the phase."""
    container = {"name": "main", "image": "bench", "resources": {"limits": dict(limits)}}
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": name, "labels": {"bench": phase}},
        "spec": {"schedulerName": scheduler_name, "restartPolicy": "Never", "containers": [container]},
    }


def _names() -> list[str]:
    return [f"team-{number}" for number in range(_TEAMS)]


async def _make_namespace(transport: Transport, name: str, labels: dict[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    await transport.create(NAMESPACES.path(), body)
