from __future__ import annotations

import socket
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from musterweb import sessions
from musterweb.application import FILES, LIVE, STILL
from musterweb.security import HEADERS, cookie_name, headers_of
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.musterweb.conftest import filled_in

if TYPE_CHECKING:
    from tests.musterweb.conftest import Site

POLICY = HEADERS["Content-Security-Policy"]


def test_nothing_is_shown_before_the_sign_in(site: Site) -> None:
    browser = site.browser()
    for path in (*LIVE, *STILL, *FILES, "/events?page=/", "/new-cluster.yaml", "/projects/new"):
        answer = browser.get(filled_in(path))
        assert "Cluster:" in answer.text, path
        assert "a-waits" not in answer.text
    assert site.people.tokens == []


@pytest.mark.parametrize("token", ["", "wrong", "two words", "x\r\nHost: evil", "ü", "x" * 20_000])
def test_only_a_token_that_the_api_server_accepts_signs_in(site: Site, token: str) -> None:
    browser = site.browser()
    answer = browser.sign_in(token)
    assert answer.status == 401
    assert "token" in answer.words
    assert "muster-session" not in browser.cookies
    assert set(site.people.tokens) <= {"wrong"}


def test_the_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(site: Site) -> None:
    browser = site.browser()
    (cookie,) = [
        each for each in browser.sign_in("token-of-sue").cookies if each.startswith("muster-session=")
    ]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Path=/" in cookie
    assert "Domain" not in cookie
    assert "token-of-sue" not in cookie
    assert cookie_name("session", is_secure=True) == "__Host-muster-session"


def test_every_answer_has_the_strict_headers_and_nothing_inline(site: Site) -> None:
    browser = site.browser("sue")
    for path in ("/", "/jobs", "/sign-in", "/nowhere", "/static/style.css", "/jobs.csv", "/projects/team-a"):
        answer = browser.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value, (path, name)
        assert " style=" not in answer.text
        assert "<style" not in answer.text
        assert "<script>" not in answer.text or path == "/jobs.csv"
    for word in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
        assert word in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


@pytest.mark.parametrize(
    ("host", "is_secure", "is_held"),
    [
        ("muster.example.com", True, True), ("muster.example.com:8443", True, True), ("10.0.0.1", True, True),
        ("localhost:8443", True, False), ("127.0.0.1:8443", True, False), ("[::1]:8443", True, False),
        ("localhost:8480", False, False),
    ],
)  # fmt: skip
def test_browsers_are_held_to_tls_where_it_is_there_but_never_for_a_name_of_loopback(
    host: str, is_secure: bool, is_held: bool
) -> None:
    headers = headers_of(host, is_secure=is_secure)
    assert headers.get("Strict-Transport-Security") == (f"max-age={180 * 86400}" if is_held else None)
    assert HEADERS.items() <= headers.items()


@pytest.mark.parametrize(
    "origin", ["", "null", "http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1"], ids=repr
)
def test_a_form_of_another_site_is_refused(site: Site, origin: str) -> None:
    browser = site.browser("ada")
    form_token = browser.get("/projects/new").field("form_token")
    fields = {"form_token": form_token, "name": "team-x", "gpu": "1", "step": "save"}
    assert browser.post("/projects/new", fields, Origin=origin).status == 403
    assert browser.post("/sign-out", {"form_token": form_token}, Origin=origin).status == 403
    assert site.server.find("projects", "team-x") is None
    assert browser.get("/jobs").status == 200


@pytest.mark.parametrize("form_token", ["", "wrong", "ü"])
def test_a_form_without_the_token_of_the_session_is_refused(site: Site, form_token: str) -> None:
    browser = site.browser("ada")
    fields = {"form_token": form_token, "name": "team-x", "gpu": "1", "step": "save"}
    assert browser.post("/projects/new", fields).status == 403
    other = site.browser("ada").get("/projects/new").field("form_token")
    assert browser.post("/projects/new", {**fields, "form_token": other}).status == 403
    assert site.server.find("projects", "team-x") is None


def test_a_form_that_is_too_large_or_no_form_is_refused(site: Site) -> None:
    browser = site.browser("ada")
    assert browser.post("/projects/new", {"name": "x" * 100_000}).status == 403
    assert (
        browser.request("POST", "/projects/new", "&".join(["a=1"] * 200), Origin=browser.origin).status == 403
    )
    assert browser.request("POST", "/projects/new", "a=%ff", Origin=browser.origin).status == 403


def test_a_name_that_leads_here_is_not_answered(site: Site) -> None:
    browser = site.browser("sue")
    broken = ("[x", "[::1", "127.0.0.1/x", "a@127.0.0.1", "127.0.0.1:x", "::1", "localhost.")
    for host in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "10.0.0.1", *broken):
        answer = browser.get("/", Host=host)
        assert (answer.status, "content-security-policy" in answer.headers) == (421, True), host
    for host in ("localhost:1", "LOCALHOST", "127.0.0.1", "127.8.8.8:1", "[::1]", "[::1]:80"):
        assert browser.get("/", Host=host).status == 200


def test_signing_out_forgets_the_token(site: Site) -> None:
    browser = site.browser("sue")
    cookies = dict(browser.cookies)
    assert browser.post("/sign-out", {"form_token": browser.get("/").field("form_token")}).status == 303
    browser.cookies = cookies
    assert "a-train" not in browser.get("/jobs").text


def test_sessions_end_idle_and_at_last_in_any_case(site: Site) -> None:
    now = [0.0]
    store = sessions.Sessions(lambda: now[0])

    class Nobody:
        user = "nobody"
        is_ended = False

    secret = store.add(Nobody())  # type: ignore[arg-type]
    for _ in range(sessions.MAX_SECONDS // 1000):
        now[0] += 1000
        store.find(secret, is_use=True)
    assert not store._is_over(store.find(secret, is_use=True))
    now[0] += sessions.IDLE_SECONDS + 1
    (session,) = store._sessions.values()
    assert store._is_over(session)
    session.used_at = now[0]
    assert store._is_over(session), "it has been too long since the beginning"


def test_one_person_does_not_keep_the_others_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_OWN_SESSIONS", 2)
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    first, second, third = (site.browser("vic", "team-a") for _ in range(3))
    assert "Cluster:" in first.get("/jobs").text, "the session that was used longest ago is over"
    for browser in (second, third, site.browser("sue")):
        assert "a-train" in browser.get("/jobs").text
    assert site.browser().sign_in("token-of-ada").status == 503


def test_a_connection_that_asks_for_nothing_or_not_to_the_end_is_closed(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("musterweb.server.SILENCE_SECONDS", 0.2)
    browser = site.browser("sue")
    form = (
        f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nOrigin: {browser.origin}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ntoken="
    )
    for sent in (b"", b"GET / HT", form.encode()):
        with socket.create_connection(("127.0.0.1", site.port), DEADLINE_SECONDS) as connection:
            connection.sendall(sent)
            assert connection.recv(100) == b"", sent
    with browser.events("/jobs") as events:
        assert [kind for kind, _ in islice(events, 3)] == ["page", "state", "state"], "a page stays"
    assert "failed" not in caplog.text
