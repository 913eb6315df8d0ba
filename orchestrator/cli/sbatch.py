"""`muster sbatch`: a batch script of Slurm, submitted as `muster submit` would."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.message import say, say_error
from orchestrator.cli.settings import Settings
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.submit.slurm_job import Request

_STANDARD_INPUT: Final = "sbatch"
_WRAP: Final = "wrap"


@click.command(
    "sbatch",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]...")
@click.pass_context
def sbatch(ctx: click.Context, /, words: tuple[str, ...]) -> int:
    """Submit a batch script of Slurm.

    OPTIONS are those of sbatch, and the long options of `muster submit`, such as --image. The script has options in
    lines that begin with #SBATCH, and options of `muster submit` in lines that begin with #MUSTER. If a line cannot
    have the same effect in the cluster, the command submits nothing and names each such line.
    """
    from orchestrator.submit.slurm_job import translate
    from orchestrator.submit.slurm_script import read_script

    request, content = _request(ctx, words)
    try:
        script = read_script(content)
    except UsageError as error:
        raise UsageError(f"{request.name} {error}") from error
    translation = translate(script, request)
    for problem in translation.problems:
        say_error(problem)
    if translation.problems:
        return UsageError.exit_code
    for note in translation.notes:
        say(f"Warning: {note}", err=True)
    command = _submit()
    with command.make_context("submit", list(translation.words), parent=ctx.parent, obj=ctx.obj) as inner:
        exit_code: int = command.invoke(inner)
    return exit_code


def _submit() -> click.Command:
    from orchestrator.cli.main import muster

    command = muster.get_command(click.get_current_context(), "submit")
    if command is None:
        raise UsageError("muster has no submit")
    return command


def _request(ctx: click.Context, words: tuple[str, ...]) -> tuple[Request, bytes]:
    """Return the request on the command line and the content of the script. Raises UsageError."""
    from orchestrator.submit.slurm_job import Request
    from orchestrator.submit.slurm_options import read_option, value_of

    known = {
        name: option
        for option in _submit().params
        if isinstance(option, click.Option)
        for name in option.opts
    }
    given: list[tuple[str, str]] = []
    own: list[str] = []
    wrapped: str | None = None
    rest = iter(words)
    script = None
    for word in rest:
        name, equals, value = word.partition("=")
        if name == f"--{_WRAP}":
            wrapped = value if equals else value_of(name, rest)
        elif name in known and name.startswith("--") and not _is_of_slurm(name):
            own += [word, *_value(name, known[name], bool(equals), rest)]
        elif word.startswith("-") and word != "-":
            given.append(read_option(word, rest))
        else:
            script = word
            break
    name, content = _content(script, wrapped)
    project = ctx.ensure_object(Settings).project
    return Request(name, given, own, tuple(rest), project, time.time_ns() // 1000, os.environ), content


def _is_of_slurm(name: str) -> bool:
    from orchestrator.submit.slurm_options import ADVICE, NO_EFFECT, OPTIONS

    return any(name.removeprefix("--") in table for table in (OPTIONS, ADVICE, NO_EFFECT))


def _value(name: str, option: click.Option, has_value: bool, rest: Iterator[str]) -> list[str]:
    from orchestrator.cli.options import OptionalValue
    from orchestrator.submit.slurm_options import value_of

    if has_value or option.is_flag or isinstance(option, OptionalValue):
        return []
    return [value_of(name, rest)]


def _content(script: str | None, wrapped: str | None) -> tuple[str, bytes]:
    """Return the name and content of a file, of the standard input, or of a command. Raises UsageError."""
    if wrapped is not None:
        if script is not None:
            raise UsageError(f"--{_WRAP} and the script {script} exclude each other: give one of them")
        return _WRAP, f"#!/bin/sh\n{wrapped}\n".encode()
    if script is None:
        if sys.stdin.isatty():
            raise UsageError("no script is given: give SCRIPT, or the script on the standard input")
        return _STANDARD_INPUT, sys.stdin.buffer.read()
    try:
        return Path(script).name, Path(script).read_bytes()
    except OSError as error:
        raise UsageError(f"{script} cannot be read: {error.strerror}") from error
