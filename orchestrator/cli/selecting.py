"""The options by which `list`, `delete`, `suspend` and `resume` choose jobs."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from orchestrator.cli.message import say

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.views.jobs import WorkloadView
    from orchestrator.views.selection import Selection

Function = TypeVar("Function", bound=Callable[..., Any])

SHOWN_NAMES: Final = 5
"""Maximum number of names in a question or an error."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The values of the options, as strings from the command line."""

    status: tuple[str, ...] = ()
    selector: str | None = None
    user: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    since: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no option was given."""
        return self == Choice()

    def selection(self) -> "Selection":
        """Return the conditions. Raises UsageError for an invalid value."""
        from orchestrator.durations import parse_duration_seconds
        from orchestrator.views.selection import Selection, parse_selector, parse_statuses

        since_seconds = parse_duration_seconds("--since", self.since)
        now_us = time.time_ns() // 1000
        return Selection(
            statuses=parse_statuses(self.status),
            requirements=parse_selector(self.selector) if self.selector is not None else (),
            users=frozenset(self.user),
            nodes=frozenset(self.node),
            since_us=0 if since_seconds is None else now_us - since_seconds * 1_000_000,
        )


async def check_nodes(client: "AsyncClient", selection: "Selection", views: "Iterable[WorkloadView]") -> None:
    """Raise NoSuchNode for a node of the choice that the cluster does not have, and no job in `views`."""
    unused = selection.nodes.difference(*(view.nodes for view in views))
    if not unused:
        return
    from orchestrator.client.nodes import NoSuchNode
    from orchestrator.cluster.errors import Forbidden
    from orchestrator.cluster.objects import Object
    from orchestrator.cluster.resources import NODES

    try:
        page = await client.transport.list(NODES.path(), Object)
    except Forbidden:
        say(f"Note: you may not list nodes, so a node {min(unused)} may not exist", err=True)
        return
    known = sorted(node.metadata.name for node in page.items)
    if unknown := sorted(unused.difference(known)):
        more = f" and {len(known) - SHOWN_NAMES} more" if len(known) > SHOWN_NAMES else ""
        nodes = (
            f"the nodes are {', '.join(known[:SHOWN_NAMES])}{more}" if known else "the cluster has no nodes"
        )
        raise NoSuchNode(f"--node {unknown[0]}: there is no such node; {nodes}")


def selecting(function: Function) -> Function:
    """Add the options; the function gets them as `choice`."""

    @wraps(function)
    def call(
        *,
        status: tuple[str, ...],
        selector: str | None,
        user: tuple[str, ...],
        node: tuple[str, ...],
        since: str | None,
        **values: Any,
    ) -> Any:
        return function(choice=Choice(status, selector, user, node, since), **values)

    for option in (
        click.option("--since", metavar="DURATION", help="Only jobs submitted within this time (5m, 3h)."),
        click.option(
            "--node", multiple=True, metavar="NAME", help="Only jobs with a pod on this node. Repeatable."
        ),
        click.option("--user", multiple=True, metavar="NAME", help="Only jobs of this user. Repeatable."),
        click.option(
            "-l", "--selector", metavar="LABELS", help="Only jobs with these labels: a=b,c!=d,'e in (f,g)'."
        ),
        click.option(
            "--status", multiple=True, metavar="STATUS", help="Only jobs with this status. Repeatable."
        ),
    ):
        call = option(call)
    return call  # type: ignore[return-value]
