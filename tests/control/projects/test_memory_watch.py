"""Pods that use more GPU memory than their fraction are warned once, and evicted after the grace period, on good
evidence.
"""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.objects import Pod, PodStatus
from orchestrator.cluster.quantity import format_time, parse_time
from orchestrator.control.projects.memory_watch import CONTEXT_MIB, MARGIN_MIB, MAX_EVICTIONS, MemoryWatch
from tests.observe.objects import decoded, pod

NOW_US = parse_time("2026-11-21T10:00:00Z")
SECOND_US = 1_000_000
PART_MIB = 16_255
LIMITS = "muster.dev/gpu-memory-limits"
HALF = f"GPU-0 {PART_MIB << 20}\n"
BOUND_MIB = PART_MIB + CONTEXT_MIB
MEASURED_MIB = 682
"""The most memory, in MiB, that a process on a real GPU used beyond its counted memory
(docs/explanation/fractions.md).
"""


def tenant(name: str = "job", *, limits: str = HALF, node: str = "n1", **options: Any) -> Pod:
    return pod(name, annotations={LIMITS: limits}, node=node, phase="Running", **options)


def user(mib: int, name: str = "job", *, processes: int = 1) -> dict[str, Any]:
    return {"podUid": f"uid-{name}", "containerId": f"c-{mib}", "memoryMib": mib, "processes": processes}


def gpu_node(
    *users: dict[str, Any], name: str = "n1", observed_us: int = NOW_US, **spec: Any
) -> dict[str, GpuNode]:
    gpu = {"index": 0, "uuid": "GPU-0", "memoryMib": 32510, "users": list(users)}
    observed = format_time(observed_us, places=0)
    return {
        name: decoded(GpuNode, metadata={"name": name}, spec={"observedAt": observed, "gpus": [gpu], **spec})
    }


class World:
    """A memory watch over the test's data, at the test's time."""

    def __init__(self, *pods: Pod) -> None:
        self.now_us = NOW_US
        self.leads = True
        self.nodes: dict[str, GpuNode] = {}
        self.warned: list[tuple[str, str]] = []
        self.evicted: list[tuple[str, str, str]] = []
        self._watch = MemoryWatch(
            self.nodes,
            {one.metadata.uid: one for one in pods},
            asyncio.Event(),
            now_us=lambda: self.now_us,
            warn=lambda one, reason, message: self.warned.append((one.metadata.name, f"{reason}: {message}")),
            evict=lambda one, rule, message: self.evicted.append((one.metadata.name, rule, message)),
            is_leader=lambda: self.leads,
        )

    def note_usage(self, nodes: dict[str, GpuNode], *, after_seconds: int = 0) -> None:
        self.now_us += after_seconds * SECOND_US
        self.nodes.clear()
        self.nodes.update(nodes)
        self._watch.check()


async def test_it_is_warned_at_once_and_evicted_after_the_grace_with_the_figures() -> None:
    world = World(tenant())
    world.note_usage(gpu_node(user(20_000)))
    ((name, warning),) = world.warned
    assert name == "job"
    assert warning.startswith("GpuMemoryExceeded: ")
    assert "20000 MiB" in warning
    assert "its fraction is 16255 MiB" in warning
    assert "within 60 s" in warning
    world.note_usage(gpu_node(user(21_000)), after_seconds=59)
    assert not world.evicted
    world.note_usage(gpu_node(user(22_000)), after_seconds=1)
    ((name, rule, message),) = world.evicted
    assert (name, rule) == ("job", "memory")
    assert message.startswith("evicted by the rule of memory: ")
    assert "22000 MiB of GPU 0 (GPU-0) of node n1" in message
    assert "16255 MiB" in message
    assert len(world.warned) == 1


@pytest.mark.parametrize(
    ("users", "is_warned"),
    [
        ([user(PART_MIB)], False),
        ([user(BOUND_MIB + MARGIN_MIB)], False),
        ([user(BOUND_MIB + MARGIN_MIB + 1)], True),
        ([user(PART_MIB + 4 * CONTEXT_MIB, processes=4)], False),
        ([user(PART_MIB + 2 * MEASURED_MIB, processes=2)], False),
        ([user(9_000), user(9_500)], True),
        ([user(9_000), user(9_500, "other")], False),
    ],
)
def test_the_need_of_each_process_is_no_excess_and_containers_count_together(
    users: list[dict[str, Any]], is_warned: bool
) -> None:
    world = World(tenant(), tenant("other"))
    world.note_usage(gpu_node(*users))
    assert bool(world.warned) is is_warned


def test_one_at_the_bound_is_warned_once_and_its_grace_continues() -> None:
    world = World(tenant())
    for second in range(12):
        used_mib = BOUND_MIB + (MARGIN_MIB + 1 if second % 2 == 0 else 1)
        world.note_usage(gpu_node(user(used_mib)), after_seconds=5)
    assert len(world.warned) == 1
    world.note_usage(gpu_node(user(BOUND_MIB + 1)), after_seconds=5)
    assert len(world.evicted) == 1


def test_an_excess_that_ends_is_forgotten() -> None:
    world = World(tenant())
    world.note_usage(gpu_node(user(20_000)))
    world.note_usage(gpu_node(user(BOUND_MIB)), after_seconds=30)
    world.note_usage(gpu_node(user(20_000)), after_seconds=45)
    assert not world.evicted
    assert len(world.warned) == 2


@pytest.mark.parametrize(
    "job",
    [
        tenant(is_admitted=False),
        tenant(limits=""),
        tenant(limits="GPU-0 much\n"),
        tenant(node="n2"),
        tenant(deletionTimestamp="2026-11-21T09:59:59Z"),
    ],
    ids=["bound by others", "without a limit", "unreadable", "elsewhere", "leaving"],
)
def test_no_other_pod_is_touched(job: Pod) -> None:
    world = World(job)
    for _ in range(3):
        world.note_usage(gpu_node(user(32_000), user(1_000, "nobody")), after_seconds=60)
    assert not world.warned
    assert not world.evicted


@pytest.mark.parametrize(
    "spec",
    [
        {"problem": "NVML: driver not loaded"},
        {"observedAt": "yesterday"},
        {"observedAt": ""},
        {"observedAt": "2026-11-21T09:40:00Z"},
    ],
)
def test_an_unbelievable_report_says_nothing_and_stops_no_other_pod(spec: dict[str, Any]) -> None:
    world = World(tenant(), tenant("other", node="n2"))
    bad, good = gpu_node(user(32_000), **spec), gpu_node(user(32_000, "other"), name="n2")
    world.note_usage(bad | good)
    world.note_usage(bad | good, after_seconds=60)
    assert [name for name, _ in world.warned] == ["other"]
    assert [name for name, _, _ in world.evicted] == ["other"]


def test_a_gpu_without_a_fraction_of_the_pod_is_reported_and_evicts_no_pod() -> None:
    world = World(tenant(limits=f"GPU-7 {PART_MIB << 20}\n"))
    for _ in range(3):
        world.note_usage(gpu_node(user(4_000)), after_seconds=60)
    ((_, warning),) = world.warned
    assert "of which it has no fraction" in warning
    assert not world.evicted


def test_a_limit_of_any_device_holds_for_each() -> None:
    world = World(tenant(limits=f"* {PART_MIB << 20}\n"))
    world.note_usage(gpu_node(user(20_000)))
    world.note_usage(gpu_node(user(20_000)), after_seconds=60)
    assert len(world.evicted) == 1


def test_where_cgroups_tell_of_containers_alone_the_pod_is_known_by_its_container() -> None:
    statuses = [{"name": "main", "containerID": f"containerd://{'5f' * 32}"}]
    job = pod("job", annotations={LIMITS: HALF}, node="n1", phase="Running")
    world = World(replace(job, status=decoded(PodStatus, phase="Running", containerStatuses=statuses)))
    of_container = {"containerId": "5f" * 32, "memoryMib": 20_000}
    world.note_usage(gpu_node(of_container, {"containerId": "", "memoryMib": 5}, {"containerId": "other"}))
    assert [name for name, _ in world.warned] == ["job"]


def test_a_standby_operator_does_nothing_and_few_are_evicted_at_once() -> None:
    names = [f"job-{number}" for number in range(2 * MAX_EVICTIONS)]
    world = World(*(tenant(name) for name in names))
    everybody = gpu_node(*(user(20_000, name) for name in names))
    world.leads = False
    world.note_usage(everybody)
    world.note_usage(everybody, after_seconds=60)
    assert not world.warned
    assert not world.evicted
    world.leads = True
    world.note_usage(everybody)
    assert len(world.evicted) == MAX_EVICTIONS
