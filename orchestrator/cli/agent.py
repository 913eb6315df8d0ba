"""`muster agent`: watches the GPUs of the node where it runs. The operator YAML has it as a DaemonSet."""

import asyncio
import os
from pathlib import Path

import click

from orchestrator.cli.options import Command
from orchestrator.cli.serving import account_options, log_level_option, log_to_stderr
from orchestrator.errors import ConfigurationError


@click.command("agent", cls=Command)
@account_options
@click.option("--node", metavar="NAME", help="Name of this node. Default: NODE_NAME of the environment.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9410,
    show_default=True,
    help="Port of /metrics, /healthz and /readyz on the address POD_IP, or on loopback if POD_IP is "
    "not set. 0 takes a free port.",
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
    help="Root directory of the driver installation, for example /run/nvidia/driver. Default: the "
    "linker's search path.",
)
@click.option(
    "--host-root",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Directory with sys/class and sys/devices of the host. If it is given, the agent reads the health of the "
    "host every 5 minutes. If not, it removes its condition from the node.",
)
@click.option(
    "--kernel-log",
    type=click.Path(path_type=Path),
    metavar="FILE",
    hidden=True,
    help="File that is read instead of the kernel's log, for tests.",
)
@click.option(
    "--put-library",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Install the library that limits GPU memory into this directory, for the containers of jobs, "
    "and exit.",
)
@log_level_option()
def agent(
    *,
    kubeconfig: Path | None,
    context: str | None,
    node: str | None,
    port: int,
    pod_resources: Path,
    driver_root: Path | None,
    host_root: Path | None,
    kernel_log: Path | None,
    put_library: Path | None,
    loglevel: str,
) -> None:
    """Watch the GPUs and the host of this node.

    The agent serves metrics for Prometheus, and writes a GpuNode for `muster top`. For the scheduler, it writes failed
    GPUs and faults of the host into the node.
    """
    if put_library is not None:
        from orchestrator.agent.library import put

        put(put_library)
        return
    from orchestrator.agent.agent import AgentOptions, run_agent
    from orchestrator.cluster.kubeconfig import load_access

    name = node or os.environ.get("NODE_NAME")
    if not name:
        raise ConfigurationError(
            "the name of the node is missing: give --node, or set NODE_NAME in the environment"
        )
    log_to_stderr(loglevel)
    options = AgentOptions(
        name,
        pages_host=os.environ.get("POD_IP", "127.0.0.1"),
        pages_port=port,
        socket=pod_resources,
        driver_root=driver_root,
        host_root=host_root,
        kernel_log=kernel_log,
    )
    asyncio.run(run_agent(load_access(kubeconfig, context), options))
