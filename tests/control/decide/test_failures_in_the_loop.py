"""The failures that the operator remembers, through the whole loop on an API server in memory.

Refused bindings and nominations, stuck victims, rejecting kubelets, pods that do not start, unbound
PersistentVolumeClaims.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from orchestrator.cluster.objects import Object, Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.control.report.audit import EvictionRecord
from orchestrator.control.report.metrics import OperatorMetrics
from tests.cluster.fake_api_server import (
    Answer,
    FakeApiServer,
    Request,
    access_to,
    error_answer,
    page,
    serving,
)
from tests.cluster.waiting import running, until
from tests.control.decide.test_scheduler import LISTS
from tests.observe.objects import claim, decoded, mounting, namespace, node, pod, project

if TYPE_CHECKING:
    from orchestrator.observe.snapshot import Reading
    from orchestrator.planner.model import Plan

NOW = "2026-11-27T12:00:00Z"
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-11-27T11:58:00Z", "deletionGracePeriodSeconds": 30}
RECORDS = "/apis/muster.dev/v1alpha1/namespaces/muster-team-a/evictionrecords"
PODS = "/api/v1/namespaces/muster-team-a/pods"


class World:
    """The loop on these objects, and its requests to the API server."""

    def __init__(self, server: FakeApiServer, loop: SchedulerLoop, metrics: OperatorMetrics) -> None:
        self.server, self.loop, self.metrics = server, loop, metrics
        self.plans: list[tuple[Reading, Plan]] = []

    def posts(self, kind: str) -> list[str]:
        """Return the names of the pods for which requests of this kind were made."""
        return [
            request.path.split("/")[-2]
            for request in self.server.requests_of("POST")
            if request.path.endswith(f"/{kind}")
        ]

    def conditions(self, name: str) -> list[dict[str, str]]:
        return [
            condition
            for request in self.server.requests_of("PATCH", f"{PODS}/{name}/status")
            for condition in request.body.get("status", {}).get("conditions", ())
        ]

    def events(self, reason: str) -> list[str]:
        return [
            request.body["message"]
            for request in self.server.requests
            if request.method == "POST"
            and request.path.endswith("/events")
            and request.body["reason"] == reason
        ]


@asynccontextmanager
async def world(
    *objects: Object,
    answers: Callable[[str, str], Answer | None] = lambda _name, _kind: None,
    records: Sequence[EvictionRecord] = (),
) -> AsyncIterator[World]:
    """Run a loop on these objects.

    `answers` returns the answer to a request from the pod's name and `binding`, `eviction` or `status`. `records` are
    the evictions on record.
    """
    lists: dict[str, list[Any]] = {
        "/api/v1/namespaces": [namespace("muster-team-a", "team-a")],
        "/apis/muster.dev/v1alpha1/projects": [project("team-a", quota=2)],
    }
    paths = {"Pod": "/api/v1/pods", "Node": "/api/v1/nodes", "PersistentVolumeClaim": LISTS[8]}
    for each in objects:
        lists.setdefault(paths[type(each).__name__], []).append(each)
    async with serving() as server:
        for path in LISTS:
            server.on("GET", path, page(*map(msgspec.to_builtins, lists.get(path, ()))))
        for name in ("muster-team-a", "default"):
            server.on("POST", f"/api/v1/namespaces/{name}/events", Answer(code=201))
            server.on(
                "POST", f"/apis/muster.dev/v1alpha1/namespaces/{name}/evictionrecords", Answer(code=201)
            )
        stored = [
            {"metadata": {"name": each.pod, "uid": each.pod_uid}, "spec": msgspec.to_builtins(each)}
            for each in records
        ]
        server.on("GET", RECORDS, page(*stored))
        for name in ("muster-first-decisions", "muster-skipped"):
            path = f"/api/v1/namespaces/muster-system/configmaps/{name}"
            server.on("GET", path, error_answer(404, "NotFound"))
            server.on("PATCH", path, Answer({"metadata": {}}))
        for each in lists.get("/api/v1/pods", ()):
            _serve_pod(server, each.metadata.name, answers)
        async with Transport(access_to(server)) as transport:
            observer, metrics = Observer(transport), OperatorMetrics()
            async with observer.running():
                made: list[World] = []
                loop = SchedulerLoop(
                    transport,
                    observer,
                    on_plan=lambda reading, plan: made[0].plans.append((reading, plan)),
                    is_leader=lambda: True,
                    metrics=metrics,
                    wall_clock=lambda: time_us(NOW) / 1_000_000,
                )
                made.append(World(server, loop, metrics))
                metrics.leading({})
                async with running(loop.run()):
                    yield made[0]


def _serve_pod(server: FakeApiServer, name: str, answers: Callable[[str, str], Answer | None]) -> None:
    def answer(request: Request) -> Answer:
        kind = request.path.rpartition("/")[2]
        return answers(name, kind) or Answer({"metadata": {}}, 201)

    for method, suffix in (("POST", "/binding"), ("POST", "/eviction"), ("PATCH", "/status"), ("PATCH", "")):
        server.on(method, f"{PODS}/{name}{suffix}", answer)


def answering(name: str, kind: str, answer: Answer) -> Callable[[str, str], Answer | None]:
    """Return a function with this answer for requests of a kind for a pod; all other requests are accepted."""
    return lambda pod_name, request: answer if (pod_name, request) == (name, kind) else None


@pytest.mark.parametrize(
    "denial",
    [
        error_answer(422, "Invalid", "site policy says no"),
        error_answer(403, "Forbidden", "site policy says no"),
    ],
    ids=["invalid", "forbidden"],
)
async def test_a_refused_binding_is_put_off_with_the_sentence_and_others_start(denial: Answer) -> None:
    doomed = pod("doomed", gpus=1, creationTimestamp="2026-11-21T10:00:00Z")
    fine = pod("fine", gpus=1, creationTimestamp="2026-11-21T10:00:01Z")
    async with world(node("n1", 1), doomed, fine, answers=answering("doomed", "binding", denial)) as one:
        await until(lambda: "fine" in one.posts("binding"), seconds=20)
        await until(lambda: one.conditions("doomed"), seconds=20)
        message = one.conditions("doomed")[-1]["message"]
        assert message.startswith("BackOff: the API server refused its last start on n1: ")
        assert "site policy says no" in message
        await until(
            lambda: any("site policy says no" in said for said in one.events("Unschedulable")), seconds=20
        )
        attempts = one.posts("binding").count("doomed")
        for _ in range(3):
            await one.loop.decide()
        assert one.posts("binding").count("doomed") == attempts, "it was tried again at once"
        assert 'muster_operator_pending_workloads{reason="BackOff"} 1' in one.metrics.page().text


async def test_no_pod_is_evicted_for_a_workload_whose_nomination_is_refused() -> None:
    runs = pod("runs", gpus=1, node="n1", phase="Running")
    want = pod("want", gpus=1, spec={"priority": 100})
    denial = error_answer(422, "Invalid", "no nominations here")
    async with world(node("n1", 1), runs, want, answers=answering("want", "status", denial)) as one:
        await until(lambda: any(plan.evictions for _, plan in one.plans), seconds=20)
        await until(lambda: one.plans[-1][0].snapshot.rejections, seconds=20)
        assert "no nominations here" in one.plans[-1][1].pending["uid-want"].message
    assert one.posts("eviction") == []


async def test_another_pod_is_evicted_if_the_first_victim_is_stuck_and_its_condition_says_so() -> None:
    b1 = pod("b1", gpus=1, node="n1", phase="Running", **DELETED)
    b2 = pod("b2", gpus=1, node="n1", phase="Running")
    want = pod("want", gpus=2, annotations={"muster.dev/preemptible": "false"}, spec={"priority": 100})
    async with world(node("n1", 3), b1, b2, want) as one:
        await until(lambda: one.posts("eviction"), seconds=20)
        assert set(one.posts("eviction")) == {"b2"}
        await until(lambda: one.conditions("b1"), seconds=20)
        (condition,) = one.conditions("b1")
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "muster.dev/Stuck",
            "True",
            "Stuck",
        )
        await until(lambda: one.events("Stuck"), seconds=20)
        assert "n1" in one.events("Stuck")[0]
        assert 'muster_operator_stuck_pods{node="n1",problem="Stuck"} 1' in one.metrics.page().text


async def test_a_node_that_rejected_two_pods_gets_no_third_and_says_so() -> None:
    failed = [
        pod(f"reject-{at}", gpus=1, node="n1", phase="Failed", started=f"2026-11-27T11:59:5{at}Z")
        for at in range(2)
    ]
    other = pod("other", gpus=1)
    async with world(node("n1", 8), node("n2", 8), *failed, other) as one:
        await until(lambda: "other" in one.posts("binding"), seconds=20)
        (binding,) = one.server.requests_of("POST", f"{PODS}/other/binding")
        assert binding.body["target"]["name"] == "n2"
        await until(lambda: one.events("NodeAvoided"), seconds=20)
        assert "2 pods in a row failed there" in one.events("NodeAvoided")[0]
        assert 'muster_operator_avoided_nodes{node="n1"} 1' in one.metrics.page().text


async def test_a_pod_that_does_not_start_gives_its_gpus_back_and_backs_off() -> None:
    late = pod("late", gpus=1, node="n1", started="2026-11-27T11:29:00Z")
    early = pod("early", gpus=1, node="n1", started="2026-11-27T11:31:00Z")
    async with world(node("n1", 2), late, early) as one:
        await until(lambda: one.posts("eviction"), seconds=20)
        assert set(one.posts("eviction")) == {"late"}
        await until(lambda: any(reading.snapshot.rejections for reading, _ in one.plans), seconds=20)
        (failure,) = one.plans[-1][0].snapshot.rejections
        assert (failure.node, failure.kind.value) == ("n1", "not-started")


@pytest.mark.parametrize(("reason", "noted"), [("ImagePullBackOff", True), ("ContainerCreating", False)])
async def test_a_workload_backs_off_if_a_pod_of_it_is_preempted_that_could_not_start(
    reason: str, noted: bool
) -> None:
    """Otherwise it would come back and preempt running pods of a lower priority."""
    status = {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason}}}]}
    fields = msgspec.to_builtins(pod("broken", gpus=1, node="n1"))
    broken = decoded(Pod, **{**fields, "status": {"phase": "Pending", **status}})
    want = pod("want", gpus=1, spec={"priority": 100})
    async with world(node("n1", 1), broken, want) as one:
        await until(lambda: "broken" in one.posts("eviction"), seconds=20)
        if noted:
            await until(lambda: one.plans[-1][0].snapshot.rejections, seconds=20)
        for _ in range(3):
            await one.loop.decide()
        found = {
            (each.workload, each.kind.value, each.reason) for each in one.plans[-1][0].snapshot.rejections
        }
        assert found == ({("uid-broken", "not-started", reason)} if noted else set())


def evicted(workload: str, rule: str, at: str) -> EvictionRecord:
    """Return the record of an eviction of a workload by an earlier leader."""
    return EvictionRecord(
        at=at, project="team-a", workload=workload, workload_id=f"uid-{workload}", pod=f"{workload}-0",
        pod_uid=f"uid-{workload}-0", gpu_milli=1000, node="n1", rule=rule,
        message=f"{workload} gives its GPUs back: no container of {workload}-0 started on n1: ErrImagePull",
    )  # fmt: skip


async def test_a_new_leader_knows_the_pods_that_an_earlier_one_evicted_because_they_did_not_start() -> None:
    names = ("late", "long-ago", "preempted")
    records = [
        evicted("late", "start-timeout", "2026-11-27T11:59:00Z"),
        evicted("long-ago", "start-timeout", "2026-11-27T05:00:00Z"),
        evicted("preempted", "quota", "2026-11-27T11:59:00Z"),
    ]
    async with world(node("n1", 2), *(pod(name, gpus=1) for name in names), records=records) as one:
        await until(lambda: set(one.posts("binding")) == {"long-ago", "preempted"}, seconds=20)
        await until(lambda: one.conditions("late"), seconds=20)
        assert one.conditions("late")[-1]["message"].startswith("BackOff: ")
        assert "ErrImagePull" in one.conditions("late")[-1]["message"]


@pytest.mark.parametrize(("volume", "bound"), [("", []), ("pv-1", ["job"])], ids=["unbound", "bound"])
async def test_a_pod_with_an_immediate_claim_gets_a_node_when_the_claim_has_its_volume(
    volume: str, bound: list[str]
) -> None:
    job = pod("job", gpus=1, spec=mounting("data"))
    free = pod("free", gpus=1)
    data = claim("data", "nfs", volume=volume)
    async with world(node("n1", 2), job, free, data) as one:
        await until(lambda: "free" in one.posts("binding"), seconds=20)
        if not bound:
            await until(lambda: one.conditions("job"), seconds=20)
            assert one.conditions("job")[-1]["message"].startswith(
                "VolumeNotReady: the claim data of class nfs"
            )
    assert "job" not in one.posts("binding") or bound
