"""Reads a tree of the host, and costs the processor little."""

import time
from pathlib import Path

from orchestrator.agent.host import Host
from orchestrator.agent.host_health import HostHealth
from orchestrator.agent.host_watch import HOST_SECONDS
from tests.agent.host_trees import ADAPTERS, counter, log_of, make_tree

MAX_PORTION = 0.005


def test_every_counter_of_every_adapter_is_read_with_its_link(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    counter(root, 3, "link_downed").write_text("7\n")
    host = Host(root, kernel_log=tmp_path / "log")
    (tmp_path / "log").write_text(log_of(3))
    reading = HostHealth().next(host.read())
    assert reading.status == "False"
    assert len(reading.counters) == 12 * ADAPTERS
    assert reading.counters["mlx5_3/1 link_downed"] == 7
    assert reading.counters["eth9 carrier_down_count"] == 0
    assert reading.message == "read: kernel-log, links, clock-source, ports, memory"


def test_a_counter_that_the_kernel_refuses_to_read_is_named_in_the_first_reading(tmp_path: Path) -> None:
    root = make_tree(tmp_path, adapters=2)
    (tmp_path / "log").write_text(log_of(3))
    unreadable = counter(root, 1, "link_downed")
    unreadable.unlink()
    unreadable.mkdir()  # the read fails, for root too
    state = counter(root, 0, "link_downed").parents[1] / "state"
    state.unlink()
    state.mkdir()
    reading = HostHealth().next(Host(root, kernel_log=tmp_path / "log").read())
    assert reading.status == "Unknown"
    assert "not read: links: mlx5_1/1 link_downed: no figure" in reading.message
    assert "not read: ports: this is no state of a port" in reading.message


def test_a_port_that_is_down_and_errors_of_memory_are_faults_of_the_tree(tmp_path: Path) -> None:
    root = make_tree(tmp_path, adapters=2)
    (tmp_path / "log").write_text(log_of(3))
    host, health = Host(root, kernel_log=tmp_path / "log"), HostHealth()
    assert health.next(host.read()).status == "False"
    (counter(root, 1, "link_downed").parents[1] / "state").write_text("1: DOWN\n")
    (root / "sys/devices/system/edac/mc/mc1/ue_count").write_text("2\n")
    reading = [health.next(host.read()) for _ in range(2)][-1]
    assert reading.status == "True"
    assert reading.message == (
        "mlx5_1/1 state is 1: DOWN, it was 4: ACTIVE -> reseat or replace the cable; "
        "mc1 ue_count is 2 -> replace the memory module"
    )


def test_missing_sources_are_not_read(tmp_path: Path) -> None:
    texts = Host(tmp_path, kernel_log=tmp_path / "none").read()
    assert texts.kernel_log.problem == texts.clock_source.problem == "No such file or directory"
    assert set(HostHealth().next(texts).unread) == {"kernel-log", "links", "clock-source"}


def test_the_kernels_own_log_is_read_or_the_reason_is_named() -> None:
    log = Host(Path("/")).read().kernel_log
    assert bool(log.text) != bool(log.problem)


def test_the_readings_cost_less_than_half_a_percent_of_one_core(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    host, health = Host(root, kernel_log=tmp_path / "log"), HostHealth()
    spent = []
    for reading in range(5):
        (tmp_path / "log").write_text(log_of(10_000 + 100 * reading))
        before = time.process_time()
        health.next(host.read())
        spent.append(time.process_time() - before)
    later = max(spent[1:]) / HOST_SECONDS
    print(f"first {spent[0] * 1000:.0f} ms, later {max(spent[1:]) * 1000:.1f} ms: {later:.4%} of one core")
    assert later < MAX_PORTION
