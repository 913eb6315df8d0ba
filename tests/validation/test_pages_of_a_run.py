"""Web pages as checks, through `muster validate`: a page of another cluster, or an unreadable one, never passes."""

from pathlib import Path
from typing import Any

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.replay import TR4858, assert_check, run_command, settings
from validation.errors import TargetError
from validation.report.record import Report
from validation.targets.web_pages import PageShown

FILE = [TR4858 / "section-4.8.scenario.yaml"]
OVERVIEW = "tr4858-4.8/view/overview"


class FollowsLate(FakeTarget):
    """Its overview shows an earlier moment, as with a slow operator."""

    opened = 0

    def page_rows(self, view: str) -> list[dict[str, Any]]:
        self.opened += 1
        rows = super().page_rows(view)
        late = [{**row, "value": "3 of 4"} if row.get("project") == "team-a" else row for row in rows]
        return late if self.opened < 4 else rows


class StandsStill(FollowsLate):
    """Its overview never changes."""

    opened = -1_000


class ServesNothing(FakeTarget):
    """Its pages are not served."""

    async def open_pages(self) -> None:
        raise TargetError("muster web did not start: the port is taken")


class IsAway(FakeTarget):
    """Its pages answer with an error."""

    async def show_page(self, view: str) -> PageShown:
        return PageShown(problem="it is answered with 503")


class LosesTheViewer(FakeTarget):
    """No one can sign in to its pages."""

    async def show_page(self, view: str) -> PageShown:
        raise TargetError("muster web refuses the sign-in: 401")


class SaysNothing(FakeTarget):
    """Serves a page without any text."""

    def page_rows(self, view: str) -> list[dict[str, Any]]:
        return []


@pytest.mark.parametrize(
    ("target", "verdict", "words"),
    [
        (FakeTarget, "PASS", ""),
        (FollowsLate, "PASS", ""),
        (StandsStill, "FAIL", 'team-a: its share is "3 of 4", not 4 of 4, 0 waiting'),
        (ServesNothing, "ERROR", "muster web did not start: the port is taken"),
        (IsAway, "FAIL", "`GET / of muster web`: it is answered with 503"),
        (LosesTheViewer, "ERROR", "muster web refuses the sign-in: 401"),
        (SaysNothing, "FAIL", "the page does not say that it is current"),
    ],
)
def test_only_a_page_that_is_of_the_cluster_passes(
    target: type[FakeTarget], verdict: str, words: str, tmp_path: Path
) -> None:
    report = ran(tmp_path, target)
    assert_check(report, tmp_path / "r", OVERVIEW, verdict, words)
    others = {step.verdict for step in report.steps if step.required and step.id != OVERVIEW}
    assert others == {"PASS", "NOT_APPLICABLE"}


def ran(directory: Path, target: type[FakeTarget]) -> Report:
    _, report = run_command(FILE, settings(directory / "r", target))
    assert report is not None
    return report
