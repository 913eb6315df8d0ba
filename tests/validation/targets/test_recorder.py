"""The recorder's events for changes in any order, from a scripted API server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_api_server import END, Watch, event, page, serving
from tests.validation.witness.test_reader import kubeconfig
from validation.judge.events import GpusSeen, OutsidersSeen
from validation.targets.recorder import GPU_NODES, NAMESPACES, NODES, PODS, SLICES, Recorder
from validation.witness.names import RESERVATION_LABEL

CONTAINER = "0f3a" * 16


def named(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}, **parts}


def pod_with(*containers: str) -> dict[str, Any]:
    statuses = [{"name": "c", "containerID": f"containerd://{one}"} for one in containers]
    pod = named("p", spec={"nodeName": "n"}, status={"phase": "Running", "containerStatuses": statuses})
    pod["metadata"] |= {"namespace": "muster-team", "resourceVersion": str(2 + len(containers))}
    return pod


@pytest.mark.parametrize("is_known_before", [True, False])
async def test_the_driver_s_word_is_of_the_pod_whose_container_it_names(
    tmp_path: Path, is_known_before: bool
) -> None:
    users = [{"podUid": "", "containerId": CONTAINER, "memoryMib": 1, "processes": 1}]
    gpu_node = named("n", spec={"gpus": [{"index": 0, "holders": [], "users": users}]})
    recorded = Recorder()
    async with serving() as server:
        for kind in (SLICES, NODES, NAMESPACES):
            server.on("GET", kind.path, page())
        server.on("GET", GPU_NODES.path, page(gpu_node))
        server.on("GET", PODS.path, page(pod_with(*[CONTAINER] * is_known_before)))
        server.on("WATCH", PODS.path, Watch(event("MODIFIED", pod_with(CONTAINER)), END))
        async with recorded.watching(kubeconfig(tmp_path, server.url)), asyncio.timeout(10):
            while not any(said.gpus[0].users == ("uid-p",) for said in words(recorded)):
                await recorded.changed(100)
    assert {said.gpus[0].users for said in words(recorded)} <= {("",), ("uid-p",)}


async def test_pods_without_a_project_that_hold_gpus_are_counted_by_node(tmp_path: Path) -> None:
    def holding(name: str, namespace: str, version: str = "2", **labels: str) -> dict[str, Any]:
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
        pod = named(name, spec={"nodeName": "n", "containers": [container]}, status={"phase": "Running"})
        pod["metadata"] |= {"namespace": namespace, "labels": labels, "resourceVersion": version}
        return pod

    reservation = holding("r", "muster-system", **{RESERVATION_LABEL: "true"})
    of_team = named("muster-team")
    of_team["metadata"]["labels"] = {"muster.dev/project": "team"}
    first, second = holding("a", "others"), holding("b", "others", "3")
    recorded = Recorder()
    async with serving() as server:
        for kind in (SLICES, NODES, GPU_NODES):
            server.on("GET", kind.path, page())
        server.on("GET", NAMESPACES.path, page(of_team))
        server.on("GET", PODS.path, page(reservation, holding("p", "muster-team"), first))
        watch = Watch(event("ADDED", second), event("DELETED", first), event("DELETED", second), END)
        server.on("WATCH", PODS.path, watch)
        async with recorded.watching(kubeconfig(tmp_path, server.url)), asyncio.timeout(10):
            while not (others := counted(recorded)) or others[-1] != (0, 0):
                await recorded.changed(100)
    # the namespace may be known after its pod
    assert counted(recorded)[-4:] == [(1, 4000), (2, 8000), (1, 4000), (0, 0)]


def counted(recorded: Recorder) -> list[tuple[int, int]]:
    return [(e.pods, e.gpu_milli) for e in recorded.events if isinstance(e, OutsidersSeen)]


def words(recorded: Recorder) -> list[GpusSeen]:
    return [said for said in recorded.events if isinstance(said, GpusSeen)]
