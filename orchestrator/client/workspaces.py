"""Workspaces: interactive jobs, each with its own clone of a volume. `muster data workspace create` submits them.

NoSuchWorkspace   the project has no workspace of that name
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.cluster.objects import PersistentVolumeClaim
from orchestrator.cluster.resources import CLAIMS, STATEFUL_SETS
from orchestrator.errors import MusterError
from orchestrator.submit.datasets import source_of

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.jobs import Scope


class NoSuchWorkspace(MusterError):
    """The project has no workspace of that name."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """An interactive job, the volume from which its data is cloned, and its URLs."""

    name: str
    status: str
    clone_of: str
    node: str
    urls: tuple[str, ...]


async def workspaces(client: AsyncClient, scope: Scope) -> list[Workspace]:
    """Return the workspaces of a project by name."""
    page = await client.transport.list(CLAIMS.path(scope.namespace), PersistentVolumeClaim)
    clones = {
        owner.name: source.name
        for claim in page.items
        if (source := source_of(claim)) is not None and source.kind == CLAIMS.kind
        for owner in claim.metadata.owner_references
        if owner.kind == STATEFUL_SETS.kind
    }
    return sorted(
        (
            Workspace(view.name, view.status, clones[view.name], view.node, view.urls)
            for view in await client.list_jobs(project=scope)
            if view.kind == STATEFUL_SETS.kind and view.name in clones
        ),
        key=lambda workspace: workspace.name,
    )


async def delete_workspace(client: AsyncClient, scope: Scope, name: str) -> None:
    """Delete a workspace and its clone. Raises NoSuchWorkspace."""
    known = [workspace.name for workspace in await workspaces(client, scope)]
    if name not in known:
        raise NoSuchWorkspace(
            f"project {scope.project} has no workspace {name}; there are: {', '.join(known) or 'none'}. "
            f"Other jobs are deleted with 'muster delete {name}'"
        )
    await client.delete_job(name, project=scope)
