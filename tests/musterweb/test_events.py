"""Pages update themselves, and say so if they cannot."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from musterweb import sessions
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.musterweb.conftest import add_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.musterweb.conftest import Site


def until(events: Any, condition: Callable[[str, dict[str, Any]], object]) -> dict[str, Any]:
    """Return the first event for which the condition is true. The socket's own deadline ends the wait."""
    for kind, event in events:
        if condition(kind, event):
            found: dict[str, Any] = event
            return found
    raise AssertionError("the stream ended")


def test_changes_are_sent_at_once(site: Site) -> None:
    browser = site.browser("sue")
    with browser.events("/jobs?status=Pending") as events:
        first = until(events, lambda kind, _: kind == "page")
        assert (first["live"], "a-waits" in first["html"], "a-train" in first["html"]) == (True, True, False)
        add_job(site.server, "muster-team-a", "a-new", gpus=1, why="no GPU is free")
        second = until(events, lambda kind, event: kind == "page" and "a-new" in event["html"])
        assert "no GPU is free" in second["html"]
    assert "a-new" in browser.get("/").text


def test_one_watch_for_each_kind_however_many_pages_are_open(site: Site) -> None:
    browser = site.browser("sue")
    with browser.events("/") as one, browser.events("/jobs") as two, browser.events("/nodes") as three:
        for events in (one, two, three):
            until(events, lambda kind, _: kind == "page")
        for path in ("/", "/jobs", "/nodes", "/projects"):
            assert browser.get(path).status == 200
        watched = [path for method, path in site.server.requests if method == "WATCH"]
    assert len(watched) == len(set(watched)) > 5


def test_a_page_says_that_it_is_not_current_while_the_api_server_is_away(site: Site) -> None:
    browser = site.browser("sue")
    with browser.events("/jobs") as events:
        until(events, lambda kind, _: kind == "page")
        site.people.is_down = True
        stale = until(events, lambda _, event: not event["live"])
        assert "503" in stale["problem"]
        page = browser.get("/jobs")
        assert 'data-live="no"' in page.text
        assert "a-train" in page.text, "what was seen last stays, with its time"
        assert "Not current: " in page.words
        assert browser.get("/jobs.csv").status == 503
        refused = site.browser().sign_in("token-of-vic")
        assert (refused.status, "the test says that it is down" in refused.words) == (502, True)
        site.people.is_down = False
        until(events, lambda _, event: event["live"])
    assert 'data-live="yes"' in browser.get("/jobs").text


def test_a_page_of_a_job_that_was_deleted_is_not_current_again_by_the_next_beat(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterweb.events.BEAT_SECONDS", 0.1)
    browser = site.browser("sue")
    with browser.events("/jobs/team-a/a-train") as events:
        until(events, lambda kind, _: kind == "page")
        site.server._delete(("jobs", "muster-team-a", "a-train"))
        before = list(takewhile(lambda event: event[1]["live"], events))
        for kind, event in islice(events, 15):
            assert (kind, event["live"], "a-train" in event["problem"]) == ("state", False, True)
            assert event["at"] == before[-1][1]["at"], (
                "the time of what is shown, not of what could be by now"
            )
        add_job(site.server, "muster-team-a", "a-train", gpus=2, why="made anew")
        until(events, lambda kind, event: event["live"] and kind == "page" and "made anew" in event["html"])


def test_a_failed_rendering_is_tried_again_on_each_beat_though_nothing_changes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterweb.events.BEAT_SECONDS", 0.1)
    monkeypatch.setattr("musterweb.person.AGE_SECONDS", 3600)
    path = "/api/v1/namespaces/muster-team-a/events"
    browser = site.browser("sue")
    with browser.events("/jobs/team-a/a-train") as events:
        until(events, lambda kind, _: kind == "page")
        site.server.refuse("GET", path, 500, "InternalError")
        add_job(site.server, "muster-team-a", "a-new", gpus=1, why="no GPU is free")
        until(events, lambda _, event: not event["live"])
        tried = site.server.requests.count(("GET", path))
        assert not any(event["live"] for _, event in islice(events, 20))
        assert site.server.requests.count(("GET", path)) > tried + 3
        site.server.allow("GET", path)
        until(events, lambda _, event: event["live"])


def test_a_token_that_expires_ends_the_page_and_shows_nothing_more(site: Site) -> None:
    browser = site.browser("sue")
    with browser.events("/jobs") as events:
        until(events, lambda kind, _: kind == "page")
        site.people.by_token["token-of-sue"].is_valid = False
        end = until(events, lambda kind, _: kind == "end")
        assert "no longer accepts your token" in end["problem"]
        assert list(events) == []
    answer = browser.get("/jobs")
    assert "a-train" not in answer.text
    assert "Token" in answer.words


def test_rights_that_are_taken_away_show_no_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterweb.person.RIGHTS_SECONDS", 0.5)
    browser = site.browser("sue")
    with browser.events("/jobs") as events:
        until(events, lambda kind, event: kind == "page" and "b-secret" in event["html"])
        site.people.by_token["token-of-sue"].namespaces = ()
        gone = until(events, lambda kind, event: kind == "page" and "b-secret" not in event["html"])
    assert "sign in again and name one of yours" in gone["html"]


def test_a_page_of_a_job_that_may_no_longer_be_seen_shows_nothing_of_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterweb.person.RIGHTS_SECONDS", 0.5)
    monkeypatch.setattr("musterweb.events.BEAT_SECONDS", 0.1)
    browser = site.browser("sue")
    with browser.events("/jobs/team-b/b-secret") as events:
        until(events, lambda kind, event: kind == "page" and "b-secret" in event["html"])
        site.people.by_token["token-of-sue"].namespaces = ("muster-team-a",)
        gone = next((event for kind, event in islice(events, 200) if kind == "page"), None)
        assert gone is not None, "what was to be seen before stays"
        assert (gone["html"], gone["live"], "no role in it" in gone["problem"]) == ("", False, True)
        assert not any(event["live"] or kind == "page" for kind, event in islice(events, 10))


def test_signing_out_ends_the_streams(site: Site) -> None:
    browser = site.browser("sue")
    with browser.events("/jobs") as events:
        until(events, lambda kind, _: kind == "page")
        browser.post("/sign-out", {"form_token": browser.get("/").field("form_token")})
        until(events, lambda kind, _: kind == "end")


def test_only_so_many_pages_of_one_person_update_themselves(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_STREAMS", 1)
    browser = site.browser("sue")
    with browser.events("/jobs") as events:
        until(events, lambda kind, _: kind == "page")
        assert browser.get("/events?page=/jobs").status == 503
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 1)
    assert site.browser().sign_in("token-of-sue").status == 503


def test_nor_do_more_when_all_are_opened_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_STREAMS", 2)
    browser = site.browser("sue")
    with ExitStack() as stack:
        pages = [stack.enter_context(browser.opening("/events?page=/jobs")) for _ in range(12)]
        begun = []
        for page in pages:
            heard = b""
            while not heard.endswith(b"0\r\n\r\n") and b"retry:" not in heard and b" 503 " not in heard:
                heard += page.recv(4096)
            begun.append(b"retry:" in heard)
    assert begun.count(True) == 2


def test_other_rights_show_nothing_of_before_even_if_nothing_can_be_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterweb.person.RIGHTS_SECONDS", 0.2)
    browser = site.browser("sue", "team-a")
    with browser.events("/jobs") as events:
        until(events, lambda kind, event: kind == "page" and "b-secret" in event["html"])
        site.server.refuse("GET", "/apis/batch/v1/namespaces/muster-team-a/jobs", 500, "InternalError")
        site.people.by_token["token-of-sue"].namespaces = ("muster-team-a",)
        until(events, lambda _, event: not event["live"] and event["problem"])
        answer = browser.get("/jobs")
        assert ("b-secret" in answer.text, answer.status) == (False, 502)


def test_a_server_that_falls_silent_while_it_is_asked_for_rights_is_noticed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musterweb.person.RIGHTS_SECONDS", 0.2)
    monkeypatch.setattr("musterweb.person.BEAT_SECONDS", 0.2)
    browser = site.browser("sue")
    with browser.events("/jobs") as events:
        until(events, lambda kind, _: kind == "page")
        with site.people.keeping_silent_about_rights():
            assert site.people.unanswered.acquire(timeout=DEADLINE_SECONDS)
            site.people.is_down = True
            assert any(not event["live"] for _, event in islice(events, 4))
            site.people.is_down = False


@pytest.mark.parametrize(
    "page", ["//[", "http://[x/jobs", "/jobs?" + "&a=1" * 200], ids=["host", "url", "query"]
)
def test_an_unknown_address_has_no_stream(site: Site, page: str) -> None:
    assert site.browser("sue").get("/events?" + urlencode({"page": page})).status == 403
