"""One command's conversation with the cluster."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from orchestrator.cli.settings import Settings

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient

T = TypeVar("T")


def connect() -> "AsyncClient":
    """Return a client as the common options say; use it within `async with`. Raises ConfigurationError."""
    import logging
    import sys

    from orchestrator.client.aio import AsyncClient

    settings = click.get_current_context().ensure_object(Settings)
    word = settings.loglevel or "info"
    level = logging.getLevelNamesMapping()[{"warn": "WARNING"}.get(word, word.upper())]
    logging.basicConfig(level=level, stream=sys.stderr)
    if level > logging.DEBUG:
        # an interrupted loop reports what it was just doing, which nobody wants to know
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    return AsyncClient.of_kubeconfig(
        settings.kubeconfig,
        context=settings.context,
        project=settings.project,
        as_user=settings.as_user,
        as_groups=settings.as_groups,
        report=lambda line: click.echo(line, err=True),
    )


def run(action: Callable[["AsyncClient"], Awaitable[T]]) -> T:
    """Connect as the common options say, and run a command's action. Raises MusterError."""
    import asyncio

    client = connect()

    async def conversation() -> T:
        async with client:
            return await action(client)

    return asyncio.run(conversation())
