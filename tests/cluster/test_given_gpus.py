"""The GPUs of pods with a device plugin: the report of the node's agent counts more than any other source."""

from typing import Any

import pytest

from orchestrator.cluster.gpu_nodes import GpuNode, given_gpus
from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.observe.reader import Reader
from tests.observe.objects import decoded, namespace, pod, project

DEVICES = "muster.dev/gpu-devices"


def node(unhealthy: str = "") -> Node:
    gpus = {"nvidia.com/gpu": "4", "cpu": "64", "memory": "512Gi"}
    return decoded(
        Node,
        metadata={"name": "n1", "annotations": {"muster.dev/failed-gpus": unhealthy}},
        status={
            "capacity": gpus,
            "allocatable": gpus,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    )


def bound(name: str, devices: str, **options: Any) -> Pod:
    count = len(devices.split(","))
    return pod(
        name, gpus=count, annotations={DEVICES: devices}, node="n1", started="2026-11-21T10:00:00Z", **options
    )


def published_gpus(**holders: str) -> GpuNode:
    """Return the GpuNode of an agent with the indices of the GPUs of each pod."""
    by_index = {int(index): name for name, indices in holders.items() for index in indices.split(",")}
    gpus = [
        {
            "index": index,
            "holders": [
                {"namespace": "muster-team-a", "pod": by_index[index].replace("_", "-"), "container": "c"}
            ]
            if index in by_index
            else [],
        }
        for index in range(4)
    ]
    return decoded(GpuNode, metadata={"name": "n1"}, spec={"gpus": gpus})


class World:
    """A reader of one node and its pods."""

    def __init__(self, *pods: Pod, unhealthy: str = "") -> None:
        self.reader = Reader()
        for thing in (node(unhealthy), project("team-a"), namespace("muster-team-a", "team-a"), *pods):
            self.note(thing)

    def note(self, thing: object, kind: Any = "added") -> None:
        self.reader.note(Change(kind, thing))

    def held(self) -> dict[str, tuple[int, ...]]:
        snapshot = self.reader.read().snapshot
        return {one.name: one.devices for workload in snapshot.workloads for one in workload.pods if one.node}

    def miscounted(self) -> dict[str, tuple[int, ...]]:
        self.reader.read()
        return {entry.pod.metadata.name: entry.given for entry in self.reader.miscounted()}


def test_a_pod_is_miscounted_until_the_gpus_of_its_kubelet_are_written_on_it() -> None:
    world = World(bound("a", "0"), bound("b", "1,2"))
    assert world.miscounted() == {}
    world.note(published_gpus(a="3", b="1,2"))
    assert world.miscounted() == {"a": (3,)}
    assert world.miscounted() == {"a": (3,)}, "also when nothing was touched"
    world.note(bound("a", "3"), "modified")
    assert world.miscounted() == {}
    world.note(published_gpus(a="1,2", b="3"), "modified")
    assert world.miscounted() == {}, "other numbers than it asks for are not believed"
    world.note(bound("a", "0"), "modified")
    world.note(published_gpus(a="3", b="1,2"), "modified")
    assert world.miscounted() == {"a": (3,)}
    world.note(bound("a", "0"), "deleted")
    assert world.miscounted() == {}


def test_until_an_agent_reports_the_annotation_of_muster_counts() -> None:
    world = World(bound("a", "0"), bound("b", "1,2"))
    assert world.held() == {"a": (0,), "b": (1, 2)}
    world.note(published_gpus())
    assert world.held() == {"a": (0,), "b": (1, 2)}


def test_the_kubelets_gpus_count_for_both_when_two_have_each_others_gpu() -> None:
    world = World(bound("a", "0"), bound("b", "1"))
    assert world.held() == {"a": (0,), "b": (1,)}
    world.note(published_gpus(a="1", b="0"))
    assert world.held() == {"a": (1,), "b": (0,)}
    assert world.reader.read().skipped == (), "a pod that muster bound is nothing special"


def test_one_of_which_the_agent_does_not_know_yet_gives_way_to_one_of_which_it_does() -> None:
    world = World(bound("a", "0"), bound("b", "3"))
    world.note(published_gpus(a="3"))
    held = world.held()
    assert held["a"] == (3,)
    assert held["b"] not in ((3,), ()), "two pods never count as holding one GPU"
    world.note(published_gpus(a="3", b="0"), "modified")
    assert world.held() == {"a": (3,), "b": (0,)}


def test_a_pod_that_comes_later_counts_as_written_and_then_as_given() -> None:
    world = World(bound("a", "0"))
    world.note(published_gpus(a="2"))
    world.note(bound("b", "1"))
    assert world.held() == {"a": (2,), "b": (1,)}
    world.note(published_gpus(a="2", b="3"), "modified")
    assert world.held() == {"a": (2,), "b": (3,)}
    world.note(published_gpus(b="3"), "modified")
    world.note(bound("a", "0"), "deleted")
    assert world.held() == {"b": (3,)}


def test_the_holder_of_a_failed_gpu_is_migrated() -> None:
    world = World(bound("a", "0"), bound("b", "1"), unhealthy="1")
    world.note(published_gpus(a="1", b="2"))
    assert world.held() == {"a": (1,), "b": (2,)}


@pytest.mark.parametrize("indices", ["1,2", "1,2,3"])
def test_other_numbers_than_a_pod_asks_for_are_not_believed(indices: str) -> None:
    world = World(bound("a", "0"))
    world.note(published_gpus(a=indices))
    assert world.held() == {"a": (0,)}


def test_the_gpus_of_all_containers_of_a_pod_are_its_own() -> None:
    holders = [{"namespace": "x", "pod": "a", "container": name} for name in ("c1", "c2")]
    gpus = [{"index": 1, "holders": holders}, {"index": 0, "holders": holders[:1]}, {"index": 2}]
    assert given_gpus(decoded(GpuNode, metadata={"name": "n"}, spec={"gpus": gpus})) == {("x", "a"): (0, 1)}
