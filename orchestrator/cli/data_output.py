"""Common parts of the commands of `muster data`: the project's scope, and records for programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from orchestrator.cli.output import show
from orchestrator.cli.session import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.jobs import Scope
    from orchestrator.client.workspaces import Workspace
    from orchestrator.submit.datasets import Snapshot, Volume

    View = TypeVar("View", Volume, Snapshot, Workspace)


def in_scope(action: Callable[[AsyncClient, Scope], Any]) -> tuple[Any, Scope]:
    """Run an action in the scope of the project; return its result, and the scope."""

    async def act(client: AsyncClient) -> tuple[Any, Scope]:
        scope = await client.scope()
        return await action(client, scope), scope

    return run(act)


def show_views(
    views: Sequence[View],
    scope: Scope,
    header: Sequence[str],
    row: Callable[[View], Sequence[str]],
    *,
    no_headers: bool | None,
    as_json: bool | None,
) -> None:
    """Print the volumes, snapshots or workspaces of a scope as a table or as JSON."""
    show(
        header,
        list(map(row, views)),
        output="json" if as_json else None,
        no_headers=no_headers,
        records=lambda: [record(view, scope) for view in views],
        names=(),
    )


def record(view: Volume | Snapshot | Workspace, scope: Scope) -> dict[str, Any]:
    """Return the document for programs: the fields of a volume, snapshot or workspace in camelCase, sizes in bytes."""
    fields = dataclasses.asdict(view)
    return {
        "project": scope.project,
        "namespace": scope.namespace,
        **{_camel(name): value for name, value in fields.items()},
    }


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
