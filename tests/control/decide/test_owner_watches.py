"""Owners of any kind, through the loop on a whole API server in memory."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Object, Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import JOBS as JOBS_RESOURCE
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.first_decisions import PATH as FIRST_DECISIONS
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.owner_watches import MAX_KINDS, OwnerWatches
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.names import PROJECT_LABEL, SCHEDULER_NAME
from orchestrator.observe.controllers import Controller
from orchestrator.observe.owners import KindState, Reading
from orchestrator.planner.model import Plan, Snapshot, Workload
from tests.cluster.fake_api_server import (
    Answer,
    FakeApiServer,
    Watch,
    access_to,
    error_answer,
    event,
    page,
    serving,
)
from tests.cluster.waiting import until
from tests.control.decide.test_scheduler import LISTS
from tests.observe.bringing import JSON, body, reference, replicated_job

NOTHING = Plan(bindings=(), evictions=(), shares_gpu_milli={}, allocated_gpu_milli={}, pending={})
NAMESPACE = "muster-team-a"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"
JOBSET = body("JobSet", "js", {"replicatedJobs": [replicated_job("driver"), replicated_job("workers", 1, 2)]})
SERVED: JSON = {
    "kind": "APIResourceList",
    "groupVersion": "jobset.x-k8s.io/v1alpha2",
    "resources": [
        {"name": "jobsets/status", "kind": "JobSet", "namespaced": True, "verbs": ["get", "patch", "update"]},
        {
            "name": "jobsets",
            "kind": "JobSet",
            "namespaced": True,
            "verbs": ["create", "get", "list", "watch"],
        },
    ],
}


def job(replicated: str) -> JSON:
    return body("Job", f"js-{replicated}-0", owner=reference("JobSet", "js"))


def pod(name: str, replicated: str, owner: JSON | None = None) -> JSON:
    made = body("Pod", name, owner=owner or reference("Job", f"js-{replicated}-0"))
    made["metadata"]["labels"] = {"jobset.sigs.k8s.io/replicatedjob-name": replicated}
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    return {
        **made,
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": containers},
        "status": {"phase": "Pending"},
    }


def read_pod(made: JSON) -> Pod:
    return msgspec.convert(made, Pod)


def read_object(made: JSON) -> Object:
    return msgspec.convert(made, Object)


PODS = [pod("js-driver-0-x", "driver"), pod("js-workers-0-a", "workers"), pod("js-workers-0-b", "workers")]
JOBS = [job("driver"), job("workers")]


@asynccontextmanager
async def cluster(**lists: list[JSON]) -> AsyncIterator[FakeApiServer]:
    """Yield a server with these pods and jobs, and a project's namespace."""
    space = body("Namespace", NAMESPACE, labels={PROJECT_LABEL: "team-a"})
    held = {"/api/v1/namespaces": [space]} | {
        path: lists[path.rpartition("/")[2]] for path in LISTS if path.rpartition("/")[2] in lists
    }
    async with serving() as server:
        for path in LISTS:
            server.on("GET", path, page(*held.get(path, [])))
        server.on("PATCH", FIRST_DECISIONS, Answer({}))
        yield server


@asynccontextmanager
async def looped(server: FakeApiServer) -> AsyncIterator[tuple[SchedulerLoop, Callable[[], Any], Observer]]:
    """Yield a loop on the server, a function that returns the workloads of a decision, and the observer."""
    seen: list[Snapshot] = []

    def note(snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return NOTHING

    async with Transport(access_to(server)) as transport:
        observer = Observer(transport)
        async with observer.running():
            loop = SchedulerLoop(
                transport,
                observer,
                on_plan=lambda _reading, _plan: None,
                is_leader=lambda: True,
                planner=note,
            )

            async def decide() -> dict[str, Workload]:
                await loop.catch_up()
                await loop.decide()
                return {each.name: each for each in seen[-1].workloads}

            yield loop, decide, observer


def sizes(found: dict[str, Workload]) -> dict[str, tuple[int, ...]]:
    return {
        name: (
            len(each.pods),
            *(group.minimum or 0 for group in (each.groups.children if each.groups else ())),
        )
        for name, each in found.items()
    }


async def test_a_new_leader_knows_the_gangs_before_it_decides() -> None:
    async with cluster(pods=PODS, jobs=JOBS) as server:
        server.on("GET", JOBSETS, Answer(SERVED))
        server.on("GET", f"{JOBSETS}/jobsets", page(JOBSET))
        async with looped(server) as (_, decide, _observer):
            assert sizes(await decide()) == {"js": (3, 1, 2)}


async def test_a_kind_that_is_first_seen_later_is_looked_up_once_and_its_pods_wait_so_long() -> None:
    async with cluster(jobs=[], pods=[]) as server:
        server.on("GET", JOBSETS, Answer(SERVED))
        server.on("GET", f"{JOBSETS}/jobsets", page(JOBSET))
        server.on("WATCH", "/apis/batch/v1/jobs", Watch(*(event("ADDED", each) for each in JOBS), b"\n"))
        server.on("WATCH", "/api/v1/pods", Watch(*(event("ADDED", each) for each in PODS), b"\n"))
        async with looped(server) as (_, decide, observer):
            found: dict[str, Workload] = {}
            while not found:  # no decision knows only a part of the gang
                observer.changed.clear()
                found = await decide()
                assert sizes(found) in ({}, {"js": (3, 1, 2)}, {"js": (2, 1, 2)}, {"js": (1, 1, 2)})
                if not found:
                    await until(observer.changed.is_set)
            await until(lambda: len(observer.pods.objects) == 3)
            assert sizes(await decide()) == {"js": (3, 1, 2)}
        assert len(server.requests_of("GET", JOBSETS)) == 1


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({JOBSETS: error_answer(404, "NotFound", "no such group")}, id="definition is gone"),
        pytest.param(
            {JOBSETS: Answer({**SERVED, "resources": []}), f"{JOBSETS}/jobsets": page()},
            id="kind is not served",
        ),
        pytest.param(
            {
                JOBSETS: Answer(SERVED),
                f"{JOBSETS}/jobsets": error_answer(403, "Forbidden", "may not list jobsets"),
            },
            id="no right",
        ),
    ],
)
async def test_an_unreadable_owner_is_reported_once_and_its_pods_are_scheduled_without_it(
    answers: dict[str, Answer], caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(pods=PODS, jobs=JOBS) as server:
        for path, answer in answers.items():
            server.on("GET", path, answer)
        with caplog.at_level(logging.WARNING, "orchestrator.control.decide.owner_watches"):
            async with looped(server) as (_, decide, _observer):
                assert sizes(await decide()) == {"js": (3,)}
                assert sizes(await decide()) == {"js": (3,)}
    assert [each.message.partition(" cannot")[0] for each in caplog.records] == [
        "owners of kind JobSet of jobset.x-k8s.io/v1alpha2"
    ]


@pytest.mark.parametrize(
    "api_version",
    ["../api%2Fv1%2Fpods", "x/v1?watch=true", "x/v1#", "x/v1\nERROR of muster", "..", "/v1", "x/", "X/v1"],
)
async def test_the_author_of_a_reference_sends_the_operator_nowhere_else(
    api_version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as server, Transport(access_to(server)) as transport, asyncio.TaskGroup() as group:
        watches = OwnerWatches(transport, {}, tell=lambda _: None, wake=lambda: None)
        with caplog.at_level(logging.WARNING, "orchestrator.control.decide.owner_watches"):
            owner = {**reference("Thing", "t", "example.org"), "apiVersion": api_version}
            watches.see_pod(read_pod(pod("x", "", owner)))
            await watches.start(group.create_task)
        watches.stop()
        assert server.requests_of("GET") == []
    assert all("\n" not in record.message for record in caplog.records)


async def test_a_definition_that_is_installed_later_is_found_with_the_next_pod(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes: list[Change[Any]] = []
    async with cluster() as server, Transport(access_to(server)) as transport, asyncio.TaskGroup() as group:
        missing = error_answer(404, "NotFound", "no such group")
        server.on("GET", JOBSETS, missing, missing, Answer(SERVED))
        server.on("GET", f"{JOBSETS}/jobsets", page(JOBSET))
        watches = OwnerWatches(transport, {}, tell=changes.append, wake=lambda: None, retry_seconds=0)
        with caplog.at_level(logging.WARNING, "orchestrator.control.decide.owner_watches"):
            for _ in range(3):
                watches.see_pod(read_pod(pod("x", "driver", reference("JobSet", "js"))))
                await watches.start(group.create_task)
        watches.stop()
    assert [each.object.reading for each in changes if isinstance(each.object, KindState)] == [
        *(Reading.PENDING, Reading.UNREADABLE) * 2,
        *(Reading.PENDING, Reading.CURRENT),
    ]
    (read,) = (each.object for each in changes if isinstance(each.object, Controller))
    assert read.gang is not None
    assert len(caplog.records) == 1


async def test_a_pod_that_waits_for_an_owner_is_woken_when_it_comes() -> None:
    woken: list[bool] = []
    async with cluster() as server, Transport(access_to(server)) as transport:
        jobs = Reflector(transport, JOBS_RESOURCE, Object)
        watches = OwnerWatches(
            transport, {JOBS_RESOURCE: jobs}, tell=lambda _: None, wake=lambda: woken.append(True)
        )
        lone, other = (read_object(body("Job", name)) for name in ("lone", "other"))
        watches.see_pod(read_pod(pod("lone-x", "", reference("Job", "lone"))))
        watches.see_owner(Change("added", other))
        assert woken == []
        watches.see_owner(Change("added", lone))
        assert woken == [True]
        watches.see_owner(Change("modified", lone, lone))
        assert woken == [True]


async def test_a_pod_that_refers_to_many_kinds_has_few_of_them_looked_up() -> None:
    changes: list[Change[Any]] = []
    async with cluster() as server, Transport(access_to(server)) as transport:
        watches = OwnerWatches(transport, {}, tell=changes.append, wake=lambda: None)
        for number in range(MAX_KINDS + 10):
            watches.see_pod(read_pod(pod("x", "", reference(f"Kind{number}", "x", "example.org"))))
        assert len(changes) == MAX_KINDS
        # a reference of one member does not affect the gangs of others
        watches.see_pod(read_pod(pod("y", "", reference("JobSet", "y", "jobset.x-k8s.io"))))
    assert changes[-1].object.kind == ("jobset.x-k8s.io", "JobSet")


async def test_an_unknown_kind_is_followed_by_its_metadata_alone() -> None:
    things = "/apis/example.org/v1"
    thing = reference("Thing", "t", "example.org")
    made = [body("Job", f"t-{number}", owner=thing) for number in (1, 2)]
    pods = [pod(f"t-{number}-x", "", reference("Job", f"t-{number}")) for number in (1, 2)]
    async with cluster(pods=pods, jobs=made) as server:
        served = [{"name": "things", "kind": "Thing", "namespaced": True, "verbs": ["list", "watch"]}]
        server.on("GET", things, Answer({"kind": "APIResourceList", "resources": served}))
        server.on("GET", f"{things}/things", page(body("Thing", "t")))
        async with looped(server) as (_, decide, _observer):
            assert sizes(await decide()) == {"t": (2,)}
        accepted = [each.headers["Accept"] for each in server.requests_of("GET", f"{things}/things")]
    assert "as=PartialObjectMetadataList" in accepted[-1]


async def test_jobs_of_others_have_nothing_looked_up() -> None:
    foreign = [{**each, "spec": {**each["spec"], "schedulerName": "default-scheduler"}} for each in PODS]
    async with cluster(pods=foreign, jobs=JOBS) as server, looped(server) as (_, decide, _observer):
        assert await decide() == {}
        assert not server.requests_of("GET", JOBSETS)


async def test_a_specification_that_cannot_be_read_is_named_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(pods=PODS, jobs=JOBS) as server:
        server.on("GET", JOBSETS, Answer(SERVED))
        server.on("GET", f"{JOBSETS}/jobsets", page(body("JobSet", "js", {"replicatedJobs": "three"})))
        with caplog.at_level(logging.WARNING, "orchestrator.control.decide.owner_watches"):
            async with looped(server) as (_, decide, _observer):
                assert sizes(await decide()) == {"js": (3,)}
    assert [each.message.partition(":")[0] for each in caplog.records] == ["JobSet muster-team-a/js"]
