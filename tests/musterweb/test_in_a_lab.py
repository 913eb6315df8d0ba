"""The pages on a real API server with real tokens: the allocation of TR-4858 §4.8, numbers equal to the command line's,
rights by RBAC alone.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from musterlab.cluster import Lab, start
from musterweb.application import FILES, LIVE, STILL
from orchestrator.cluster.kubeconfig import load_access, load_server
from orchestrator.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    JOBS,
    PROJECTS,
    SERVICE_ACCOUNTS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import must, must_all, operator, prepare, until_granted
from tests.musterweb.running import Browser, serving
from tests.musterweb.test_events import until
from tests.musterweb.test_project_forms import send

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab

PEOPLE = "people"
SCENARIO = Path(__file__).parents[2] / "validation" / "scenarios" / "tr4858" / "section-4.8.scenario.yaml"
QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
ROLES = {"ada": "muster-cluster-admin", "sue": "muster-viewer"}
MEMBERS = {"team-a": "vic", "team-b": "bob"}


@dataclass
class Site:
    """A lab with the allocation of TR-4858 §4.8, a server of the pages, and a token for each user."""

    kubeconfig: Path
    port: int
    tokens: dict[str, str]

    def browser(self, name: str, project: str = "") -> Browser:
        browser = Browser(self.port)
        answer = browser.sign_in(self.tokens[name], project)
        assert answer.status == 303, answer.words
        return browser

    def records(self, *words: str) -> Any:
        return json.loads(must(self.kubeconfig, *words, "-o", "json"))


def account(name: str) -> str:
    return f"system:serviceaccount:{PEOPLE}:{name}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("web")
    lab = start("web", nodes=2, detach=False, state_dir=directory / "labs")
    try:
        own = asyncio.run(prepare(lab.kubeconfig, directory / "operator.kubeconfig"))
        with operator(own, directory / "operator.log"):
            projects = [
                f"project create {name} -g {quota}"
                + (f" --member user:{account(MEMBERS[name])}" if name in MEMBERS else "")
                for name, quota in QUOTAS.items()
            ]
            steps = yaml.safe_load(SCENARIO.read_text())["steps"]
            jobs = [shlex.join(shlex.split(line)[1:]) for step in steps for line in step["run"]]
            must_all(lab.kubeconfig, *projects, *jobs)
            tokens = asyncio.run(_tokens(lab))
            _until_full(lab.kubeconfig)
            with serving(load_server(lab.kubeconfig)) as port:
                yield Site(lab.kubeconfig, port, tokens)
    finally:
        lab.stop()


def _until_full(kubeconfig: Path) -> None:
    """Wait until the command line shows all jobs of the paper as running and every project with its allocated GPUs."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        running = [job["status"] for job in json.loads(must(kubeconfig, "list", "-A", "-o", "json"))]
        held = [
            float(item["status"]["allocatedGpu"])
            for item in json.loads(must(kubeconfig, "list", "projects", "-o", "json"))
        ]
        if (running, held) == (["Running"] * 13, [4.0] * 4):
            return
        assert time.monotonic() < deadline, (running, held)
        time.sleep(0.5)  # each list is a process


async def _tokens(lab: Lab) -> dict[str, str]:
    """Create the service accounts, bind the cluster roles of `ROLES`, and return the token of each user by name."""
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await apply(transport, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PEOPLE}})
        tokens = {}
        for name in (*ROLES, *MEMBERS.values()):
            metadata = {"name": name, "namespace": PEOPLE}
            await apply(transport, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            answer = await transport.create(SERVICE_ACCOUNTS.path(PEOPLE, name, "token"), request)
            tokens[name] = answer["status"]["token"]
        group = "rbac.authorization.k8s.io"
        for name, role in ROLES.items():
            body = {
                "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
                "kind": CLUSTER_ROLE_BINDINGS.kind,
                "metadata": {"name": f"web-{name}"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": account(name), "apiGroup": group}],
            }
            await apply(transport, body)
            await until_granted(transport, account(name), "list", JOBS)
        await until_granted(transport, account("ada"), "patch", PROJECTS)
        for project, name in MEMBERS.items():
            await until_granted(transport, account(name), "list", JOBS, f"muster-{project}")
        return tokens


def rows_of(text: str) -> dict[str, dict[str, str]]:
    return {next(iter(row.values())): row for row in csv.DictReader(io.StringIO(text))}


def test_the_pages_show_the_numbers_of_the_command_line(site: Site) -> None:
    browser = site.browser("sue")
    overview = browser.get("/")
    total, held = sum(QUOTAS.values()), 16
    for figure in (f"<dd>{total}</dd>", f"<dd>{held} (100%)</dd>", "<dd>13</dd>"):
        assert figure in overview.text, overview.words
    for quota in QUOTAS.values():
        assert f"4 of {quota}" in overview.words
    jobs = rows_of(browser.get("/jobs.csv").text)
    for job in site.records("list", "-A"):
        row = jobs.pop(job["name"])
        assert (row["STATUS"], row["GPUs"], row["NODE"], row["PROJECT"]) == (
            job["status"], job["gpus"], job["node"], job["project"],
        )  # fmt: skip
    assert jobs == {}
    for node in site.records("top", "node"):
        assert overview.row(node["name"])[3:5] == [node["gpus"], node["gpusAllocated"]]
    projects = rows_of(browser.get("/projects.csv").text)
    for item in site.records("list", "projects"):
        row = projects[item["name"]]
        assert float(row["ALLOCATED GPUs"]) == float(item["status"]["allocatedGpu"]) == 4
        assert float(row["FAIR SHARE"]) == float(item["status"]["fairShareGpu"])


def test_a_member_of_one_team_finds_nothing_of_the_others(site: Site) -> None:
    for project, name in MEMBERS.items():
        browser = site.browser(name, project)
        job = "a-1-g" if project == "team-a" else "b-3-g"
        own = {"project": project, "name": job}
        paths = [path.format_map(own) for path in (*LIVE, *STILL, *FILES) if not path.startswith("/reports/")]
        everything = "".join(browser.get(path).text for path in paths)
        for path in LIVE:
            with browser.events(path.format_map(own)) as events:
                everything += until(events, lambda kind, _: kind == "page")["html"]
        assert job in everything
        for other in QUOTAS.keys() - {project}:
            assert other not in everything
        others = {"a-1-g", "b-3-g", "c-5-g", "d-1-gggg"} - {job}
        assert [word for word in others if word in everything] == []
        assert browser.get("/jobs/team-d/d-1-gggg").status in (403, 404)
        assert "What would follow" not in send_new(browser).words


def send_new(browser: Browser) -> Any:
    token = browser.get("/").field("form_token")
    return browser.post("/projects/new", {"form_token": token, "name": "own", "gpu": "0", "step": "save"})


def test_changes_are_on_the_page_in_time_and_a_project_is_made_there(site: Site) -> None:
    browser = site.browser("ada")
    with browser.events("/") as events:
        until(events, lambda kind, _: kind == "page")
        must(site.kubeconfig, "submit", "d-2-gg", "-i", "image", "-g", "2", "-p", "team-d")
        shown = until(events, lambda kind, event: kind == "page" and "d-2-gg" in event["html"])
        assert shown["live"]
    refused = send(browser, "/projects/team-a", "preview", gpu="9")
    assert "would refuse this quota" in refused.words
    preview = send(browser, "/projects/team-a", "preview", gpu="3", limit="6")
    assert "Quota: 4 → 3" in preview.words
    assert send(browser, "/projects/team-a", "save", gpu="3", limit="6").status == 303
    assert send(browser, "/projects/new", "save", name="team-e", gpu="1").status == 303
    projects = {item["name"]: item["spec"]["gpu"] for item in site.records("list", "projects")}
    assert [float(projects["team-a"][key]) for key in ("quota", "limit")] == [3, 6]
    assert float(projects["team-e"]["quota"]) == 1
    explained = browser.get("/jobs/team-d/d-2-gg/explain")
    assert (explained.status, "d-2-gg of team-d" in explained.words) == (200, True)
