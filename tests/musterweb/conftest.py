"""A cluster in memory with jobs of two teams, users with tokens, and the pages for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from musterweb.reports import Reports
from orchestrator.cluster.kubeconfig import load_server
from tests.cli.conftest import muster, server
from tests.cli.memory_api_server import MemoryApiServer, pod_of
from tests.musterweb.past import Past
from tests.musterweb.people import People, Someone
from tests.musterweb.running import Browser, serving
from tests.validation.report.records import three_steps
from validation.report.record import encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["muster", "server"]

HTML = "<script>alert(1)</script>"
FILE_TOKEN = "the-token-of-the-kubeconfig"


@pytest.fixture
def people(server: MemoryApiServer) -> People:
    """Return the users: ada administers, sue sees everything, vic sees team-a. The kubeconfig belongs to an
    administrator.
    """
    return People(
        server,
        **{
            "token-of-ada": Someone("ada", is_admin=True),
            "token-of-sue": Someone("sue"),
            "token-of-vic": Someone("vic", ("muster-team-a",)),
            FILE_TOKEN: Someone("root", is_admin=True),
        },
    )


@pytest.fixture
def kubeconfig(
    server: MemoryApiServer, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return an administrator's kubeconfig, whose token only the command line may use."""
    path = tmp_path / "config"
    named = {"name": "lab"}
    context = {"cluster": "lab", "user": "lab", "namespace": "muster-team-a"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [named | {"cluster": {"server": server.url}}],
        "users": [named | {"user": {"token": FILE_TOKEN}}],
        "contexts": [named | {"context": context}],
    }
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@dataclass
class Site:
    """The pages, the cluster behind them, and users' browsers."""

    port: int
    server: MemoryApiServer
    people: People
    past: Past = field(default_factory=Past)

    def browser(self, name: str = "", project: str = "") -> Browser:
        """Return a new browser; with a name, this user is signed in."""
        browser = Browser(self.port)
        if name:
            answer = browser.sign_in(f"token-of-{name}", project)
            assert (answer.status, answer.headers["location"]) == (303, "/"), answer.words
        return browser


@pytest.fixture
def site(server: MemoryApiServer, people: People, kubeconfig: Path, tmp_path: Path) -> Iterator[Site]:
    fill(server)
    (tmp_path / "reports" / "first").mkdir(parents=True)
    (tmp_path / "reports" / "first" / "report.json").write_bytes(encode(three_steps()))
    past = Past()
    with serving(load_server(kubeconfig), history=past, reports=Reports(tmp_path / "reports")) as port:
        yield Site(port, server, people, past)


def filled_in(path: str) -> str:
    """Return the address of a page or file, for a pattern and the existing jobs and reports."""
    named = path.replace("{project}", "team-a")
    return named.replace("{name}", "first" if path.startswith("/reports/") else "a-waits")


def fill(server: MemoryApiServer) -> None:
    """Add a running job, a pending one and one with HTML in its texts to team-a, and a running one to team-b."""
    add_job(server, "muster-team-a", "a-train", gpus=2, node="dgx1-1", devices="0,1")
    add_job(server, "muster-team-a", "a-waits", gpus=8, why="team-a has 4 of 4 GPUs: <b>wait</b>")
    add_job(server, "muster-team-a", "a-html", gpus=1, node="dgx1-1", devices="2", user=HTML)
    add_job(server, "muster-team-a", "a-sum", gpus=0, node="dgx1-2", user="=HYPERLINK(1)")
    add_job(server, "people-of-b", "b-secret", gpus=1, node="dgx1-2", devices="0", user="bob")
    states = [
        {"index": 0, "uuid": "GPU-0", "utilizationPercent": 37, "memoryMib": 32768, "memoryUsedMib": 1024}
    ]
    states[0]["holders"] = [{"namespace": "muster-team-a", "pod": "a-train-0"}]
    states.append({"index": 1, "uuid": "GPU-1", "failure": "Xid 79", "memoryMib": 32768})
    server.add(
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "GpuNode",
            "metadata": {"name": "dgx1-1"},
            "spec": {"observedAt": "2099-01-01T00:00:00Z", "gpus": states},
        }
    )


def set_ready(server: MemoryApiServer, name: str, status: str) -> None:
    """Set the condition Ready of a node."""
    node = server.find("nodes", name)
    assert node is not None
    server.add({**node, "status": node["status"] | {"conditions": [{"type": "Ready", "status": status}]}})


def cordon(server: MemoryApiServer, name: str) -> None:
    """Cordon a node."""
    node = server.find("nodes", name)
    assert node is not None
    server.add({**node, "spec": {**node.get("spec", {}), "unschedulable": True}})


def add_job(
    server: MemoryApiServer,
    namespace: str,
    name: str,
    *,
    gpus: int,
    node: str = "",
    devices: str = "",
    why: str = "",
    user: str = "ann",
) -> dict[str, Any]:
    """Add a job and its pod; return the pod."""
    template = {
        "metadata": {"annotations": {"muster.dev/gpu-devices": devices} if devices else {}, "labels": {}},
        "spec": {
            "schedulerName": "muster",
            "containers": [
                {"name": "main", "image": "image", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
            ],
        },
    }
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"muster.dev/user": user}},
        "spec": {"template": template, "parallelism": 1, "completions": 1},
        "status": {},
    }
    server.add(job)
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}]
    pod = pod_of(
        job, f"{name}-0", phase="Running" if node else "Pending", node_name=node,
        conditions=[] if node else conditions,
    )  # fmt: skip
    server.add(pod)
    return pod
