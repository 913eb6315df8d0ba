"""Analytics: the shown figures of a history, for each user, and the remark if it is not current or away."""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import re
import time
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from musterweb.history_model import OTHERS
from orchestrator.cluster.kubeconfig import load_server
from orchestrator.cluster.quantity import format_time
from tests.musterweb.conftest import Site, fill
from tests.musterweb.past import Past
from tests.musterweb.running import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.memory_api_server import MemoryApiServer
    from tests.musterweb.people import People
    from tests.musterweb.running import Answer

UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""SHA-256 of the files of uPlot 1.6.32 in the npm registry."""
FILES = ("/analytics.csv", "/analytics-over-time.csv", "/evictions.csv")


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture
def site(server: MemoryApiServer, people: People, kubeconfig: Path, past: Past) -> Iterator[Site]:
    fill(server)
    for namespace, project, name in (
        ("muster-team-a", "team-a", "a-lost"),
        ("people-of-b", "team-b", "b-lost"),
    ):
        server.add(
            {
                "apiVersion": "muster.dev/v1alpha1",
                "kind": "EvictionRecord",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "at": format_time(time.time_ns() // 1000 - 60_000_000),
                    "project": project, "workload": name, "workloadId": "w", "pod": f"{name}-0", "podUid": name,
                    "gpuMilli": 2000, "node": "dgx1-1", "rule": "fair-share", "message": f"{name} =1+1 <b>lost</b>",
                },
            }
        )  # fmt: skip
    with serving(load_server(kubeconfig), history=past) as port:
        yield Site(port, server, people)


def charts(answer: Answer) -> dict[str, dict[str, Any]]:
    found = re.findall(r'aria-labelledby="chart-(\w+)" data-chart="([^"]*)"', answer.text)
    return {name: json.loads(html.unescape(data)) for name, data in found}


def rows_of(answer: Answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_the_page_shows_the_figures_of_the_history(site: Site) -> None:
    answer = site.browser("sue").get("/analytics?hours=1")
    assert answer.status == 200
    drawn = charts(answer)
    assert set(drawn) == {"cluster", "busy", "allocated", "utilization", "idle", "pending", "waits"}
    # the team with the most GPUs comes first
    assert [line["name"] for line in drawn["allocated"]["series"]] == ["team-b", "team-a"]
    assert drawn["utilization"]["series"][1]["values"][4:7] == [50, None, 50]
    assert len(drawn["busy"]["times"]) == len(drawn["busy"]["series"][0]["values"]) == 61
    row = dict(zip(("PROJECT", "NOW", "MEAN", "MOST", "QUOTA"), answer.row("team-a"), strict=False))
    assert row == {"PROJECT": "team-a", "NOW": "3", "MEAN": "1.98", "MOST": "3", "QUOTA": "4"}
    assert answer.row("team-a")[6:] == ["50%", "1", "2", "30s", "1m"]
    assert "From the tests, as of" in answer.words


def test_evictions_are_there_with_their_rules(site: Site) -> None:
    answer = site.browser("sue").get("/analytics?hours=1")
    assert "fair-share: 2" in answer.words
    assert "&lt;b&gt;lost" in answer.text
    assert "<b>lost" not in answer.text
    rows = rows_of(site.browser("sue").get("/evictions.csv?hours=1"))
    assert {(row["PROJECT"], row["JOB"], row["RULE"]) for row in rows} == {
        ("team-a", "a-lost", "fair-share"),
        ("team-b", "b-lost", "fair-share"),
    }
    assert all(re.fullmatch(r"[0-9-]{10}T[0-9:]{8}Z", row["AT"]) for row in rows)


def test_a_member_of_one_team_finds_nothing_of_another_in_any_history(site: Site, past: Past) -> None:
    browser = site.browser("vic", "team-a")
    shown = [browser.get(path) for path in ("/analytics", "/analytics?hours=8760", *FILES)]
    everything = "".join(answer.text + str(answer.headers) for answer in shown)
    assert "team-a" in everything
    assert "a-lost" in everything
    for word in ("team-b", "people-of-b", "b-lost", "chart-cluster", "chart-busy", OTHERS):
        assert word not in everything, word
    assert set(past.queries) == {frozenset({"team-a"})}


def test_a_user_without_a_project_gets_nothing(site: Site, past: Past) -> None:
    answer = site.browser("vic").get("/analytics")
    assert answer.status == 200
    assert set(past.queries) == {frozenset()}
    assert "team-" not in answer.text


def test_the_points_are_a_file_with_a_row_for_each(site: Site) -> None:
    rows = rows_of(site.browser("sue").get("/analytics-over-time.csv?hours=1"))
    assert len(rows) == 2 * 61
    assert rows[0]["PROJECT"] == "team-a"
    assert rows[0]["TIME"].endswith(" UTC")
    assert (rows[0]["GPUs ALLOCATED"], rows[0]["WAIT MEAN SECONDS"]) == ("1", "30")
    assert rows[10]["UTILIZATION"] == ""
    summary = rows_of(site.browser("sue").get("/analytics.csv?hours=1"))
    assert [row["PROJECT"] for row in summary] == ["team-a", "team-b"]


def test_outdated_figures_are_said_so_and_nowhere_shown_as_live(site: Site, past: Past) -> None:
    past.problems = ("The newest figures of the tests are 11 minutes old: nothing here is current.",)
    answer = site.browser("sue").get("/analytics")
    assert past.problems[0] in answer.words
    assert "not current, newest of" in answer.words
    assert 'data-current="yes"' not in answer.text
    past.away = "Prometheus at 127.0.0.1 does not answer (<script>)"
    answer = site.browser("sue").get("/analytics")
    assert answer.status == 200
    assert "Prometheus at 127.0.0.1 does not answer" in answer.words
    assert "&lt;script&gt;" in answer.text
    assert charts(answer) == {}
    assert "a-lost" in answer.text, "evictions are the cluster's own"
    assert site.browser("sue").get("/analytics.csv").status == 404


def test_names_of_projects_are_text_in_charts_tables_and_files(site: Site, past: Past) -> None:
    past.names = ['"><script>alert(1)</script>\n', "=1+1", "team-a"]
    browser = site.browser("sue")
    answer = browser.get("/analytics?hours=1")
    assert "<script>alert" not in answer.text
    assert past.names[0] in [line["name"] for line in charts(answer)["allocated"]["series"]]
    assert "\n=1+1" not in browser.get("/analytics.csv?hours=1").text


def test_a_flood_of_projects_has_few_lines_in_charts_and_all_in_the_table(site: Site, past: Past) -> None:
    past.names = [f"p{number:04d}" for number in range(1000)]
    answer = site.browser("sue").get("/analytics?hours=24")
    assert {
        len(chart["series"]) for name, chart in charts(answer).items() if name not in ("cluster", "busy")
    } == {8}
    assert answer.text.count('<th scope="row">p') == 1000
    rows = rows_of(site.browser("sue").get("/analytics-over-time.csv?hours=1"))
    assert {row["PROJECT"] for row in rows} == {f"p{number:04d}" for number in range(900, 1000)}, (
        "held the most"
    )


@pytest.mark.parametrize("hours", ["0", "2", "-1", "x", "99999999999999999999"])
def test_no_other_period_is_taken(site: Site, past: Past, hours: str) -> None:
    answer = site.browser("sue").get(f"/analytics?hours={hours}")
    assert (answer.status, past.queries) == (400, [])


def test_without_a_history_the_page_says_how_to_have_one(
    server: MemoryApiServer, people: People, kubeconfig: Path
) -> None:
    fill(server)
    with serving(load_server(kubeconfig)) as port:
        answer = Site(port, server, people).browser("sue").get("/analytics")
    assert "start muster web with --prometheus URL" in answer.words


def test_files_of_others_are_served_unchanged_with_their_licence() -> None:
    directory = resources.files("musterweb") / "static" / "uplot"
    digests = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in UPLOT}
    assert digests == UPLOT
    assert {file.name for file in directory.iterdir()} == set(UPLOT)
    assert "MIT License" in (directory / "LICENSE").read_text()
