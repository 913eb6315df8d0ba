"""Completes names of objects in the cluster for a shell."""

from collections.abc import Callable

import click

from orchestrator.cli.settings import Settings


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completer for the names of a kind in the cluster: `jobs`, `projects`, …"""

    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        return _names(kind, ctx.ensure_object(Settings), incomplete)

    return complete


def _names(kind: str, settings: Settings, incomplete: str) -> list[str]:
    """Return the names of a kind that begin with `incomplete`; the list is empty if the cluster does not answer."""
    from http.client import HTTPException

    from orchestrator.errors import MusterError

    try:
        names = _contexts(settings) if kind == "contexts" else _objects(kind, settings)
    except (MusterError, OSError, HTTPException, ValueError, KeyError):
        return []  # completion in a shell cannot show an error
    return sorted({name for name in names if name.startswith(incomplete)})


def _contexts(settings: Settings) -> list[str]:
    from orchestrator.cluster.contexts import contexts

    return [context.name for context in contexts(settings.kubeconfig)]


def _objects(kind: str, settings: Settings) -> list[str]:
    from orchestrator.client.names import Names
    from orchestrator.cluster.kubeconfig import load_access

    access = load_access(
        settings.kubeconfig, settings.context, as_user=settings.as_user, as_groups=settings.as_groups
    )
    with Names(access) as names:
        if kind == "jobs":
            return names.jobs(settings.project)
        if kind == "templates":
            return names.templates(settings.project)
        if kind == "volumes":
            return names.volumes(settings.project)
        if kind == "snapshots":
            return names.snapshots(settings.project)
        return names.projects() if kind == "projects" else names.nodes()
