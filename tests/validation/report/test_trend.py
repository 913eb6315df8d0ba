"""Tests validation/report/trend.py and trend_pages.py: `muster report trend`."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from tests import forks
from tests.validation.host_doubles import NAMES, FakeHosts, Output, nccl, nvidia_smi
from tests.validation.replay import run_command, settings
from validation.report import log
from validation.report.assemble import assemble
from validation.report.write import write
from validation.scenario.loaded import SHIPPED

RATES = {"2026-11-01": (128.0, 128.0), "2026-11-08": (128.0, 126.0), "2026-11-15": (127.0, 122.0)}
"""The rates of NCCL of both hosts by the day of a record."""


def trend(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `muster report trend` with these arguments."""
    return forks.run(["report", "trend", *map(str, arguments)], os.environ, 300)


def record_of(first: Path, out: Path, day: str, rates: tuple[float, float], site: str = "pod-1") -> None:
    """Write a record like the first one, of another day and with other rates of NCCL."""
    text = (first / log.NAME).read_text()
    opened = json.loads(text.splitlines()[0])["report"]
    run, today = opened["volatile"]["run"], opened["scope"]["today"]
    text = text.replace(run["id"], f"{day.replace('-', '')}-020000-{run['id'].split('-', 2)[2]}")
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        if entry["entry"] == "opened":
            entry["report"]["volatile"]["run"]["started"] = f"{day}T02:00:00Z"
            entry["report"]["scope"]["today"] = entry["report"]["scope"]["today"].replace(today, day)
            entry["report"]["scope"]["hosts"]["site"]["name"] = site
        if entry["entry"] == "closed":
            entry["ended"] = f"{day}T02:00:09Z"
        if entry["entry"] == "observed" and entry["event"].get("tool") == "nccl":
            entry["event"]["output"] = nccl(rates[NAMES.index(entry["event"]["host"])])
        lines.append(msgspec.json.encode(entry, order="sorted").decode())
    out.mkdir(parents=True)
    (out / log.NAME).write_text("\n".join(lines) + "\n")
    write(assemble(log.read_log(out)), out)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a record of hosts."""
    out = tmp_path_factory.mktemp("first") / "r"
    run_command(
        [SHIPPED / "hosts", SHIPPED / "hosts-after"],
        settings(out, profile="current", parts=["hosts"], open_hosts=FakeHosts),
    )
    return out


@pytest.fixture
def records(first: Path, tmp_path: Path) -> Path:
    """Return a directory with three records of one site."""
    for day, rates in RATES.items():
        record_of(first, tmp_path / "reports" / day, day, rates)
    return tmp_path / "reports"


def test_each_figure_has_its_values_in_the_order_of_time(records: Path) -> None:
    done = trend(records, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (site,) = json.loads(done.stdout)["sites"]
    assert [run["started"][:10] for run in site["runs"]] == list(RATES)
    figures = {figure["figure"]: figure for figure in site["figures"]}
    rates = figures["nccl-all-reduce"]
    assert rates["unit"] == "MB/s"
    assert [(series["host"], series["values"]) for series in rates["series"]] == [
        ("dgx1-2", [128000, 126000, 122000]),  # the worst first
        ("dgx1-1", [128000, 128000, 127000]),
    ]
    assert len(figures["burn-in"]["series"]) == 16
    words = trend(records).stdout
    assert "nccl-all-reduce: median 128000 to 127000 MB/s; worst dgx1-2, 128000 to 122000" in words
    assert "burn-in: median 6000 to 6000 Gflop/s; none is worse" in words


def test_the_page_has_a_chart_of_each_figure_without_script(records: Path, tmp_path: Path) -> None:
    page = tmp_path / "trend.html"
    assert trend(records, "--out", page).returncode == 0
    text = page.read_text()
    assert "<script" not in text
    charts = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]  # noqa: S314 - ours
    titles = [chart.get("aria-label") for chart in charts]
    assert "nccl-all-reduce (MB/s)" in titles
    name = "{http://www.w3.org/2000/svg}"
    chart = charts[titles.index("nccl-all-reduce (MB/s)")]
    lines = [line.get("points", "").split() for line in chart.iter(f"{name}polyline")]
    assert [len(points) for points in lines] == [3, 3, 3]  # both hosts and the median
    heights = [float(point.split(",")[1]) for point in lines[0]]
    assert heights == sorted(heights)  # the worst host falls
    assert heights[0] < heights[-1]
    days = [
        text.text for text in chart.iter(f"{name}text") if re.fullmatch(r"2026-\d\d-\d\d", text.text or "")
    ]
    assert days == list(RATES)


def test_the_page_names_each_gpu_of_hosts_with_long_names_as_a_whole(first: Path, tmp_path: Path) -> None:
    host, uuid = "dgx-node-0001.rack-17.hall-2.example.com", "GPU-9f1c2d3e-4b5a-6978-8a9b-0c1d2e3f400"
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    text = (first / log.NAME).read_text().replace(f"GPU-{b'dgx1-1'.hex()}-", uuid)
    (renamed / log.NAME).write_text(text.replace("dgx1-1", host))
    write(assemble(log.read_log(renamed)), renamed)
    page = tmp_path / "trend.html"
    assert trend(tmp_path, "--out", page).returncode == 0
    named = re.findall(r"<text [^>]*>([^<]*)</text>", page.read_text())
    assert host in named
    assert {f"{uuid}{number}" for number in range(6)} <= {*named}


def test_records_that_cannot_be_read_are_named_and_the_exit_code_is_1(
    records: Path, first: Path, tmp_path: Path
) -> None:
    (records / "2026-11-08" / "report.md").write_text("PASS\n")
    shutil.copytree(records / "2026-11-15", records / "copy")
    (records / "empty").mkdir()
    (records / "cut").mkdir()
    shutil.copy(first / log.NAME, records / "cut")
    run_command(
        [SHIPPED / "muster" / "victim.scenario.yaml"], settings(records / "no-hosts", profile="current")
    )
    (records / "notes.txt").write_text("of the operator\n")
    page = tmp_path / "trend.html"
    done = trend(records, "-o", "json", "--out", page)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert {one["record"]: one["problem"] for one in found["unread"]}.keys() == {
        "2026-11-08", "copy", "cut", "empty", "no-hosts",
    }  # fmt: skip
    problems = {one["record"]: one["problem"] for one in found["unread"]}
    assert problems["2026-11-08"].startswith("does not verify: report.md")
    assert problems["copy"].startswith("is another copy of the run 20261115-020000")
    assert "the run was cut" in problems["cut"]
    assert problems["no-hosts"] == "has no hosts: it was made without --site"
    assert [run["record"] for run in found["sites"][0]["runs"]] == ["2026-11-01", "2026-11-15"]
    words = trend(records).stdout
    for name, problem in problems.items():
        assert f"{name}: left out: {problem}" in words
        assert name in page.read_text()


def test_only_the_unreadable_figures_of_a_record_are_left_out(records: Path, tmp_path: Path) -> None:
    text, scenario = (SHIPPED / "hosts" / "hosts.scenario.yaml").read_text(), tmp_path / "hosts.scenario.yaml"
    scenario.write_text(
        f"{text.partition('layers:')[0]}layers: [gpus, burn-in]\n"
    )  # they do not judge the power
    huge = nvidia_smi("dgx1-1").replace("281.33 W", f"{'9' * 5000} W")
    hosts = FakeHosts({("dgx1-1", "samples"): Output(huge)})
    out = records / "huge"
    run_command([scenario], settings(out, profile="current", parts=["hosts"], open_hosts=lambda: hosts))
    done = trend(records, "-o", "json")
    found = json.loads(done.stdout)
    assert found["unread"] == []
    site = next(one for one in found["sites"] if "huge" in [run["record"] for run in one["runs"]])
    place = [run["record"] for run in site["runs"]].index("huge")
    measured = {
        (series["host"], figure["figure"])
        for figure in site["figures"]
        for series in figure["series"]
        if series["values"][place] is not None
    }
    assert ("dgx1-2", "burn-in-power") in measured
    assert ("dgx1-1", "burn-in-power") not in measured
    assert ("dgx1-1", "burn-in") in measured


def test_records_of_two_sites_are_shown_apart(records: Path, first: Path) -> None:
    record_of(first, records / "other", "2026-11-03", (110.0, 112.0), site="pod-2")
    sites = json.loads(trend(records, "-o", "json").stdout)["sites"]
    assert [(site["site"], len(site["runs"])) for site in sites] == [("pod-1", 3), ("pod-2", 1)]


def test_a_directory_without_reports_is_an_error(tmp_path: Path) -> None:
    done = trend(tmp_path)
    assert done.returncode == 1
    assert "has no directory of a report" in done.stderr
