"""The agent's page for Prometheus: its format, its names, and its maximum size."""

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.metrics import MAX_OWNERS, AgentFigures, memory_by_owner, render
from orchestrator.agent.model import (
    Gpu,
    GpuReading,
    Holder,
    NodeReading,
    Owner,
    Process,
    Sample,
    Upkeep,
    XidErrors,
)

MIB = 1 << 20
SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(\{(?P<labels>[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*)\})? (?P<value>\S+)'
)
BASE_UNITS = ("bytes", "celsius", "watts", "hertz", "ratio", "seconds", "total", "info")
STATES = {
    "muster_gpu_healthy", "muster_gpu_throttled", "muster_gpu_remapped_rows", "muster_gpu_row_remap_pending",
    "muster_gpu_row_remap_failed", "muster_gpu_retired_pages_pending", "muster_gpu_nvlinks_up",
    "muster_gpu_allocated", "muster_agent_source_up",
}  # fmt: skip


def full_reading(pod: str = "train-0") -> NodeReading:
    reading = GpuReading(
        Gpu(3, "GPU-3", "Tesla V100", "00000000:0A:00.0", 3, 32768 * MIB, 6),
        Sample(1024 * MIB, 87, 40, 61, 251_500, 1380, 877, 0x4 | 0x20),
        Upkeep(1, 2, 3, 4, True, False, True, 5, 6, 7, 8),
        (Process(10, 512 * MIB, Owner("uid-a", "c1")), Process(11, 256 * MIB, Owner("uid-a", "c1"))),
        (Holder("team-a", pod, "main"),),
        "xid-79",
        (XidErrors(79, 2, 1_699_999_000),),
        85,
        1_700_000_000,
    )
    return NodeReading((reading,), "550.1", kubelet_problem="gone")


def values(text: str) -> dict[str, float]:
    page: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            page[line.rpartition(" ")[0]] = float(match["value"])
    return page


def test_every_figure_is_there_in_base_units() -> None:
    page = values(render(full_reading(), AgentFigures(samples=5, writes={("GpuNode", "ok"): 2})))
    gpu = 'gpu="3",uuid="GPU-3"'
    assert page['muster_agent_source_up{source="nvml"}'] == 1
    assert page['muster_agent_source_up{source="kubelet"}'] == 0
    assert page[f"muster_gpu_healthy{{{gpu}}}"] == 0
    assert page[f"muster_gpu_memory_used_bytes{{{gpu}}}"] == 1024 * MIB
    assert page[f"muster_gpu_utilization_ratio{{{gpu}}}"] == 0.87
    assert page[f"muster_gpu_power_watts{{{gpu}}}"] == 251.5
    assert page[f'muster_gpu_clock_hertz{{{gpu},clock="sm"}}'] == 1.38e9
    assert page[f'muster_gpu_throttled{{{gpu},reason="sw_power_cap"}}'] == 1
    assert page[f'muster_gpu_throttled{{{gpu},reason="hw_slowdown"}}'] == 0
    assert page[f'muster_gpu_ecc_errors_total{{{gpu},kind="uncorrected"}}'] == 2
    assert page[f"muster_gpu_row_remap_pending{{{gpu}}}"] == 1
    assert page[f'muster_gpu_nvlink_errors_total{{{gpu},kind="crc"}}'] == 8
    assert page[f'muster_gpu_xid_errors_total{{{gpu},xid="79"}}'] == 2
    assert page[f'muster_gpu_last_xid_timestamp_seconds{{{gpu},xid="79"}}'] == 1_699_999_000
    assert page[f'muster_gpu_allocated{{{gpu},namespace="team-a",pod="train-0",container="main"}}'] == 1
    assert page[f'muster_gpu_process_memory_bytes{{{gpu},pod_uid="uid-a",container_id="c1"}}'] == 768 * MIB
    assert page[f"muster_gpu_idle_since_timestamp_seconds{{{gpu}}}"] == 1_700_000_000
    writes = {name: count for name, count in page.items() if name.startswith("muster_agent_writes_total")}
    assert len(writes) == 6
    assert writes.pop('muster_agent_writes_total{object="GpuNode",result="ok"}') == 2
    assert set(writes.values()) == {0}


def test_each_metric_is_described_once_before_its_values_and_is_called_as_prometheus_asks() -> None:
    described: dict[str, str] = {}
    for line in render(full_reading(), AgentFigures()).splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in described
            described[name] = ""
        elif line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            described[name] = kind
            assert kind in ("gauge", "counter")
            assert (kind == "counter") == name.endswith("_total")
        else:
            assert described[re.split(r"[{ ]", line)[0]]
    assert all(name in STATES or name.endswith(BASE_UNITS) for name in described), described


def test_values_that_the_driver_does_not_report_are_left_out() -> None:
    page = render(NodeReading((GpuReading(Gpu(0)),), nvml_problem="gone"), AgentFigures())
    assert "temperature" not in page
    assert "ecc" not in page
    assert 'muster_gpu_healthy{gpu="0",uuid=""} 1' in page


@given(st.text())
def test_no_name_breaks_a_line(name: str) -> None:
    text = render(full_reading(pod=name), AgentFigures())
    lines = [line for line in text.split("\n") if line.startswith("muster_gpu_allocated")]
    assert len(lines) == 1
    assert SAMPLE.fullmatch(lines[0])


def test_however_many_containers_there_are_so_many_are_named_and_nothing_is_left_uncounted() -> None:
    processes = [Process(pid, pid * MIB, Owner(f"uid-{pid}")) for pid in range(500)]
    used = memory_by_owner(processes)
    assert len(used) == MAX_OWNERS + 1
    assert sum(used.values()) == sum(range(500)) * MIB
    assert used[Owner("uid-499")] == 499 * MIB
