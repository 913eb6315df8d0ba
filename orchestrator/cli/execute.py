"""`muster exec`, `muster bash` and `muster attach`: connect the terminal to a container of a job."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from orchestrator.cli import terminal
from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import TAIL_KEY, Command, split_words
from orchestrator.cli.session import run
from orchestrator.client.aio import AsyncClient
from orchestrator.client.streams import StreamClient
from orchestrator.client.targets import Target
from orchestrator.cluster.errors import NotExecutable
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])

SHELL: Final = "/bin/bash"


class CommandOfAContainer(Command):
    """A command line with options up to the second argument.

    The second argument and all words after it are the command for the container, with or without `--`.
    """

    takes_tail = True

    def rewrite(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
        """Return the rewritten arguments before the container's command, and that command."""
        words, tail = split_words(self, args)
        consumed = arguments = 0
        for word in words:
            arguments += not word.name
            if arguments == 2:
                return super().rewrite(ctx, args[:consumed])[0], tuple(args[consumed:])
            consumed += word.arguments
        return super().rewrite(ctx, args if tail is None else args[:consumed])[0], tail


def container_options(default_patience: str) -> Callable[[Function], Function]:
    """Return the options that choose a container and the time to wait for it."""

    def decorate(function: Function) -> Function:
        for option in (
            click.option("--pod", metavar="NAME", help="The pod; default: the newest pod of the job."),
            click.option("-c", "--container", metavar="NAME", help="The container; default: the first."),
            click.option(
                "--wait-timeout",
                "--pod-running-timeout",
                metavar="DURATION",
                default=default_patience,
                show_default=True,
                help="Maximum time to wait until the container runs (0s, 30s, 2m).",
            ),
        ):
            function = option(function)
        return function

    return decorate


def patience(text: str) -> int:
    """Return the seconds of --wait-timeout. Raises UsageError."""
    return parse_duration_seconds("--wait-timeout", text) or 0


async def running(
    client: AsyncClient,
    name: str,
    pod: str | None,
    container: str | None,
    patience_seconds: int,
    *,
    or_ended: bool = False,
    index: int | None = None,
) -> tuple[StreamClient, Target]:
    """Wait until a container of a job runs, or with `or_ended` has ended.

    Return the client of its streams, and the container.
    """
    target = await client.streams.running(
        await client.scope(),
        name,
        pod,
        container,
        patience_seconds=patience_seconds,
        report=terminal.report,
        or_ended=or_ended,
        index=index,
    )
    return client.streams, target


@click.command("exec", cls=CommandOfAContainer, no_args_is_help=True, options_metavar="[OPTIONS]")
@click.argument("name", metavar="JOB", shell_complete=completing("jobs"))
@click.option("-i", "--stdin", is_flag=True, help="Send the standard input to the command.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal; needs -i.")
@container_options("1m")
@click.pass_context
def exec_(
    ctx: click.Context,
    /,
    *,
    name: str,
    stdin: bool,
    tty: bool,
    pod: str | None,
    container: str | None,
    wait_timeout: str,
) -> int:
    """Run a command in a container of a job: muster exec JOB -it -- COMMAND [ARGUMENT]...

    The exit code is the command's exit code.
    """
    command = ctx.meta.get(TAIL_KEY) or ()
    if not command:
        raise UsageError(f"a command is missing: muster exec {name} [-it] -- COMMAND [ARGUMENT]...")
    if tty and not stdin:
        raise UsageError("-t/--tty needs -i/--stdin: a terminal reads the standard input")
    return _execute(name, command, pod, container, patience(wait_timeout), stdin=stdin, tty=tty)


@click.command("bash", cls=Command, no_args_is_help=True)
@click.argument("name", metavar="JOB", shell_complete=completing("jobs"))
@container_options("1m")
def bash(*, name: str, pod: str | None, container: str | None, wait_timeout: str) -> int:
    """Open a shell in a container of a job."""
    tty = terminal.stdin_is_a_terminal()
    try:
        return _execute(name, (SHELL,), pod, container, patience(wait_timeout), stdin=True, tty=tty)
    except NotExecutable as error:
        raise NotExecutable(f"{error}; try another shell: muster exec {name} -it -- sh") from error


@click.command("attach", cls=Command, no_args_is_help=True)
@click.argument("name", metavar="JOB", shell_complete=completing("jobs"))
@click.option("--no-stdin", is_flag=True, help="Show the output only; send no input.")
@click.option("--no-tty", is_flag=True, help="Do not use the terminal of the container.")
@container_options("30s")
def attach(
    *,
    name: str,
    no_stdin: bool,
    no_tty: bool,
    pod: str | None,
    container: str | None,
    wait_timeout: str,
) -> int:
    """Attach to the process of a job's container: its output and its standard input.

    If the process ends while you are attached, its exit code is the exit code of this command.
    """

    async def join(client: AsyncClient) -> int:
        streams, target = await running(client, name, pod, container, patience(wait_timeout))
        return await attached(streams, target, stdin=not no_stdin, tty=not no_tty)

    return run(join)


async def attached(streams: StreamClient, target: Target, *, stdin: bool, tty: bool) -> int:
    """Attach to a running container with the streams that it was created with; return its exit code."""
    stdin = stdin and target.reads_input
    tty = terminal.wants_terminal(stdin=stdin, tty=tty and stdin and target.has_terminal)
    if tty:
        terminal.report("If you do not see a prompt, press Enter.")
    async with streams.attach(target, stdin=stdin, tty=tty) as process:
        await terminal.converse(process, stdin=stdin, tty=tty)
    code = await streams.exit_code(target)
    if code is None:
        terminal.report("Detached; the job runs on.")
    return code or 0


def _execute(
    name: str,
    command: Sequence[str],
    pod: str | None,
    container: str | None,
    patience_seconds: int,
    *,
    stdin: bool,
    tty: bool,
) -> int:
    tty = terminal.wants_terminal(stdin=stdin, tty=tty)

    async def execute(client: AsyncClient) -> int:
        streams, target = await running(client, name, pod, container, patience_seconds)
        async with streams.execute(target, command, stdin=stdin, tty=tty) as process:
            return await terminal.converse(process, stdin=stdin, tty=tty)

    return run(execute)
