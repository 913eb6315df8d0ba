"""Manipulations that could make checks of hosts pass: each ends without a PASS, or `verify` names it."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.validation.host_doubles import FakeHosts, Output
from tests.validation.replay import run_command, settings
from validation.report import log
from validation.report.assemble import assemble
from validation.report.record import Report
from validation.report.verify import verify
from validation.report.write import write
from validation.scenario.loaded import SHIPPED

PATHS = [SHIPPED / "hosts", SHIPPED / "hosts-after"]
OTHER_LINK = "/sys/class/net/a/device/net/b/carrier_down_count:1"
UNREACHABLE = "127.0.0.1 port 22 cannot be reached"


def judged(directory: Path, hosts: Callable[[], FakeHosts]) -> Report:
    _, report = run_command(PATHS, settings(directory, profile="current", parts=["hosts"], open_hosts=hosts))
    assert report is not None
    return report


def in_maintenance() -> FakeHosts:
    hosts = FakeHosts()
    site = msgspec.structs.replace(
        hosts.scope.site, hosts=hosts.scope.site.hosts[:1], away={"dgx1-2": "a fan"}
    )
    hosts.scope = msgspec.structs.replace(hosts.scope, site=site)
    return hosts


def without_hosts() -> FakeHosts:
    hosts = FakeHosts()
    hosts.scope = msgspec.structs.replace(
        hosts.scope, site=msgspec.structs.replace(hosts.scope.site, hosts=[])
    )
    return hosts


@pytest.mark.parametrize(
    ("hosts", "check", "verdict", "words"),
    [
        (in_maintenance, "gpus", "INCONCLUSIVE", "dgx1-2 is in maintenance: a fan"),
        (without_hosts, "gpus", "ERROR", "no host with the role gpu"),
        (lambda: FakeHosts({("dgx1-2", "kernel-log"): Output("")}), "faults", "ERROR", "dgx1-2: dmesg: this is not"),
        (
            lambda: FakeHosts({("dgx1-2", "clock-source"): Output("")}),
            "clock-source", "ERROR", "dgx1-2: clock source: not read",
        ),
        (
            lambda: FakeHosts({("dgx1-2", "clock-source"): Output("cat: current_clocksource: No such file", 1)}),
            "clock-source", "ERROR", "dgx1-2: clock-source ended with exit code 1: cat: current_clocksource: No such",
        ),
        (lambda: FakeHosts({("dgx1-2", "counters"): UNREACHABLE}), "links", "ERROR", f"dgx1-2: {UNREACHABLE}"),
        (
            lambda: FakeHosts({}, {("dgx1-2", "counters"): Output(OTHER_LINK)}),
            "links", "FAIL", "dgx1-2 eth0 went away",
        ),
        (lambda: FakeHosts({("dgx1-2", "nvidia-smi"): Output("", 9)}), "memory", "FAIL", "dgx1-2: nvidia-smi ended"),
        (lambda: FakeHosts({("dgx1-2", "nccl"): Output("failure", 3)}), "nccl", "FAIL", "dgx1-2: nccl ended"),
        (
            lambda: FakeHosts({("dgx1-2", "nvidia-smi"): FakeHosts().outputs["dgx1-1", "nvidia-smi"]}),
            "gpus", "FAIL", "dgx1-2 and dgx1-1 show the same GPU",
        ),
    ],
)  # fmt: skip
def test_it_is_not_green(
    hosts: Callable[[], FakeHosts], check: str, verdict: str, words: str, tmp_path: Path
) -> None:
    report = judged(tmp_path / "r", hosts)
    result = next(step for step in report.steps if step.id.endswith(f"/layer/{check}"))
    assert (result.verdict, words in result.reason) == (verdict, True), result.reason
    assert report.verdict != "PASS"
    assert verify(tmp_path / "r").problems == []


def test_easier_figures_are_named_by_verify(tmp_path: Path) -> None:
    judged(
        tmp_path / "r",
        lambda: FakeHosts({("dgx1-2", "nvlink"): Output("GPU 0: V100\n\t Link 0: 25.781 GB/s\n")}),
    )
    path = tmp_path / "r" / log.NAME
    opened, *rest = path.read_text().splitlines(keepends=True)
    entry = json.loads(opened)
    for system in entry["report"]["scope"]["hosts"]["systems"]:
        system["nvlinks"] = 1
    path.write_text(
        json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n" + "".join(rest)
    )
    write(assemble(log.read_log(tmp_path / "r")), tmp_path / "r")
    assert verify(tmp_path / "r").problems == [
        "report.json: scope.hosts: the figures are not as the file has them"
    ]
