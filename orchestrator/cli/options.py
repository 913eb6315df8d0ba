"""Forms of options that other Kubernetes command lines have and click lacks.

- `--flag=false` for booleans, and `-g=1` for short options;
- the common options before or after the sub-command;
- the words after a bare `--` kept apart from the arguments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.settings import Settings

ARGUMENTS_KEY: Final = "muster.arguments"
TAIL_KEY: Final = "muster.tail"
LOG_LEVELS: Final = ("debug", "info", "warn", "warning", "error")

_BOOLEANS: Final = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


class OptionalValue(click.Option):
    """An option with the value `bare` if no `=VALUE` follows. It never takes the next argument as its value."""

    def __init__(self, *args: Any, bare: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.bare = bare


class Command(click.Command):
    """A command whose arguments are rewritten for click."""

    takes_tail = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Normalise the arguments; keep the original, and the words after `--`, for the command."""
        ctx.meta[ARGUMENTS_KEY] = tuple(args)
        rewritten, tail = self.rewrite(ctx, args)
        if self.takes_tail:
            ctx.meta[TAIL_KEY] = tail
        elif tail is not None:
            rewritten += ["--", *tail]
        try:
            return super().parse_args(ctx, rewritten)
        except click.NoSuchOption as error:
            from orchestrator.cli.suggestions import option_suggestion

            known = {name for param in self.params for name in param.opts}
            hint = option_suggestion(error.option_name, known)
            if not hint:
                raise
            raise click.NoSuchOption(error.option_name, f"{error.message} {hint}", ctx=ctx) from error

    def rewrite(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
        """Return the rewritten arguments before a bare `--`, and the arguments behind it (None without a `--`)."""
        words, tail = split_words(self, args)
        switched_off = {}
        remaining: list[Word] = []
        for word in words:
            if word.flag is not None and word.value is not None:
                value = _BOOLEANS.get(word.value.lower())
                if value is None and ctx.resilient_parsing:
                    continue
                if value is None:
                    raise click.UsageError(f"{word.name} takes true or false, not {word.value!r}", ctx)
                remaining = [other for other in remaining if other.flag is not word.flag]
                switched_off[word.flag.name] = not value
                if value:
                    remaining.append(Word((word.name,), word.name, word.flag))
            else:
                remaining.append(word)
        off = {name: False for name, is_off in switched_off.items() if is_off}
        present = {word.flag.name for word in remaining if word.flag is not None}
        ctx.default_map = {**(ctx.default_map or {}), **{key: off[key] for key in off if key not in present}}
        return [token for word in remaining for token in word.tokens], tail


@dataclass(frozen=True, slots=True)
class Word:
    """One option with its value, or one argument. `flag` is set for a boolean option.

    `arguments` is the number of its arguments on the command line: 2 for `--gpu 1`, 1 for `--gpu=1`.
    """

    tokens: tuple[str, ...]
    name: str = ""
    flag: click.Option | None = None
    value: str | None = None
    arguments: int = 1


def split_words(
    command: click.Command, args: Sequence[str], without_value: frozenset[str] = frozenset()
) -> tuple[list[Word], tuple[str, ...] | None]:
    """Split arguments into words. A word is an option with its value, or an argument.

    Options in `without_value` take no value. Returns the words before a bare `--`, and the arguments after it, or None
    without a `--`.
    """
    options = [param for param in command.params if isinstance(param, click.Option)]
    flags = {name: option for option in options if option.is_flag or option.count for name in option.opts}
    takes = {
        name for option in options if not (option.is_flag or option.count) for name in option.opts
    } - without_value
    bares = {
        name: f"{name}={option.bare}"
        for option in options
        if isinstance(option, OptionalValue)
        for name in option.opts
    }
    words: list[Word] = []
    rest = iter(args)
    for token in rest:
        if token == "--":  # noqa: S105
            return words, tuple(rest)
        words.append(_word(bares.get(token, token), rest, flags, takes))
    return words, None


def _word(token: str, rest: Iterator[str], flags: dict[str, click.Option], takes: set[str]) -> Word:
    is_long = token.startswith("--")
    if not is_long and not (token.startswith("-") and len(token) > 1):
        return Word((token,))
    name, equals, value = token.partition("=") if is_long or token[2:3] == "=" else (token, "", "")
    if name in flags:
        return Word((token,), name, flags[name], value if equals else None)
    if name in takes:
        if not equals:
            following = next(rest, None)
            if following is None:
                return Word((token,), name)
            value = following
        tokens = (f"{name}={value}",) if is_long else (name, value)
        return Word(tokens, name, value=value, arguments=1 if equals else 2)
    if not is_long and _cluster_wants_value(token, takes):
        following = next(rest, None)
        tokens = (token,) if following is None else (token, following)
        return Word(tokens, name, arguments=len(tokens))
    return Word((token,), name)


def _cluster_wants_value(token: str, takes: set[str]) -> bool:
    """Return whether the last letter of `-abc` is an option whose value is the next argument."""
    for place, letter in enumerate(token[1:], start=1):
        if f"-{letter}" in takes:
            return place == len(token) - 1
    return False


class Group(click.Group):
    """A group whose commands have additional names, which scripts for older and newer command lines use."""

    def __init__(self, *arguments: Any, aliases: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.aliases = dict(aliases or {})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name or alias."""
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument. Raises UsageError with a suggestion, if there is one."""
        return resolved(self, super().resolve_command, ctx, args)


class OpenGroup(Group):
    """A group to which installed packages add commands by entry points of the name `added`.

    An added command is imported when the user asks for it.
    """

    def __init__(self, *arguments: Any, added: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.added = added

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        from importlib.metadata import entry_points

        return sorted({*super().list_commands(ctx), *entry_points(group=self.added).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name; None if there is none."""
        from importlib.metadata import entry_points

        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        for added in entry_points(group=self.added, name=cmd_name):
            loaded = added.load()
            if isinstance(loaded, click.Command):
                return loaded
        return None


def resolved(
    group: click.Group,
    resolve: Callable[[click.Context, list[str]], tuple[str | None, click.Command | None, list[str]]],
    ctx: click.Context,
    args: list[str],
) -> tuple[str | None, click.Command | None, list[str]]:
    """Return the answer of `resolve`. If there is no such command, raises UsageError with a suggestion."""
    name = args[0] if args else ""  # click takes options out of the list
    try:
        return resolve(ctx, args)
    except click.UsageError as error:
        from orchestrator.cli.suggestions import suggestion

        above = ctx.info_name if ctx.parent is not None else ""
        if hint := suggestion(name, group.list_commands(ctx), above or ""):
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx) from error
        raise


def _store(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value in (None, ()) or parameter.name is None:
        return
    settings = ctx.ensure_object(Settings)
    if parameter.name == "verbose":
        settings.loglevel = "debug" if value else settings.loglevel
    else:
        setattr(settings, parameter.name, value)


def common_options() -> list[click.Option]:
    """Return the options of every command; their values land in `Settings`."""
    path = click.Path(dir_okay=False, path_type=Path)
    return [
        _common(["--kubeconfig"], type=path, help="The kubeconfig file to use."),
        _common(
            ["--context"],
            metavar="NAME",
            help="The context of the kubeconfig to use.",
            shell_complete=completing("contexts"),
        ),
        _common(
            ["-p", "--project"],
            metavar="NAME",
            help="The project; default: the project of the context's namespace.",
            shell_complete=completing("projects"),
        ),
        _common(
            ["--as", "as_user"],
            metavar="USER",
            help="Act as this user; the cluster must allow impersonation.",
        ),
        _common(
            ["--as-group", "as_groups"],
            multiple=True,
            metavar="GROUP",
            help="Act as a member of this group, with --as. Repeatable.",
        ),
        _common(["--loglevel"], type=click.Choice(LOG_LEVELS), help="Log level on stderr."),
        _common(["-v", "--verbose"], is_flag=True, default=None, help="The same as --loglevel debug."),
    ]


def _common(declarations: list[str], **attributes: Any) -> click.Option:
    return click.Option(declarations, expose_value=False, callback=_store, **attributes)


def add_common_options(command: click.Command) -> None:
    """Add the common options to a command and the commands below it, except options whose names it already uses."""
    used_names = {name for param in command.params for name in param.opts}
    for option in common_options():
        option.opts = [name for name in option.opts if name not in used_names]
        if option.opts:
            command.params.append(option)
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_common_options(subcommand)
