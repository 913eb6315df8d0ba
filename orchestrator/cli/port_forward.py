"""`muster port-forward`: local ports that lead to a job."""

from collections.abc import Sequence

import click

from orchestrator.cli import terminal
from orchestrator.cli.cluster_names import completing
from orchestrator.cli.execute import container_options, patience, running
from orchestrator.cli.options import Command
from orchestrator.cli.session import FLAGS, naming_flags, run
from orchestrator.client.aio import AsyncClient
from orchestrator.client.port_forward import (
    LOOPBACK,
    ForwardedPort,
    listening,
    parse_address,
    parse_forwarded_port,
)
from orchestrator.client.streams import StreamClient
from orchestrator.client.targets import NotRunning, Target
from orchestrator.errors import UsageError


@click.command("port-forward", cls=Command, no_args_is_help=True)
@click.argument("name", metavar="JOB", shell_complete=completing("jobs"))
@click.argument("ports", nargs=-1, metavar="[LOCAL:]REMOTE...")
@click.option(
    "--port",
    "more_ports",
    multiple=True,
    metavar="LOCAL:REMOTE",
    help="The same as the argument LOCAL:REMOTE.",
)
@click.option(
    "--address",
    multiple=True,
    metavar="IP",
    help=f"Where to listen; default: {LOOPBACK}. 0.0.0.0 lets others in.",
)
@container_options("1m")
def port_forward(
    *,
    name: str,
    ports: tuple[str, ...],
    more_ports: tuple[str, ...],
    address: tuple[str, ...],
    pod: str | None,
    container: str | None,
    wait_timeout: str,
) -> None:
    """Forward local ports to the ports of a job until Ctrl-C: muster port-forward JOB 8080:80."""
    with naming_flags(FLAGS):
        forwards = [parse_forwarded_port(text) for text in (*ports, *more_ports)]
        addresses = [parse_address(part) for text in address for part in text.split(",")] or [LOOPBACK]
    if not forwards:
        raise UsageError(f"a port is missing: muster port-forward {name} LOCAL:REMOTE")
    locals_ = [port.local for port in forwards if port.local]
    if len(set(locals_)) < len(locals_):
        raise UsageError("a local port is given twice: forward each local port once")

    async def forward(client: AsyncClient) -> None:
        streams, target = await running(client, name, pod, container, patience(wait_timeout))
        await forwarded(streams, target, forwards, addresses)

    run(forward)


async def forwarded(
    streams: StreamClient,
    target: Target,
    ports: Sequence[ForwardedPort],
    addresses: Sequence[str] = (LOOPBACK,),
    say: str = "Forwarding from {}",
) -> None:
    """Forward until an interrupt. Raises NotRunning when the pod ends."""
    async with listening(streams, target, ports, addresses, report=terminal.report) as listeners:
        for listener in listeners:
            click.echo(say.format(listener, local=listener.local))
        subject = await streams.end_of(target)
    raise NotRunning(
        f"pod {target.pod.metadata.name} has ended ({subject}): a pod that has ended has no ports"
    )
