"""The pages show what the command line shows, and to each user only objects that the user's own rights allow."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import ExitStack
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from musterweb.application import FILES, LIVE, STILL
from musterweb.table import Table, csv_text
from tests.musterweb.conftest import FILE_TOKEN, HTML, add_job, cordon, filled_in, set_ready
from tests.musterweb.test_events import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.musterweb.conftest import Site

OWN = {"project": "team-a", "name": "a-train"}
OF_OTHERS = ("team-b", "people-of-b", "b-secret", "bob", "dgx1-2/", "GPU-0")
"""Words in objects that a viewer of team-a may not read."""
JOB = "/jobs/team-a/a-train"
PAGES = (
    "/",
    "/projects",
    "/jobs",
    "/nodes",
    "/analytics",
    "/reports",
    "/reports/first",
    "/cluster",
    "/new-cluster?name=east",
    JOB,
    f"{JOB}/explain",
    f"{JOB}/logs",
)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_page_opens_for_a_user_with_all_rights(site: Site) -> None:
    browser = site.browser("sue")
    absent = {"/cluster.csv", "/jobs/{project}/{name}/gpus.csv"}
    for path in (*PAGES, *map(filled_in, set(FILES) - absent), "/projects/team-a"):
        answer = browser.get(path)
        assert answer.status == 200, (path, answer.words)
    assert len(PAGES) == len(LIVE) + len(STILL)


def test_the_numbers_are_those_of_list_and_top(site: Site, muster: Callable[..., Outcome]) -> None:
    browser = site.browser("sue")
    jobs = {row["NAME"]: row for row in rows_of(browser.get("/jobs.csv").text)}
    listed = muster("list", "-A", "-o", "json").json
    assert {job["name"] for job in listed} == set(jobs)
    for job in listed:
        row = jobs[job["name"]]
        expected = (job["status"], job["node"], job["gpus"], job["waitsBecause"], job["project"])
        assert (row["STATUS"], row["NODE"], row["GPUs"], row["WAITS BECAUSE"], row["PROJECT"]) == expected
        if job["name"] != "a-html":
            assert browser.get("/jobs").row(job["name"])[2] == job["gpus"]
    top = {node["name"]: node for node in muster("top", "node", "-o", "json").json}
    overview = browser.get("/")
    for name, node in top.items():
        assert overview.row(name)[3:5] == [node["gpus"], node["gpusAllocated"]]
    total = muster("top", "node").lines[-1]
    assert total == "4/16 (25%)"
    for figure in ("<dd>16</dd>", "<dd>4 (25%)</dd>", "<dd>37%</dd>"):
        assert figure in overview.text
    (gpu, *_) = json.loads(muster("list", "nodes", "-o", "json").out)[0]["gpuDetails"]
    cells = browser.get("/nodes").row("0")
    assert cells[1:3] == ["muster-team-a/a-train-0", f"{gpu['utilizationPercent']}%"]
    assert "Xid 79" in browser.get("/nodes").row("1")
    wide = muster("list", "projects", "-o", "wide", "--no-headers").out.split()
    assert browser.get("/projects").row("team-a")[2] == wide[wide.index("4")]


def test_the_numbers_are_still_those_of_the_commands_after_changes(
    site: Site, muster: Callable[..., Outcome]
) -> None:
    browser = site.browser("sue")
    with browser.events("/") as events:
        until(events, lambda kind, _: kind == "page")
        add_job(site.server, "people-of-b", "b-second", gpus=2, node="dgx1-2", devices="1,2")
        site.server._delete(("jobs", "people-of-b", "b-secret"))
        add_job(site.server, "muster-team-a", "a-last", gpus=1, why="last")
        until(
            events,
            lambda kind, event: (
                kind == "page" and "a-last" in event["html"] and "b-secret" not in event["html"]
            ),
        )
        overview, rows = browser.get("/"), rows_of(browser.get("/jobs.csv").text)
    listed = muster("list", "-A", "-o", "json").json
    assert [row["NAME"] for row in rows] == [job["name"] for job in listed]
    assert [row["STATUS"] for row in rows] == [job["status"] for job in listed]
    for node in muster("top", "node", "-o", "json").json:
        assert overview.row(node["name"])[4] == node["gpusAllocated"]


@pytest.mark.parametrize("state", ["False", "Unknown", "cordoned"])
def test_gpus_of_a_node_that_is_not_ready_or_cordoned_are_not_free(
    site: Site, muster: Callable[..., Outcome], state: str
) -> None:
    def shown() -> tuple[dict[str, str], list[str], list[str]]:
        overview = site.browser("sue").get("/")
        figures = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", overview.text))
        listed = [line.split()[-1] for line in muster("list", "nodes", "--no-headers").lines]
        free = [overview.row(name)[5] for name in ("dgx1-1", "dgx1-2")]
        return figures, free, listed

    for name in ("dgx1-1", "dgx1-2"):
        set_ready(site.server, name, "True")
    figures, free, listed = shown()
    assert (figures["Free"], figures["Not ready or cordoned"]) == ("12", "0")
    assert free == listed == ["5", "7"]
    if state == "cordoned":
        cordon(site.server, "dgx1-2")
    else:
        set_ready(site.server, "dgx1-2", state)
    figures, free, listed = shown()
    assert (figures["GPUs"], figures["Allocated"]) == ("16", "4 (25%)")
    assert (figures["Free"], figures["Not ready or cordoned"]) == ("5", "7")
    assert free == listed == ["5", "0"]


def test_a_viewer_of_one_team_finds_nothing_of_another(site: Site) -> None:
    browser = site.browser("vic", "team-a")
    files = [address for path in FILES for address in (path.format_map(OWN), filled_in(path))]
    shown = [browser.get(path) for path in (*PAGES, *files)]
    everything = "".join(answer.text + str(answer.headers) for answer in shown)
    assert "a-train" in everything
    for word in OF_OTHERS:
        assert word not in everything, word
    for part in ("", "/logs", "/explain", "/pods.csv", "/events.csv", "/evictions.csv", "/holders.csv"):
        path = f"/jobs/team-b/b-secret{part}"
        answer = browser.get(path)
        assert (answer.status in (403, 404), "bob" in answer.text) == (True, False)
    assert browser.get("/nodes.csv").status == 404


def test_no_stream_of_a_viewer_of_one_team_brings_anything_of_another(site: Site) -> None:
    browser = site.browser("vic", "team-a")
    streams = [path.format_map(OWN) for path in LIVE]
    events_of_all: list[tuple[str, dict[str, object]]] = []
    with ExitStack() as stack:
        opened = {path: stack.enter_context(browser.events(path)) for path in streams}
        events_of_all.extend(next(events) for events in opened.values())
        add_job(site.server, "muster-team-b", "b-secret-too", gpus=1, why="bob waits")
        add_job(site.server, "muster-team-a", "a-new", gpus=1, why="no GPU is free")
        for path, events in opened.items():
            for event in events:
                events_of_all.append(event)
                # A change that alters no figure of a page sends no new page: then the event `state` is
                # enough.
                if "a-new" in json.dumps(event) or (path != "/jobs" and event[0] == "state"):
                    break
    everything = json.dumps(events_of_all)
    assert "a-new" in everything
    assert [word for word in OF_OTHERS if word in everything] == []


def test_a_user_without_a_named_or_listed_project_sees_nothing_and_is_told_why(site: Site) -> None:
    answer = site.browser("vic").get("/jobs")
    assert answer.status == 200
    assert "sign in again and name one of yours" in answer.words


def test_no_request_has_the_credentials_of_the_kubeconfig(site: Site) -> None:
    browser = site.browser("sue")
    for path in PAGES:
        browser.get(path)
    assert set(site.people.tokens) == {"token-of-sue"}
    assert FILE_TOKEN not in site.people.tokens


def test_text_of_users_is_text_and_nothing_else(site: Site) -> None:
    browser = site.browser("sue")
    for path in ("/", "/jobs", "/jobs/team-a/a-html"):
        answer = browser.get(path)
        assert HTML not in answer.text
        assert "<b>wait" not in answer.text
        assert "&lt;script&gt;" in answer.text
    assert browser.get("/jobs?name=%22%3E%3Cscript%3Ex").text.count("<script") == 1


def tables_of(text: str) -> list[tuple[str, list[str], list[str], str]]:
    """Return for each table of a page its title, its column titles, the first cell of each row, and the link of its
    file.
    """
    tables = []
    for part in text.split('<div class="table">')[1:]:
        title = re.search(r"<h2[^>]*>(.*?)</h2>", part)
        link = re.search(r'<a class="file" href="([^"]*)"', part.partition("<table>")[0])
        header = [unescape(cell) for cell in re.findall(r'<th scope="col">(.*?)</th>', part)]
        first = [
            unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r'<th scope="row"[^>]*>(.*?)</th>', part)
        ]  # fmt: skip
        assert title, part
        tables.append((title[1], header, first, unescape(link[1]) if link else ""))
    return tables


@pytest.mark.parametrize(
    ("path", "titles"),
    [
        (JOB, ["Pods", "GPUs", "Events", "Evictions"]),
        ("/jobs/team-a/a-waits/explain", ["Where its projects stand", "Who holds GPUs"]),
        ("/reports/first", ["Checks that did not pass", "Requirements"]),
        ("/projects", ["Projects"]),
    ],
)
def test_each_table_has_a_file_of_its_columns_and_rows(site: Site, path: str, titles: list[str]) -> None:
    browser = site.browser("sue")
    tables = tables_of(browser.get(path).text)
    assert [title for title, *_ in tables] == titles
    for title, header, first, file in tables:
        answer = browser.get(file)
        assert answer.headers["content-type"].startswith("text/csv"), title
        written, *rows = csv.reader(io.StringIO(answer.text))
        assert (written, [row[0] for row in rows]) == (header or written, first), title


def test_the_file_of_holders_of_gpus_has_all_of_them_and_no_other(site: Site) -> None:
    for number in range(20):
        add_job(site.server, "people-of-b", f"b-{number}", gpus=0 if number % 5 else 1, node="dgx1-2")
    browser = site.browser("sue")
    (header, file) = next(
        (header, file)
        for title, header, _, file in tables_of(browser.get("/").text)
        if title == "Who holds GPUs"
    )
    written, *rows = csv.reader(io.StringIO(browser.get(file).text))
    assert written == header
    holders = {row["NAME"]: row["GPUs"] for row in rows_of(browser.get("/jobs.csv").text) if row["NODE"]}
    expected = {name: gpus for name, gpus in holders.items() if gpus != "0"}
    assert len(expected) == 7
    assert {row[0]: row[written.index("GPUs")] for row in rows} == expected


def test_evictions_that_may_not_be_read_are_no_empty_file(site: Site) -> None:
    path = "/apis/muster.dev/v1alpha1/namespaces/muster-team-a/evictionrecords"
    site.server.refuse("GET", path, 403, "Forbidden")
    browser = site.browser("sue")
    (file,) = [file for title, *_, file in tables_of(browser.get(JOB).text) if title == "Evictions"]
    assert (file, browser.get(f"{JOB}/evictions.csv").status) == ("", 404)


def test_a_file_has_no_formulas(site: Site) -> None:
    rows = {row["NAME"]: row for row in rows_of(site.browser("sue").get("/jobs.csv").text)}
    assert rows["a-sum"]["USER"] == "'=HYPERLINK(1)"
    assert rows["a-train"]["USER"] == "ann"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("=1+1", "'=1+1"), ("\u00a0=1+1", " '=1+1"), ("\n@x", " '@x"), ("\uff1d1", "'\uff1d1"),
        ("a;=1+1", "a;'=1+1"), ("a; +1", "a; '+1"), ("a=1", "a=1"), ("-", ""), ("a-b; c", "a-b; c"),
    ],
)  # fmt: skip
def test_no_cell_of_a_file_begins_a_formula(cell: str, text: str) -> None:
    written = csv_text(Table("t", "T", ("NAME", "USER"), [("x", cell)]))
    assert rows_of(written)[0]["USER"] == text


def test_explain_and_why_evicted_show_the_output_of_the_commands(
    site: Site, muster: Callable[..., Outcome]
) -> None:
    explained = muster("explain", "a-waits")
    words = site.browser("sue").get("/jobs/team-a/a-waits/explain").words
    for line in explained.lines[:3]:
        assert line in words
    assert "GPUs are held by" in explained.out
    assert "held by" not in words, "the table says so itself"
    assert "It was not evicted" in site.browser("sue").get(JOB).words


def test_jobs_are_chosen_by_name_status_and_project(site: Site) -> None:
    browser = site.browser("sue")
    rows = rows_of(browser.get("/jobs.csv?project=team-a&status=Pending").text)
    assert [row["NAME"] for row in rows] == ["a-waits"]
    answer = browser.get("/jobs?name=secret&page=99")
    assert "b-secret" in answer.text
    assert "a-train" not in answer.text
    assert browser.get("/jobs?page=-1").status == 400


def test_the_yaml_of_a_new_cluster_is_that_of_the_command(site: Site, muster: Callable[..., Outcome]) -> None:
    browser = site.browser("vic", "team-a")
    assert browser.get("/new-cluster.yaml?name=east").text == muster("operator-yaml", "--cluster", "east").out
    for name in ("x" * 64, "a b", 'a"b', "{{1}}", "é", "\U0001f389", "-a", "<script>"):
        answer = browser.get("/new-cluster?" + urlencode({"name": name}))
        assert "beginning and ending with a letter or digit" in answer.words
        assert "<pre" not in answer.text


@pytest.mark.parametrize(
    "path", ["/nowhere", "/jobs/team-a", "/static/../command.py", "/events?page=/nowhere"]
)
def test_a_missing_object_is_said_so(site: Site, path: str) -> None:
    assert site.browser("sue").get(path).status in (403, 404)
