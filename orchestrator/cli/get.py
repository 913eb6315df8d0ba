"""`muster get` and `muster describe`: one job, node, project or template."""

from typing import Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command
from orchestrator.cli.output import output_option
from orchestrator.errors import UsageError

KINDS: Final = {
    "job": "job",
    "jobs": "job",
    "node": "node",
    "nodes": "node",
    "project": "project",
    "projects": "project",
    "template": "template",
    "templates": "template",
}
_LISTS: Final = frozenset(word for word in KINDS if word.endswith("s"))
"""The words that select a list. A job with such a name must be written as `job NAME`."""
_HELP: Final = (
    "Show the details of a job, node, project or template. For a job: its state, its pods, and the reason if it is "
    "pending."
)


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    words = ctx.params.get("words") or ()
    kind = f"{KINDS.get(words[0], 'job')}s" if words else "jobs"
    names = completing(kind)(ctx, parameter, incomplete)
    if words:
        return names
    return [kind for kind in dict.fromkeys(KINDS.values()) if kind.startswith(incomplete)] + names


def _command(name: str) -> click.Command:
    """Return the command under one of its two names."""

    @click.command(name, cls=Command, no_args_is_help=True, help=_HELP)
    @click.argument("words", nargs=-1, metavar="[job|node|project|template] NAME", shell_complete=_complete)
    @output_option()
    def show_details(*, words: tuple[str, ...], output: str | None) -> None:
        kind, name = _meant(words)
        if kind == "job":
            from orchestrator.cli.job_details import show_job

            show_job(name, output=output)
        elif kind == "node":
            from orchestrator.cli.nodes import show_node

            show_node(name, output=output)
        elif kind == "project":
            from orchestrator.cli.project import show_project

            show_project(name, output=output)
        else:
            from orchestrator.cli.template import show_template

            show_template(name, output=output)

    return show_details


get = _command("get")
describe = _command("describe")


def _meant(words: tuple[str, ...]) -> tuple[str, str]:
    """Return the kind and the name in the words `NAME` or `KIND NAME`."""
    if len(words) == 1 and words[0] not in _LISTS:
        return "job", words[0]
    if len(words) == 1:
        raise UsageError(f"name one {KINDS[words[0]]}; the list of all is 'muster list {words[0]}'")
    kind = KINDS.get(words[0]) if words else None
    if kind is None or len(words) != 2:
        raise UsageError(
            f"name one thing: NAME, or one of {', '.join(dict.fromkeys(KINDS.values()))} and NAME"
        )
    return kind, words[1]
