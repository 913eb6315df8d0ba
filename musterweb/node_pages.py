"""The pages of nodes: the table of the overview, and each node with its GPUs, from the person's sight
(`musterweb.sights`).
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from musterweb.page import Page, Pager, Visit, address
from musterweb.table import Table, columns
from orchestrator.cli import nodes
from orchestrator.cli.gpus import GPU_HEADER, gpu_row, percent
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.views.gpus import GpuView, use_of
from orchestrator.views.nodes import NodeView

NODES_OF_A_PAGE: Final = 50
OLD_SECONDS: Final = 60
"""Age from which figures of GPUs are marked as old: agents write small changes only every 5 minutes."""
NODE_COLUMNS: Final = (
    "NAME", "STATUS", "GPU TYPE", "GPUs", "ALLOCATED", "FREE", "UNHEALTHY", "UTILIZATION", "OBSERVED",
)  # fmt: skip
GPU_COLUMNS: Final = ("GPU", "PODS", "UTILIZATION", "MEMORY USAGE", "MEMORY", "IDLE TIME", "HEALTH", "UUID")
"""PODS is the second column, because a phone does not show the last columns."""
NO_NODES: Final = "You may not list nodes and all pods: ask for muster-viewer, bound in the whole cluster."


def nodes_table(visit: Visit) -> Table:
    """Return the table of all nodes. Each row links to the page with the GPUs of its node."""
    return Table(
        "nodes", "Nodes", NODE_COLUMNS, [_node_row(visit, view) for view in visit.sight.nodes or ()],
        link=lambda row: address("/nodes", node=row[0]), csv="/nodes.csv", empty="The cluster has no nodes.",
    )  # fmt: skip


def _node_row(visit: Visit, view: NodeView) -> Sequence[str]:
    wide = dict(zip(nodes.WIDE_HEADER, nodes.row(view, wide=True), strict=True))
    return (
        view.name,
        view.status,
        wide["GPU TYPE"],
        format_gpu(view.gpu_milli),
        format_gpu(view.gpu_allocated_milli),
        wide["GPU FREE"],
        format_gpu(view.gpu_unhealthy_milli),
        percent(use_of(view.gpus).utilization_percent),
        old_time(view.gpus, visit.now_us),
    )


def old_time(gpus: Iterable[GpuView], now_us: int) -> str:
    """Return the time of the oldest figures; "" if they are at most `OLD_SECONDS` old."""
    observed_us = min((gpu.observed_us for gpu in gpus if gpu.observed_us), default=now_us)
    return f"old: {_clock_time(observed_us)}" if _is_old(observed_us, now_us) else ""


def old_figures(visit: Visit) -> list[str]:
    """Return a sentence with the number of nodes whose figures of GPUs are old; empty if there are none."""
    known = [gpus[0].observed_us for gpus in visit.sight.gpus.values() if gpus and gpus[0].observed_us]
    old = [observed_us for observed_us in known if _is_old(observed_us, visit.now_us)]
    if not old:
        return []
    nodes_of_all = f"{len(old)} of {len(known)} nodes"
    oldest = _clock_time(min(old))
    return [f"Old: the figures of GPUs on {nodes_of_all} are more than a minute old, the oldest at {oldest}."]


def _is_old(observed_us: int, now_us: int) -> bool:
    return now_us - observed_us > OLD_SECONDS * 1_000_000


def _clock_time(at_us: int, form: str = "%H:%M:%S UTC") -> str:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime(form)


async def nodes_page(visit: Visit) -> Page:
    """Return the page with each node, or the node in the query, and its GPUs with their pods and state."""
    every, name = visit.sight.nodes, visit.query.get("node", "")
    content: dict[str, Any] = {"tables": [], "note": NO_NODES, "pager": None, "name": "", "files": {}}
    if every is None:
        return Page("Nodes", "nodes.html.j2", content)
    views = [view for view in every if name in ("", view.name)]
    pager = Pager.of(visit, len(views), NODES_OF_A_PAGE, "/nodes", node=name)
    note = f"There is no node {name}." if name else "The cluster has no nodes."
    content |= {
        "tables": [_gpus_table(visit, view) for view in views[pager.start : pager.end]],
        "note": "" if views else note,
        "pager": pager,
        "name": name,
        "files": {"Nodes": address("/nodes.csv", node=name), "GPUs": address("/gpus.csv", node=name)},
    }
    rows = [
        (view.name, *gpu_row(gpu), _clock_time(gpu.observed_us, "%Y-%m-%d %H:%M:%S UTC") if gpu.observed_us else "")
        for view in views
        for gpu in view.gpus
    ]  # fmt: skip
    return Page(
        "Nodes",
        "nodes.html.j2",
        content,
        (
            Table("nodes", "Nodes", nodes.WIDE_HEADER, [nodes.row(view, wide=True) for view in views]),
            Table("gpus", "GPUs", ("NODE", *GPU_HEADER, "OBSERVED"), rows),
        ),
    )


def _gpus_table(visit: Visit, view: NodeView) -> Table:
    return Table(
        f"node-{view.name}", view.name, GPU_COLUMNS,
        [columns(GPU_HEADER, gpu_row(gpu), GPU_COLUMNS) for gpu in view.gpus],
        empty="The use of its GPUs is unknown: no agent of muster reports this node.",
        note=_node_line(nodes.row(view, wide=True), old_time(view.gpus, visit.now_us)),
    )  # fmt: skip


def _node_line(cells: Sequence[str], old: str) -> str:
    facts = dict(zip(nodes.WIDE_HEADER, cells, strict=True))
    words = [
        facts["STATUS"],
        facts["GPU TYPE"],
        f"{facts['GPU FREE']} of {facts['GPU ALLOCATABLE']} GPUs free",
        f"{facts['CPU ALLOCATED']} of {facts['CPU ALLOCATABLE']} CPUs allocated",
        f"{facts['MEMORY ALLOCATED']} of {facts['MEMORY ALLOCATABLE']} memory allocated",
        f"{facts['PODS']} pods",
        f"unhealthy: {facts['UNHEALTHY']}" if facts["UNHEALTHY"] else "",
        f"the figures of its GPUs are {old}" if old else "",
    ]
    return ", ".join(filter(None, words))
