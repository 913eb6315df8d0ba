"""The binding of a pod with a GPU fraction says how much memory the pod may use, from the real memory of the node's
GPUs.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.executor import Executor
from orchestrator.control.carry_out.memory_limits import MemoryLimits
from orchestrator.observe.pod_cache import PodCache
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.planner.model import Binding
from tests.cluster.fake_api_server import Answer, FakeApiServer, access_to, serving
from tests.cluster.waiting import until
from tests.observe.objects import decoded, pod

MIB = 1 << 20
LIMITS = "muster.dev/gpu-memory-limits"
BIND = "/api/v1/namespaces/muster-team-a/pods/job/binding"
MOUNTS = {
    "containers": [],
    "volumes": [{"name": "library", "hostPath": {"path": "/var/lib/muster/gpu-memory"}}],
}
HALF = {"muster.dev/gpu-fraction": "0.5", LIMITS: f"* {64 << 30}\n"}
"""Annotations of a pod created without the policy: its own memory limit must be replaced."""
AGENTS = decoded(
    GpuNode,
    metadata={"name": "node-1"},
    spec={
        "gpus": [
            {"index": 0, "uuid": "GPU-a", "memoryMib": 32510},
            {"index": 1, "uuid": "GPU-b", "memoryMib": 32510},
        ]
    },
)
SLICES = PublishedGpus(
    (("gpu.nvidia.com", "node-1", "gpu-0"), ("gpu.nvidia.com", "node-1", "gpu-1")),
    memory_mib=40960,
    uuids=("GPU-c", "GPU-d"),
)


class World:
    """An executor that knows the GPUs that a test gives node-1."""

    def __init__(self, server: FakeApiServer, transport: Transport) -> None:
        self.server = server
        self.agent: GpuNode | None = None
        self.slices: dict[str, PublishedGpus] = {}
        self.labels: dict[str, str] = {}
        self.warned: list[tuple[str, str]] = []
        self.unready: list[str] = []
        limits = MemoryLimits(
            gpu_node=lambda _name: self.agent,
            published=lambda: self.slices,
            labels=lambda _name: self.labels,
            warn=lambda _pod, reason, message: self.warned.append((reason, message)),
        )
        self.cache = PodCache()
        self.executor = Executor(
            transport,
            self.cache,
            is_leader=lambda: True,
            on_refused=lambda: None,
            on_unready=lambda _pod, _node, why: self.unready.append(why),
            limits=limits,
        )

    async def bound(self, job: Pod, *devices: int) -> dict[str, Any]:
        """Return the annotations of the binding."""
        self.server.on("POST", BIND, Answer(code=201))
        self.executor.begin([], [Binding("uid-job", "w", "node-1", devices)], {"uid-job": job})
        await self.executor.idle()
        (request,) = self.server.requests_of("POST", BIND)
        annotations: dict[str, Any] = request.body["metadata"]["annotations"]
        return annotations


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with serving() as server, Transport(access_to(server)) as transport:
        made = World(server, transport)
        async with made.executor:
            yield made


async def test_it_names_the_gpu_as_the_agent_does_and_half_of_it_to_the_byte(world: World) -> None:
    world.agent, world.labels = AGENTS, {"nvidia.com/gpu.memory": "1"}
    written = await world.bound(pod("job", annotations=HALF, spec=MOUNTS), 1)
    assert written[LIMITS] == f"GPU-b {16_255 * MIB}\n"
    assert written["muster.dev/gpu-devices"] == "1"
    assert not world.warned


async def test_memory_that_a_driver_publishes_precedes_the_agents_report(world: World) -> None:
    world.agent, world.slices = AGENTS, {"node-1": SLICES}
    written = await world.bound(pod("job", annotations=HALF, spec=MOUNTS), 0, 1)
    assert written[LIMITS] == f"GPU-c {20_480 * MIB}\nGPU-d {20_480 * MIB}\n"


async def test_without_an_agent_the_label_tells_the_memory_of_any_device(world: World) -> None:
    world.labels = {"nvidia.com/gpu.memory": "32510"}
    written = await world.bound(pod("job", annotations=HALF, spec=MOUNTS), 1)
    assert written[LIMITS] == f"* {16_255 * MIB}\n"


async def test_a_pod_is_not_bound_and_is_told_why_if_the_memory_is_unknown(world: World) -> None:
    job = pod("job", annotations=HALF, spec=MOUNTS)
    world.executor.begin([], [Binding("uid-job", "w", "node-1", (1,))], {"uid-job": job})
    await until(lambda: world.unready)
    assert "GPUs of node node-1" in world.unready[0]
    assert not world.cache.bindings
    assert not world.server.requests


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_pod_that_does_not_mount_the_library_runs_and_is_told_that_nothing_holds_it(
    world: World, is_known: bool
) -> None:
    world.agent = AGENTS if is_known else None
    written = await world.bound(pod("job", annotations=HALF), 1)
    assert written[LIMITS] == (f"GPU-b {16_255 * MIB}\n" if is_known else "")
    assert [reason for reason, _ in world.warned] == ["GpuMemoryNotLimited"]


async def test_nothing_is_written_on_a_pod_with_whole_gpus(world: World) -> None:
    world.agent = AGENTS
    assert LIMITS not in await world.bound(pod("job", gpus=1), 1)
    assert not world.warned
