"""Titles of checks: the id of a check determines its title, and docstrings do not."""

import pytest

from tests.validation.report.records import step, three_steps
from validation.check_titles import title_of
from validation.judge.scheduling.invariants import INVARIANTS
from validation.planned_checks import plan
from validation.report.sources import with_own_titles
from validation.scenario.loader import find, load


def test_each_check_that_ships_has_a_title() -> None:
    assert [check.id for check in plan(load(find())) if not check.title.strip()] == []
    assert [name for name in INVARIANTS if not title_of(f"invariant/{name}")] == []


@pytest.mark.parametrize("name", INVARIANTS)
def test_a_docstring_is_no_title(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = title_of(f"invariant/{name}")
    monkeypatch.setattr(INVARIANTS[name], "__doc__", "Other words.")
    assert title_of(f"invariant/{name}") == before


@pytest.mark.parametrize(
    "name",
    ["api/version", "view/jobs", "layer/gpus", "training/resnet50", "utilization", "invariant/node-affinity"],
)
def test_a_page_shows_the_own_title_of_each_kind_of_check(name: str) -> None:
    report = three_steps()
    report.steps = [step(name, "PASS", title="All is well")]
    report.steps[0].kind = name.partition("/")[0]
    assert with_own_titles(report).steps[0].title == title_of(name) != "All is well"


@pytest.mark.parametrize(
    "name", ["invariant/x", "view/x", "view/job/a", "api/", "layer/..", "training/x", "", "/"]
)
def test_an_unknown_check_has_no_title_and_keeps_that_of_its_record(name: str) -> None:
    report = three_steps()
    report.steps = [step(name, "PASS", title="As recorded")]
    report.steps[0].kind = "invariant"
    assert (title_of(name), with_own_titles(report).steps[0].title) == ("", "As recorded")
