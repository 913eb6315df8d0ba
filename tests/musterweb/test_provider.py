"""Signing in at an identity provider: which requests are sent, which answers are refused, and where tokens are kept."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from musterweb.errors import ProviderAway, SignInNeeded
from musterweb.oidc import KEY_SECONDS, Provider, Settings, challenge_of, is_safe_url
from musterweb.provider_sign_in import CALLBACK, MAX_SECONDS, ProviderSignIn
from musterweb.renewal import Renewal
from musterweb.sessions import Sessions
from orchestrator.cluster.kubeconfig import load_server
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.musterweb.conftest import fill
from tests.musterweb.issuers import CLIENT, Issuer, issuing
from tests.musterweb.people import People, Someone
from tests.musterweb.running import Answer, Browser, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.memory_api_server import MemoryApiServer

REDIRECT = "https://muster.example.com/sign-in/callback"


@dataclass
class Site:
    """The pages with a provider, on a cluster that takes each token of this provider for ada's."""

    port: int
    issuer: Issuer
    people: People
    sessions: Sessions

    def browser(self) -> Browser:
        return Browser(self.port)

    def leave(self, browser: Browser, project: str = "") -> dict[str, str]:
        """Follow the pages to the provider, which keeps the nonce. Return the parameters of
        the authorization request.
        """
        form_token = browser.get("/sign-in").field("form_token")
        answer = browser.post("/sign-in/provider", {"form_token": form_token, "project": project})
        assert answer.status == 200, answer.words
        query = dict(parse_qsl(urlsplit(place(answer)).query))
        self.issuer.nonce = query["nonce"]
        return query

    def come_back(self, browser: Browser, query: dict[str, str], **other: str) -> Answer:
        return browser.arrive(f"{CALLBACK}?{urlencode({'code': 'c', 'state': query['state'], **other})}")

    def signed_in(self, project: str = "") -> Browser:
        browser = self.browser()
        answer = self.come_back(browser, self.leave(browser, project))
        assert (answer.status, place(answer)) == (200, "/"), answer.words
        return browser


def place(answer: Answer) -> str:
    """Return the address to which a page redirects."""
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', answer.text)
    assert found, answer.text
    return unescape(found[1])


def settings(issuer: Issuer, **more: Any) -> Settings:
    return Settings(issuer.url, CLIENT, REDIRECT, **more)


@contextmanager
def site_of(kubeconfig: Path, people: People, issuer: Issuer, **more: Any) -> Iterator[Site]:
    issuer.on_token = lambda token: people.by_token.setdefault(token, Someone("ada"))
    sessions = Sessions()
    with serving(load_server(kubeconfig), sessions, provider=Provider(settings(issuer, **more))) as port:
        yield Site(port, issuer, people, sessions)


@pytest.fixture
def site(server: MemoryApiServer, people: People, kubeconfig: Path) -> Iterator[Site]:
    fill(server)
    with issuing() as issuer, site_of(kubeconfig, people, issuer) as site:
        yield site


def test_a_person_signs_in_as_the_user_that_the_api_server_names(site: Site) -> None:
    browser = site.browser()
    query = site.leave(browser)
    assert query | {"state": "", "nonce": "", "code_challenge": ""} == {
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": REDIRECT,
        "scope": "openid email offline_access",
        "state": "",
        "nonce": "",
        "code_challenge": "",
        "code_challenge_method": "S256",
        "prompt": "consent",
    }
    answer = site.come_back(browser, query)
    assert place(answer) == "/"
    _path, form = next(entry for entry in site.issuer.requests if entry[0] == "/token")
    verifier = form.pop("code_verifier")
    assert form == {
        "grant_type": "authorization_code",
        "code": "c",
        "redirect_uri": REDIRECT,
        "client_id": CLIENT,
    }
    assert query["code_challenge"] == challenge_of(verifier)
    page = browser.get("/jobs")
    assert "a-train" in page.text
    assert ">ada<" in page.text
    assert set(site.people.tokens) <= {*site.people.by_token}


def test_the_challenge_is_that_of_rfc_7636() -> None:
    assert (
        challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
        == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x").digest()).decode()
    assert challenge_of("x") == digest.rstrip("=")


def test_cookies_are_strict_but_for_the_one_that_comes_back(site: Site) -> None:
    browser = site.browser()
    form_token = browser.get("/sign-in").field("form_token")
    left = browser.post("/sign-in/provider", {"form_token": form_token, "project": ""})
    (cookie,) = left.cookies
    assert cookie.startswith("muster-provider=")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    query = dict(parse_qsl(urlsplit(place(left)).query))
    site.issuer.nonce = query["nonce"]
    back = site.come_back(browser, query)
    fresh = [cookie for cookie in back.cookies if "Max-Age=0" not in cookie]
    assert [cookie.partition("=")[0] for cookie in fresh] == ["muster-session"]
    assert "SameSite=strict" in fresh[0]
    assert not any(site.issuer.id_token()[:40] in cookie for cookie in back.cookies)


def refused(answer: Answer, words: str) -> None:
    assert answer.status == 401, answer.words
    assert words in answer.words
    assert not any(
        cookie.startswith("muster-session=") and "Max-Age=0" not in cookie for cookie in answer.cookies
    )


BEGUN = "this sign-in was not begun in this browser"


def test_an_answer_counts_once_and_in_the_browser_that_began(site: Site) -> None:
    browser, other = site.browser(), site.browser()
    query = site.leave(browser)
    began = dict(browser.cookies)
    refused(site.come_back(other, query), BEGUN)
    site.leave(other)
    refused(site.come_back(other, query), BEGUN)
    site.issuer.nonce = query["nonce"]
    assert site.come_back(browser, query).status == 200
    browser.cookies = began
    refused(site.come_back(browser, query), BEGUN)


def test_signing_in_again_ends_the_earlier_session(site: Site) -> None:
    browser = site.signed_in()
    earlier = site.browser()
    earlier.cookies = dict(browser.cookies)
    assert earlier.get("/jobs.csv").status == 200
    query = site.leave(browser)
    assert earlier.get("/jobs.csv").status == 401
    assert place(site.come_back(browser, query)) == "/"
    assert browser.get("/jobs.csv").status == 200
    assert len(site.sessions) == 1
    until(lambda: ("/revoke", "r1") in [(path, form.get("token")) for path, form in site.issuer.requests])


def test_a_person_without_a_reachable_provider_remains_signed_in(site: Site) -> None:
    browser = site.signed_in()
    form_token = browser.get("/sign-in").field("form_token")
    assert browser.post("/sign-in/provider", {"form_token": "x"}).status == 403
    assert (
        browser.post("/sign-in/provider", {"form_token": form_token}, Origin="https://a.example").status
        == 403
    )
    assert browser.get("/jobs.csv").status == 200


def test_another_site_cannot_end_a_sign_in_that_runs(site: Site) -> None:
    browser = site.browser()
    query = site.leave(browser)
    for other in (f"{CALLBACK}?state=x&code=y", f"{CALLBACK}?error=x", CALLBACK):
        refused(browser.arrive(other), BEGUN)
    answer = site.come_back(browser, query)
    assert place(answer) == "/"
    assert [
        cookie for cookie in answer.cookies if cookie.startswith("muster-provider=") and "Max-Age=0" in cookie
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda cookie: "",
        lambda cookie: "x",
        lambda cookie: "..",
        lambda cookie: f"9{cookie}",
        lambda cookie: f"{int(time.time()) - MAX_SECONDS - 5}.{cookie.split('.', 1)[1]}",
        lambda cookie: f"{int(time.time()) + 60}.{cookie.split('.', 1)[1]}",
        lambda cookie: cookie + "AAAA",
        lambda cookie: "²" + cookie[1:],
    ],
)
def test_a_cookie_that_was_changed_is_none(site: Site, change: Callable[[str], str]) -> None:
    browser = site.browser()
    query = site.leave(browser)
    browser.cookies["muster-provider"] = change(browser.cookies["muster-provider"])
    refused(site.come_back(browser, query), BEGUN)
    assert not [path for path, _ in site.issuer.requests if path == "/token"]


async def begun(sign_in: ProviderSignIn, issuer: Issuer) -> tuple[str, dict[str, str]]:
    """Begin a sign-in. Return the cookie of the browser, and the provider's answer with a code."""
    cookie, url = await sign_in.begin("")
    query = dict(parse_qsl(urlsplit(url).query))
    issuer.nonce = query["nonce"]
    return cookie, {"state": query["state"], "code": "c"}


async def test_answers_with_made_up_codes_keep_no_person_from_signing_in() -> None:
    with issuing() as issuer:
        provider = Provider(settings(issuer))
        sign_in = ProviderSignIn(provider, max_used=3)
        try:
            issuer.answers["/token"] = (400, b'{"error": "invalid_grant"}')
            for _ in range(5):
                with pytest.raises(SignInNeeded, match="invalid_grant"):
                    await sign_in.finish(*await begun(sign_in, issuer))
            issuer.answers.clear()
            cookie, answer = await begun(sign_in, issuer)
            renewal, _project = await sign_in.finish(cookie, answer)
            assert renewal.tokens.subject == "ada"
            with pytest.raises(SignInNeeded, match=BEGUN):
                await sign_in.finish(cookie, answer)
        finally:
            await provider.close()


async def test_answers_without_a_code_push_out_none_that_counted() -> None:
    with issuing() as issuer:
        provider = Provider(settings(issuer))
        sign_in = ProviderSignIn(provider, max_used=3)
        try:
            counted = await begun(sign_in, issuer)
            await sign_in.finish(*counted)
            for other in ({"error": "x"}, {"code": ""}) * 3:
                cookie, answer = await begun(sign_in, issuer)
                with pytest.raises(SignInNeeded, match=r"did not sign you in|has no code"):
                    await sign_in.finish(cookie, answer | other)
            with pytest.raises(SignInNeeded, match=BEGUN):
                await sign_in.finish(*counted)
            cookie, answer = await begun(sign_in, issuer)
            assert (await sign_in.finish(cookie, answer))[0].tokens.subject == "ada"
        finally:
            await provider.close()


def part(content: dict[str, Any] | bytes) -> str:
    """Return one part of a token in base64url."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def unsigned(issuer: Issuer) -> str:
    """Return a token with the algorithm `none`."""
    return f"{part({'alg': 'none'})}.{part(jwt.decode(issuer.id_token(), issuer.key).claims)}."


def signed_with_the_public_key(issuer: Issuer) -> str:
    """Return a token signed by HMAC with the provider's public key as the secret. The library refuses to make such a
    token.
    """
    signed = (
        f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(jwt.decode(issuer.id_token(), issuer.key).claims)}"
    )
    secret = issuer.key.as_pem(private=False)
    return f"{signed}.{part(hmac.digest(secret, signed.encode(), 'sha256'))}"


def signed_by_another(issuer: Issuer) -> str:
    claims = jwt.decode(issuer.id_token(), issuer.key).claims
    key = RSAKey.generate_key(2048)
    return jwt.encode({"alg": "RS256", "kid": "first"}, claims, key)


def with_its_own_key(issuer: Issuer) -> str:
    claims = jwt.decode(issuer.id_token(), issuer.key).claims
    key = RSAKey.generate_key(2048)
    return jwt.encode({"alg": "RS256", "jwk": key.as_dict(private=False)}, claims, key)


FORGED: dict[str, Callable[[Issuer], str]] = {
    "none": unsigned,
    "the public key as a secret": signed_with_the_public_key,
    "another key": signed_by_another,
    "a key of its own": with_its_own_key,
    "no token": lambda _issuer: "nonsense",
    "dots": lambda _issuer: "..",
    "deep": lambda _issuer: f"{part(b'[' * 100_000)}..",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused(site: Site, forge: Callable[[Issuer], str]) -> None:
    browser = site.browser()
    query = site.leave(browser)
    site.issuer.token = forge(site.issuer)
    refused(site.come_back(browser, query), "cannot be trusted")
    assert site.people.tokens == []


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"aud": None},
        {"aud": [CLIENT, "another"]},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"exp": 1_700_000_000},
        {"exp": None},
        {"exp": "soon"},
        {"iat": 4_000_000_000},
        {"nbf": 4_000_000_000},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(site: Site, claims: dict[str, Any]) -> None:
    browser = site.browser()
    query = site.leave(browser)
    site.issuer.claims = claims
    answer = site.come_back(browser, query)
    refused(answer, "the identity provider's token")
    assert site.people.tokens == []


def test_several_audiences_are_fine_where_we_are_the_party(site: Site) -> None:
    site.issuer.claims = {"aud": [CLIENT, "kubernetes"], "azp": CLIENT}
    assert "a-train" in site.signed_in().get("/jobs").text


def test_a_new_key_of_the_provider_is_read_once_a_minute(site: Site) -> None:
    site.signed_in()
    site.issuer.key = RSAKey.generate_key(2048, {"kid": "second"})
    browser = site.browser()
    refused(site.come_back(browser, site.leave(browser)), "cannot be trusted")
    assert [path for path, _ in site.issuer.requests].count("/keys") == 1


def test_words_of_the_provider_are_text_on_the_page(site: Site) -> None:
    browser = site.browser()
    query = site.leave(browser)
    answer = site.come_back(
        browser, query, error="access_denied", error_description="<img src=x>" + "a" * 9000
    )
    refused(answer, "did not sign you in: access_denied")
    assert "<img" not in answer.text
    assert len(answer.text) < 6000


def test_an_answer_of_another_provider_is_refused(site: Site) -> None:
    browser = site.browser()
    refused(
        site.come_back(browser, site.leave(browser), iss="https://evil.example.com"),
        "not of the identity provider",
    )
    assert not [path for path, _ in site.issuer.requests if path == "/token"]


def test_a_person_unknown_to_the_api_server_is_not_signed_in_and_forgotten(site: Site) -> None:
    site.issuer.on_token = lambda _token: None
    browser = site.browser()
    refused(site.come_back(browser, site.leave(browser)), "the API server does not accept this token")
    assert site.issuer.requests[-1] == (
        "/revoke",
        {"token": "r1", "token_type_hint": "refresh_token", "client_id": CLIENT},
    )


def test_another_site_cannot_begin_a_sign_in(site: Site) -> None:
    browser = site.browser()
    form_token = browser.get("/sign-in").field("form_token")
    answer = browser.post("/sign-in/provider", {"form_token": form_token}, Origin="https://evil.example.com")
    assert answer.status == 403
    assert browser.get("/sign-in/provider").status == 405


def test_no_parameter_leads_elsewhere(site: Site) -> None:
    browser = site.browser()
    query = site.leave(browser)
    evil = "https://evil.example.com"
    answer = site.come_back(browser, query, redirect_uri=evil, next=evil, url=evil)
    assert place(answer) == "/"
    assert "evil" not in answer.text


def test_the_token_is_renewed_before_its_end_and_forgotten_at_the_end(site: Site) -> None:
    site.issuer.life_seconds = 2
    browser = site.signed_in()
    until(lambda: site.issuer.number >= 2)
    site.issuer.life_seconds = 3600
    number = site.issuer.number
    until(lambda: site.issuer.number > number)
    newest = f"r{site.issuer.number}"
    assert browser.get("/jobs").status == 200
    assert len(set(site.people.tokens)) >= 2
    form_token = browser.get("/jobs").field("form_token")
    assert browser.post("/sign-out", {"form_token": form_token}).status == 303
    until(lambda: "/revoke" in [path for path, _ in site.issuer.requests])
    assert site.issuer.requests[-1][1]["token"] == newest


@pytest.mark.parametrize("other", [{"sub": "eve"}, {"aud": "another"}])
def test_a_renewed_token_of_another_person_ends_the_session(site: Site, other: dict[str, str]) -> None:
    site.issuer.life_seconds = 2
    browser = site.signed_in()
    site.issuer.claims = other
    until(lambda: browser.get("/jobs.csv").status == 401)
    assert all(site.people.by_token[token].name == "ada" for token in site.people.tokens)


def test_without_a_refresh_token_the_session_ends_with_the_token(site: Site) -> None:
    site.issuer.life_seconds = 2
    site.issuer.renews = False
    browser = site.signed_in()
    assert browser.get("/jobs").status == 200
    until(lambda: browser.get("/jobs.csv").status == 401)


def rotate(issuer: Issuer) -> None:
    """Let the provider accept each refresh token once, as RFC 9700 demands for clients without a secret."""
    used: set[str] = set()

    def check(path: str, form: dict[str, str]) -> tuple[int, bytes] | None:
        shown = form.get("refresh_token", "")
        if path != "/token" or not shown:
            return None
        if shown in used:
            return 400, b'{"error": "invalid_grant", "error_description": "used before"}'
        used.add(shown)
        return None

    issuer.intercept = check


@pytest.mark.parametrize("id_token", [b"", b'"id_token": null, ', b'"id_token": "x.y.z", '])
async def test_a_rotated_refresh_token_is_the_one_that_counts(id_token: bytes) -> None:
    with issuing() as issuer:
        issuer.nonce = "n"
        rotate(issuer)
        provider = Provider(settings(issuer))
        try:
            renewal = Renewal(provider, await provider.exchange("c", "v", "n"))
            first = renewal.tokens
            rotated = b'{"access_token": "a", ' + id_token + b'"refresh_token": "rotated"}'
            issuer.answers["/token"] = (200, rotated)
            with pytest.raises((ProviderAway, SignInNeeded)):
                await renewal.renew()
            assert renewal.tokens == replace(first, refresh_token="rotated")
            issuer.answers.clear()
            await renewal.renew()
            assert renewal.tokens.refresh_token == "r2"
            await renewal.forget()
            assert issuer.requests[-1][1]["token"] == "r2"
        finally:
            await provider.close()


async def test_a_provider_whose_keys_are_away_for_a_moment_renews_afterwards() -> None:
    now = [time.time()]
    with issuing() as issuer:
        issuer.nonce = "n"
        rotate(issuer)
        provider = Provider(settings(issuer), clock=lambda: now[0])
        try:
            renewal = Renewal(provider, await provider.exchange("c", "v", "n"))
            issuer.key = RSAKey.generate_key(2048, {"kid": "second"})
            issuer.answers["/keys"] = (503, b"")
            now[0] += KEY_SECONDS + 1
            with pytest.raises(ProviderAway):
                await renewal.renew()
            issuer.answers.clear()
            await renewal.renew()
            assert renewal.tokens.refresh_token == "r3"
        finally:
            await provider.close()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


BAD_METADATA: dict[str, dict[str, Any]] = {
    "another name": {"issuer": "https://evil.example.com"},
    "tokens without TLS": {"token_endpoint": "http://evil.example.com/token"},
    "keys without TLS": {"jwks_uri": "http://evil.example.com/keys"},
    "a script": {"authorization_endpoint": "javascript:alert(1)"},
    "no address": {"token_endpoint": "https://"},
    "a number": {"token_endpoint": 7},
}


ODD_KEYS: dict[str, Any] = {
    "an unknown kind": {"kty": "AKP", "alg": "ML-DSA-65", "kid": "odd", "pub": "AAAA"},
    "an unknown curve": {"kty": "EC", "crv": "P-999", "kid": "odd", "x": "AA", "y": "AA"},
    "an unknown curve of Edwards": {"kty": "OKP", "crv": "NEW", "kid": "odd", "x": "AAAA"},
    "a point beside the curve": {"kty": "EC", "crv": "P-256", "kid": "odd", "x": "AA", "y": "AA"},
    "without n": {"kty": "RSA", "kid": "odd", "e": "AQAB"},
    "an n that is none": {"kty": "RSA", "kid": "odd", "e": "AQAB", "n": "!!"},
    "a kind that is a list": {"kty": ["RSA"], "kid": "odd"},
    "nothing": {},
}


@pytest.mark.parametrize("odd", ODD_KEYS.values(), ids=ODD_KEYS)
def test_a_key_that_cannot_be_used_is_passed_over(site: Site, odd: Any) -> None:
    usable = site.issuer.key.as_dict(private=False)
    site.issuer.answers["/keys"] = (200, json.dumps({"keys": [odd, usable]}).encode())
    assert "a-train" in site.signed_in().get("/jobs").text


@pytest.mark.parametrize("odd", ODD_KEYS.values(), ids=ODD_KEYS)
def test_without_one_usable_key_no_person_signs_in(site: Site, odd: Any) -> None:
    site.issuer.answers["/keys"] = (200, json.dumps({"keys": [odd]}).encode())
    browser = site.browser()
    answer = site.come_back(browser, site.leave(browser))
    assert answer.status == 502
    assert "the keys of 127.0.0.1" in answer.words


def test_null_in_the_metadata_is_as_if_absent(site: Site) -> None:
    site.issuer.metadata = dict.fromkeys(
        (
            "revocation_endpoint",
            "scopes_supported",
            "token_endpoint_auth_methods_supported",
            "authorization_response_iss_parameter_supported",
        )
    )
    browser = site.browser()
    query = site.leave(browser)
    assert query["scope"] == "openid profile email"
    assert place(site.come_back(browser, query)) == "/"


@pytest.mark.parametrize("metadata", BAD_METADATA.values(), ids=BAD_METADATA)
def test_a_provider_with_an_impossible_answer_is_not_used(site: Site, metadata: dict[str, Any]) -> None:
    site.issuer.metadata = metadata
    browser = site.browser()
    form_token = browser.get("/sign-in").field("form_token")
    answer = browser.post("/sign-in/provider", {"form_token": form_token})
    assert answer.status == 502
    assert "http-equiv" not in answer.text
    assert "127.0.0.1" in answer.words


BROKEN: dict[str, tuple[str, tuple[int, bytes], int]] = {
    "no JSON": ("/token", (200, b"<html>"), 502),
    "no ID token": ("/token", (200, b'{"access_token": "a"}'), 502),
    "an error": ("/token", (400, b'{"error": "invalid_grant", "error_description": "used"}'), 401),
    "a failure": ("/token", (500, b""), 502),
    "elsewhere": ("/token", (302, b"http://127.0.0.1:1/"), 502),
    "too much": ("/token", (200, b" " * (2 << 20)), 502),
    "keys that are none": ("/keys", (200, b'{"keys": [{"kty": "none"}]}'), 502),
    "a list of keys": ("/keys", (200, b"[]"), 502),
    "deep keys": ("/keys", (200, b"[" * 100_000), 502),
    "deep tokens": ("/token", (200, b'{"id_token": ' + b"[" * 100_000), 502),
    "a deep error": ("/token", (400, b"[" * 100_000), 401),
}


@pytest.mark.parametrize(("path", "answer", "status"), BROKEN.values(), ids=BROKEN)
def test_a_broken_provider_is_named_in_one_line(
    site: Site, path: str, answer: tuple[int, bytes], status: int
) -> None:
    browser = site.browser()
    query = site.leave(browser)
    site.issuer.answers[path] = answer
    page = site.come_back(browser, query)
    assert page.status == status, page.words
    assert "This is a mistake in muster" not in page.text


def test_a_secret_is_sent_in_a_header_and_to_the_provider_alone(
    people: People, kubeconfig: Path, server: MemoryApiServer
) -> None:
    with issuing() as issuer, site_of(kubeconfig, people, issuer, client_secret="s%c:t") as site:
        browser = site.signed_in()
        form = next(form for path, form in issuer.requests if path == "/token")
        assert "client_id" not in form
        assert "s%c:t" not in browser.get("/sign-in").text


@pytest.mark.parametrize("secret", ["", "s3cret"])
async def test_neither_cookies_nor_a_netrc_go_to_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login alice password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with issuing() as issuer:
        issuer.host = "localhost"  # Browser keeps no cookies for IP addresses.
        issuer.cookie = "SSO=of-the-first-person; Path=/"
        issuer.nonce = "n"
        provider = Provider(settings(issuer, client_secret=secret))
        try:
            for _ in range(2):
                await provider.exchange("c", "v", "n")
        finally:
            await provider.close()
        assert len(issuer.headers) == 4
        assert not [headers for headers in issuer.headers if "cookie" in headers]
        shown = {headers.get("authorization", "") for headers in issuer.headers}
        expected = base64.b64encode(f"{CLIENT}:{secret}".encode()).decode()
        assert shown == ({"", f"Basic {expected}"} if secret else {""})


async def test_the_environment_names_a_proxy_and_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login alice password hunter2\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with issuing() as issuer, issuing() as proxy:
        proxy.metadata = {"issuer": issuer.url}
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//bob:pw@"))
        for excepted, server in (("", proxy), ("127.0.0.1", issuer)):
            monkeypatch.setenv("no_proxy", excepted)
            provider = Provider(settings(issuer))
            try:
                await provider.authorization_url("s", "n", "c")
            finally:
                await provider.close()
            assert [path for path, _ in server.requests] == ["/.well-known/openid-configuration"]
        assert len(proxy.requests) == 1
        assert proxy.headers[0]["proxy-authorization"] == "Basic " + base64.b64encode(b"bob:pw").decode()
        assert "authorization" not in proxy.headers[0]


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://sso.example.com", True),
        ("https://sso.example.com:8443/realms/x", True),
        ("http://127.0.0.1:5556/dex", True),
        ("http://localhost", True),
        ("http://sso.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("https://user@sso.example.com", False),
        ("ftp://127.0.0.1", False),
        ("https://a#b", False),
        ("https://a:99999", False),
        ("", False),
    ],
)
def test_secrets_go_by_tls_or_nowhere(url: str, is_safe: bool) -> None:
    assert is_safe_url(url) is is_safe
