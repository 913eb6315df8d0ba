"""The view of single GPUs that users see, made from the reports of agents."""

from typing import Any

from orchestrator.cluster.gpu_nodes import GpuHolder, GpuNode, GpuNodeSpec, GpuState, GpuUser
from orchestrator.cluster.objects import Metadata, Pod
from orchestrator.cluster.quantity import parse_time
from orchestrator.views.gpus import STALE_SECONDS, GpuUse, gpu_views, gpus_of_job, use_of
from tests.observe.objects import decoded

AT = "2026-11-23T10:00:00Z"
NOW_US = parse_time(AT) + 90_000_000
MIB = 1 << 20


def node(*states: GpuState, **spec: Any) -> GpuNode:
    fields = {"observed_at": AT, "gpus": list(states), **spec}
    return GpuNode(metadata=Metadata(name="n1"), spec=GpuNodeSpec(**fields))


def state(index: int = 0, **fields: Any) -> GpuState:
    standard = {
        "uuid": f"GPU-{index}",
        "memory_mib": 32768,
        "memory_used_mib": 1024,
        "utilization_percent": 50,
    }
    return GpuState(index, **{**standard, **fields})


def pod(name: str, uid: str = "", *, phase: str = "Running") -> Pod:
    return decoded(
        Pod,
        metadata={"name": name, "namespace": "a", "uid": uid or name},
        spec={"nodeName": "n1"},
        status={"phase": phase},
    )


def test_figures_of_an_agent_that_has_stopped_or_has_no_driver_are_not_of_now() -> None:
    states = (state(holders=[GpuHolder("a", "train-0")], idle_since="2026-11-23T09:00:00Z", failure="lost"),)
    (view,) = gpu_views(node(*states), NOW_US)
    assert (view.utilization_percent, view.memory_used_bytes, view.holders) == (
        50,
        1024 * MIB,
        ("a/train-0",),
    )
    assert view.idle_seconds == 3690
    for old in (
        gpu_views(node(*states), NOW_US + STALE_SECONDS * 1_000_000),
        gpu_views(node(*states, problem="NVML: gone"), NOW_US),
        gpu_views(node(*states, observed_at="soon"), NOW_US),
    ):
        (view,) = old
        assert (view.utilization_percent, view.memory_used_bytes, view.idle_seconds) == (None, None, None)
        assert (view.holders, view.uuid, view.failure) == ((), "GPU-0", "lost")


def test_a_pod_has_the_gpus_of_its_kubelet_and_the_use_of_its_processes() -> None:
    views = gpu_views(
        node(
            state(0, holders=[GpuHolder("a", "whole")]),
            state(1, holders=[GpuHolder("b", "whole")], users=[GpuUser("uid-half", "c", 512)]),
            state(2, users=[GpuUser("", "", 5)]),
        ),
        NOW_US,
    )
    gpus = {"n1": views, "n2": views}
    assert gpus_of_job([pod("whole")], gpus) == [views[0]]
    assert gpus_of_job([pod("half", "uid-half")], gpus) == [views[1]]
    assert gpus_of_job([pod("none")], gpus) == []
    assert gpus_of_job([pod("whole", phase="Succeeded")], gpus) == []
    assert gpus_of_job([pod("whole"), pod("whole")], gpus) == [views[0]]


def test_the_memory_of_a_shared_gpu_is_that_of_the_jobs_own_processes() -> None:
    users = [GpuUser("u1", "c1", 256), GpuUser("u1", "c2", 128), GpuUser("u2", "c3", 512)]
    shared = gpu_views(node(state(0, users=users), state(1, utilization_percent=100)), NOW_US)
    assert use_of(shared[:1], [pod("x", "u1")]) == GpuUse(50, 32768 * MIB, 384 * MIB, None)
    assert use_of(shared) == GpuUse(75, 65536 * MIB, 2048 * MIB, None)
    alone = gpu_views(
        node(state(0, holders=[GpuHolder("a", "train-0")], users=[GpuUser("", "c", 512)])), NOW_US
    )
    assert use_of(alone, [pod("x", "u1")]).memory_used_bytes == 1024 * MIB, (
        "nobody knows whose process that is"
    )
    assert use_of(()) == GpuUse()


def test_the_longest_idle_gpu_counts_for_the_job() -> None:
    since = ("2026-11-23T10:00:00Z", "2026-11-23T10:01:00Z", "")
    views = gpu_views(node(*(state(index, idle_since=text) for index, text in enumerate(since))), NOW_US)
    assert [view.idle_seconds for view in views] == [90, 30, None]
    assert use_of(views).idle_seconds == 90
