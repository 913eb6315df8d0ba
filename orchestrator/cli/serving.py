"""Options and logging of the commands that run until they are interrupted: operator, agent and pages."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.cli.options import LOG_LEVELS

Function = TypeVar("Function", bound=Callable[..., Any])


def account_options(function: Function) -> Function:
    """Add `--kubeconfig` and `--context`, by default the account of the pod."""
    context = click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="The kubeconfig file to use. Default: in a pod, the account of the pod.",
    )(context(function))


def log_level_option(default: str = "info") -> Callable[[Function], Function]:
    """Return the `--loglevel` option, with this default."""
    return click.option(
        "--loglevel",
        type=click.Choice(LOG_LEVELS),
        default=default,
        show_default=True,
        help="Log level on stderr.",
    )


def log_to_stderr(level: str) -> None:
    """Log messages of this level and above to stderr, each with its time."""
    logging.basicConfig(
        level={"warn": "WARNING"}.get(level, level.upper()),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        force=True,
    )
