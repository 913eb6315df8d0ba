"""If a user may see the jobs of more projects than the pages watch, the pages name the projects that are not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from musterweb.page import NAMES_OF_A_NOTE
from tests.cli.memory_api_server import namespace_of, project_of
from tests.musterweb.conftest import add_job
from tests.musterweb.people import Someone
from tests.musterweb.test_events import until

if TYPE_CHECKING:
    from tests.musterweb.conftest import Site

SHOWN = 3
MANY = SHOWN + NAMES_OF_A_NOTE + 2


@pytest.fixture
def many(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Let max see the jobs of `MANY` projects with one job each, but not the jobs of the whole cluster. Return the
    site.
    """
    monkeypatch.setattr("musterweb.person.MAX_SCOPES", SHOWN)
    names = [f"p-{number:02}" for number in range(MANY)]
    for name in names:
        site.server.add(project_of(name, 1), namespace_of(name))
        add_job(site.server, f"muster-{name}", f"job-of-{name}", gpus=1, why="no GPU is free")
    site.people.by_token["token-of-max"] = Someone(
        "max", tuple(f"muster-{name}" for name in names), kinds=("namespaces", "projects")
    )
    return site


def test_a_user_of_more_projects_than_are_shown_is_told_the_hidden_ones(many: Site) -> None:
    browser = many.browser("max")
    listed = ", ".join(f"p-{number:02}" for number in range(SHOWN, SHOWN + NAMES_OF_A_NOTE))
    said = f"You may see those of {MANY - SHOWN} more, which is too many at once: {listed} and 2 more,"
    for path in ("/", "/jobs", "/analytics"):
        words = browser.get(path).words
        assert f"The jobs of {SHOWN} projects are shown. {said}" in words, path
        assert "sign in again and name it" in words
    with browser.events("/jobs") as events:
        page = until(events, lambda kind, _: kind == "page")["html"]
    shown = [f"job-of-p-{number:02}" in page for number in range(MANY)]
    assert shown == [number < SHOWN for number in range(MANY)]


def test_the_named_project_is_shown_for_any_name(many: Site) -> None:
    last = f"p-{MANY - 1:02}"
    page = many.browser("max", last).get("/jobs")
    assert f"job-of-{last}" in page.text
    assert f"{last} and" not in page.words
    assert f"job-of-p-{SHOWN - 1:02}" not in page.text, "one of the others is left out for it"


def test_a_user_with_all_their_projects_in_view_is_told_nothing(many: Site) -> None:
    for browser in (many.browser("sue"), many.browser("vic", "team-a")):
        assert "too many at once" not in browser.get("/jobs").words
