"""One command's conversation with the cluster."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import click

from orchestrator.cli.message import say
from orchestrator.cli.settings import Settings
from orchestrator.errors import FieldProblem

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient

T = TypeVar("T")

FLAGS: Final = {
    "addresses": "--address",
    "container": "--container",
    "force": "--force",
    "index": "--index",
    "pod": "--pod",
    "ports": "--port",
    "size_bytes": "--size",
    "storage_class": "--storage-class",
}
"""The flag of each parameter of the client that an error may name; `submit_options` has those of a submission."""


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
        # an interrupted loop reports its last task, which is of no use
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    return AsyncClient.of_kubeconfig(
        settings.kubeconfig,
        context=settings.context,
        project=settings.project,
        as_user=settings.as_user,
        as_groups=settings.as_groups,
        report=lambda line: say(line, err=True),
    )


def run(action: Callable[["AsyncClient"], Awaitable[T]]) -> T:
    """Connect as the common options say, and run a command's action. Raises MusterError."""
    import asyncio

    client = connect()

    async def conversation() -> T:
        async with client:
            return await action(client)

    with naming_flags(FLAGS):
        return asyncio.run(conversation())


@contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Let errors about fields name the flags by which a command sets them."""
    try:
        yield
    except FieldProblem as error:
        raise error.with_names(flags) from error
