"""The readers of pages return the content of the real pages, served over a cluster in memory."""

import json
from pathlib import Path

import pytest

from tests.musterweb.conftest import Site, kubeconfig, muster, people, server, site
from validation.witness.pages import Browser, analytics_rows, overview_rows
from validation.witness.reader import ReadFailed

__all__ = ["kubeconfig", "muster", "people", "server", "site"]


def test_every_part_of_the_overview_is_read(site: Site) -> None:
    browser = Browser(site.port)
    browser.sign_in("token-of-sue")
    status, text = browser.open("/")
    assert status == 200
    rows = overview_rows(text)
    state, *rest = rows
    assert (state["of"], state["current"], isinstance(state["at"], int)) == ("state", "yes", True)
    figures = {row["figure"]: row["value"] for row in rest if row["of"] == "figure"}
    some = ("GPUs", "Allocated", "Free", "Not ready or cordoned", "Jobs that wait")
    assert [figures[name] for name in some] == ["16", "4 (25%)", "0", "12", "1"]
    assert figures.keys() == {
        *some, "Allocated, but idle", "Unhealthy", "Utilization", "Nodes", "Jobs that hold GPUs",
    }  # fmt: skip
    shares = {row["project"]: row["value"] for row in rest if row["of"] == "share"}
    assert shares.keys() == {"team-a", "team-b"}
    (waiting,) = [row for row in rest if row["of"] == "waiting"]
    assert (waiting["name"], waiting["project"], waiting["GPUs"]) == ("a-waits", "team-a", "8")
    assert waiting["WAITS BECAUSE"] == "team-a has 4 of 4 GPUs: <b>wait</b>"
    assert waiting["AGE"]
    holding = {row["name"]: row["node"] for row in rest if row["of"] == "holding"}
    assert holding == {"a-train": "dgx1-1", "a-html": "dgx1-1", "b-secret": "dgx1-2"}
    nodes = {row["name"]: row["ALLOCATED"] for row in rest if row["of"] == "nodes"}
    assert nodes == {"dgx1-1": "3", "dgx1-2": "1"}
    assert {row["of"] for row in rows} == {"state", "figure", "share", "waiting", "holding", "nodes"}


def test_the_files_of_the_analytics_are_read(site: Site) -> None:
    browser = Browser(site.port)
    browser.sign_in("token-of-sue")
    (first, points), (second, summary) = map(browser.open, ("/analytics-over-time.csv", "/analytics.csv"))
    assert (first, second) == (200, 200)
    rows = analytics_rows(points, summary)
    now = {row["project"]: row["GPUs NOW"] for row in rows if row["of"] == "summary"}
    assert (now["team-a"], now["team-b"]) == ("3", "1")
    of_a = [row for row in rows if row["of"] == "point" and row["project"] == "team-a"]
    assert of_a
    assert all(isinstance(row["at"], int) and float(row["GPUs ALLOCATED"]) >= 0 for row in of_a)


def test_text_of_users_is_no_part_of_the_page(site: Site) -> None:
    browser = Browser(site.port)
    browser.sign_in("token-of-sue")
    rows = overview_rows(browser.open("/")[1])
    (row,) = [row for row in rows if row["of"] == "holding" and row["name"] == "a-html"]
    assert row["USER"] == "<script>alert(1)</script>"
    assert json.dumps(rows)


def test_no_person_is_signed_in_with_a_token_that_the_api_server_does_not_know(site: Site) -> None:
    with pytest.raises(ReadFailed, match="signing in is answered with"):
        Browser(site.port).sign_in("token-of-nobody")


def test_where_nothing_serves_the_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match="/ is not answered"):
        Browser(1).open("/")
