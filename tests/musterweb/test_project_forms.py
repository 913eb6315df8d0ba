from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from musterweb.project_forms import spec_from, values_of
from orchestrator.cluster.objects import ProjectSpec, Subject
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from tests.musterweb.conftest import Site
    from tests.musterweb.running import Answer, Browser


def send(browser: Browser, path: str, step: str, **fields: str) -> Answer:
    """Fill in the form of a project on the page at `path`, send its step, and return the answer."""
    page = browser.get(path)
    hidden = {name: page.field(name) for name in ("form_token", "version")}
    return browser.post(path, {**hidden, **fields, "step": step})


def spec(site: Site, name: str) -> dict[str, Any]:
    project = site.server.find("projects", name)
    assert project is not None
    found: dict[str, Any] = project["spec"]
    return found


def test_a_project_is_created_after_its_effects_were_shown(site: Site) -> None:
    browser = site.browser("ada")
    preview = send(browser, "/projects/new", "preview", name="team-x", gpu="3", members="user:ann\ngroup:lab")
    assert site.server.find("projects", "team-x") is None
    for word in ("What would follow", "Quota: 0 → 3", "Members: none → user:ann, group:lab", "team-x"):
        assert word in preview.words, word
    answer = send(browser, "/projects/new", "save", name="team-x", gpu="3", members="user:ann\ngroup:lab")
    assert (answer.status, answer.headers["location"]) == (303, "/projects")
    made = spec(site, "team-x")
    assert (made["gpu"]["quota"], [member["name"] for member in made["members"]]) == (3, ["ann", "lab"])


def test_a_project_is_changed_and_fields_outside_the_form_are_kept(site: Site) -> None:
    site.server.find("projects", "team-b")["spec"]["nodeAffinity"] = {"train": ["big"]}  # type: ignore[index]
    browser = site.browser("ada")
    page = browser.get("/projects/team-b")
    assert page.field("gpu") == "2"
    preview = send(browser, "/projects/team-b", "preview", gpu="4", limit="6")
    assert "Quota: 2 → 4" in preview.words
    assert "2 -> 4" in preview.words, "the table of what-if"
    assert spec(site, "team-b")["gpu"] == {"quota": 2}
    assert send(browser, "/projects/team-b", "save", gpu="4", limit="6").status == 303
    after = spec(site, "team-b")
    assert (after["gpu"], after["nodeAffinity"], after["namespace"]) == (
        {"quota": 4, "limit": 6}, {"train": ["big"]}, "people-of-b",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpu": "99"}, "would refuse this quota"),
        ({"gpu": "many"}, "Quota 'many' is not possible"),
        ({"gpu": "2", "priority": "high"}, "Priority 'high' is not possible"),
        ({"gpu": "3", "parent": "nobody"}, "is not another project"),
        ({"gpu": "2", "members": "somebody"}, "Members 'somebody' is not possible"),
        ({"gpu": "2"}, "nothing is different"),
    ],
)
def test_impossible_values_are_said_and_the_form_keeps_the_written_text(
    site: Site, fields: dict[str, str], words: str
) -> None:
    answer = send(site.browser("ada"), "/projects/team-b", "preview", **fields)
    assert words in answer.words
    assert fields["gpu"] == answer.field("gpu")
    assert spec(site, "team-b") == {"gpu": {"quota": 2}, "namespace": "people-of-b"}


def test_a_concurrent_change_is_not_overwritten(site: Site) -> None:
    browser = site.browser("ada")
    page = browser.get("/projects/team-b")
    hidden = {name: page.field(name) for name in ("form_token", "version")}
    site.server.find("projects", "team-b")["spec"]["gpu"] = {"quota": 1}  # type: ignore[index]
    answer = browser.post("/projects/team-b", {**hidden, "gpu": "4", "step": "save"})
    assert "the project was changed meanwhile" in answer.words
    assert spec(site, "team-b")["gpu"] == {"quota": 1}


def test_a_project_is_deleted_only_when_nothing_is_in_it(site: Site) -> None:
    browser = site.browser("ada")
    preview = send(browser, "/projects/team-b", "preview-deletion")
    assert "Delete team-b" in preview.words
    assert "has 1 workloads" in send(browser, "/projects/team-b", "delete").words
    site.server._delete(("jobs", "people-of-b", "b-secret"))
    assert send(browser, "/projects/team-b", "delete").status == 303
    assert site.server.find("projects", "team-b") is None


def test_a_user_without_the_right_to_change_projects_gets_no_form_and_no_change(site: Site) -> None:
    browser = site.browser("sue")
    page = browser.get("/projects/team-b")
    assert "<textarea" not in page.text
    assert "New project" not in browser.get("/projects").words
    fields = {"form_token": page.field("form_token"), "name": "team-x", "gpu": "1", "step": "save"}
    answer = browser.post("/projects/new", fields)
    assert "muster-cluster-admin" in answer.words
    assert site.server.find("projects", "team-x") is None


def test_a_form_as_it_was_shown_changes_nothing() -> None:
    before = ProjectSpec(members=[Subject("User", "ann")], parent="a", interactive_time_limit="12h")
    assert spec_from(before, values_of(before)) == before
    assert spec_from(before, {"members": "", "parent": ""}).members == []
    assert spec_from(before, {"members": "", "parent": ""}).parent is None
    with pytest.raises(UsageError, match="Limit 'x'"):
        spec_from(before, {"limit": "x"})
