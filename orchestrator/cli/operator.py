"""`muster operator-yaml` and `muster operator`: what a cluster needs, and the process that runs in it."""

import asyncio
import logging
import os
from pathlib import Path

import click


@click.command("operator-yaml")
@click.option(
    "--cluster", required=True, metavar="NAME", help="Name of the cluster, for people to recognise."
)
@click.option("--image", metavar="IMAGE", help="Image of the operator, for sites with a mirror.")
@click.option(
    "--replicas", type=click.IntRange(min=0), default=2, show_default=True, help="Replicas of the operator."
)
def operator_yaml(cluster: str, image: str | None, replicas: int) -> None:
    """Print what a cluster needs for muster: apply it with kubectl.

    Applying it again changes nothing.
    """
    from orchestrator.manifests.render import render

    click.echo(render(cluster, image=image, replicas=replicas), nl=False)


@click.command("operator")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Access to the cluster; in a pod its own account."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--identity", metavar="NAME", help="Name of this replica in the election. Default: the pod's name."
)
@click.option(
    "--loglevel",
    type=click.Choice(["debug", "info", "warn", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log to stderr.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Serve /healthz and /readyz on this port of POD_IP, without it of loopback. 0 takes a free one.",
)
def operator(
    kubeconfig: Path | None,
    context: str | None,
    identity: str | None,
    loglevel: str,
    health_port: int | None,
) -> None:
    """Run the orchestrator: the scheduling loop and the project controller."""
    from orchestrator.cluster.kubeconfig import load_access
    from orchestrator.control.operator import default_identity, operate

    logging.basicConfig(
        level={"warn": "WARNING"}.get(loglevel, loglevel.upper()),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        force=True,
    )
    host = "" if health_port is None else os.environ.get("POD_IP", "127.0.0.1")
    access = load_access(kubeconfig, context)
    asyncio.run(
        operate(access, identity or default_identity(), health_host=host, health_port=health_port or 0)
    )
