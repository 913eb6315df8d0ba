"""Adds values of templates to the parsed flags of a command."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.options import TAIL_KEY
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.submit.templates import Kind, Template

_MAX_TEMPLATE_BYTES: Final = 1 << 20
"""The limit of Kubernetes for the ConfigMap of a template."""


def with_templates(
    ctx: click.Context,
    values: Mapping[str, Any],
    templates: "Sequence[Template]",
    *,
    tail_replaces: frozenset[str] = frozenset({"args"}),
) -> dict[str, Any]:
    """Return the values of a command's parameters with those of templates, converted as click would.

    `values` are by the name of the parameter. If there are words after a bare `--`, the flags in `tail_replaces` count
    as given. Raises UsageError, and click's own errors for an invalid value of a flag.
    """
    from orchestrator.submit.templates import fill

    options = {_flag(param): param for param in ctx.command.params if _may_be_filled(param)}
    flag_values = {
        flag: values[option.name or ""] for flag, option in options.items() if option.name in values
    }
    tail = ctx.meta.get(TAIL_KEY)
    hidden = tail_replaces & options.keys() if tail else frozenset()
    changes = fill(
        flag_values | {flag: flag_values.get(flag) or tail for flag in hidden},
        templates,
        kinds_of(ctx.command),
        os.environ,
    )
    filled = dict(values)
    for flag, value in changes.items():
        option = options[flag]
        filled[option.name or ""] = option.type_cast_value(ctx, value)
    return filled


def with_template_file(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command's parameters, completed by the file that `--template` names, if it names a file.

    A template whose name ends with .yaml or .yml, or has a /, is a file. Raises UsageError with file and line.
    """
    file = values["template"]
    if file is None or not ("/" in file or file.endswith((".yaml", ".yml"))):
        return dict(values)
    from orchestrator.submit.templates import Template

    template = Template(file, "", text=read_template("--template", Path(file)), file=file)
    return with_templates(ctx, values, [template]) | {"template": None}


def read_template(option: str, file: Path) -> str:
    """Return the text of a file of at most 1 MiB; `-` is the standard input. Raises UsageError."""
    try:
        with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as source:
            content = source.read(_MAX_TEMPLATE_BYTES + 1)
        if len(content) > _MAX_TEMPLATE_BYTES:
            raise UsageError(f"{option} {file}: has more than {_MAX_TEMPLATE_BYTES} bytes")
        return content.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{option} {file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {file}: is no text in UTF-8") from error


def kinds_of(command: click.Command) -> "dict[str, Kind]":
    """Return the flags of submit that a template may set."""
    return {_flag(param): _kind(param) for param in command.params if _may_be_filled(param)}


def _flag(option: click.Parameter) -> str:
    long = [opt for opt in option.opts if opt.startswith("--")]
    return long[0].removeprefix("--") if long else ""


def _may_be_filled(option: click.Parameter) -> bool:
    from orchestrator.submit.templates import FOR_COMMAND_LINES

    return (
        isinstance(option, click.Option)
        and option.expose_value
        and bool(_flag(option))
        and _flag(option) not in FOR_COMMAND_LINES | {"help"}
    )


def _kind(option: click.Parameter) -> "Kind":
    from orchestrator.submit.templates import Kind

    if getattr(option, "is_flag", False):
        return Kind.SWITCH
    if option.multiple:
        return Kind.MANY
    return Kind.NUMBER if isinstance(option.type, click.types.IntParamType) else Kind.TEXT
