"""The connection of one command to the cluster."""

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
"""The flag for each parameter of the client that an error can name. `submit_options` has the flags of a submission."""


def connect() -> "AsyncClient":
    """Return a client for the cluster and user of the common options; use it within `async with`.

    Raises ConfigurationError.
    """
    import logging
    import sys

    from orchestrator.client.aio import AsyncClient

    settings = click.get_current_context().ensure_object(Settings)
    word = settings.loglevel or "info"
    level = logging.getLevelNamesMapping()[{"warn": "WARNING"}.get(word, word.upper())]
    logging.basicConfig(level=level, stream=sys.stderr)
    if level > logging.DEBUG:
        # asyncio logs the last task of an interrupted loop, which does not help the user
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    return AsyncClient.of_kubeconfig(
        settings.kubeconfig,
        context=settings.context,
        project=settings.project,
        as_user=settings.as_user,
        as_groups=settings.as_groups,
        report=lambda line: say(line, err=True),
    )


def _import_aiohttp() -> None:
    """Import aiohttp, but load no CA certificates of the system.

    aiohttp loads them twice as it is imported, for its two default contexts, which takes 90 of the 400 ms of `muster
    list`. Each session of muster has a context of its own.
    """
    import ssl

    load = ssl.SSLContext.load_default_certs
    ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
    ssl.SSLContext.set_default_verify_paths = lambda *_: None  # type: ignore[method-assign]
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]
        del ssl.SSLContext.set_default_verify_paths  # the inherited method is back


def run(action: Callable[["AsyncClient"], Awaitable[T]]) -> T:
    """Connect to the cluster of the common options, and run a command's action. Raises MusterError."""
    import asyncio

    client = connect()
    _import_aiohttp()

    async def conversation() -> T:
        async with client:
            return await action(client)

    with naming_flags(FLAGS):
        return asyncio.run(conversation())


@contextmanager
def naming_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """Replace the names of fields in errors by the command's flags for them."""
    try:
        yield
    except FieldProblem as error:
        raise error.with_names(flags) from error
