"""`orchestrator.control.decide.object_guard`: processes that die while they read an object, and objects that raise
errors.
"""

import json
import multiprocessing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.cluster.last_object import LastObject
from orchestrator.cluster.objects import Metadata, Node, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.first_decisions import MAX_DEATHS, PATH
from orchestrator.control.decide.object_guard import KEY, ObjectGuard
from orchestrator.control.report.skipped import KEY as SKIPPED_KEY
from orchestrator.control.report.skipped import PATH as SKIPPED
from orchestrator.observe.reader import Reader
from orchestrator.observe.unreadable import SkippedPod
from tests.cluster.fake_api_server import (
    Answer,
    FakeApiServer,
    Request,
    access_to,
    error_answer,
    page,
    serving,
)
from tests.cluster.waiting import until
from tests.control.decide.dying_reader import PLACES, live
from tests.control.decide.test_scheduler import LISTS
from tests.observe import objects

PROCESSES = multiprocessing.get_context("forkserver")
DRA = "/apis/resource.k8s.io/v1/"
HEALTHY = "/api/v1/namespaces/muster-team-a/pods/healthy/binding"


class Api:
    """The API server of several processes in sequence: its objects, and the operator's records."""

    def __init__(self, server: FakeApiServer, lists: dict[str, list[Any]]) -> None:
        self.server = server
        self.records: dict[str, dict[str, str]] = {}
        for path in (*LISTS, f"{DRA}deviceclasses", f"{DRA}resourceslices", f"{DRA}resourceclaims"):
            server.on("GET", path, page(*map(msgspec.to_builtins, lists.get(path, ()))))
        server.on("POST", HEALTHY, Answer({}, 201))
        for path in (PATH, SKIPPED):
            server.on("GET", path, self._get)
            server.on("PATCH", path, self._patch)

    def _get(self, request: Request) -> Answer:
        if request.path not in self.records:
            return error_answer(404, "NotFound")
        return Answer({"metadata": {}, "data": self.records[request.path]})

    def _patch(self, request: Request) -> Answer:
        self.records[request.path] = {**self.records.get(request.path, {}), **request.body["data"]}
        return Answer(request.body)

    @property
    def deaths(self) -> dict[str, int]:
        listed = json.loads(self.records.get(PATH, {}).get(KEY, "[]"))
        return {dead["object"]["name"]: len(dead["deaths"]) for dead in listed}

    @property
    def skipped(self) -> dict[str, str]:
        listed = json.loads(self.records.get(SKIPPED, {}).get(SKIPPED_KEY, "{}")).get("objects", ())
        return {each["name"]: each["why"] for each in listed}


def cluster() -> dict[str, list[Any]]:
    """Return an object for each place that kills, and a pod that fits on the node without one of these objects."""
    pods = [
        objects.pod("poison-decoded", gpus=1),
        objects.pod("poison-bound", node="full", spec={"schedulerName": "other"}),
        objects.pod("healthy", gpus=1),
    ]
    names = ("full", "free", "poison-node")
    published = {"name": "poison-slice", "uid": "uid-poison-slice"}
    return {
        "/api/v1/nodes": [objects.node(name) for name in names],
        "/api/v1/pods": pods,
        "/api/v1/namespaces": [objects.namespace("muster-team-a", "team-a")],
        "/apis/muster.dev/v1alpha1/projects": [
            objects.project("team-a", quota=8),
            objects.project("poison-project", quota=8),
        ],
        "/api/v1/persistentvolumeclaims": [objects.claim("poison-claim")],
        f"{DRA}resourceslices": [{"metadata": published, "spec": {"driver": "d", "pool": {"name": "p"}}}],
    }


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as server:
        yield Api(server, cluster())


async def test_each_object_that_kills_its_reader_is_set_aside_after_two_deaths(
    api: Api, tmp_path: Path
) -> None:
    PROCESSES.set_forkserver_preload(["tests.control.decide.dying_reader"])
    deaths = 0
    while True:
        process = PROCESSES.Process(target=live, args=(api.server.url, str(tmp_path / "last")))
        process.start()
        await until(lambda: not process.is_alive() or api.server.requests_of("POST", HEALTHY))  # noqa: B023
        if process.is_alive():
            await until(lambda: set(PLACES) <= api.skipped.keys())
            process.kill()
            await until(lambda: not process.is_alive())  # noqa: B023 - awaited at once
            break
        deaths += 1
        assert deaths <= MAX_DEATHS * len(PLACES), api.deaths
    assert deaths == MAX_DEATHS * len(PLACES)
    assert api.deaths == dict.fromkeys(PLACES, MAX_DEATHS)
    assert all("it is set aside" in api.skipped[name] for name in PLACES)
    (binding,) = api.server.requests_of("POST", HEALTHY)
    assert binding.body["target"]["name"] == "free"
    assert LastObject(tmp_path / "last").found is None, "killed without an object: none is counted"


def test_the_object_of_a_process_that_ended_is_found_once(tmp_path: Path) -> None:
    first = LastObject(tmp_path / "last")
    first.enter("Pod", Metadata(namespace="a", name="outer", uid="1"))
    first.enter("Node", Metadata(name="inner", uid="2"))
    first.leave()
    found = LastObject(tmp_path / "last").found
    assert found is not None
    assert (found.kind, found.namespace, found.name, found.uid) == ("Pod", "a", "outer", "1")
    assert LastObject(tmp_path / "last").found is None


def test_without_a_file_that_can_be_written_objects_are_read_all_the_same(tmp_path: Path) -> None:
    last = LastObject(tmp_path / "missing" / "last")
    last.enter("Pod", msgspec.Raw(b"{}"))
    last.leave()
    assert last.found is None


@pytest.mark.parametrize("content", [b"{", b"", b'{"metadata": 7}', b"[" * 100_000])
def test_bytes_without_a_name_are_no_object(tmp_path: Path, content: bytes) -> None:
    LastObject(tmp_path / "last").enter("Pod", msgspec.Raw(content))
    assert LastObject(tmp_path / "last").found is None


async def test_a_death_is_counted_once_although_the_answer_to_the_record_is_lost(tmp_path: Path) -> None:
    LastObject(tmp_path / "last").enter("Pod", Metadata(name="job", uid="1"))
    async with serving() as server, Transport(access_to(server)) as transport:
        api = Api(server, {})

        def write_and_fail(request: Request) -> Answer:
            api._patch(request)
            return error_answer(500, "InternalError")

        server.on("PATCH", PATH, write_and_fail)
        server._scripts["PATCH", PATH].reverse()
        guard = ObjectGuard(LastObject(tmp_path / "last"))
        await guard.recall(transport)
        await guard.recall(transport)
        assert api.server.requests_of("PATCH", PATH)[1:], "it is written again"
        assert api.deaths == {"job": 1}
        assert not guard.is_excluded("1")


async def test_deaths_with_deleted_objects_are_forgotten(tmp_path: Path) -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        api = Api(server, {})
        for name in ("gone", "there"):
            LastObject(tmp_path / "last").enter("Pod", Metadata(name=name, uid=name))
            guard = ObjectGuard(LastObject(tmp_path / "last"))
            await guard.recall(transport)
        assert api.deaths == {"gone": 1, "there": 1}
        await guard.forget_deleted(transport, lambda: {"there"})
        assert api.deaths == {"there": 1}


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reader raise an error in the middle of its work for pods named `poison…`."""
    note = Reader.note

    def defective(self: Reader, change: Change[Any]) -> None:
        note(self, change)
        if change.object.metadata.name.startswith("poison") and not isinstance(change.object, SkippedPod):
            raise KeyError("a mistake")

    monkeypatch.setattr(Reader, "note", defective)


@pytest.mark.usefixtures("raising")
def test_an_object_that_raises_is_left_out_and_closes_its_node_until_it_changes() -> None:
    guard, reader = ObjectGuard(), Reader()
    lists = cluster()
    see = guard.guarded("Pod", reader.note, [reader.note])
    for path in ("/api/v1/nodes", "/api/v1/namespaces"):
        for each in lists[path]:
            reader.note(Change("added", each)) if "poison" not in each.metadata.name else None
    for pod in lists["/api/v1/pods"]:
        see(Change("added", pod))
    snapshot = reader.read().snapshot
    assert {node.name: node.schedulable for node in snapshot.nodes} == {"free": True, "full": False}
    assert [workload.name for workload in snapshot.workloads] == ["healthy"]
    assert {each.name for each in guard.skipped()} == {"poison-decoded", "poison-bound"}
    renamed = objects.pod("mended", node="full", spec={"schedulerName": "other"}, uid="uid-poison-bound")
    see(Change("modified", renamed, lists["/api/v1/pods"][1]))
    assert all(node.schedulable for node in reader.read().snapshot.nodes)
    assert [each.name for each in guard.skipped()] == ["poison-decoded"]


def test_an_object_without_a_namespace_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    def tell(_change: Change[Node]) -> None:
        raise KeyError("a mistake")

    ObjectGuard().guarded("Node", tell, [tell])(Change("added", Node(metadata=Metadata(name="n1", uid="1"))))
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Node n1", "Node n1"]


def test_a_decoder_that_raises_another_error_makes_the_object_undecodable() -> None:
    def decode(_raw: msgspec.Raw) -> Pod:
        raise AttributeError("no such field")

    with pytest.raises(msgspec.DecodeError, match="a mistake in muster: AttributeError: no such field"):
        ObjectGuard().decoder("Pod", decode)(msgspec.Raw(b"{}"))
