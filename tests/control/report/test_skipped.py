"""Poison through the whole loop: a healthy job is bound, and each poisonous object is named wherever users look."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from orchestrator.cluster.resources import EVENTS, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.quarantine import Planner
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.control.report.health import Health, health_pages
from orchestrator.control.report.skipped import KEY, PATH, POLL_SECONDS, NoRecord, SkippedRecord, recorded
from orchestrator.observe.unreadable import SkippedObject
from orchestrator.pages import serving_pages
from orchestrator.planner import plan
from orchestrator.planner.model import Plan, Snapshot
from tests import poison_objects as poison
from tests.cluster.fake_api_server import Answer, FakeApiServer, access_to, error_answer, page, serving
from tests.cluster.waiting import running, until
from tests.control.decide.test_scheduler import LISTS
from tests.poison_objects import HEALTHY, NAMESPACE, Json, Row

TABLE = poison.rows("n-2")


@dataclass
class Said:
    """The writes of the loop: bindings and conditions by pod, events as `Kind name: message`,
    and the page of health.
    """

    bound: set[str] = field(default_factory=set)
    conditions: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    record: dict[str, str] = field(default_factory=dict)
    ready: str = ""


def stored(body: Json) -> Json:
    """Return the object as the API server stores it."""
    extra = {"uid": f"uid-{body['metadata']['name']}", "resourceVersion": "1"}
    return {**body, "metadata": {"creationTimestamp": "2026-11-21T09:00:00Z", **body["metadata"], **extra}}


def node(name: str, **allocatable: str) -> Json:
    there = {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8", **allocatable}
    status = {"allocatable": there, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def lists_of(*rows: Row, extra: tuple[Json, ...] = ()) -> dict[str, list[Json]]:
    allocatable = {key: text for row in rows for key, text in row.node_allocatable.items()}
    owner = {"apiVersion": "muster.dev/v1alpha1", "kind": "Project", "name": "team-a", "uid": "uid-team-a"}
    namespace = {"metadata": {"name": NAMESPACE, "ownerReferences": [owner]}}
    return {
        "nodes": [node("n-1"), node("n-2", **allocatable)],
        "namespaces": [namespace],
        "projects": [poison.project("team-a", quota=8), *(each for row in rows for each in row.projects)],
        "pods": [poison.pod(HEALTHY, 1), *extra, *(each for row in rows for each in row.pods)],
        "persistentvolumeclaims": [each for row in rows for each in row.claims],
        "storageclasses": [each for row in rows for each in row.storage_classes],
    }


def script(server: FakeApiServer, lists: dict[str, list[Json]], said: Said) -> None:
    """Let the server have these objects, and keep the writes about them."""
    for path in LISTS:
        server.on("GET", path, page(*map(stored, lists.get(path.rpartition("/")[2], ()))))

    def written(name: str, keep: Callable[[str, Any], None]) -> Callable[[Any], Answer]:
        def answer(request: Any) -> Answer:
            keep(name, request.body)
            return Answer({}, 201)

        return answer

    for each in lists["pods"]:
        name = each["metadata"]["name"]
        server.on(
            "POST",
            PODS.path(NAMESPACE, name, "binding"),
            written(name, lambda name, _body: said.bound.add(name)),
        )
        server.on(
            "PATCH",
            PODS.path(NAMESPACE, name, "status"),
            written(
                name,
                lambda name, body: said.conditions.update({name: body["status"]["conditions"][0]["message"]}),
            ),
        )

    def event(_name: str, body: Any) -> None:
        about = body["involvedObject"]
        said.events.append(f"{about['kind']} {about['name']}: {body['message']}")

    for namespace in (NAMESPACE, "default"):
        server.on("POST", EVENTS.path(namespace), written("", event))
    server.on("PATCH", PATH, written("", lambda _name, body: said.record.update(body["data"])))


@asynccontextmanager
async def deciding(
    lists: dict[str, list[Json]], planner: Planner = plan
) -> AsyncIterator[tuple[Said, Health]]:
    """Run a loop on a cluster with these objects."""
    said = Said()
    async with serving() as server:
        script(server, lists, said)
        async with Transport(access_to(server)) as transport:
            observer = Observer(transport)
            health = Health(asyncio.get_running_loop().time)
            health.leading()
            async with observer.running():
                loop = SchedulerLoop(
                    transport,
                    observer,
                    on_plan=lambda _reading, _plan: None,
                    is_leader=lambda: True,
                    health=health,
                    planner=planner,
                )
                async with running(loop.run()):
                    yield said, health


async def ready(health: Health) -> tuple[int, str]:
    """Return the answer of `/readyz`."""
    async with (
        serving_pages(health_pages(health), "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/readyz") as answer,
    ):
        return answer.status, await answer.text()


def listed(said: Said) -> dict[str, str]:
    """Return the reasons of the objects in the record, by path."""
    objects = json.loads(said.record.get(KEY, "{}")).get("objects", [])
    return {f"{each['namespace']}/{each['name']}".removeprefix("/"): each["why"] for each in objects}


@pytest.mark.parametrize("name", TABLE)
async def test_beside_every_row_a_healthy_pod_is_bound_and_the_culprit_is_named(name: str) -> None:
    row = TABLE[name]
    culprit = row.culprit.rpartition("/")[2]
    async with deciding(lists_of(row)) as (said, health):
        await until(lambda: HEALTHY in said.bound)
        if row.words == "NoNodeMatches":
            await until(lambda: said.conditions.get(culprit, "").startswith(row.words))
        elif row.culprit:
            await until(lambda: any(row.words in each for each in listed(said).values()))
            await until(lambda: any(row.words in each for each in said.events))
            if not row.projects:  # not all of 1000 objects are listed
                assert row.words in listed(said)[row.culprit]
                await until(lambda: any(culprit in each for each in said.events))
            status, text = await ready(health)
            assert (status, row.words in text) == (200, True)
        else:
            assert await ready(health) == (200, "leading\n")


async def test_a_budget_with_an_unknown_operator_is_named_and_a_healthy_pod_is_bound() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Later", "values": ["a"]}]}
    budget = {
        "metadata": {"name": "keep", "namespace": NAMESPACE},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 5},
    }
    async with deciding({**lists_of(), "poddisruptionbudgets": [budget]}) as (said, health):
        await until(lambda: HEALTHY in said.bound)
        await until(lambda: f"{NAMESPACE}/keep" in listed(said))
        why = listed(said)[f"{NAMESPACE}/keep"]
        assert why == (
            "its expression on the label 'app' has the operator 'Later'; use In, NotIn, Exists, DoesNotExist; "
            "no pod of its namespace is evicted"
        )
        await until(lambda: f"PodDisruptionBudget keep: {why}" in " ".join(said.events))
        assert why in (await ready(health))[1]


async def test_with_all_rows_at_once_a_healthy_pod_is_bound_and_every_culprit_is_named() -> None:
    async with deciding(lists_of(*TABLE.values())) as (said, health):
        await until(lambda: HEALTHY in said.bound)
        await until(lambda: listed(said))
        status, text = await ready(health)
        assert status == 200
        assert "objects are skipped" in text
        for row in TABLE.values():
            culprit = row.culprit.rpartition("/")[2]
            if row.words == "NoNodeMatches":
                await until(lambda: said.conditions.get(culprit, "").startswith("NoNodeMatches"))  # noqa: B023
            elif row.culprit and "dept" not in row.culprit:  # not all of 1000 projects are listed
                assert row.words in listed(said)[row.culprit]
        assert json.loads(said.record[KEY])["more"] > 700


class Defective:
    """The planner, which raises if workloads with these names are pending, or nodes with these names exist."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def __call__(self, snapshot: Snapshot) -> Plan:
        names = [each.name for each in snapshot.workloads]
        names += [each.name for each in snapshot.nodes] + [each.name for each in snapshot.projects]
        if not self.names.isdisjoint(names):
            raise RecursionError("too deep")
        return plan(snapshot)


async def test_a_pod_that_the_planner_cannot_decide_on_is_named_and_the_rest_is_bound() -> None:
    lists = lists_of(extra=(poison.pod("bad", 1),))
    async with deciding(lists, Defective("bad")) as (said, health):
        await until(lambda: HEALTHY in said.bound)
        await until(lambda: "bad" in said.conditions)
        assert said.conditions["bad"].startswith("Skipped: muster cannot decide on it")
        assert "RecursionError: too deep" in said.conditions["bad"]
        await until(lambda: any(each.startswith("Pod bad: Skipped") for each in said.events))
        await until(lambda: "RecursionError" in listed(said).get(f"{NAMESPACE}/bad", ""))
        status, text = await ready(health)
        assert (status, f"Workload {NAMESPACE}/bad: " in text) == (200, True)


async def test_a_running_pod_that_the_planner_cannot_decide_on_is_told_by_an_event() -> None:
    annotations = {"muster.dev/gpu-devices": "0,1,2,3,4,5,6,7"}
    bad = [poison.pod(f"bad-{each}", 8, node=f"n-{each}", annotations=annotations) for each in (1,)]
    async with deciding(lists_of(extra=tuple(bad)), Defective("bad-1")) as (said, _health):
        await until(lambda: HEALTHY in said.bound)
        await until(lambda: any(each.startswith("Pod bad-1: muster cannot decide") for each in said.events))


async def test_a_node_that_the_planner_cannot_decide_with_is_named_and_the_rest_is_used() -> None:
    async with deciding(lists_of(), Defective("n-1")) as (said, _health):
        await until(lambda: HEALTHY in said.bound)
        await until(lambda: any(each.startswith("Node n-1: muster cannot decide") for each in said.events))
        await until(lambda: "n-1" in listed(said))


async def test_a_project_that_the_planner_cannot_decide_with_is_named_and_its_pods_say_so() -> None:
    lists = lists_of(
        extra=({**poison.pod("theirs", 1), "metadata": {"name": "theirs", "namespace": "other"}},)
    )
    lists["namespaces"].append({"metadata": {"name": "other", "labels": {"muster.dev/project": "team-b"}}})
    project = poison.project("team-b", quota=1)
    lists["projects"].append({**project, "spec": {**project["spec"], "namespace": "other"}})
    async with deciding(lists, Defective("team-b")) as (said, health):
        await until(lambda: HEALTHY in said.bound)
        await until(lambda: "team-b" in listed(said))
        assert (await ready(health))[0] == 200


def no_work(snapshot: Snapshot) -> Plan:
    """Return the plan of a planner that may do no work beyond the first workloads."""
    return plan(replace(snapshot, settings=replace(snapshot.settings, max_work=0)))


async def test_workloads_left_over_by_the_bound_on_work_are_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """16 workloads within quota request GPUs, all of which other projects have borrowed. 8 of them are served."""
    caplog.set_level("INFO", "orchestrator.control.report.skipped")
    theirs = [
        poison.pod(
            f"lent-{index:02}",
            1,
            node=f"n-{1 + index // 8}",
            annotations={"muster.dev/gpu-devices": str(index % 8)},
        )
        for index in range(16)
    ]
    for pod in theirs:
        pod["metadata"]["namespace"] = "other"
    lists = lists_of(extra=(*theirs, *(poison.pod(f"claim-{index:02}", 1) for index in range(16))))
    lists["namespaces"].append({"metadata": {"name": "other", "labels": {"muster.dev/project": "team-b"}}})
    project = poison.project("team-b", quota=0)
    lists["projects"] = [
        poison.project("team-a", quota=16), {**project, "spec": {**project["spec"], "namespace": "other"}}
    ]  # fmt: skip
    async with deciding(lists, no_work) as (said, _health):
        await until(lambda: json.loads(said.record.get(KEY, "{}")).get("leftOver"))
    (line, *_) = [one.getMessage() for one in caplog.records if "max_work" in one.getMessage()]
    assert line.startswith("the bound on work of a decision (max_work) left over ")
    assert "which are first in the next: team-a/claim-" in line
    assert line.endswith(" more")


async def test_left_over_workloads_are_logged_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "orchestrator.control.report.skipped")
    async with serving() as server, Transport(access_to(server)) as transport:
        record = SkippedRecord(transport, is_leader=lambda: True)
        for left_over in ((), ("a/x", "a/y"), ("a/y", "a/x"), ("a/y",), (), ()):
            record.note([], left_over=left_over)
    bound = "the bound on work of a decision (max_work) left over"
    assert [one.getMessage() for one in caplog.records] == [
        f"{bound} 2 workloads, which are first in the next: a/x, a/y",
        f"{bound} 1 workload, which is first in the next: a/y",
        "the last decision reached every workload again",
    ]


async def test_the_record_is_written_when_an_object_is_added_or_removed_and_read_back() -> None:
    one = SkippedObject("Pod", "ns", "a", "u", "it is odd")
    said = Said()
    async with serving() as server, Transport(access_to(server)) as transport:

        def keep(request: Any) -> Answer:
            said.record.update(request.body["data"])
            return Answer({})

        server.on("PATCH", PATH, keep)
        server.on(
            "GET", PATH, error_answer(404), error_answer(403), lambda _request: Answer({"data": {KEY: "x"}}),
            lambda _request: Answer({"data": said.record}),
        )  # fmt: skip
        record = SkippedRecord(
            transport, is_leader=lambda: True, now=lambda: datetime(2026, 11, 22, tzinfo=UTC)
        )
        for words in ("no operator of this version", "for administrators", "cannot be read"):
            with pytest.raises(NoRecord, match=words):
                await recorded(transport)
        async with running(record.run()):
            record.note([])
            # an event leads to it, before the poll
            await until(lambda: said.record, seconds=POLL_SECONDS / 2)
            assert (await recorded(transport)).objects == ()
            assert record.note([one], left_over=("a/x", "a/y", "a/z")) == [one]
            assert record.note([one], left_over=("a/x", "a/y", "a/z")) == []
            await until(lambda: "odd" in said.record[KEY])
            found = await recorded(transport)
            assert [(each.name, each.since) for each in found.objects] == [("a", "2026-11-22T00:00:00Z")]
            assert found.left_over == 3
            record.note([])
            await until(lambda: "odd" not in said.record[KEY])


async def test_a_standby_operator_writes_no_record() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        await SkippedRecord(transport, is_leader=lambda: False).write()
        assert server.requests_of("PATCH") == []
