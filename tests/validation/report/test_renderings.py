"""The renderings of a record, parsed again and compared with the record."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import Element

import msgspec
import pytest
import rfc8785
from defusedxml import ElementTree

from tests.validation.host_doubles import FakeHosts
from tests.validation.report.records import SCENARIO, step, three_steps
from validation.errors import ReportError
from validation.judge.scheduling.history import Violation
from validation.judge.waivers import Waiver
from validation.report import html, junit, markdown
from validation.report.chart import Mark, Plot, render
from validation.report.plots import charts
from validation.report.record import Point, Report, encode, read
from validation.report.text import check_lines
from validation.report.write import write

SVG = "{http://www.w3.org/2000/svg}"


class Checker(HTMLParser):
    """Counts elements, and checks that all of them are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in {"meta", "br", "col", "link", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def report() -> Report:
    return three_steps()


def test_the_page_is_one_well_formed_file_without_script_or_outside_resource(report: Report) -> None:
    checker = Checker()
    checker.feed(html.render(report))
    assert checker.open == []
    assert "script" not in checker.seen
    assert checker.links
    assert all(link.startswith("#") and link[1:] in checker.ids for link in checker.links)
    assert checker.seen.count("svg") == 1


def test_the_page_shows_verdict_expected_oracle_actual_evictions_and_errata(report: Report) -> None:
    page = html.render(report).replace("\N{NO-BREAK SPACE}", " ")
    for text in (
        "FAIL",
        "team-a 4",
        "2 GPUs reclaimed for d-2-gg",
        "muster submit a",
        "dgx1-1",
        "E3",
        "sha256 abc",
        "It is full.",
        "no hardware",
        "not asked for in this run",
    ):
        assert text in page, text


def test_text_of_the_cluster_cannot_become_markup(report: Report) -> None:
    report.steps[1].reason = "<script>alert(1)</script>"
    report.volatile.evictions[0].message = "<img src=x>"
    report.scenarios[0].quotas_milli = {"<b>": 1000}
    page = html.render(report)
    assert "<script>" not in page
    assert "<img" not in page
    assert "<b>\n" not in page
    assert "&lt;script&gt;" in page


EVIL = "\x1b]0;title\x07\u202eSSAP\u202c\u200b<script>alert(1)</script>\"'|`\n# PASS of 91 of 91 [x](http://x) @x"


def test_no_rendering_obeys_text_of_the_record(report: Report) -> None:
    report.steps[1].reason = report.headline = report.summary = report.target["operator"] = EVIL
    report.volatile.evictions[0].message = report.scenarios[0].title = report.steps[1].title = EVIL
    report.scope.waivers = [Waiver("s/a", EVIL, EVIL, "2026-12-31", EVIL, EVIL)]
    report.scope.deviations = [EVIL]
    report.volatile.series[-1].allocated_milli = {EVIL: 1000}
    report.scenarios[0].quotas_milli = {EVIL: 1000, 'x" onload="alert(1)': 1000}
    report.requirements[0].claim = EVIL
    texts = (html.render(report), markdown.render(report), junit.render(report).decode())
    for text in texts:
        assert not {"\x1b", "\x07", "\u202e", "\u202c", "\u200b"} & set(text)
        assert "<script>" not in text
        assert "\n# PASS of 91" not in text
    assert ' onload="' not in texts[0]
    assert "[x](http" not in texts[1]
    ElementTree.fromstring(junit.render(report))


def _paths(svg: str) -> Iterator[Element]:
    return ElementTree.fromstring(svg).iter(f"{SVG}path")


def test_the_chart_has_a_step_line_per_project_a_total_and_a_dashed_line_per_quota(report: Report) -> None:
    ((_, svg),) = charts(report)
    root = ElementTree.fromstring(svg)
    assert [path.get("data-project") for path in _paths(svg) if path.get("class") == "project"] == [
        "team-a",
        "team-b",
    ]
    assert len([path for path in _paths(svg) if path.get("class") == "total"]) == 1
    quotas = [line for line in root.iter(f"{SVG}line") if line.get("class") == "quota"]
    assert len(quotas) == 2
    assert all(line.get("stroke-dasharray") for line in quotas)
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {
        "time (s)",
        "allocated GPUs",
        "tr4858-4.8",
        "one",
        "two",
        "total 6",
        "team-a 4",
        "team-b 2",
    } <= set(words)


def test_a_scenario_without_projects_has_no_chart(report: Report) -> None:
    report.scenarios[0].quotas_milli = {}
    assert charts(report) == []


def test_of_many_invariants_of_a_scenario_a_requirement_shows_their_number() -> None:
    many = [f"s/invariant/{name}" for name in ("a", "b", "c", "d")]
    assert check_lines(["s/one", *many, "t/invariant/a"]) == ["s/one", "s: 4 invariants", "t/invariant/a"]
    assert check_lines(many[:3]) == many[:3]


def test_an_unreached_state_was_not_held(report: Report) -> None:
    """A step that did not reach its state shows no time, and not the time for which the state should have lasted."""
    page = html.render(report)
    assert page.count("held 3.0 s") == 1
    assert [step.verdict for step in report.steps if step.volatile.convergence] == ["PASS", "FAIL"]


def test_lines_change_in_steps_where_the_series_does() -> None:
    plot = Plot(
        title="t",
        start_ms=0,
        end_ms=10_000,
        points=[Point(2000, {"p": 8000}), Point(6000, {"p": 0})],
        quotas_milli={"p": 8000},
        marks=[Mark(0, "s", section=True)],
        capacity_milli=8000,
    )
    line = next(path for path in _paths(render(plot)) if path.get("class") == "project")
    drawn = re.sub(r"\.0(?=\D|$)", "", line.get("d") or "")
    assert drawn == "M56 404H240.8V88H610.4V404H980"


def test_labels_of_near_marks_do_not_cover_each_other() -> None:
    marks = [Mark(t, "a-long-label", section=False) for t in (0, 100, 200)]
    plot = Plot("t", 0, 60_000, [], {"p": 1000}, marks, 8000)
    texts = [t for t in ElementTree.fromstring(render(plot)).iter(f"{SVG}text") if t.text == "a-long-label"]
    assert len({text.get("y") for text in texts}) == 3


def test_junit_has_a_test_per_step_and_counts_that_agree(report: Report) -> None:
    root = ElementTree.fromstring(junit.render(report))
    cases = list(root.iter("testcase"))
    assert [case.get("name") for case in cases] == ["one", "two", "invariant/node-capacity"]
    assert (root.get("tests"), root.get("failures"), root.get("errors"), root.get("skipped")) == (
        "3",
        "1",
        "0",
        "0",
    )
    (failure,) = root.iter("failure")
    assert "expected: team-a\N{NO-BREAK SPACE}4" in (failure.text or "")
    assert "actual:" in (failure.text or "")


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [("BLOCKED", "error"), ("INCONCLUSIVE", "error"), ("ERROR", "error"), ("NOT_APPLICABLE", "skipped")],
)
def test_an_unrun_check_is_no_success_in_junit(report: Report, verdict: str, tag: str) -> None:
    report.steps = [step("x", verdict, reason="why\x00 not")]
    assert (
        next(ElementTree.fromstring(junit.render(report)).iter(tag)).get("message") == f"{verdict}: why not"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("97.00 % over 600.0 s", "97.00 % over 600.0 s"),
        ("6530.59 images/s", "6530.59 images/s"),
        ("1. an item", "1\\. an item"),
        (" 12) an item", "12\\) an item"),
        ("  - an item", "\\- an item"),
        ("7.", "7\\."),
    ],
)
def test_markdown_begins_no_list_and_keeps_figures(words: str, expected: str) -> None:
    assert markdown.plain(words) == expected


def test_markdown_keeps_its_tables_whole(report: Report) -> None:
    report.steps[1].volatile.violations = [Violation(61_500, "a | b\nc")]
    text = markdown.render(report)
    assert "1:01.5 a \\| b c" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_the_record_is_read_back_as_it_was_written(report: Report, tmp_path: Path) -> None:
    write(report, tmp_path / "r")
    assert encode(read(tmp_path / "r")) == encode(report)
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
        "junit.xml",
        "manifest.sha256",
        "report.html",
        "report.json",
        "report.md",
    ]


def test_a_damaged_record_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"verdict": 1}')
    with pytest.raises(ReportError, match=r"report\.json: is not a report"):
        read(tmp_path)
    with pytest.raises(ReportError, match=r"cannot be read: No such file"):
        read(tmp_path / "nowhere")


def test_a_directory_that_cannot_be_written_is_an_error(report: Report, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="cannot be written"):
        write(report, tmp_path / "file" / "r")


def test_a_page_of_very_many_checks_shows_those_that_did_not_pass(report: Report) -> None:
    report.steps = [step(f"s{number}", "FAIL" if number == 5000 else "PASS") for number in range(6000)]
    page = html.render(report)
    assert "<b>500 of 6000 checks are shown</b>" in page
    assert f"{report.scenarios[0].id}/s5000" in page
    assert len(page) < 1_000_000


def test_the_record_is_canonical_also_where_numbers_and_keys_are_unusual(report: Report) -> None:
    for target in (
        {"kind": "lab", "load": "1e21"},
        {"kind": "lab", "\U0001f600": "a", "\uffee": "b"},
        {"é": "\x1f"},
    ):
        report.target = target
        assert encode(report) == rfc8785.dumps(json.loads(encode(report)))


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        (("PASS", f"{SCENARIO}/one", "", 0), True),
        (("PASS", f"{SCENARIO}/one", "8x8", 0), False),
        (("INCONCLUSIVE", f"{SCENARIO}/one", "8x8", 0), True),
        (("PASS", "dra/api/version", "8x8", 0), True),
        (("PASS", "hosts/layer/gpus", "", 2), True),
        (("PASS", "hosts/layer/gpus", "", 8), False),
        (("PASS", "hosts-after/layer/kubelets", "8x8", 8), False),
    ],
)
def test_a_figure_of_a_passed_row_is_printed_only_at_the_size_at_which_it_was_measured(
    report: Report, case: tuple[str, str, str, int], *, shown: bool
) -> None:
    entry = report.requirements[0]
    entry.verdict, check, size, hosts = case
    entry.checks, entry.number, entry.not_applicable = [check], "16 GPUs of 16", ""
    report.scenarios[0].size = size or msgspec.UNSET
    if hosts:
        report.scope.hosts = FakeHosts(names=tuple(f"n{number}" for number in range(hosts))).scope
    for page in (html.render(report), markdown.render(report)):
        assert ("16 GPUs of 16" in page) == shown
