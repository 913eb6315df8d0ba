"""One command's conversation with the cluster: access, transport and the clients on top of it."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import click

from orchestrator.cli.options import Settings
from orchestrator.cluster.errors import Forbidden, Unauthorized, Unreachable
from orchestrator.cluster.kubeconfig import Access, load_access
from orchestrator.cluster.transport import Transport
from orchestrator.errors import ConfigurationError, MusterError
from orchestrator.workloads.client import Scope, WorkloadClient
from orchestrator.workloads.projects import ProjectClient

T = TypeVar("T")

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class Session:
    """What a command works with."""

    settings: Settings
    access: Access
    transport: Transport
    workloads: WorkloadClient
    projects: ProjectClient

    async def scope(self) -> Scope:
        """Return the project that the options or the kubeconfig name."""
        return await self.projects.resolve(self.settings.project, self.access.namespace)


def run(action: Callable[[Session], Awaitable[T]]) -> T:
    """Connect as the common options say, and run a command's action. Raises MusterError."""
    settings = click.get_current_context().ensure_object(Settings)
    logging.basicConfig(level=_LEVELS[settings.loglevel or "info"], stream=sys.stderr)
    return asyncio.run(_run(settings, action))


async def _run(settings: Settings, action: Callable[[Session], Awaitable[T]]) -> T:
    access = load_access(settings.kubeconfig, settings.context)
    try:
        async with Transport(access) as transport:
            return await action(
                Session(settings, access, transport, WorkloadClient(transport), ProjectClient(transport))
            )
    except Unreachable as error:
        raise Unreachable(
            f"the API server {access.server} (context {access.context}) does not answer; "
            f"check that it runs, or choose another with --kubeconfig or --context: {error}"
        ) from error
    except Unauthorized as error:
        raise ConfigurationError(
            f"the API server {access.server} does not know user {access.user}: renew its credentials"
        ) from error
    except Forbidden as error:
        raise MusterError(
            f"Access denied. You are not authorized to perform this action: {error.message}"
        ) from error
