"""The command `muster`: finds the sub-command, and turns errors into one line and an exit code.

Only click is imported before a command runs, because every completion in a shell starts this process. The exit codes
are in `EXIT_CODES`.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.message import say_error
from orchestrator.cli.options import Group, add_common_options, common_options, resolved
from orchestrator.cli.settings import Settings
from orchestrator.distribution import DISTRIBUTION
from orchestrator.errors import MusterError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

INTERRUPTED: Final = 130
EXIT_CODES: Final = {
    0: "done",
    1: "failed: the cluster refused the request or did not answer, the object does not exist, or one "
    "of several jobs failed",
    2: "the command line, or a file that it names, is invalid; nothing was done",
    124: "the time limit passed (`wait`, `node drain`, `data`); the operation continues",
    INTERRUPTED: "interrupted",
    "any": "`exec`, `bash` and `attach`: that of the command in the container",
}

RESEARCHER: Final = {
    "attach": ("orchestrator.cli.execute:attach", "Attach to the process of a job's container."),
    "bash": ("orchestrator.cli.execute:bash", "Open a shell in a container of a job."),
    "cluster": ("orchestrator.cli.cluster:cluster", "List the clusters of the kubeconfig and choose one."),
    "completion": ("orchestrator.cli.completion:completion", "Print the completion script of a shell."),
    "config": ("orchestrator.cli.config:config", "Choose the default project or the current cluster."),
    "data": ("orchestrator.cli.data:data", "Clone, snapshot and restore the volumes of a project."),
    "delete": ("orchestrator.cli.batch:delete", "Delete jobs of a project."),
    "describe": ("orchestrator.cli.get:describe", "The same as get."),
    "edit": ("orchestrator.cli.edit:edit", "Change the GPUs, the image or the priority of a job."),
    "exec": ("orchestrator.cli.execute:exec_", "Run a command in a container of a job."),
    "explain": ("orchestrator.cli.explain:explain", "Explain why a job is pending."),
    "get": ("orchestrator.cli.get:get", "Show the details of a job, node, project or template."),
    "list": ("orchestrator.cli.listing:list_things", "List jobs, projects, nodes, clusters or templates."),
    "login": ("orchestrator.cli.whoami:login", "Check the credentials of the kubeconfig."),
    "logout": ("orchestrator.cli.whoami:logout", "Explain how to remove the credentials of the kubeconfig."),
    "logs": ("orchestrator.cli.logs:logs", "Print the log of a job."),
    "port-forward": ("orchestrator.cli.port_forward:port_forward", "Forward local ports to a job."),
    "requeue": ("orchestrator.cli.batch:requeue", "Return jobs to the end of their queue."),
    "resume": ("orchestrator.cli.batch:resume", "Return suspended jobs to the queue."),
    "sbatch": ("orchestrator.cli.sbatch:sbatch", "Submit a batch script of Slurm."),
    "submit": ("orchestrator.cli.submit:submit", "Submit a job."),
    "submit-dist": (
        "orchestrator.cli.submit:submit_dist",
        "Submit a distributed job for a training framework.",
    ),
    "submit-mpi": (
        "orchestrator.cli.submit:submit_mpi",
        "Submit a job of numbered processes, for example for MPI.",
    ),
    "suspend": ("orchestrator.cli.batch:suspend", "Suspend jobs until they are resumed."),
    "template": ("orchestrator.cli.template:template", "List, show, create and delete templates for submit."),
    "top": ("orchestrator.cli.top:top", "Show the GPUs that nodes and jobs hold, and their use."),
    "version": ("orchestrator.cli.version:version", "Print the version."),
    "wait": ("orchestrator.cli.wait:wait", "Wait until jobs run, have ended, have succeeded or have failed."),
    "whoami": ("orchestrator.cli.whoami:whoami", "Show your user, groups and rights in the cluster."),
    "why-evicted": ("orchestrator.cli.why_evicted:why_evicted", "Explain the evictions of a job."),
}
ADMINISTRATOR: Final = {
    "agent": ("orchestrator.cli.agent:agent", "Watch the GPUs of this node."),
    "doctor": (
        "orchestrator.cli.doctor:doctor",
        "Print the problems of the cluster, and write an archive for a report of a defect.",
    ),
    "monitoring": (
        "orchestrator.cli.monitoring:monitoring",
        "Write dashboards and alert rules to a directory.",
    ),
    "node": ("orchestrator.cli.node:node", "Drain a node and give it back, or remove its host."),
    "operator": ("orchestrator.cli.operator:operator", "Run the operator: scheduler and controllers."),
    "operator-yaml": (
        "orchestrator.cli.operator:operator_yaml",
        "Print the manifests of the operator, or write a Helm chart.",
    ),
    "project": ("orchestrator.cli.project:project", "Create, list, change and delete projects."),
    "simulate": ("orchestrator.cli.simulate:simulate", "Run the scheduler on a snapshot file."),
    "snapshot": ("orchestrator.cli.simulate:snapshot", "Print the input of the scheduler as YAML."),
    "what-if": ("orchestrator.cli.what_if:what_if", "Show the effect of a change of jobs or quotas."),
}
COMMANDS: Final = RESEARCHER | ADMINISTRATOR
GROUPS: Final = {
    "researcher": ("Researcher (jobs and their data)", RESEARCHER),
    "administrator": ("Administrator (projects and the operator)", ADMINISTRATOR),
    "site": ("Site (installation and upgrades)", {}),
    "proof": ("Proof (acceptance test)", {}),
}
"""Sections of the help: title and built-in commands. Plugins come from the entry points `muster.commands.GROUP`."""


class LazyGroup(click.Group):
    """A group that imports a command at its first use, from the table above or from an installed package."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return sorted({*COMMANDS, *(name for plugins in _plugins().values() for name in plugins)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command, or None if there is none of that name."""
        if cmd_name in COMMANDS:
            module, _, attribute = COMMANDS[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            if not any(param.name == "kubeconfig" for param in command.params):
                add_common_options(command)
            return command
        plugin = next((found[cmd_name] for found in _plugins().values() if cmd_name in found), None)
        if plugin is None:
            return None
        loaded = plugin.load()
        return loaded if isinstance(loaded, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument. Raises UsageError with a suggestion, if there is one."""
        return resolved(self, super().resolve_command, ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands of each group without importing any."""
        sections = command_sections()
        width = max(len(name) for rows in sections.values() for name in rows)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows.items()])


def command_sections() -> dict[str, dict[str, str]]:
    """Return the one-line helps of all commands by title and name."""
    sections: dict[str, dict[str, str]] = {}
    for group, (title, commands) in GROUPS.items():
        rows = {name: text for name, (_, text) in commands.items()}
        rows |= {name: _first_line(plugin) for name, plugin in _plugins()[group].items()}
        sections[title] = dict(sorted(rows.items()))
    return sections


@cache
def _plugins() -> "Mapping[str, Mapping[str, EntryPoint]]":
    """Return the commands that installed packages add, by group and name; none of them is imported."""
    from importlib.metadata import entry_points

    installed = entry_points()
    return {
        group: {plugin.name: plugin for plugin in installed.select(group=f"muster.commands.{group}")}
        for group in GROUPS
    }


def _first_line(plugin: "EntryPoint") -> str:
    """Return the first line of a plugin's docstring.

    It is read from the source, because an import would take too long.
    """
    docstrings = _docstrings(plugin.module)
    if docstrings is None:
        return f"From {plugin.module}, which cannot be found."
    return docstrings.get(plugin.attr, "").partition("\n")[0] or f"From {plugin.module}."


@cache
def _docstrings(module: str) -> Mapping[str, str] | None:
    """Return the docstrings of a module's functions by their names, None if there is no such module."""
    import ast
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    functions = (
        statement
        for statement in ast.parse(Path(spec.origin).read_bytes()).body
        if isinstance(statement, ast.FunctionDef)
    )
    return {function.name: ast.get_docstring(function) or "" for function in functions}


@click.command(
    cls=LazyGroup,
    params=list(common_options()),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name=DISTRIBUTION, message="Version: %(version)s", help="Print the version.")
@click.pass_context
def muster(ctx: click.Context) -> None:
    """Share the GPUs of a cluster between teams."""
    # If a command defines a common option itself, the value given before the command is the default of this
    # option.
    settings = {
        key: value for key, value in asdict(ctx.ensure_object(Settings)).items() if value not in (None, ())
    }
    name = ctx.invoked_subcommand
    command = muster.get_command(ctx, name) if name is not None and settings else None
    if name is not None and command is not None and not isinstance(command, Group):
        ctx.default_map = {**(ctx.default_map or {}), name: settings}


def main(arguments: Sequence[str] | None = None, program: click.Command = muster) -> int:
    """Run `muster`, or another program, with the arguments (default: those of the process); return the exit code."""
    if "_MUSTER_COMPLETE" in os.environ:
        muster.main(prog_name="muster")
    try:
        exit_code = _run(program, list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe; Python must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return exit_code


def _run(program: click.Command, arguments: list[str]) -> int:
    try:
        _check_text(arguments)
        with program.make_context(program.name, arguments, obj=Settings()) as ctx:
            result = program.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        raise
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, Exception) as error:  # people must not see a traceback
        import logging

        logging.getLogger(__name__).debug("the command failed", exc_info=True)
        message, exit_code = _explained(error)
        say_error(message)
        return exit_code
    return result if isinstance(result, int) else 0


def _explained(error: BaseException) -> tuple[str, int]:
    """Return the text for an error, and the exit code."""
    if isinstance(error, click.ClickException):
        ctx = getattr(error, "ctx", None)
        hint = f" (see '{ctx.command_path} --help')" if ctx else ""
        return error.format_message() + hint, error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return "interrupted", INTERRUPTED
    if isinstance(error, MusterError):
        return str(error), error.exit_code
    return f"this is a defect of muster; report it: {type(error).__name__}: {error}", 1


def _check_text(arguments: list[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise click.UsageError(f"the argument {argument!r} is no valid UTF-8") from error
        if "\x00" in argument:
            raise click.UsageError(f"the argument {argument!r} has a NUL character in it")
