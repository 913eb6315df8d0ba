"""`muster operator-yaml` and `muster operator`: the manifests for a cluster, and the process in it."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from orchestrator.cli.deployment_options import config_of, web_of, with_config_options, with_web_options
from orchestrator.cli.message import say
from orchestrator.cli.serving import account_options, log_level_option, log_to_stderr
from orchestrator.control.operator_config import MemoryLimitsMode, OperatorConfig
from orchestrator.errors import UsageError
from orchestrator.names import IMAGE_VARIABLE, LAST_OBJECT_VARIABLE


@click.command("operator-yaml")
@click.option("--cluster", required=True, metavar="NAME", help="Display name of the cluster.")
@click.option("--image", metavar="IMAGE", help="Image of the operator, for example from the site's mirror.")
@click.option(
    "--replicas",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Number of replicas of the operator.",
)
@click.option(
    "--require-devices-variable",
    is_flag=True,
    help="Refuse pods whose containers do not set NVIDIA_VISIBLE_DEVICES. For nodes whose container "
    "runtime obeys the variable in images.",
)
@click.option(
    "--agent/--no-agent",
    default=None,
    help="Run an agent on each node that watches its GPUs. Default: yes, unless --replicas is 0.",
)
@click.option(
    "--agent-runtime-class",
    metavar="NAME",
    default="",
    help="RuntimeClass of the agents, for nodes whose default is not NVIDIA's container runtime.",
)
@click.option(
    "--agent-driver-root",
    metavar="DIRECTORY",
    default="",
    help="Root directory of the driver on the nodes, for example /. For nodes whose container runtime "
    "ignores NVIDIA_VISIBLE_DEVICES. The agents are then privileged.",
)
@click.option(
    "--host-health",
    type=click.Choice(["agent", "other"]),
    default="agent",
    show_default=True,
    help="Owner of the health of hosts. With agent, the agents read it, and nodes with a fault get no new pods. With "
    "other, the agents do not read it.",
)
@with_web_options
@with_config_options
@click.option(
    "--helm",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write a Helm chart into this new directory instead of printing. The options that are given "
    "here become its values.",
)
def operator_yaml(
    *,
    helm: Path | None,
    cluster: str,
    image: str | None,
    replicas: int,
    require_devices_variable: bool,
    agent: bool | None,
    agent_runtime_class: str,
    agent_driver_root: str,
    host_health: str,
    web: bool,
    **config: Any,
) -> None:
    """Print the manifests of muster for `kubectl apply`, or write a Helm chart of them.

    The manifests can be applied repeatedly. They start the operator with the options that are given here.
    """
    choices = {name: config.pop(name) for name in list(config) if name.startswith("web_")}
    from orchestrator.manifests.render import default_image

    if image is None and replicas:
        name = default_image()
        say(
            f"Warning: the image is {name}, without a registry, so it must be on each node; give --image "
            f"REGISTRY/{name} for an image of a registry",
            err=True,
        )
    text = operator_manifests(
        cluster,
        config_of(**config),
        image=image,
        replicas=replicas,
        require_devices_variable=require_devices_variable,
        agent=agent,
        runtime_class=agent_runtime_class,
        driver_root=agent_driver_root,
        reads_hosts=host_health == "agent",
        web=web_of(web=web, **choices),
    )
    if helm is None:
        click.echo(text, nl=False)
    else:
        from orchestrator.cli.helm_chart import write_chart

        values = {name: value for name, value in click.get_current_context().params.items() if name != "helm"}
        options = [option for option in operator_yaml.params if isinstance(option, click.Option)]
        write_chart(helm, [option for option in options if option.name in values], values)


def operator_manifests(
    cluster: str, choices: OperatorConfig | None = None, *, image: str | None = None, **options: Any
) -> str:
    """Return the manifests for these choices; `options` are further options of `render`.

    Raises UsageError if `cluster` is not a valid label value.
    """
    from orchestrator.manifests.render import render
    from orchestrator.submit.name_rules import is_label_value

    if not is_label_value(cluster):
        raise UsageError(
            f"the name {cluster!r} is not possible: use up to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    choices = OperatorConfig() if choices is None else choices
    return render(
        cluster,
        image=image,
        operator_arguments=choices.arguments(),
        policies=choices.policies,
        max_grace_seconds=choices.max_checkpoint_grace_seconds,
        limits_gpu_memory=choices.gpu_memory_limits is MemoryLimitsMode.ENFORCE,
        taints_nodes=choices.out_of_service_after_seconds is not None,
        **options,
    )


@click.command("operator")
@account_options
@click.option(
    "--identity",
    metavar="NAME",
    help="Name of this replica in the leader election; a unique suffix is added. Default: the name of "
    "the pod.",
)
@log_level_option()
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    help="Port of /healthz, /readyz and /metrics on the address POD_IP, or on loopback if POD_IP is "
    "not set. 0 takes a free port.",
)
@with_config_options
def operator(
    kubeconfig: Path | None,
    context: str | None,
    identity: str | None,
    loglevel: str,
    health_port: int | None,
    **config: Any,
) -> None:
    """Run the operator: the scheduler and the project controller."""
    from orchestrator.cluster.kubeconfig import load_access
    from orchestrator.control.operator import default_name, operate

    log_to_stderr(loglevel)
    host = "" if health_port is None else os.environ.get("POD_IP", "127.0.0.1")
    access = load_access(kubeconfig, context)
    asyncio.run(
        operate(
            access,
            identity or default_name(),
            config=config_of(**config),
            image=os.environ.get(IMAGE_VARIABLE, ""),
            health_host=host,
            health_port=health_port or 0,
            last_object=Path(file) if (file := os.environ.get(LAST_OBJECT_VARIABLE)) else None,
        )
    )
