"""The loop around the decision, on a whole API in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest

from orchestrator.cluster.transport import Transport
from orchestrator.control.health import Health
from orchestrator.control.observer import Observer
from orchestrator.control.scheduler import SchedulerLoop
from orchestrator.planner.model import Plan, Snapshot
from tests.cluster.fake_api_server import FakeApiServer, access_to, event, page, pod, serving
from tests.cluster.fake_api_server import Watch as Watched
from tests.cluster.waiting import running, until

LISTS = (
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/apis/muster.dev/v1alpha1/projects",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/replicasets",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
)
NOTHING = Plan(bindings=(), evictions=(), shares_gpu_milli={}, allocated_gpu_milli={}, pending={})


class Defective:
    """A planner that fails so many times before it decides that there is nothing to do."""

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
    seen: list[str | None] = []

    def recovered() -> bool:
        seen.append(health.unready())
        return planner.calls >= 2 and health.unready() is None

    await loop_on(server, planner, health, recovered)
    assert "the last decision failed: KeyError: 'a mistake'" in seen


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
            loop.decide()
            loop.decide()
    assert [each.now_us // 100_000_000 for each in seen] == [10_000_000, 10_000_000]
    assert seen[0].now_us < seen[1].now_us
    assert next(looks) == 2


async def test_what_happens_in_the_status_of_a_running_pod_wakes_nobody(server: FakeApiServer) -> None:
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
