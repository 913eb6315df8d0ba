"""Covers `musterweb.node_pages`: each link to a node leads to the page of this node, and old
figures are marked as old.
"""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from musterweb.node_pages import NODES_OF_A_PAGE, OLD_SECONDS, old_time
from orchestrator.views.gpus import GpuView
from tests.cli.memory_api_server import node

if TYPE_CHECKING:
    from tests.musterweb.conftest import Site

NOW_US = 1_800_000_000_000_000


def titles_of(text: str) -> list[str]:
    return re.findall(r'<h2 id="title-node-[^"]*">(.*?)</h2>', text)


def test_each_node_of_the_overview_leads_to_that_node_and_no_other(site: Site) -> None:
    names = [f"n{number}" for number in range(NODES_OF_A_PAGE + 10)]
    site.server.add(*(node(name, 1) for name in names))
    browser = site.browser("sue")
    links = re.findall(r'<a href="(/nodes[^"]*)">(.*?)</a>', browser.get("/").text.partition('id="body"')[2])
    assert {name for _, name in links} == {*names, "dgx1-1", "dgx1-2"}
    for link, name in links:
        page = browser.get(unescape(link).partition("#")[0])
        assert titles_of(page.text) == [name]
    assert len(titles_of(browser.get("/nodes").text)) == NODES_OF_A_PAGE


def test_a_page_of_one_node_leads_to_the_others_and_its_files_are_of_that_node(site: Site) -> None:
    browser = site.browser("sue")
    page = browser.get("/nodes?node=dgx1-2")
    assert '<a class="button" href="/nodes">All nodes</a>' in page.text
    assert "All nodes" not in browser.get("/nodes").text
    files = [unescape(file) for file in re.findall(r'class="file" href="([^"]*)"', page.text)]
    (header, *rows) = csv.reader(io.StringIO(browser.get(files[0]).text))
    assert (header[0], [row[0] for row in rows]) == ("NAME", ["dgx1-2"])
    assert "There is no node <x>." in unescape(browser.get("/nodes?node=%3Cx%3E").text)


def observed(site: Site, name: str, seconds_ago: float) -> str:
    """Write a GpuNode that an agent observed `seconds_ago` seconds ago. Return its time of day as pages write it."""
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    states: list[dict[str, Any]] = [
        {"index": 0, "uuid": f"{name}-0", "utilizationPercent": 37, "memoryMib": 32768, "memoryUsedMib": 1024}
    ]
    states[0]["holders"] = [{"namespace": "muster-team-a", "pod": "a-train-0"}] if name == "dgx1-1" else []
    site.server.add(
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "GpuNode",
            "metadata": {"name": name},
            "spec": {"observedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "gpus": states},
        }
    )
    return at.strftime("%H:%M:%S UTC")


def test_figures_of_more_than_a_minute_ago_are_marked_with_their_time(site: Site) -> None:
    old, lately = observed(site, "dgx1-1", 400), observed(site, "dgx1-2", 1)
    browser = site.browser("sue")
    overview, nodes, jobs = browser.get("/"), browser.get("/nodes"), browser.get("/jobs")
    assert overview.row("dgx1-1")[-2:] == ["37%", f"old: {old}"]
    assert f'data-status="old">old: {old}</td>' in overview.text
    assert overview.row("dgx1-2")[-2:] == ["37%", ""]
    said = f"Old: the figures of GPUs on 1 of 2 nodes are more than a minute old, the oldest at {old}."
    assert (said in overview.words, said in jobs.words) == (True, True)
    assert nodes.words.count(f"the figures of its GPUs are old: {old}") == nodes.words.count("old:") == 1
    assert f"Their figures are old: {old}." in browser.get("/jobs/team-a/a-train").words
    rows = {row["NODE"]: row for row in csv.DictReader(io.StringIO(browser.get("/gpus.csv").text))}
    assert (old in rows["dgx1-1"]["OBSERVED"], lately in rows["dgx1-2"]["OBSERVED"]) == (True, True)


def test_nothing_is_called_old_that_was_observed_within_a_minute(site: Site) -> None:
    for name in ("dgx1-1", "dgx1-2"):
        observed(site, name, 1)
    browser = site.browser("sue")
    for path in ("/", "/nodes", "/jobs", "/jobs/team-a/a-train"):
        assert "old" not in browser.get(path).words.lower().split(), path


@pytest.mark.parametrize(
    ("seconds_ago", "text"),
    [
        ((OLD_SECONDS,), ""), ((OLD_SECONDS + 1,), "old: 07:58:59 UTC"), ((1, 90), "old: 07:58:30 UTC"),
        ((-5,), ""), ((), ""), ((None,), ""),
    ],
)  # fmt: skip
def test_the_oldest_figures_count(seconds_ago: tuple[int | None, ...], text: str) -> None:
    gpus = [
        GpuView("n1", index, "", "", 0, "", observed_us=0 if ago is None else NOW_US - ago * 1_000_000)
        for index, ago in enumerate(seconds_ago)
    ]
    assert old_time(gpus, NOW_US) == text
