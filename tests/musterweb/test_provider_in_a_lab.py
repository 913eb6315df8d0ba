"""Signing in at a real provider whose ID tokens a real kube-apiserver accepts: users see what RBAC allows.

The API server reads the user's name and groups from the token (`--oidc-username-claim`, `--oidc-groups-claim`).
Projects and roles name these users and groups.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from musterlab.cluster import start
from musterweb.oidc import Provider, Settings
from musterweb.provider_sign_in import CALLBACK, ProviderSignIn
from orchestrator.cluster.kubeconfig import load_access, load_server
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, JOBS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from tests.cluster.certificates import Authority
from tests.control.operators import must_all, operator, prepare, until_granted
from tests.musterweb.real_issuer import SECRET, RealIssuer, answer_of, free_port, issuing
from tests.musterweb.running import Answer, Browser, serving
from tests.musterweb.test_events import until
from tests.musterweb.test_provider import place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.lab

PREFIX = "sso:"
PAGES = (
    "/",
    "/jobs",
    "/nodes",
    "/projects",
    "/cluster",
    "/jobs.csv",
    "/nodes.csv",
    "/gpus.csv",
    "/projects.csv",
)


@dataclass
class Site:
    """The pages with the provider, on a cluster that accepts its tokens."""

    port: int
    issuer: RealIssuer
    provider: Settings
    context: ssl.SSLContext

    @property
    def redirect(self) -> str:
        return self.provider.redirect_url

    def browser(self, login: str, project: str = "") -> Browser:
        """Return a browser in which the user of this login is signed in."""
        browser = Browser(self.port)
        back = self.sign_in(browser, login, project)
        assert (back.status, place(back)) == (200, "/"), back.words
        return browser

    def sign_in(self, browser: Browser, login: str, project: str = "") -> Answer:
        """Sign in on the provider's own pages. Return the answer of the callback address."""
        form_token = browser.get("/sign-in").field("form_token")
        left = browser.post("/sign-in/provider", {"form_token": form_token, "project": project})
        assert left.status == 200, left.words
        answer = asyncio.run(answer_of(place(left), self.redirect, login, context=self.context))
        return browser.arrive(f"{CALLBACK}?{urlencode(answer)}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("provider")
    authority = Authority()
    file, key = authority.issue("sso", host="127.0.0.1")
    for name, content in (("ca.crt", authority.pem), ("tls.crt", file), ("tls.key", key)):
        (folder / name).write_bytes(content)
    port = free_port()
    redirect = f"http://127.0.0.1:{port}{CALLBACK}"
    with (
        issuing(redirect, certificate=folder / "tls.crt", key=folder / "tls.key") as issuer,
        cluster(folder, issuer) as kubeconfig,
    ):
        provider = Settings(issuer.url, "muster", redirect, client_secret=SECRET, authority=folder / "ca.crt")
        with serving(load_server(kubeconfig), provider=Provider(provider), port=port):
            yield Site(port, issuer, provider, ssl.create_default_context(cadata=authority.pem.decode()))


@contextmanager
def cluster(folder: Path, issuer: RealIssuer) -> Iterator[Path]:
    """Start a cluster that accepts the provider's tokens, with a job in each of two projects. Yield an administrator's
    kubeconfig.
    """
    lab = start(
        "provider", nodes=1, detach=False, state_dir=folder / "labs",
        api_server_flags=(
            f"--oidc-issuer-url={issuer.url}", "--oidc-client-id=muster", f"--oidc-ca-file={folder / 'ca.crt'}",
            "--oidc-username-claim=sub", f"--oidc-username-prefix={PREFIX}",
            "--oidc-groups-claim=groups", f"--oidc-groups-prefix={PREFIX}",
        ),
    )  # fmt: skip
    try:
        own = asyncio.run(prepare(lab.kubeconfig, folder / "operator.kubeconfig"))
        with operator(own, folder / "operator.log"):
            must_all(
                lab.kubeconfig,
                f"project create team-a -g 4 --member group:{PREFIX}group-of-ada --member user:{PREFIX}brief",
                f"project create team-b -g 4 --member group:{PREFIX}group-of-bob",
                "submit a-secret -i image -g 1 -p team-a",
                "submit b-secret -i image -g 1 -p team-b",
            )
            asyncio.run(grant(lab.kubeconfig))
            yield lab.kubeconfig
    finally:
        lab.stop()


async def grant(kubeconfig: Path) -> None:
    """Let sue see everything, and wait until the API server enforces the bindings of sue and brief."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": "sue"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "muster-viewer"},
        "subjects": [{"kind": "User", "name": f"{PREFIX}sue", "apiGroup": group}],
    }
    async with Transport(load_access(kubeconfig)) as transport:
        await apply(transport, binding)
        await until_granted(transport, f"{PREFIX}sue", "list", JOBS)
        await until_granted(transport, f"{PREFIX}brief", "list", JOBS, "muster-team-a")


def everything(browser: Browser) -> str:
    """Return all text that the browser's user is shown: pages, CSV files and one event of the jobs."""
    shown = "".join(browser.get(path).text for path in PAGES)
    with browser.events("/jobs") as events:
        shown += str(until(events, lambda kind, _: kind == "page")["html"])
    return shown


def test_a_person_signed_in_at_the_provider_sees_the_objects_that_rbac_shows_the_tokens_user(
    site: Site,
) -> None:
    shown = everything(site.browser("sue"))
    assert all(word in shown for word in (f">{PREFIX}sue<", "a-secret", "b-secret", "team-a", "team-b"))


@pytest.mark.parametrize(("login", "team", "other"), [("ada", "team-a", "b"), ("bob", "team-b", "a")])
def test_a_group_in_the_token_shows_one_team_and_nothing_of_the_other(
    site: Site, login: str, team: str, other: str
) -> None:
    browser = site.browser(login, team)
    shown = everything(browser)
    assert f">{PREFIX}{login}<" in shown
    assert f"{team[-1]}-secret" in shown
    assert [word for word in (f"{other}-secret", f"team-{other}") if word in shown] == []
    assert browser.get(f"/jobs/team-{other}/{other}-secret").status in (403, 404)


def test_a_person_known_to_the_provider_and_not_to_the_cluster_is_shown_nothing(site: Site) -> None:
    browser = Browser(site.port)
    back = site.sign_in(browser, "eve", "team-a")
    assert (back.status, "you have no role in it" in back.words) == (404, True), back.words
    shown = "".join(browser.get(path).text for path in PAGES)
    assert [word for word in ("a-secret", "b-secret", "dgx") if word in shown] == []


async def test_a_token_for_another_client_is_refused_by_the_api_server(site: Site) -> None:
    settings = Settings(
        site.issuer.url, "another", site.redirect, client_secret=SECRET, authority=site.provider.authority
    )
    provider = Provider(settings)
    sign_in = ProviderSignIn(provider)
    try:
        cookie, url = await sign_in.begin("")
        answer = await answer_of(url, site.redirect, "sue", context=site.context)
        renewal, _ = await sign_in.finish(cookie, answer)
    finally:
        await provider.close()
    refused = await asyncio.to_thread(Browser(site.port).sign_in, renewal.token())
    assert refused.status == 401, refused.words
    assert "b-secret" not in refused.text


def test_a_short_token_is_renewed_while_the_provider_answers_and_is_the_end_when_it_does_not(
    site: Site,
) -> None:
    browser = site.browser("brief", "team-a")
    with browser.events("/jobs") as events:
        site.issuer.until_granted("refresh_token")
        site.issuer.granted.clear()
        # Wait for the second renewal: then the API server would refuse the first token.
        site.issuer.until_granted("refresh_token")
        assert "a-secret" in browser.get("/jobs.csv").text
        site.issuer.process.send_signal(signal.SIGSTOP)
        try:
            over = until(events, lambda kind, _: kind == "end")
        finally:
            site.issuer.process.send_signal(signal.SIGCONT)
    assert "no longer accepts your token" in over["problem"]
    assert browser.get("/jobs.csv").status == 401
