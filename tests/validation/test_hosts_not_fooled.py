"""Manipulations that could make checks of hosts pass: each ends without a PASS, or `verify` names it."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.validation.host_doubles import FakeHosts, Output, nccl
from tests.validation.replay import run_command, settings
from validation.judge.events import ToolRan
from validation.layers.tools import Tool
from validation.report import log, record
from validation.report.assemble import assemble, rejudge
from validation.report.record import Report
from validation.report.verify import verify
from validation.report.write import write
from validation.scenario.loaded import SHIPPED

PATHS = [SHIPPED / "hosts", SHIPPED / "hosts-after"]
ODD = ["9" * 5000, "9" * 400, "9" * 21, "1e306", "1e999", "-1", "nan", "18446744073709551616", "0x1F", ""]
"""Figures that no tool prints, or that no program can compute with."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")
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


def changed(tool: str, ending: str) -> Output:
    """Return the output of the tool with another end of its first line."""
    first, _, rest = FakeHosts().outputs["dgx1-2", tool].text.partition("\n")
    return Output(f"{first.rpartition(':')[0]}{ending}\n{rest}")


class Lost(FakeHosts):
    """Hosts whose tools end with a mistake in muster's own code."""

    def ran(self, tool: Tool, host: str, line: str) -> ToolRan:
        if tool.name == "nvidia-smi":
            raise LookupError(tool.name)
        return super().ran(tool, host, line)


def without_bounds() -> FakeHosts:
    """Return hosts whose threshold of fio is so large that the judge cannot compute with it."""
    hosts = FakeHosts()
    figures = [
        msgspec.structs.replace(one, at_least=1e306) if one.metric == "fio-read" else one
        for one in hosts.scope.thresholds
    ]
    hosts.scope = msgspec.structs.replace(hosts.scope, thresholds=figures)
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
            lambda: FakeHosts({}, {("dgx1-2", "counters"): changed("counters", f":{'9' * 5000}")}),
            "links", "INCONCLUSIVE", "dgx1-2: counters: a figure is not readable",
        ),
        (
            lambda: FakeHosts({("dgx1-2", "nccl"): Output(nccl(1e306))}),
            "nccl", "INCONCLUSIVE", "dgx1-2: nccl: a figure is not readable",
        ),
        (Lost, "gpus", "ERROR", "this is a mistake in muster: the check ended with LookupError"),
        (without_bounds, "fio", "ERROR", "this is a mistake in muster: the check ended with OverflowError"),
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
    others = [line for line in verify(tmp_path / "r").problems if "the figures are not as" not in line]
    assert others == [], "the record cannot be judged again"


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.rare)])
def test_no_figure_of_a_tool_leaves_a_record_that_cannot_be_judged(rounds: int, tmp_path: Path) -> None:
    judged(tmp_path, FakeHosts)
    lines = (tmp_path / log.NAME).read_text().splitlines(keepends=True)
    chance = random.Random(44)  # noqa: S311 - which figures, not secrets
    tools = [number for number, line in enumerate(lines) if NUMBER.search(output_of(line))]
    assert len(tools) > 30
    for part in range(4 * rounds):
        if part % 4 == 0:
            chance.shuffle(tools)
        changed_lines = list(lines)
        chosen = tools[part % 4 :: 4]  # the other tools hide no check that reads two of them
        for number in chosen:
            entry = json.loads(lines[number])
            text = entry["event"]["output"]
            match = chance.choice(list(NUMBER.finditer(text)))
            entry["event"]["output"] = text[: match.start()] + chance.choice(ODD) + text[match.end() :]
            changed_lines[number] = (
                json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
            )
        (tmp_path / log.NAME).write_text("".join(changed_lines))
        report = assemble(log.read_log(tmp_path))
        names = [json.loads(lines[number])["event"]["tool"] for number in chosen]
        assert rejudge(record.decode(record.encode(report)), log.read_log(tmp_path)) == [], names
        mistakes = [step.reason for step in report.steps if "mistake in muster" in step.reason]
        assert mistakes == [], names


def output_of(line: str) -> str:
    """Return the output of a tool in an entry of a log; empty for another entry."""
    event = json.loads(line).get("event", {})
    return event["output"] if event.get("event") == "tool" else ""


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
