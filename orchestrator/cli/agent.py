"""`muster agent`: watches the GPUs of the node where it runs. The operator YAML has it as a DaemonSet."""

import asyncio
import logging
import os
from pathlib import Path

import click

from orchestrator.cli.options import Command
from orchestrator.errors import ConfigurationError


@click.command("agent", cls=Command)
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Access to the cluster; in a pod its own account."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option("--node", metavar="NAME", help="Name of this node. Default: NODE_NAME of the environment.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9410,
    show_default=True,
    help="Serve /metrics, /healthz and /readyz on this port of POD_IP, without it of loopback. 0 takes a free one.",
)
@click.option(
    "--pod-resources",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    show_default=True,
    help="The kubelet's socket.",
)
@click.option(
    "--driver-root",
    type=click.Path(path_type=Path),
    help="Directory that has the driver as / has it on the node. Default: where the linker finds it.",
)
@click.option(
    "--put-library",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Put the library that limits device memory into this directory, for the containers of jobs, and end.",
)
@click.option(
    "--loglevel",
    type=click.Choice(["debug", "info", "warn", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much to log to stderr.",
)
def agent(
    *,
    kubeconfig: Path | None,
    context: str | None,
    node: str | None,
    port: int,
    pod_resources: Path,
    driver_root: Path | None,
    put_library: Path | None,
    loglevel: str,
) -> None:
    """Watch the GPUs of this node: metrics for Prometheus, a GpuNode for `muster top`, failures for the scheduler."""
    if put_library is not None:
        from orchestrator.agent.library import put

        put(put_library)
        return
    from orchestrator.agent.agent import AgentOptions, run_agent
    from orchestrator.cluster.kubeconfig import load_access

    name = node or os.environ.get("NODE_NAME")
    if not name:
        raise ConfigurationError("the node has no name: give --node, or NODE_NAME in the environment")
    logging.basicConfig(
        level={"warn": "WARNING"}.get(loglevel, loglevel.upper()),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        force=True,
    )
    options = AgentOptions(
        name,
        pages_host=os.environ.get("POD_IP", "127.0.0.1"),
        pages_port=port,
        socket=pod_resources,
        driver_root=driver_root,
    )
    asyncio.run(run_agent(load_access(kubeconfig, context), options))
