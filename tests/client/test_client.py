"""The Python client, synchronous and asynchronous: its operations, its errors, and the examples in
docs/reference/sdk.md.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import pytest

from orchestrator.client import (
    AsyncClient,
    Client,
    DuplicateName,
    Job,
    Listening,
    MusterError,
    NoSuchNode,
    NoSuchProject,
    NoSuchTemplate,
    NoSuchWorkload,
    Submission,
    Template,
    WorkloadView,
)
from orchestrator.cluster.errors import Forbidden, Unreachable
from tests.cli.conftest import write_kubeconfig
from tests.cli.memory_api_server import claim_of, secret_of
from tests.cli.test_wait import end, once_watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "sdk.md"
TRAIN = Submission(name="train-1", image="image", user="ann", gpu_milli=2000)


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    with Client() as client:
        yield client


def test_a_script_submits_lists_suspends_and_deletes(client: Client, server: MemoryApiServer) -> None:
    scope = client.submit(TRAIN)
    (job,) = client.list_jobs()
    assert (job.name, job.status, job.gpu_milli, job.project) == ("train-1", "Pending", 2000, "team-a")
    assert client.list_jobs(all_projects=True) == [job]
    assert client.list_jobs(project="team-b") == []
    with pytest.raises(DuplicateName):
        client.submit(TRAIN)
    client.suspend_job("train-1")
    assert client.get_job("train-1").status == "Suspended"
    client.resume_job("train-1")
    view, events = client.describe_job("train-1", project=client.scope("team-a"))
    assert (view.status, events) == ("Pending", [])
    client.delete_job("train-1")
    with pytest.raises(NoSuchWorkload):
        client.get_job("train-1")
    assert scope is not None


def test_a_script_sees_projects_nodes_templates_and_itself(client: Client) -> None:
    assert [each.metadata.name for each in client.list_projects()] == ["team-a", "team-b"]
    assert client.default_project() == "team-a"
    assert [each.name for each in client.list_nodes().views] == ["dgx1-1", "dgx1-2"]
    assert client.get_node("dgx1-1").gpu_milli == 8000
    assert client.whoami().user == "ann"
    client.create_template(Template("small", client.scope().namespace, text="gpu: 1\n"))
    assert [each.name for each in client.list_templates()] == ["small"]
    assert [each.name for each in client.templates_to_apply("small")] == ["small"]
    client.delete_template("small")
    for error, call in (
        (NoSuchTemplate, lambda: client.get_template("small")),
        (NoSuchNode, lambda: client.get_node("nobody")),
        (NoSuchProject, lambda: client.get_project("nobody")),
    ):
        with pytest.raises(error):
            call()


def test_a_script_follows_jobs_as_they_change(client: Client, server: MemoryApiServer) -> None:
    states = client.watch_jobs()
    assert next(states) == []
    server.until(lambda: any(way == "WATCH" and path.endswith("/jobs") for way, path in server.requests))
    with Client() as other:
        other.submit(TRAIN)
    assert [job.name for job in next(states)] == ["train-1"]
    states.close()


async def test_the_client_works_where_a_loop_runs_already_as_in_a_notebook(kubeconfig: Path) -> None:
    assert asyncio.get_running_loop().is_running()
    client = Client()
    assert client.list_jobs() == []
    client.close()
    assert client.list_jobs() == []
    client.close()


async def test_the_asynchronous_client_has_the_same_operations(kubeconfig: Path) -> None:
    async with AsyncClient.of_kubeconfig(project="team-b") as client:
        await client.submit(TRAIN)
        assert [job.project for job in await client.list_jobs()] == ["team-b"]
    own = {name: member for name, member in vars(Client).items() if not name.startswith("_")}
    others = {name: member for name, member in vars(AsyncClient).items() if not name.startswith("_")}
    parts = {"streams", "data", "drains", "of_kubeconfig", "with_hint"}
    assert own.keys() - {"close"} == others.keys() - parts
    for name in own.keys() - {"close"}:
        assert inspect.signature(own[name]) == inspect.signature(others[name])
        assert inspect.getdoc(own[name]) == inspect.getdoc(others[name])


def test_the_plain_operations_keep_the_types_of_arguments_and_results(client: Client) -> None:
    assert_type(client.list_jobs(all_projects=True), list[WorkloadView])
    assert_type(client.watch_jobs(), Generator[list[WorkloadView], None, None])
    assert_type(client.submit(TRAIN, dry_run=True), Job)
    assert_type(client.port_forward("train"), AbstractContextManager[list[Listening]])
    with pytest.raises(TypeError, match="unexpected keyword argument 'projet'"):
        client.list_jobs(projet="team-a")  # type: ignore[call-arg]


def test_errors_keep_their_type_and_name_the_remedy(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    server.refuse("GET", "/apis/batch/v1/namespaces/muster-team-a/jobs", 403, "Forbidden")
    with pytest.raises(Forbidden, match="muster-viewer"):
        client.list_jobs()
    file = tmp_path / "nobody"
    write_kubeconfig(file, "http://127.0.0.1:1")
    with Client(file) as lost, pytest.raises(Unreachable, match="does not answer"):
        lost.list_jobs()
    with pytest.raises(MusterError, match="nowhere"):
        Client(context="nowhere")


def test_the_examples_of_the_documentation_run(
    client: Client,
    server: MemoryApiServer,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    server.add(claim_of("imagenet", NAMESPACE), secret_of("hub", NAMESPACE, token=""))
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) >= 8
    for example in examples:
        names = {"__name__": "example"}
        waits = ".wait(" in example
        with once_watched(server, lambda: end(server, "train-2", "Complete")) if waits else nullcontext():
            exec(compile(example, str(DOCUMENT), "exec"), names)  # noqa: S102  (the examples are ours)
    assert "train-1" in capsys.readouterr().out
    claims = [claim["spec"]["resources"] for claim in server.all("persistentvolumeclaims") if "spec" in claim]
    assert {"requests": {"storage": "500Gi"}} in claims
    (service,) = (each for each in server.all("services") if each["spec"].get("type") == "NodePort")
    assert service["spec"]["ports"][0]["nodePort"] == 30088
    distributed = server.find("jobs", "distributed", NAMESPACE)
    assert distributed is not None
    assert distributed["spec"]["completionMode"] == "Indexed"
    assert server.find("projects", "vision", "") is not None
    mentioned = set(re.findall(r"\bclient\.([a-z_]+)\(", text))
    assert [name for name in mentioned if not hasattr(Client, name)] == []
