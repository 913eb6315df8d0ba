"""The reference of the command line, made from the commands: `make docs` writes it to docs/reference/cli.md."""

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from orchestrator.cli.main import EXIT_CODES, command_sections, muster
from orchestrator.cli.options import Group, common_options

_INTRODUCTION: Final = """\
# muster: the command line

<!-- Written by `make docs` from the commands; a test compares the two. Change the commands, not this file. -->

The command lines of Run:AI's former CLI work with `muster` in place of `runai` ([Come from
Run:ai](../how-to/from-runai.md), [from Slurm](../how-to/from-slurm.md)). Cluster, user and default project come
from the kubeconfig (`--kubeconfig`, `$KUBECONFIG`, `~/.kube/config`). The default project is that of the namespace
of the current context.

- Options can be before or after the arguments; common options also before the sub-command.
- `--flag` and `--flag=true` switch on, `--flag=false` switches off. Short flags can be joined: `-it`.
- The value of an option is the next word, also if it begins with a dash: `--args --verbose` is one argument.
- The words after a bare `--` are a command or its arguments, never options of muster.
- Tables have columns that two or more spaces separate, statuses of one word, and `-` for unknown values. So `awk`,
  `sed 1d` and `grep` can read them. Programs should read `-o json`, whose keys do not change.
- Colours appear only on a terminal, and not if `NO_COLOR` is set.
- Results are on standard output; errors, warnings and progress on standard error. An error is one line.
- `source <(muster completion bash)` completes commands, flags, and names in the cluster; zsh and fish too.
"""

_STATUSES: Final = """\
## Statuses of jobs

| status | meaning |
|---|---|
| `Pending` | no pod has a node yet; `muster explain JOB` prints the reason |
| `ContainerCreating` | a pod has a node, and its image is being pulled |
| `Running` | at least one pod runs, and none has a problem |
| `Terminating` | the job is being deleted, or was evicted and a new pod follows |
| `Suspended` | stopped by `muster suspend`; uses no GPUs |
| `Succeeded`, `Failed` | the job has ended |
| `TimedOut` | the job has reached its time limit |
| `Error` | the last attempt failed, and another follows |
| `ErrImagePull`, `ImagePullBackOff`, `CrashLoopBackOff`, … | the reason that Kubernetes gives |
"""


def reference() -> str:
    """Return the whole reference in Markdown."""
    root = click.Context(muster, info_name="muster")
    names = muster.list_commands(root)
    sections = [
        _INTRODUCTION,
        _exit_codes(),
        _STATUSES,
        f"## Common options\n\n{_options(common_options(), root)}\n",
        "## Commands",
        *(_index(title, rows) for title, rows in command_sections().items()),
    ]
    for name in names:
        command = muster.get_command(root, name)
        if command is not None:
            sections += _command(command, click.Context(command, info_name=name, parent=root), "##")
    return "\n".join(section.rstrip() + "\n" for section in sections)


def _index(title: str, names: Iterable[str]) -> str:
    """Return links to the commands of a section of `muster --help`."""
    return f"{title}:\n\n" + "\n".join(f"- [`muster {name}`](#{_anchor(f'muster {name}')})" for name in names)


def _command(command: click.Command, ctx: click.Context, level: str) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(ctx))
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    yield f"{level} {ctx.command_path}\n\n{_prose(text)}\n\n    {ctx.command_path} {usage}"
    if isinstance(command, click.Group):
        aliases = command.aliases if isinstance(command, Group) else {}
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                also = [alias for alias, of in aliases.items() if of == name]
                yield from _command(below, click.Context(below, info_name=name, parent=ctx), "###")
                if also:
                    yield f"Also: {', '.join(f'`{ctx.command_path} {alias}`' for alias in also)}."
        return
    options = _options(command.params, ctx)
    if options:
        yield options
    if command.epilog:
        yield command.epilog


def _options(parameters: list[click.Parameter] | list[click.Option], ctx: click.Context) -> str:
    """Return a table of the options, without the common options of all commands."""
    common = {option.name for option in common_options()} if ctx.parent is not None else set()
    rows = [
        parameter.get_help_record(ctx)
        for parameter in parameters
        if isinstance(parameter, click.Option)
        and not (parameter.name in common and not parameter.expose_value)
    ]
    lines = [f"| `{_cell(record[0])}` | {_cell(record[1])} |" for record in rows if record is not None]
    return "\n".join(["| option | meaning |", "|---|---|", *lines]) if lines else ""


def _exit_codes() -> str:
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    return f"## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}\n"


def _prose(text: str) -> str:
    """Return the help with the lines of each paragraph joined, except lines that click keeps separate."""
    blocks = text.split("\n\n")
    return "\n\n".join(block if "  " in block else " ".join(block.split("\n")) for block in blocks)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def main() -> None:
    """Write the reference to the file that the first argument names."""
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
