"""Common parts of the commands of `muster lab`."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.distribution import require_extra
from orchestrator.errors import MusterError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def lab_options(function: _Command) -> _Command:
    """Add the options that name a lab."""
    for option in (
        click.option("--name", default="default", show_default=True, help="Name of the lab."),
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path, file_okay=False),
            help="Directory that holds the labs.  [default: $XDG_STATE_HOME/muster/labs]",
        ),
    ):
        function = option(function)
    return function


def errors_as_lines(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with errors handled: it prints a MusterError as one line and exits with a code, in any command
    line.
    """

    @wraps(function)
    def command(*arguments: Any, **options: Any) -> None:
        try:
            require_extra("lab")
            function(*arguments, **options)
        except MusterError as error:
            click.echo(f"Error: {error}", err=True)
            raise SystemExit(error.exit_code) from error

    return command
