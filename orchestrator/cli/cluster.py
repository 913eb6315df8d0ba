"""`muster cluster`: the contexts of the kubeconfig, the current context, and the objects that the operator of its
cluster skips.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import say
from orchestrator.cli.options import Command, Group
from orchestrator.cli.output import no_headers_option, output_option, show
from orchestrator.cli.settings import Settings
from orchestrator.names import NAMESPACE_PREFIX

if TYPE_CHECKING:
    from orchestrator.control.report.skipped import Record

SKIPPED_HEADER: Final = ("KIND", "NAMESPACE", "NAME", "SINCE", "REASON")


@click.group("cluster", cls=Group, no_args_is_help=True)
def cluster() -> None:
    """List the clusters of the kubeconfig, choose one, and show the objects that its operator skips."""


@cluster.command("list", cls=Command)
@no_headers_option()
@output_option()
def list_clusters(*, no_headers: bool | None, output: str | None) -> None:
    """List the contexts of the kubeconfig."""
    show_clusters(output=output, no_headers=no_headers)


@cluster.command("set", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("contexts"))
def set_cluster(*, name: str) -> None:
    """Make a context of the kubeconfig the current one."""
    choose_cluster(name)


@cluster.command("status", cls=Command)
@no_headers_option()
@output_option("json", "yaml", "name")
def cluster_status(*, no_headers: bool | None, output: str | None) -> int:
    """Show whether policies are in force, and list the objects that the scheduler skips or counts
    differently.

    An object is listed if muster cannot read it or decide on it, or if another scheduler bound the pod to a
    node. The exit code is 1 if the policies are not in force, or if you may not read them.
    """
    import msgspec

    from orchestrator.cli.session import run
    from orchestrator.client.policies_in_force import policies_in_force
    from orchestrator.control.report.skipped import recorded

    policies = run(lambda client: policies_in_force(client.transport))
    if output is None and not no_headers:
        say(policies.sentence())
    record = run(lambda client: recorded(client.transport))
    objects = record.objects
    show(
        SKIPPED_HEADER,
        skipped_rows(record),
        output=output,
        no_headers=no_headers,
        records=lambda: {"policies": msgspec.to_builtins(policies), **msgspec.to_builtins(record)},
        names=[entry.path for entry in objects],
        title="Objects that the scheduler skips or counts differently:"
        if objects
        else "No object is skipped.",
    )
    if record.more and output is None:
        click.echo(f"and {record.more} more")
    if record.left_over and output is None:
        click.echo(
            f"The last decision did not reach {record.left_over} workloads: they are first in the next."
        )
    return 0 if policies.in_force else 1


def skipped_rows(record: "Record") -> list[Sequence[str]]:
    """Return the table cells of the objects that no decision counts."""
    return [(entry.kind, entry.namespace, entry.name, entry.since, entry.why) for entry in record.objects]


def choose_cluster(name: str) -> None:
    """Make a context the current one, and say so."""
    from orchestrator.cluster.contexts import set_current_context

    set_current_context(name, click.get_current_context().ensure_object(Settings).kubeconfig)
    click.echo(f"Cluster {name} has been set as current cluster")


def show_clusters(*, output: str | None, no_headers: bool | None) -> None:
    """Print the contexts, without a request to any cluster: some clusters may be unreachable, or ask for a password."""
    from orchestrator.cluster.contexts import Context, contexts

    def project(context: Context) -> str:
        name = context.namespace.removeprefix(NAMESPACE_PREFIX)
        return name if name != context.namespace else ""

    known_contexts = contexts(click.get_current_context().ensure_object(Settings).kubeconfig)
    show(
        ("CLUSTER", "CURRENT PROJECT", *(("SERVER", "USER", "NAMESPACE") if output == "wide" else ())),
        [
            (
                f"{context.name} (current)" if context.is_current else context.name,
                project(context) or "-",
                *((context.server, context.user, context.namespace) if output == "wide" else ()),
            )
            for context in known_contexts
        ],
        output=output,
        no_headers=no_headers,
        records=lambda: [
            {
                "name": context.name,
                "current": context.is_current,
                "server": context.server,
                "user": context.user,
                "namespace": context.namespace,
                "project": project(context),
            }
            for context in known_contexts
        ],
        names=[context.name for context in known_contexts],
        title="Configured clusters on this computer are:",
    )
