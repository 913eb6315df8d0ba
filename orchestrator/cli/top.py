"""`muster top`: allocated amounts, and measured use.

Allocated amounts come from the pods and are exact. The use of CPU and memory comes from the kubelets, the use of GPUs
from the agents. If a kubelet or agent does not answer, or the user may not ask it, the table has `-`. Without agents,
the table has no columns for the use of GPUs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.gpus import GPU_HEADER, JOB_GPU_HEADER, USE_HEADER, gpu_row, job_gpu_rows, use_cells
from orchestrator.cli.message import say
from orchestrator.cli.nodes import PODS_HEADER, pod_row
from orchestrator.cli.options import Command, Group
from orchestrator.cli.output import (
    UNKNOWN,
    age,
    amount,
    cpus,
    no_headers_option,
    output_option,
    show,
    table,
)
from orchestrator.cluster.gpu_fraction import format_gpu

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.nodes import Nodes
    from orchestrator.views.gpus import GpuView
    from orchestrator.views.jobs import WorkloadView
    from orchestrator.views.nodes import NodePod, NodeView

NODES_HEADER: Final = ("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)")
UNHEALTHY_HEADER: Final = "GPU(Unhealthy)"
USAGE_HEADER: Final = ("CPU(Total)", "CPU(Used)", "MEMORY(Total)", "MEMORY(Used)")
JOBS_HEADER: Final = (
    "NAME",
    "PROJECT",
    "GPU(Requests)",
    "GPU(Allocated)",
    "STATUS",
    "TYPE",
    "AGE",
    "NODE",
    "CPU(Used)",
    "MEMORY(Used)",
)
_RULE: Final = "-" * 60


@click.group("top", cls=Group, aliases={"nodes": "node", "jobs": "job"}, no_args_is_help=True)
def top() -> None:
    """Show the GPUs that nodes and jobs hold, and their use."""


@top.command("node", cls=Command)
@click.option(
    "-d", "--details", is_flag=True, default=None, help="Show the GPUs and the pods of each node too."
)
@no_headers_option()
@output_option("json", "yaml")
def top_node(*, details: bool | None, no_headers: bool | None, output: str | None) -> None:
    """Show the GPUs of each node, the allocated GPUs, and the measurements of its kubelet and its agent."""
    from orchestrator.cli.session import run
    from orchestrator.views.nodes import gpu_totals, record

    nodes = run(lambda client: client.list_nodes(usage=True))
    _report_missing(nodes)
    views = nodes.views
    unhealthy = any(view.gpu_unhealthy_milli for view in views)
    measured = any(view.gpus for view in views)
    header = (
        *NODES_HEADER,
        *((UNHEALTHY_HEADER,) if unhealthy else ()),
        *USAGE_HEADER,
        *(USE_HEADER if measured else ()),
    )
    show(
        header,
        [node_row(view, unhealthy=unhealthy, measured=measured) for view in views],
        output=output,
        no_headers=no_headers,
        records=lambda: [record(view) for view in views],
        names=(),
    )
    if output is None and not no_headers:
        totals = gpu_totals(views)
        percent = "" if totals.allocated_percent is None else f" ({totals.allocated_percent}%)"
        click.echo(_RULE)
        click.echo("Allocated/Total GPUs In Cluster:")
        click.echo(f"{format_gpu(totals.allocated_milli)}/{format_gpu(totals.gpu_milli)}{percent}")
        if faulty := [view for view in views if view.host_fault]:
            count = "1 node reports" if len(faulty) == 1 else f"{len(faulty)} nodes report"
            say(
                "\n".join([f"{count} a host fault:", *(f"{view.name}: {view.host_fault}" for view in faulty)])
            )
        if details and views:
            say("\n".join(f"\n{_block(view)}" for view in views))


@top.command("job", cls=Command)
@click.option("-A", "--all-projects", is_flag=True, default=None, help="The jobs of all projects.")
@click.option("-d", "--details", is_flag=True, default=None, help="Show each GPU of each job too.")
@no_headers_option()
@output_option("json", "yaml")
def top_job(
    *, all_projects: bool | None, details: bool | None, no_headers: bool | None, output: str | None
) -> None:
    """Show the GPUs that each job requests and holds, and the measurements of kubelets and agents.

    Ended jobs are left out.
    """
    import time

    from orchestrator.cli.session import run
    from orchestrator.cluster.errors import Forbidden

    async def read(client: "AsyncClient") -> "tuple[list[WorkloadView], Nodes | Forbidden]":
        jobs = await client.list_jobs(all_projects=bool(all_projects))
        views = [view for view in jobs if not view.is_final]
        try:
            return views, await client.list_nodes(usage=True)
        except Forbidden as error:
            return views, error

    views, nodes = run(read)
    _report_missing(nodes)
    placed = (
        {} if isinstance(nodes, Forbidden) else {pod.uid: pod for view in nodes.views for pod in view.pods}
    )
    now_us = time.time_ns() // 1000
    gpus = {} if isinstance(nodes, Forbidden) else {view.name: view.gpus for view in nodes.views}
    measured = any(gpus.values())
    figures = [JobFigures(view, placed, gpus, now_us) for view in views]
    show(
        (*JOBS_HEADER, *(USE_HEADER if measured else ())),
        [figure.row(measured=measured) for figure in figures],
        output=output,
        no_headers=no_headers,
        records=lambda: [figure.record() for figure in figures],
        names=(),
    )
    if output is None and not no_headers:
        click.echo(f"Total Allocated GPUs: {format_gpu(sum(figure.allocated_milli for figure in figures))}")
        click.echo(f"Total Requested GPUs: {format_gpu(sum(figure.view.gpu_milli for figure in figures))}")
        if details:
            blocks = (
                f"NAME: {figure.view.name}\n{table(JOB_GPU_HEADER, job_gpu_rows(figure.gpus))}"
                for figure in figures
                if figure.gpus
            )
            say("\n".join(f"\n{block}" for block in blocks))


class JobFigures:
    """The allocation and use of one job.

    `placed` has the pods on visible nodes, by uid. `gpus` has the GPUs of nodes, by the name of the node.
    """

    def __init__(
        self,
        view: "WorkloadView",
        placed: "dict[str, NodePod]",
        gpus: "dict[str, tuple[GpuView, ...]]",
        now_us: int,
    ) -> None:
        from orchestrator.views.gpus import gpus_of_job, use_of

        self.view = view
        self.gpus = gpus_of_job(view.pods, gpus)
        self.use = use_of(self.gpus, view.pods)
        self._now_us = now_us
        node_pods = [placed[pod.metadata.uid] for pod in view.pods if pod.metadata.uid in placed]
        self.allocated_milli = sum(pod.gpu_milli for pod in node_pods) if placed else view.held_gpu_milli
        self.cpu_milli = _sum(pod.usage.cpu_milli for pod in node_pods)
        self.memory_bytes = _sum(pod.usage.memory_bytes for pod in node_pods)

    def row(self, *, measured: bool) -> Sequence[str]:
        """Return the cells of the job's row."""
        view = self.view
        return (
            view.name,
            view.project,
            view.gpus,
            format_gpu(self.allocated_milli),
            view.status,
            view.type,
            age((self._now_us - view.created_us) // 1_000_000),
            view.node,
            cpus(self.cpu_milli),
            amount(self.memory_bytes),
            *(use_cells(self.use) if measured else ()),
        )

    def record(self) -> dict[str, Any]:
        """Return the figures for programs; unmeasured figures are null."""
        from orchestrator.views.gpus import record as gpu_record

        view = self.view
        return {
            "name": view.name,
            "project": view.project,
            "gpusRequested": view.gpus,
            "gpusAllocated": format_gpu(self.allocated_milli),
            "status": view.status,
            "type": view.type,
            "ageSeconds": max(0, self._now_us - view.created_us) // 1_000_000,
            "node": view.node,
            "cpuMilliUsed": self.cpu_milli,
            "memoryBytesUsed": self.memory_bytes,
            "gpuUtilizationPercent": self.use.utilization_percent,
            "gpuMemoryBytesUsed": self.use.memory_used_bytes,
            "gpuIdleSeconds": self.use.idle_seconds,
            "gpuDetails": [gpu_record(gpu) for gpu in self.gpus],
        }


def _sum(figures: "Any") -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def node_row(view: "NodeView", *, unhealthy: bool, measured: bool) -> Sequence[str]:
    """Return the cells of one node. The flags select optional columns."""
    from orchestrator.views.gpus import use_of

    return (
        view.name,
        view.address,
        view.role,
        view.status,
        format_gpu(view.gpu_milli),
        format_gpu(view.gpu_allocated_milli),
        *((format_gpu(view.gpu_unhealthy_milli),) if unhealthy else ()),
        cpus(view.cpu_milli),
        cpus(view.usage.cpu_milli),
        amount(view.memory_bytes),
        amount(view.usage.memory_bytes),
        *(use_cells(use_of(view.gpus)) if measured else ()),
    )


def _block(view: "NodeView") -> str:
    total, allocated = format_gpu(view.gpu_milli), format_gpu(view.gpu_allocated_milli)
    gpus = f"{table(GPU_HEADER, map(gpu_row, view.gpus))}\n\n" if view.gpus else ""
    return (
        f"NAME: {view.name}\nIPADDRESS: {view.address or UNKNOWN}\nROLE: {view.role}\n\n{gpus}"
        f"{table(PODS_HEADER, map(pod_row, view.pods))}\n\n"
        f"Total GPUs In Node {view.name}: {total}\nAllocated GPUs In Node {view.name}: {allocated}"
    )


def _report_missing(nodes: "Nodes | Exception") -> None:
    if isinstance(nodes, Exception):
        click.echo("Note: the use is not shown: you may not list nodes and all pods", err=True)
    elif nodes.denied is not None:
        click.echo("Note: the use is not shown: you may not get nodes/proxy", err=True)
