"""The loop around the decision, on a whole API server in memory."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import pytest

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.lease import LeaseElection
from orchestrator.cluster.objects import Lease
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SLICE, SchedulerLoop
from orchestrator.control.operator import LEASE_SECONDS, RENEW_SECONDS
from orchestrator.control.operator_config import MemoryLimitsMode, OperatorConfig
from orchestrator.control.report.health import Health
from orchestrator.names import SCHEDULER_NAME
from orchestrator.planner.model import Plan, Snapshot
from tests.cluster.fake_api_server import Answer, FakeApiServer, Request, access_to, event, page, pod, serving
from tests.cluster.fake_api_server import Watch as Watched
from tests.cluster.waiting import ManualClock, running, until
from tests.observe import objects as workload_objects

LISTS = (
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/apis/muster.dev/v1alpha1/projects",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/replicasets",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/api/v1/resourcequotas",
)
NOTHING = Plan(bindings=(), evictions=(), shares_gpu_milli={}, allocated_gpu_milli={}, pending={})


class Defective:
    """A planner that fails this many times, and then decides that there is nothing to do."""

    def __init__(self, failures: int) -> None:
        self.calls = 0
        self._failures = failures

    def __call__(self, _snapshot: Snapshot) -> Plan:
        self.calls += 1
        if self.calls <= self._failures:
            raise KeyError("a mistake")
        return NOTHING


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with serving() as server:
        for path in LISTS:
            server.on("GET", path, page())
        yield server


async def loop_on(
    server: FakeApiServer,
    planner: Callable[[Snapshot], Plan],
    health: Health,
    until_true: Callable[[], object],
) -> None:
    async with Transport(access_to(server)) as transport:
        observer = Observer(transport)
        async with observer.running() as group:
            loop = SchedulerLoop(
                transport,
                observer,
                on_plan=lambda _reading, _plan: None,
                is_leader=lambda: True,
                health=health,
                planner=planner,
            )
            async with running(loop.run()):
                await until(until_true, seconds=10)
            del group


async def test_a_decision_that_fails_is_shown_and_made_again(server: FakeApiServer) -> None:
    health = Health(asyncio.get_running_loop().time)
    planner = Defective(failures=1)
    unready: list[str | None] = []

    def decide(snapshot: Snapshot) -> Plan:
        unready.append(health.unready())
        return planner(snapshot)

    await loop_on(server, decide, health, lambda: any(unready) and health.unready() is None)
    assert "the last decision failed: KeyError: 'a mistake'" in unready


async def test_a_decision_knows_the_time_and_looks_at_the_wall_clock_once(server: FakeApiServer) -> None:
    looks = count(1)
    async with Transport(access_to(server)) as transport:
        observer = Observer(transport)
        seen: list[Snapshot] = []

        def note(snapshot: Snapshot) -> Plan:
            seen.append(snapshot)
            return NOTHING

        async with observer.running():
            loop = SchedulerLoop(
                transport,
                observer,
                on_plan=lambda _reading, _plan: None,
                is_leader=lambda: True,
                planner=note,
                wall_clock=lambda: 1e9 * next(looks),
            )
            await loop.catch_up()
            await loop.decide()
            await loop.decide()
    assert [each.now_us // 100_000_000 for each in seen] == [10_000_000, 10_000_000]
    assert seen[0].now_us < seen[1].now_us
    assert next(looks) == 2


async def test_a_status_change_of_a_running_pod_wakes_no_decision(server: FakeApiServer) -> None:
    started = {**pod("job", version="11", node="node-1"), "status": {"phase": "Running"}}
    ended = {**pod("job", version="12", node="node-1"), "status": {"phase": "Succeeded"}}
    async with serving() as other:
        for path in LISTS:
            answer = page(pod("job", version="10", node="node-1")) if path.endswith("/pods") else page()
            other.on("GET", path, answer)
        async with Transport(access_to(other)) as transport:
            changes = 0
            observer = Observer(transport)

            def count(_change: object) -> None:
                nonlocal changes
                changes += 1

            observer.listen(count)
            other.on(
                "WATCH", "/api/v1/pods", Watched(event("MODIFIED", started), event("MODIFIED", ended), b"\n")
            )
            async with observer.running():
                await until(lambda: observer.pods.counters.events >= 2)
    assert changes == 2, "the pod was added, and it ended"


@pytest.mark.parametrize(("is_ours", "changes"), [(True, 1), (False, 2)], ids=["echo", "of another"])
async def test_a_nomination_wakes_no_decision_if_it_is_our_own(is_ours: bool, changes: int) -> None:
    nominated = pod("job", version="11", annotations={"muster.dev/nominated-devices": "0"})
    nominated["status"]["nominatedNodeName"] = "node-1"
    labelled = {**nominated, "metadata": {**nominated["metadata"], "resourceVersion": "12"}}
    news: list[object] = []
    async with serving() as server:
        for path in LISTS:
            server.on("GET", path, page(pod("job", version="10")) if path.endswith("/pods") else page())
        events = Watched(event("MODIFIED", nominated), event("MODIFIED", labelled), b"\n")
        server.on("WATCH", "/api/v1/pods", events)
        async with Transport(access_to(server)) as transport:
            observer = Observer(transport)
            observer.expect(lambda _uid, _node: False, lambda pod: is_ours and bool(pod))
            observer.listen(news.append)
            async with observer.running():
                await until(lambda: observer.pods.counters.events >= 2)
    assert len(news) == changes


async def test_a_node_where_nothing_gets_ready_does_not_keep_pods_that_could_run_elsewhere() -> None:
    """All decisions bind to the first node, and no agent reports the memory of its GPUs."""
    faulty = "node-1"
    mounts = {"volumes": [{"name": "library", "hostPath": {"path": "/var/lib/muster/gpu-memory"}}]}
    half = {"muster.dev/gpu-fraction": "0.5"}
    jobs = [
        workload_objects.pod(f"job-{each}", annotations=half, spec={"containers": [], **mounts})
        for each in range(2)
    ]
    memory = {"nvidia.com/gpu.memory": "32510"}
    nodes = [
        workload_objects.node(name, 1, labels={} if name == faulty else memory)
        for name in ("node-1", "node-2")
    ]
    lists: dict[str, list[Any]] = {
        "/api/v1/pods": jobs,
        "/api/v1/nodes": nodes,
        "/api/v1/namespaces": [workload_objects.namespace("muster-team-a", "team-a")],
        "/apis/muster.dev/v1alpha1/projects": [workload_objects.project("team-a", quota=2)],
    }
    bound: list[str] = []

    def bind(request: Request) -> Answer:
        bound.append(request.body["target"]["name"])
        return Answer(code=201)

    async with serving() as server:
        for path in LISTS:
            server.on("GET", path, page(*map(msgspec.to_builtins, lists.get(path, ()))))
        for each in jobs:
            path = f"/api/v1/namespaces/muster-team-a/pods/{each.metadata.name}"
            server.on("POST", f"{path}/binding", bind)
            server.on("PATCH", f"{path}/status", Answer({"metadata": {}}))
        async with Transport(access_to(server)) as transport:
            observer = Observer(transport)
            async with observer.running():
                loop = SchedulerLoop(
                    transport,
                    observer,
                    on_plan=lambda _reading, _plan: None,
                    is_leader=lambda: True,
                    config=OperatorConfig(gpu_memory_limits=MemoryLimitsMode.ENFORCE),
                    unready_seconds=0,
                )
                async with running(loop.run()):
                    await until(lambda: len(bound) == len(jobs), seconds=20)
    assert faulty not in bound


class MemoryLease:
    """A double of a transport with one lease, which counts its writes."""

    def __init__(self) -> None:
        self.writes = 0

    async def get(self, path: str, *_: object) -> Lease:
        raise NotFound(f"GET {path}: 404", status=404, reason="NotFound")

    async def create(self, _path: str, body: Lease, *_: object) -> Lease:
        self.writes += 1
        return body

    replace = create


@asynccontextmanager
async def leading(
    sleep: Callable[[float], Awaitable[None]], clock: Callable[[], float]
) -> AsyncIterator[Any]:
    """Lead as the operator does, and renew the lease in the background."""
    store: Any = MemoryLease()
    election = LeaseElection(
        store,
        namespace="muster-system",
        name="muster-operator",
        identity="me",
        lease_seconds=LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
        clock=clock,
        sleep=sleep,
    )
    await election.acquire()
    async with running(election.hold()):
        yield election, store


def _waiting(name: str) -> dict[str, Any]:
    made = pod(name)
    return {**made, "spec": {**made["spec"], "schedulerName": SCHEDULER_NAME}}


@asynccontextmanager
async def many(jobs: int, planner: Callable[[Snapshot], Plan]) -> AsyncIterator[SchedulerLoop]:
    """Yield a loop on caches with this number of pods."""
    async with serving() as server:
        for path in LISTS:
            found = [_waiting(f"job-{each}") for each in range(jobs)] if path.endswith("/pods") else []
            server.on("GET", path, page(*found))
        async with Transport(access_to(server)) as transport:
            observer = Observer(transport)
            async with observer.running():
                yield SchedulerLoop(
                    transport,
                    observer,
                    on_plan=lambda _reading, _plan: None,
                    is_leader=lambda: True,
                    planner=planner,
                )


async def test_the_lease_is_renewed_while_a_large_cluster_is_read_for_the_first_time() -> None:
    jobs, clock, led = 20 * SLICE, ManualClock(), []

    async def sleep(seconds: float) -> None:
        until = clock() + seconds
        while clock() < until:  # noqa: ASYNC110 - the clock is turned below
            await asyncio.sleep(0)

    async with many(jobs, lambda _snapshot: NOTHING) as loop, leading(sleep, clock) as (election, store):

        async def turn() -> None:
            while True:  # half a second for each time slice, if the work is divided into slices
                clock.now += 0.5
                led.append(election.is_leader())
                await asyncio.sleep(0)

        async with running(turn()):
            await loop.catch_up()
    assert len(led) >= jobs // SLICE, "more than a slice was read at once"
    assert all(led)
    assert store.writes > len(led) * 0.5 / LEASE_SECONDS


async def test_the_lease_is_renewed_while_the_planner_decides() -> None:
    renewed = threading.Event()
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        if len(clock.slept) > 10:
            renewed.set()
            await asyncio.Event().wait()

    def slow(_snapshot: Snapshot) -> Plan:
        assert renewed.wait(10), "nothing went on while the planner decided"
        return NOTHING

    async with many(1, slow) as loop, leading(sleep, clock) as (election, store):
        await loop.catch_up()
        await loop.decide()
        assert election.is_leader()
        assert store.writes >= 10
