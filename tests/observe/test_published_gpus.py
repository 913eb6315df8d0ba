"""Covers `orchestrator.observe.published_gpus` with recorded ResourceSlices of NVIDIA's driver."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import yaml

from orchestrator.cluster import device_objects as wire
from orchestrator.cluster.objects import Node
from orchestrator.cluster.reflector import Change
from orchestrator.observe.claim_reader import ClaimReader
from orchestrator.observe.published_gpus import PublishedGpus, gpus_by_node
from orchestrator.observe.reader import Reader
from orchestrator.observe.resource_claims import read_slice
from orchestrator.observe.unreadable import Boundary

RECORDED = Path(__file__).parents[1] / "musterlab" / "recorded" / "resourceslice-memory.yaml"


def published(name: str = "slice", **of_pool: int) -> dict[str, Any]:
    devices = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))["devices"]
    pool = {"name": "dgx1", "generation": 1, "resourceSliceCount": 1, **of_pool}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "dgx1", "pool": pool, "devices": copy.deepcopy(devices)}
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def gpus(*slices: dict[str, Any]) -> PublishedGpus | None:
    read = [read_slice(msgspec.convert(listed, wire.ResourceSlice)) for listed in slices]
    return gpus_by_node(read).get("dgx1")


def node(**allocatable: str) -> Node:
    amounts = {"cpu": "80", "memory": "512Gi", "pods": "110", **allocatable}
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return msgspec.convert({"metadata": {"name": "dgx1", "uid": "dgx1"}, "status": status}, Node)


def test_a_nodes_gpus_are_in_the_order_of_their_names_for_any_order_of_the_driver() -> None:
    turned = published()
    turned["spec"]["devices"].reverse()
    known = gpus(turned)
    assert known is not None
    assert [device for _, _, device in known.ids] == [f"gpu-{index}" for index in range(8)]
    assert known.uuids == tuple(f"GPU-00000100-0000-0000-0000-00000000000{index}" for index in range(8))
    assert known.memory_mib == 32 * 1024
    assert known.model == "Tesla-V100-SXM2-32GB"
    assert known.tainted == ()


def test_gpu_10_comes_after_gpu_9() -> None:
    many = published()
    (first, *_) = many["spec"]["devices"]
    many["spec"]["devices"] = [{**first, "name": f"gpu-{index}"} for index in (10, 2, 9)]
    known = gpus(many)
    assert known is not None
    assert [device for _, _, device in known.ids] == ["gpu-2", "gpu-9", "gpu-10"]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    newer = published("newer", generation=2)
    del newer["spec"]["devices"][4:]
    known = gpus(published(), newer)
    assert known is not None
    assert len(known.ids) == 4


def test_a_gpu_that_its_driver_taints_is_unhealthy() -> None:
    tainted = published()
    tainted["spec"]["devices"][3]["taints"] = [
        {"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoSchedule"}
    ]
    reader = Reader()
    reader.note(Change("added", node()))
    reader.note(Change("added", msgspec.convert(tainted, wire.ResourceSlice)))
    (read,) = reader.read().snapshot.nodes
    assert (read.gpu_count, read.unhealthy_gpus, read.gpu_memory_mib) == (8, (3,), 32 * 1024)
    assert read.gpu_model == "Tesla-V100-SXM2-32GB"
    assert read.schedulable


def test_a_node_whose_gpus_are_given_twice_gets_no_pod_and_is_named() -> None:
    reader = Reader()
    reader.note(Change("added", node(**{"nvidia.com/gpu": "8"})))
    reader.note(Change("added", msgspec.convert(published(), wire.ResourceSlice)))
    reading = reader.read()
    (read,) = reading.snapshot.nodes
    assert not read.schedulable
    (entry,) = reading.skipped
    assert (entry.kind, entry.name) == ("Node", "dgx1")
    assert "by a device plugin and in slices by gpu.nvidia.com" in entry.why
    reader.note(Change("modified", node()))
    assert reader.read().snapshot.nodes[0].schedulable
    assert reader.read().skipped == ()


def test_a_node_of_which_a_gpu_does_not_answer_gets_no_pod_and_is_named() -> None:
    lost = node(**{"nvidia.com/gpu": "8"})
    lost.metadata.annotations["muster.dev/failed-gpus"] = "2,5"
    reader = Reader()
    reader.note(Change("added", lost))
    assert reader.read().snapshot.nodes[0].schedulable, "one with an Xid answers all the same"
    lost.metadata.annotations["muster.dev/lost-gpus"] = "5"
    reader.note(Change("modified", lost))
    reading = reader.read()
    assert not reading.snapshot.nodes[0].schedulable
    assert reading.snapshot.nodes[0].unhealthy_gpus == (2, 5)
    assert not reading.snapshot.nodes[0].unhealthy, "what runs on the others stays"
    (entry,) = reading.skipped
    assert (entry.kind, entry.name) == ("Node", "dgx1")
    assert entry.why.startswith("GPU 5 does not answer")
    published_node = node()
    published_node.metadata.annotations["muster.dev/lost-gpus"] = "5"
    reader.note(Change("modified", published_node))
    reader.note(Change("added", msgspec.convert(published(), wire.ResourceSlice)))
    reading = reader.read()
    assert reading.snapshot.nodes[0].schedulable
    assert reading.skipped == ()


def test_slices_that_come_and_end_leave_the_union_of_the_others() -> None:
    reader = ClaimReader(Boundary())
    first, newer = published("first"), published("newer", generation=2)
    del newer["spec"]["devices"][4:]
    for listed, is_there, count in ((first, True, 8), (newer, True, 4), (newer, False, 8), (first, False, 0)):
        nodes, _ = reader.note(msgspec.convert(listed, wire.ResourceSlice), is_there=is_there)
        assert nodes == {"dgx1"}
        known = reader.slices.gpus().get("dgx1")
        assert (0 if known is None else len(known.ids)) == count
