"""The GPU portions with which requests for GPU memory count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.model import PodState, Request, Snapshot
from tests.planner import builders

NODES = (
    builders.node("small", gpu_memory_mib=16_384),
    builders.node("middle", gpu_memory_mib=49_152),
    builders.node("large", gpu_memory_mib=81_920),
    builders.node("unknown"),
)


@pytest.mark.parametrize(
    ("request_", "node", "held", "counted"),
    [
        (Request(gpu_memory_mib=40_960), "large", 500, 834),
        (Request(gpu_memory_mib=40_960), "middle", 834, 834),
        (Request(gpu_memory_mib=8192, shared_devices=2), "large", 200, 1000),
        (Request(gpu_memory_mib=8192), "unknown", 1000, 500),
        (Request(gpu_memory_mib=100_000, shared_devices=2), None, 2000, 2000),
        (Request(gpu_portion_milli=250, shared_devices=2), "large", 500, 500),
        (Request(gpu_count=3), "large", 3000, 3000),
    ],
)
def test_memory_is_counted_by_the_smallest_gpu_that_has_it_and_held_by_the_one_it_is_on(
    request_: Request, node: str | None, held: int, counted: int
) -> None:
    sizes = GpuSizes.of(NODES)
    assert sizes.held_milli(request_, node) == held
    assert sizes.counted_milli(request_) == counted


@pytest.mark.parametrize("memory_mib", [8192, 16_384, 16_385, 40_960, 49_153, 81_920, 100_000])
def test_memory_is_counted_as_the_planner_counts_it(memory_mib: int) -> None:
    workload = builders.workload("w", "a", 1000)
    request = Request(gpu_memory_mib=memory_mib)
    pod = replace(workload.pods[0], request=request, state=PodState.ALLOCATED, node="large", devices=(0,))
    running = replace(workload, pods=(pod,))
    decision = plan(Snapshot(NODES, (builders.project("a", 4000),), (running,)))
    assert decision.allocated_gpu_milli["a"] == GpuSizes.of(NODES).counted_milli(request)
