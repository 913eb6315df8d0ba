"""Validation records on pages: shown as written, from one folder, to users who may see the whole cluster."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest

from musterweb.report_pages import MAX_REPORTS
from musterweb.reports import SCHEMA_VERSION
from orchestrator.cluster.kubeconfig import load_server
from tests.musterweb.conftest import Site, fill
from tests.musterweb.running import serving
from tests.validation.report.records import three_steps
from validation.report import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer
    from tests.musterweb.people import People


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of records that the fixture `site` serves."""
    return tmp_path / "reports"


def add(folder: Path, name: str, content: bytes) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "report.json").write_bytes(content)


def test_a_record_is_shown_as_validate_wrote_it(site: Site) -> None:
    assert record.SCHEMA_VERSION == SCHEMA_VERSION
    browser = site.browser("sue")
    row = browser.get("/reports").row("first")
    assert row[1:6] == ["FAIL", "FAIL", "2026-01-01T00:00:00Z", "lab", "1 FAIL, 2 PASS"]
    page = browser.get("/reports/first")
    assert "FAIL: 0 of the 1 requirements asked for passed" in page.words
    assert page.row("fairness.full")[1:] == ["FAIL", "It is full.", "table", "two is FAIL"]
    assert page.row("hardware.gpus")[1] == "NOT_APPLICABLE"
    failed = [step for step in three_steps().steps if step.verdict != "PASS"]
    for step in failed:
        assert page.row(step.id)[1:3] == [step.verdict, step.title]
        assert all(reason in page.words for reason in step.reasons)
    rows = list(csv.DictReader(io.StringIO(browser.get("/reports.csv").text)))
    assert [row["NAME"] for row in rows] == ["first"]


def test_a_user_without_all_rights_sees_no_report(site: Site) -> None:
    browser = site.browser("vic", "team-a")
    assert "A report holds the jobs of all teams" in browser.get("/reports").words
    answer = browser.get("/reports/first")
    assert answer.status == 404
    for text in (answer.text, browser.get("/reports").text, browser.get("/reports.csv").text):
        assert "team-b" not in text
        assert "fairness" not in text


@pytest.mark.parametrize(
    "name",
    [
        "second",
        "..",
        ".",
        "%2e%2e",
        "..%2ffirst",
        "first%2f..%2ffirst",
        "first%2freport.json",
        "%00",
        "a" * 300,
        "link",
        "secret",
    ],
)
def test_nothing_outside_of_the_folder_is_read(site: Site, folder: Path, tmp_path: Path, name: str) -> None:
    add(tmp_path, "elsewhere", record.encode(three_steps()))
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "secret").mkdir()
    (folder / "secret" / "report.json").symlink_to(tmp_path / "elsewhere" / "report.json")
    answer = site.browser("sue").get(f"/reports/{name}")
    assert answer.status in (404, 200)
    assert "fairness.full" not in answer.text
    assert "link" not in site.browser("sue").get("/reports.csv").text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"[" * 10_000, "cannot be read"),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "cannot be read"),
        (b'{"verdict": "PASS"}', "cannot be read"),
        (
            record.encode(three_steps()).replace(
                b'"schemaVersion":%d' % SCHEMA_VERSION, b'"schemaVersion":9'
            ),
            f"of version 9, not {SCHEMA_VERSION}",
        ),
    ],
)
def test_a_file_that_is_no_record_is_said_so_and_never_passes(
    site: Site, folder: Path, content: bytes, words: str
) -> None:
    add(folder, "odd", content)
    browser = site.browser("sue")
    assert browser.get("/reports").row("odd")[1] == "unreadable"
    answer = browser.get("/reports/odd")
    assert (answer.status, words in answer.words) == (404, True)


def test_words_of_a_record_are_text(site: Site, folder: Path) -> None:
    report = three_steps()
    report.summary = "=1+1 <script>alert(1)</script>"
    add(folder, "<script>", record.encode(report))
    browser = site.browser("sue")
    for path in ("/reports", "/reports/%3Cscript%3E"):
        answer = browser.get(path)
        assert answer.status == 200
        assert "<script>alert" not in answer.text
    assert ",'=1+1" in browser.get("/reports.csv").text


def test_of_many_reports_the_newest_are_listed(site: Site, folder: Path) -> None:
    for number in range(MAX_REPORTS + 5):
        add(folder, f"run-{number:03d}", b"{}")
    answer = site.browser("sue").get("/reports")
    assert f"The newest {MAX_REPORTS} of {MAX_REPORTS + 6}." in answer.words
    assert "run-204" in answer.text
    assert "run-000" not in answer.text


def test_without_a_folder_the_page_says_how_to_have_one(
    server: MemoryApiServer, people: People, kubeconfig: Path, muster: Callable[..., Outcome]
) -> None:
    fill(server)
    with serving(load_server(kubeconfig)) as port:
        answer = Site(port, server, people).browser("sue").get("/reports")
    assert "start muster web with --reports DIRECTORY" in answer.words
    assert muster("web", "--reports", "/missing").code == 2
