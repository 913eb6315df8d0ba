"""Nodes on the command line: `list nodes`, `get node`, and the rows of `top node`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.gpus import GPU_HEADER, gpu_row
from orchestrator.cli.output import amount, cpus, document, fact_lines, show, table
from orchestrator.cluster.gpu_fraction import format_gpu

if TYPE_CHECKING:
    from orchestrator.views.nodes import NodePod, NodeView

HEADER: Final = (
    "NAME",
    "STATUS",
    "IP Address",
    "ROLE",
    "CPU ALLOCATABLE",
    "CPU ALLOCATED",
    "MEMORY ALLOCATABLE",
    "MEMORY ALLOCATED",
    "GPU TYPE",
    "GPU ALLOCATABLE",
    "GPU FREE",
)
WIDE_HEADER: Final = (*HEADER, "GPU MEMORY", "NODE TYPE", "PODS", "UNHEALTHY", "UNHEALTHY GPUS")
PODS_HEADER: Final = ("NAMESPACE", "NAME", "GPU REQUESTS", "GPU DEVICES", "CPU", "MEMORY")


def show_nodes(*, output: str | None, no_headers: bool | None) -> None:
    """Print all nodes."""
    from orchestrator.cli.session import run
    from orchestrator.views.nodes import record

    views = run(lambda client: client.list_nodes()).views
    wide = output == "wide"
    show(
        WIDE_HEADER if wide else HEADER,
        [row(view, wide=wide) for view in views],
        output=output,
        no_headers=no_headers,
        records=lambda: [record(view) for view in views],
        names=[view.name for view in views],
    )


def show_node(name: str, *, output: str | None) -> None:
    """Print one node and the pods on it."""
    from orchestrator.cli.session import run
    from orchestrator.views.nodes import record

    view = run(lambda client: client.get_node(name))
    if output in ("json", "yaml"):
        click.echo(document(record(view), output))
    elif output == "name":
        click.echo(view.name)
    elif output == "wide":
        click.echo(table(WIDE_HEADER, [row(view, wide=True)]))
    else:
        click.echo(_details(view))


def pod_row(pod: "NodePod") -> Sequence[str]:
    """Return the cells of a pod on a node."""
    gpus = format_gpu(pod.gpu_milli)
    return (
        pod.namespace,
        pod.name,
        gpus,
        pod.devices,
        cpus(pod.cpu_milli),
        amount(pod.memory_bytes),
    )


def row(view: "NodeView", *, wide: bool) -> Sequence[str]:
    """Return the cells of one node."""
    cells = (
        view.name,
        view.status,
        view.address,
        view.role,
        cpus(view.cpu_milli),
        cpus(view.cpu_allocated_milli),
        amount(view.memory_bytes),
        amount(view.memory_allocated_bytes),
        view.gpu_product,
        format_gpu(view.gpu_milli - view.gpu_unhealthy_milli),
        format_gpu(view.gpu_free_milli),
    )
    if not wide:
        return cells
    memory = amount(view.gpu_memory_bytes or None)
    pods = str(len(view.pods))
    return (*cells, memory, view.node_type, pods, view.unhealthy, view.unhealthy_gpus_text)


def _details(view: "NodeView") -> str:
    facts = {
        "NAME": view.name,
        "STATUS": view.status,
        "UNHEALTHY": view.unhealthy,
        "HOST FAULT": view.host_fault,
        "IP ADDRESS": view.address,
        "ROLE": view.role,
        "NODE TYPE": view.node_type,
        "GPU TYPE": view.gpu_product,
        "GPU MEMORY": amount(view.gpu_memory_bytes) if view.gpu_memory_bytes else "",
        "GPUS": format_gpu(view.gpu_milli),
        "ALLOCATED GPUS": format_gpu(view.gpu_allocated_milli),
        "UNHEALTHY GPUS": view.unhealthy_gpus_text,
        "CPUS": cpus(view.cpu_milli),
        "ALLOCATED CPUS": cpus(view.cpu_allocated_milli),
        "USED CPUS": cpus(view.usage.cpu_milli),
        "MEMORY": amount(view.memory_bytes),
        "ALLOCATED MEMORY": amount(view.memory_allocated_bytes),
        "USED MEMORY": amount(view.usage.memory_bytes),
    }
    lines = fact_lines({title: fact for title, fact in facts.items() if fact})
    gpus = f"\n\nGPUs:\n{table(GPU_HEADER, map(gpu_row, view.gpus))}" if view.gpus else ""
    return f"{lines}{gpus}\n\nPods:\n{table(PODS_HEADER, map(pod_row, view.pods))}"
