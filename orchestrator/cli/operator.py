"""`muster operator-yaml` and `muster operator`: what a cluster needs, and the process that runs in it."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.control.operator_config import (
    MAX_CHECKPOINT_GRACE_SECONDS,
    MAX_PROJECT_OBJECTS,
    MEMORY_GRACE_SECONDS,
    UNLIMITED,
    MemoryLimitsMode,
    OperatorConfig,
)
from orchestrator.errors import UsageError
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings
from orchestrator.workloads.protection import PolicyMode

_LABEL: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def _duration(seconds: int | None) -> str:
    """Return seconds as an option takes them: `90s`, `2m`; None is `never`."""
    if seconds is None:
        return "never"
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


_CONFIG_OPTIONS: Final = (
    click.option(
        "--max-evictions",
        type=click.IntRange(min=0),
        metavar="N",
        help="Evict at most so many pods in one decision. Default: as many as are due.",
    ),
    click.option(
        "--not-ready-grace",
        metavar="DURATION",
        default=_duration(DEFAULT_SETTINGS.not_ready_grace_seconds),
        show_default=True,
        help="So long a node may be not ready before its preemptible work is moved.",
    ),
    click.option(
        "--reservation-after",
        metavar="DURATION",
        default=_duration(DEFAULT_SETTINGS.reservation_after_seconds),
        show_default=True,
        help="Keep GPUs for a large job that has waited for so long; never: not at all.",
    ),
    click.option(
        "--stale-grace",
        metavar="DURATION",
        default=_duration(DEFAULT_SETTINGS.stale_grace_seconds),
        show_default=True,
        help="So long what is left of a gang that lost a member may go on.",
    ),
    click.option(
        "--max-moves",
        type=click.IntRange(min=0),
        metavar="N",
        default=DEFAULT_SETTINGS.max_consolidation_victims,
        show_default=True,
        help="Move at most so many pods to make room for one job. 0: none.",
    ),
    click.option("--spread", is_flag=True, help="Start on the emptiest node instead of the fullest."),
    click.option(
        "--topology-level",
        multiple=True,
        metavar="LABEL",
        help="A node label that jobs may name as a level of topology; from the widest to the closest, repeatable.",
    ),
    click.option(
        "--max-checkpoint-grace",
        metavar="DURATION",
        default=_duration(MAX_CHECKPOINT_GRACE_SECONDS),
        show_default=True,
        help="At most so much time an evicted pod may ask for to save its work.",
    ),
    click.option(
        "--policies",
        type=click.Choice([mode.value for mode in PolicyMode]),
        default=PolicyMode.DENY.value,
        show_default=True,
        help="What happens to objects in projects' namespaces that break a policy; off: there are none.",
    ),
    click.option(
        "--gpu-memory-limits",
        type=click.Choice([mode.value for mode in MemoryLimitsMode]),
        default=MemoryLimitsMode.OFF.value,
        show_default=True,
        help="Whether containers with a part of a GPU are held to it; enforce: by the library that agents put on "
        "their nodes, and by a watch over what their processes have.",
    ),
    click.option(
        "--gpu-memory-grace",
        metavar="DURATION",
        default=_duration(MEMORY_GRACE_SECONDS),
        show_default=True,
        help="So long a pod may have more memory of a GPU than its part before it is evicted; never: only warned.",
    ),
    click.option(
        "--reservation-image",
        metavar="IMAGE",
        default="",
        help="Image, with `sleep`, of the pods that hold GPUs of device plugins for pods with parts of them. "
        "Default: the operator's.",
    ),
    click.option(
        "--parts-wait-for-agent",
        is_flag=True,
        help="Let pods with parts of GPUs of a device plugin wait where no agent names the GPUs, instead of running "
        "without a device.",
    ),
    click.option(
        "--no-network-policy",
        is_flag=True,
        help="Leave the namespaces of projects without NetworkPolicies.",
    ),
    click.option(
        "--max-project-pods",
        metavar="N",
        default=str(MAX_PROJECT_OBJECTS),
        show_default=True,
        help="At most so many pods may be in a project's namespace whose Project says nothing else; unlimited.",
    ),
    click.option(
        "--max-project-jobs",
        metavar="N",
        default=str(MAX_PROJECT_OBJECTS),
        show_default=True,
        help="The same for Jobs, those that have ended among them.",
    ),
)


def _count(option: str, text: str) -> int | None:
    """Return how many; None is `unlimited`."""
    if text == UNLIMITED:
        return None
    if not re.fullmatch("[0-9]{1,8}", text) or not int(text):
        raise UsageError(f"{option} {text!r} is not possible: give a number from 1, or {UNLIMITED}")
    return int(text)


def _with_config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_CONFIG_OPTIONS):
        function = option(function)
    return function


def _config(
    *,
    max_evictions: int | None,
    not_ready_grace: str,
    reservation_after: str,
    stale_grace: str,
    max_moves: int,
    spread: bool,
    topology_level: tuple[str, ...],
    max_checkpoint_grace: str,
    policies: str,
    gpu_memory_limits: str,
    gpu_memory_grace: str,
    reservation_image: str,
    parts_wait_for_agent: bool,
    no_network_policy: bool,
    max_project_pods: str,
    max_project_jobs: str,
) -> OperatorConfig:
    from orchestrator.workloads.parsing import parse_duration_seconds

    def seconds(option: str, text: str) -> int:
        return parse_duration_seconds(option, text) or 0

    for level in topology_level:
        if not _LABEL.fullmatch(level) or topology_level.count(level) > 1:
            raise UsageError(
                f"--topology-level {level!r} is not possible: give the key of a node label, each once"
            )
    limits = MemoryLimitsMode(gpu_memory_limits)
    if limits is MemoryLimitsMode.ENFORCE and PolicyMode(policies) is PolicyMode.OFF:
        raise UsageError(
            "--gpu-memory-limits enforce needs policies: without them Pod Security refuses the library's directory, "
            "and whoever made a pod could change its limit; leave out --policies off"
        )
    memory_grace = None if gpu_memory_grace == "never" else seconds("--gpu-memory-grace", gpu_memory_grace)
    never = reservation_after == "never"
    settings = Settings(
        max_consolidation_victims=max_moves,
        max_evictions=max_evictions,
        stale_grace_seconds=seconds("--stale-grace", stale_grace),
        spread=spread,
        not_ready_grace_seconds=seconds("--not-ready-grace", not_ready_grace),
        reservation_after_seconds=None if never else seconds("--reservation-after", reservation_after),
        topology_levels=topology_level,
    )
    max_grace_seconds = seconds("--max-checkpoint-grace", max_checkpoint_grace)
    return OperatorConfig(
        settings,
        max_checkpoint_grace_seconds=max_grace_seconds,
        policies=PolicyMode(policies),
        gpu_memory_limits=limits,
        gpu_memory_grace_seconds=memory_grace,
        reservation_image=reservation_image,
        parts_wait_for_agent=parts_wait_for_agent,
        network_policy=not no_network_policy,
        max_project_pods=_count("--max-project-pods", max_project_pods),
        max_project_jobs=_count("--max-project-jobs", max_project_jobs),
    )


@click.command("operator-yaml")
@click.option(
    "--cluster", required=True, metavar="NAME", help="Name of the cluster, for people to recognise."
)
@click.option("--image", metavar="IMAGE", help="Image of the operator, for sites with a mirror.")
@click.option(
    "--replicas", type=click.IntRange(min=0), default=2, show_default=True, help="Replicas of the operator."
)
@click.option(
    "--require-devices-variable",
    is_flag=True,
    help="Refuse pods whose containers leave NVIDIA_VISIBLE_DEVICES to their image: for nodes that obey it.",
)
@click.option(
    "--agent/--no-agent",
    default=None,
    help="Whether agents watch the GPUs on their nodes. Default: yes, unless --replicas is 0.",
)
@click.option(
    "--agent-runtime-class",
    metavar="NAME",
    default="",
    help="RuntimeClass of the agents, where NVIDIA's container runtime is not the nodes' default.",
)
@click.option(
    "--agent-driver-root",
    metavar="DIRECTORY",
    default="",
    help="Where the driver is on the nodes, / for instance: for nodes whose container runtime gives containers no GPUs "
    "when they ask by NVIDIA_VISIBLE_DEVICES. The agents are then privileged.",
)
@_with_config_options
def operator_yaml(
    *,
    cluster: str,
    image: str | None,
    replicas: int,
    require_devices_variable: bool,
    agent: bool | None,
    agent_runtime_class: str,
    agent_driver_root: str,
    **config: Any,
) -> None:
    """Print what a cluster needs for muster: apply it with kubectl.

    Applying it again changes nothing. The operator is started with the choices made here.
    """
    text = operator_manifests(
        cluster,
        _config(**config),
        image=image,
        replicas=replicas,
        require_devices_variable=require_devices_variable,
        agent=agent,
        runtime_class=agent_runtime_class,
        driver_root=agent_driver_root,
    )
    click.echo(text, nl=False)


def operator_manifests(
    cluster: str, choices: OperatorConfig | None = None, *, image: str | None = None, **options: Any
) -> str:
    """Return what a cluster needs for muster, for these choices; `options` are those of `render` besides.

    Reservations use the operator's image, unless another is chosen.

    Raises UsageError for a name that cannot be the label that it becomes.
    """
    from orchestrator.manifests.render import render
    from orchestrator.workloads.name_rules import is_label_value

    if not is_label_value(cluster):
        raise UsageError(
            f"the name {cluster!r} is not possible: use up to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    choices = OperatorConfig() if choices is None else choices
    choices = replace(choices, reservation_image=choices.reservation_image or image or "")
    return render(
        cluster,
        image=image,
        operator_arguments=choices.arguments(),
        policies=choices.policies,
        max_grace_seconds=choices.max_checkpoint_grace_seconds,
        limits_gpu_memory=choices.gpu_memory_limits is MemoryLimitsMode.ENFORCE,
        **options,
    )


@click.command("operator")
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Access to the cluster; in a pod its own account."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--identity",
    metavar="NAME",
    help="Name of this replica in the election, to which it adds what makes it unique. Default: the pod's name.",
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
    help="Serve /healthz, /readyz and /metrics on this port of POD_IP, without it of loopback. 0 takes a free one.",
)
@_with_config_options
def operator(
    kubeconfig: Path | None,
    context: str | None,
    identity: str | None,
    loglevel: str,
    health_port: int | None,
    **config: Any,
) -> None:
    """Run the orchestrator: the scheduling loop and the project controller."""
    from orchestrator.cluster.kubeconfig import load_access
    from orchestrator.control.operator import default_name, operate

    logging.basicConfig(
        level={"warn": "WARNING"}.get(loglevel, loglevel.upper()),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        force=True,
    )
    host = "" if health_port is None else os.environ.get("POD_IP", "127.0.0.1")
    access = load_access(kubeconfig, context)
    asyncio.run(
        operate(
            access,
            identity or default_name(),
            config=_config(**config),
            health_host=host,
            health_port=health_port or 0,
        )
    )
