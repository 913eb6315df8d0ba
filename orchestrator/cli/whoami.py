"""`muster whoami`, `login` and `logout`: the user for the cluster, and the user's rights."""

from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.message import say
from orchestrator.cli.options import Command
from orchestrator.cli.output import document, output_option, table
from orchestrator.cli.session import run

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.identity import Identity
    from orchestrator.cluster.kubeconfig import Access

HEADER: Final = ("PROJECT", "ROLE")


@click.command("whoami", cls=Command)
@output_option("json", "yaml", "name")
def whoami(*, output: str | None) -> None:
    """Show your user and groups in the cluster, and your rights in each project."""
    identity, access = run(_review)
    if output in ("json", "yaml"):
        answer = {
            "user": identity.user,
            "id": identity.uid,
            "groups": list(identity.groups),
            "known": identity.is_known,
            "clusterAdmin": identity.is_cluster_admin,
            "roles": identity.roles,
            "context": access.context,
            "server": access.server,
        }
        click.echo(document(answer, output))
    elif output == "name":
        click.echo(identity.user)
    else:
        say("\n".join(_lines(identity, access)))


@click.command("login", cls=Command)
def login() -> None:
    """Check the credentials of the kubeconfig. muster has no accounts of its own."""
    identity, access = run(_review)
    click.echo(
        f"You are {identity.user} at {access.server} (context {access.context}). "
        "muster has no login of its own: your user is that of the kubeconfig"
    )


@click.command("logout", cls=Command)
def logout() -> None:
    """Explain how to remove the credentials of the kubeconfig. muster stores none of its own."""
    click.echo(
        "muster keeps no login: to give up your credentials, "
        "remove the user from the kubeconfig with 'kubectl config delete-user NAME'"
    )


async def _review(client: "AsyncClient") -> "tuple[Identity, Access]":
    return await client.whoami(), client.access


def _lines(identity: "Identity", access: "Access") -> list[str]:
    known = "" if identity.is_known else " (by the kubeconfig: this server is too old to report the user)"
    lines = [
        f"User: {identity.user}{known}",
        f"Logged in Id: {identity.uid or '-'}",
        f"Groups: {','.join(identity.groups) or '-'}",
        f"Cluster: {access.context} ({access.server})",
        f"Cluster administrator: {'yes' if identity.is_cluster_admin else 'no'}",
        "",
    ]
    if identity.roles:
        return [*lines, table(HEADER, identity.roles.items())]
    return [*lines, "You have no role in any project: ask an administrator to make you a member of one"]
