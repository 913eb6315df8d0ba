"""The options by which `list`, `delete`, `suspend` and `resume` choose jobs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from orchestrator.views.selection import Selection

Function = TypeVar("Function", bound=Callable[..., Any])


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
