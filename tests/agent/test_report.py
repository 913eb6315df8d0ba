"""The writes of a reading to the API server, and when they happen."""

from dataclasses import replace

from msgspec import json
from msgspec.structs import replace as with_fields

from orchestrator.agent.model import Gpu, GpuReading, Holder, NodeReading, Owner, Process, Sample
from orchestrator.agent.report import (
    FIGURES_SECONDS,
    RENEW_SECONDS,
    Changes,
    failed_gpus,
    known_gpus,
    spec_of,
    stamped,
)
from orchestrator.cluster.gpu_nodes import GpuNodeSpec

MIB = 1 << 20


def gpu(index: int = 0, *, used_mib: int = 0, percent: int = 0, failure: str = "") -> GpuReading:
    return GpuReading(
        Gpu(index, f"GPU-{index}", "V100", "b", index, 32768 * MIB),
        Sample(used_mib * MIB, percent),
        failure=failure,
        mean_utilization_percent=percent,
    )


def spec(*gpus: GpuReading) -> GpuNodeSpec:
    return spec_of(NodeReading(gpus, "550.1"), "boot")


def test_small_changes_are_written_once_and_then_every_five_minutes() -> None:
    changes = Changes()
    written = [
        second
        for second in range(1000)
        if changes.next(spec(gpu(used_mib=1000 + second % 300, percent=50 + second % 4)), second)
    ]
    assert written == [0, 300, 600, 900]


def test_figures_that_move_far_are_written_every_fifteen_seconds_at_most() -> None:
    changes = Changes()
    written = [second for second in range(60) if changes.next(spec(gpu(percent=second % 2 * 90)), second)]
    assert len(written) <= 60 / FIGURES_SECONDS
    assert written[:2] == [0, 15]


def test_facts_are_written_at_once() -> None:
    before = gpu(percent=50)
    holder = Holder("team-a", "train-0", "main")
    for after in (
        replace(before, failure="lost"),
        replace(before, holders=(holder,)),
        replace(before, idle_since=5),
        replace(before, processes=(Process(1, 0, Owner("uid")),)),
    ):
        changes = Changes()
        assert changes.next(spec(before), 0)
        assert changes.next(spec(before), 1) is None
        assert changes.next(spec(after), 1) == spec(after)
        assert changes.next(spec(after), 2) is None


def test_to_nothing_and_from_nothing_is_far_however_little_it_is() -> None:
    for before, after in ((gpu(), gpu(percent=1)), (gpu(used_mib=3), gpu())):
        changes = Changes()
        changes.next(spec(before), 0)
        assert changes.next(spec(after), FIGURES_SECONDS - 1) is None
        assert changes.next(spec(after), FIGURES_SECONDS)


def test_a_gpu_that_stops_answering_is_a_change() -> None:
    changes = Changes()
    changes.next(spec(gpu(percent=50)), 0)
    silent = replace(gpu(percent=50), sample=None, mean_utilization_percent=None)
    assert changes.next(spec(silent), FIGURES_SECONDS)
    assert changes.next(spec(silent), FIGURES_SECONDS + RENEW_SECONDS)


def test_the_object_of_eight_gpus_with_a_pod_each_is_small() -> None:
    readings = [
        replace(
            gpu(index, used_mib=30_000, percent=97),
            holders=(Holder("team-research", f"train-large-model-{index}", "main"),),
            processes=(
                Process(index, 30_000 * MIB, Owner("8d9d9b5e-6a4f-4e0b-9d7a-0c2f8a1b3c4d", "0f" * 32)),
            ),
        )
        for index in range(8)
    ]
    assert len(json.encode(stamped(spec(*readings), 1_700_000_000))) < 4096


def test_the_annotation_names_the_gpus_that_must_not_be_used() -> None:
    readings = NodeReading(tuple(gpu(index, failure="lost" if index in (1, 3) else "") for index in range(4)))
    assert failed_gpus(readings) == "1,3"
    assert failed_gpus(NodeReading()) == ""


def test_written_failures_are_known_to_the_next_agent_until_the_node_starts_anew() -> None:
    text = json.encode(stamped(spec(gpu(0, failure="xid-79"), gpu(1, failure="lost")), 0))
    before = json.decode(text, type=GpuNodeSpec)
    known = known_gpus(before, "boot")
    assert {index: failure for index, (_, failure) in known.items()} == {0: "xid-79", 1: ""}
    assert known[1][0] == Gpu(1, "GPU-1", "V100", "b", memory_bytes=32768 * MIB)
    assert known_gpus(before, "another") == {}
    assert known_gpus(with_fields(before, boot_id=""), "") == {}


def test_the_time_is_in_the_form_of_kubernetes() -> None:
    assert stamped(spec(), 1_700_000_000.7).observed_at == "2023-11-14T22:13:20Z"
