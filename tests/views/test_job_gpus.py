"""GPUs that jobs hold and request, including requests of GPU memory, on the pages and in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from musterweb.recorder import Sampler
from musterweb.sights import Sight
from orchestrator import names
from orchestrator.cluster.objects import Node, Pod, Project
from orchestrator.views.job_gpus import GpusOfJobs
from orchestrator.views.jobs import Listing, WorkloadView, workload_views
from orchestrator.views.nodes import node_views
from tests.views.test_jobs import NAMESPACE, PROJECTS, metadata

if TYPE_CHECKING:
    from orchestrator.views.nodes import NodeView

BY_MEMORY = {names.GPU_MEMORY_ANNOTATION: "8Gi", names.GPU_FRACTION_DEVICES_ANNOTATION: "2"}
BY_PART = {names.GPU_FRACTION_ANNOTATION: "0.25"}


def pod(name: str, node: str, annotations: dict[str, str]) -> Pod:
    body: dict[str, Any] = {
        "metadata": metadata(name, annotations=annotations),
        "spec": {
            "schedulerName": "muster",
            "nodeName": node,
            "containers": [{"name": "main", "image": "image"}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }
    return msgspec.convert(body, Pod)


def node(name: str, memory_mib: int) -> Node:
    labels = {"nvidia.com/gpu.memory": str(memory_mib)}
    amounts = {"nvidia.com/gpu": "2", "cpu": "8", "memory": "64Gi", "pods": "110"}
    body = {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    return msgspec.convert(body, Node)


def seen() -> tuple[list[WorkloadView], list[NodeView]]:
    """Return four jobs and two nodes: two jobs run on `large` with 32 GiB GPUs, and two like them wait; `small` has 16
    GiB GPUs.
    """
    pods = [
        pod("runs", "large", BY_MEMORY),
        pod("part", "large", BY_PART),
        pod("waits", "", BY_MEMORY),
        pod("part-waits", "", BY_PART),
    ]
    nodes = node_views([node("small", 16_384), node("large", 32_768)], pods)
    return workload_views(Listing(projects=PROJECTS, pods=pods)), nodes


def test_memory_of_a_gpu_is_held_by_the_node_and_asked_for_as_quotas_count_it() -> None:
    jobs, nodes = seen()
    counts, blind = GpusOfJobs(nodes), GpusOfJobs(())
    assert {view.name: (counts.held_milli(view), counts.requested_milli(view)) for view in jobs} == {
        "runs": (500, 1000),
        "part": (250, 250),
        "waits": (0, 1000),
        "part-waits": (0, 250),
    }
    assert {view.name: (blind.held_milli(view), view.held_gpus) for view in jobs} == {
        "runs": (0, "2x8Gi"),
        "part": (250, "0.25"),
        "waits": (0, ""),
        "part-waits": (0, "0"),
    }


def test_the_history_counts_memory_of_gpus() -> None:
    jobs, nodes = seen()
    body = {"metadata": {"name": "a"}, "spec": {"namespace": NAMESPACE, "gpu": {"quota": 2}}}
    sight = Sight(0, jobs, {}, nodes, [msgspec.convert(body, Project)])
    sample = Sampler().sample(sight)[1]["a"]
    assert (sample.gpu_milli, sample.pending_milli) == (750, 1250)
