"""The executor between a decision and its echo on the watch, when answers are missing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Metadata, Pod, PodSpec
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.executor import Executor
from orchestrator.control.carry_out.requests import FORBIDDEN_ATTEMPTS, REQUESTS_IN_FLIGHT
from orchestrator.control.operator import LIMITS
from orchestrator.observe.device_reader import Miscounted
from orchestrator.observe.pod_cache import PodCache
from orchestrator.planner.model import Binding, Eviction
from tests.cluster.fake_api_server import (
    CUT,
    Answer,
    FakeApiServer,
    Hang,
    Request,
    Watch,
    access_to,
    error_answer,
    pod,
    serving,
)
from tests.cluster.test_eviction import eviction_blocked
from tests.cluster.waiting import DEADLINE_SECONDS, ManualClock, until

BIND = "/api/v1/namespaces/team/pods/job/binding"
POD = "/api/v1/namespaces/team/pods/job"
EVICT = f"{POD}/eviction"
JOB = Pod(metadata=Metadata(name="job", namespace="team", uid="uid-job"))
BOUND = Pod(metadata=JOB.metadata, spec=PodSpec(node_name="node-1"))
BINDING = Binding("uid-job", "workload", "node-1", (0, 3))
EVICTION = Eviction("uid-job", "workload", "other", "quota", "1 GPU reclaimed for other")


class World:
    """An executor on a scripted server. Its pauses take no time."""

    def __init__(self, server: FakeApiServer, transport: Transport, clock: ManualClock) -> None:
        self.server = server
        self.leads = True
        self.refused = 0
        self.forbidden: list[tuple[str, str]] = []
        self.cache = PodCache()
        self.executor = Executor(
            transport,
            self.cache,
            is_leader=lambda: self.leads,
            on_refused=self._refuse,
            on_forbidden=lambda pod, why: self.forbidden.append((pod.metadata.uid, why)),
            request_seconds=0.2,
            sleep=clock.sleep,
        )

    def _refuse(self) -> None:
        self.refused += 1

    def begin(self, *, evict: bool = False) -> None:
        self.executor.begin([EVICTION] if evict else [], [] if evict else [BINDING], {"uid-job": JOB})

    async def settled(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self.executor.idle()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    async with (
        serving() as server,
        Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, _: low) as transport,
    ):
        made = World(server, transport, clock)
        async with made.executor:
            yield made


async def test_a_binding_counts_as_done_from_its_beginning_until_the_watch_shows_it(world: World) -> None:
    world.server.on("POST", BIND, Answer(code=201))
    world.begin()
    assert world.cache.bindings["uid-job"].devices == (0, 3)
    await world.settled()
    world.executor.confirm({"uid-job": JOB})
    assert "uid-job" in world.cache.bindings
    assert world.executor.is_assumed_on("uid-job", "node-1")
    world.executor.confirm({"uid-job": BOUND})
    assert not world.cache.bindings


@pytest.mark.parametrize(
    "failure",
    [
        Watch(CUT),
        Hang(),
        error_answer(500, "InternalError", "etcdserver: request timed out"),
        error_answer(429),
    ],
    ids=["cut", "no answer", "fault", "busy"],
)
async def test_a_binding_without_an_answer_is_repeated_unchanged_and_its_gpus_remain_taken(
    world: World, failure: Watch | Hang | Answer
) -> None:
    world.server.on("POST", BIND, failure, failure, Answer(code=201))
    world.begin()
    await until(lambda: len(world.server.requests_of("POST", BIND)) >= 2)
    assert "uid-job" in world.cache.bindings
    await world.settled()
    bodies = [request.body for request in world.server.requests_of("POST", BIND)]
    assert len(bodies) == 3
    assert all(body == bodies[0] for body in bodies)
    assert "uid-job" in world.cache.bindings
    assert world.refused == 0


async def test_a_binding_that_happened_although_its_answer_was_lost_is_found_to_be_done(world: World) -> None:
    written = {"muster.dev/gpu-devices": "0,3", "muster.dev/admitted": "uid-job"}
    done = pod("job", node="node-1", annotations=written)
    world.server.on("POST", BIND, Watch(CUT), error_answer(409, "Conflict", "pod job is already assigned"))
    world.server.on("GET", POD, Answer(done))
    world.begin()
    await world.settled()
    assert world.refused == 0
    assert "uid-job" in world.cache.bindings


@pytest.mark.parametrize(("devices", "text"), [((0, 3), "0,3"), ((), "")])
async def test_a_binding_replaces_the_device_annotations_of_a_template_and_says_that_muster_admitted_the_pod(
    world: World, devices: tuple[int, ...], text: str
) -> None:
    forged = {"muster.dev/gpu-devices": "0,1,2,3,4,5,6,7", "muster.dev/admitted": "uid-of-another"}
    job = Pod(metadata=msgspec.structs.replace(JOB.metadata, annotations=forged))
    world.server.on("POST", BIND, Answer(code=201))
    world.executor.begin([], [Binding("uid-job", "workload", "node-1", devices)], {"uid-job": job})
    await world.settled()
    (request,) = world.server.requests_of("POST", BIND)
    assert request.body["metadata"]["annotations"] == {
        "muster.dev/gpu-devices": text,
        "muster.dev/admitted": "uid-job",
    }


@pytest.mark.parametrize("code", [401, 404, 422])
async def test_a_binding_that_is_refused_is_forgotten_and_decided_again(world: World, code: int) -> None:
    world.server.on("POST", BIND, error_answer(code))
    world.begin()
    await world.settled()
    assert not world.cache.bindings
    assert world.refused == 1
    assert len(world.server.requests_of("POST", BIND)) == 1


async def test_a_request_without_the_right_is_repeated_until_the_right_is_there(world: World) -> None:
    """The API server's authorizer learns of a RoleBinding in a new project's namespace only a moment later."""
    world.server.on("POST", BIND, error_answer(403), error_answer(403), Answer(code=201))
    world.begin()
    await world.settled()
    assert len(world.server.requests_of("POST", BIND)) == 3
    assert world.refused == 0
    assert "uid-job" in world.cache.bindings


async def test_an_eviction_that_is_not_allowed_yet_is_repeated(world: World) -> None:
    world.server.on("PATCH", POD, error_answer(403), Answer(pod("job")))
    world.server.on("POST", EVICT, error_answer(403), Answer(code=201))
    world.begin(evict=True)
    await world.settled()
    assert len(world.server.requests_of("POST", EVICT)) == 2
    assert world.refused == 0
    assert world.cache.evictions == {"uid-job"}


async def test_a_forbidden_request_is_given_up_after_several_tries_and_decided_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.server.on("POST", BIND, error_answer(403))
    world.begin()
    await world.settled()
    assert len(world.server.requests_of("POST", BIND)) == FORBIDDEN_ATTEMPTS
    assert not world.cache.bindings
    assert world.refused == 1
    first, last = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "to be repeated" in first
    assert f"refused {FORBIDDEN_ATTEMPTS} times" in last


async def test_a_binding_whose_outcome_the_watch_shows_is_not_repeated(world: World) -> None:
    def bind_without_an_answer(_request: Request) -> Any:
        world.executor.confirm({"uid-job": BOUND})
        return Hang()

    world.server.on("POST", BIND, bind_without_an_answer)
    world.begin()
    await world.settled()
    assert len(world.server.requests_of("POST", BIND)) == 1


async def test_a_standby_operator_sends_no_request(world: World) -> None:
    world.leads = False
    world.begin()
    world.begin(evict=True)
    async with world.executor:
        pass
    assert world.server.requests == []


async def test_an_eviction_without_an_answer_is_repeated_until_the_pod_is_deleted(world: World) -> None:
    world.server.on("PATCH", POD, Watch(CUT), Answer(pod("job")))
    world.server.on("POST", EVICT, Watch(CUT), error_answer(404, "NotFound"))
    world.begin(evict=True)
    await until(lambda: world.server.requests_of("POST", EVICT))
    assert "uid-job" in world.cache.evictions
    await world.settled()
    assert len(world.server.requests_of("POST", EVICT)) == 2
    assert world.cache.evictions == {"uid-job"}
    world.executor.confirm({})
    assert not world.cache.evictions


async def test_an_eviction_that_a_budget_forbids_is_not_repeated_but_decided_again(world: World) -> None:
    world.server.on("PATCH", POD, Answer(pod("job")))
    world.server.on("POST", EVICT, eviction_blocked())
    world.begin(evict=True)
    await world.settled()
    assert len(world.server.requests_of("POST", EVICT)) == 1
    assert world.refused == 1
    assert not world.cache.evictions
    ((uid, why),) = world.forbidden
    assert uid == "uid-job"
    assert "disruption budget" in why


@pytest.mark.parametrize(
    ("requested", "own", "expected"),
    [
        ("120", None, 120),
        ("86400", None, 600),
        ("soon", None, None),
        (None, None, None),
        ("0", 30, 0),
        (None, 30, 30),
        ("soon", 31_536_000, 600),
        (None, 31_536_000, 600),
        ("120", 31_536_000, 120),
    ],
)
async def test_a_pod_gets_the_time_that_it_asks_for_to_save_its_work_within_bounds(
    world: World, requested: str | None, own: int | None, expected: int | None
) -> None:
    annotations = {} if requested is None else {"muster.dev/checkpoint-grace-seconds": requested}
    job = Pod(
        metadata=msgspec.structs.replace(JOB.metadata, annotations=annotations),
        spec=PodSpec(termination_grace_period_seconds=own),
    )
    world.server.on("PATCH", POD, Answer(pod("job")))
    world.server.on("POST", EVICT, Answer(code=201))
    world.executor.begin([EVICTION], [], {"uid-job": job})
    await world.settled()
    (request,) = world.server.requests_of("POST", EVICT)
    assert request.body["deleteOptions"].get("gracePeriodSeconds") == expected


async def test_running_requests_end_with_the_executor(world: World) -> None:
    world.server.on("POST", BIND, Hang())
    async with world.executor:
        world.begin()
        await until(lambda: world.server.requests_of("POST", BIND))
    assert not world.executor.is_busy


def jobs(count: int) -> tuple[dict[str, Pod], list[Binding]]:
    """Return this number of pods, named after their numbers, with a binding for each."""
    pods = {
        f"uid-{number}": Pod(metadata=Metadata(name=f"job-{number}", namespace="team", uid=f"uid-{number}"))
        for number in range(count)
    }
    return pods, [Binding(uid, "workload", "node-1", ()) for uid in pods]


class HeldTransport(Transport):
    """A transport that answers POSTs when the gate is opened, all in the same iteration of the event loop."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.paths: list[str] = []

    async def create(self, path: str, body: Any, kind: Any = dict, *, params: Any = None) -> Any:
        self.paths.append(path)
        await self.gate.wait()
        return {}


@asynccontextmanager
async def executing(transport: Transport, cache: PodCache | None = None) -> AsyncIterator[Executor]:
    """Yield an executor of a leader, which waits for answers as long as the test runs. Its pauses take no time."""
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Executor(
            transport,
            cache or PodCache(),
            is_leader=lambda: True,
            on_refused=lambda: None,
            request_seconds=DEADLINE_SECONDS,
            sleep=ManualClock().sleep,
        ) as executor,
    ):
        yield executor


async def test_as_many_requests_as_the_limit_are_under_way_in_the_order_of_the_plan() -> None:
    transport = HeldTransport()
    pods, bindings = jobs(REQUESTS_IN_FLIGHT + 10)
    async with executing(transport) as executor:
        executor.begin([], bindings, pods)
        await until(lambda: len(transport.paths) >= REQUESTS_IN_FLIGHT)
        assert REQUESTS_IN_FLIGHT == 128, (
            "a half of it makes the operator slower by a third: see docs/reference/measurements.md"
        )
        assert len(transport.paths) == REQUESTS_IN_FLIGHT
        transport.gate.set()
        await executor.idle()
    assert transport.paths == [f"/api/v1/namespaces/team/pods/job-{n}/binding" for n in range(len(pods))]


async def test_a_mistake_of_ours_in_one_request_holds_up_no_other_and_frees_no_gpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Mistaken(HeldTransport):
        async def create(self, path: str, body: Any, kind: Any = dict, *, params: Any = None) -> Any:
            await super().create(path, body)
            if len(self.paths) <= REQUESTS_IN_FLIGHT:
                raise RuntimeError("a mistake")

    transport = Mistaken()
    transport.gate.set()
    pods, bindings = jobs(REQUESTS_IN_FLIGHT + 1)
    cache = PodCache()
    async with executing(transport, cache) as executor:
        executor.begin([], bindings, pods)
        await executor.idle()
        assert set(cache.bindings) == set(pods)
    assert len(transport.paths) == 2 * REQUESTS_IN_FLIGHT + 1
    assert "RuntimeError: a mistake" in caplog.text


async def test_bindings_without_an_answer_let_the_lease_be_renewed() -> None:
    pods, bindings = jobs(2 * REQUESTS_IN_FLIGHT)
    async with (
        serving() as server,
        Transport(access_to(server), limits=LIMITS) as transport,
        executing(transport) as executor,
    ):
        for pod_ in pods.values():
            server.on("POST", f"/api/v1/namespaces/team/pods/{pod_.metadata.name}/binding", Hang())
        server.on("GET", POD, Answer(pod("job")))
        executor.begin([], bindings, pods)
        await until(lambda: len(server.requests_of("POST")) == REQUESTS_IN_FLIGHT)
        assert (await transport.get(POD, Pod)).metadata.name == "job"
        assert len(server.requests_of("POST")) == REQUESTS_IN_FLIGHT


async def test_a_request_at_the_moment_at_which_all_workers_end_is_still_sent() -> None:
    transport = HeldTransport()
    pods, bindings = jobs(REQUESTS_IN_FLIGHT + 1)
    async with executing(transport) as executor:
        executor.begin([], bindings[:-1], pods)
        await until(lambda: len(transport.paths) == REQUESTS_IN_FLIGHT)

        async def begin_last() -> None:
            await transport.gate.wait()
            executor.begin([], bindings[-1:], pods)

        last = asyncio.create_task(begin_last())
        await asyncio.sleep(0)
        transport.gate.set()
        await last
        await until(lambda: len(transport.paths) == len(bindings))
        await executor.idle()


async def test_the_gpus_from_the_kubelet_are_written_on_the_pod_once(world: World) -> None:
    world.server.on("PATCH", POD, error_answer(404, "NotFound"), Answer(pod("job")), Answer(pod("job")))
    entry = Miscounted(BOUND, (5, 7))
    world.executor.correct([entry])
    await world.settled()
    for _ in range(2):
        world.executor.correct([entry])
        await world.settled()
    sent = [request.body for request in world.server.requests_of("PATCH", POD)]
    assert sent == [{"metadata": {"uid": "uid-job", "annotations": {"muster.dev/gpu-devices": "5,7"}}}] * 2, (
        "what was refused is tried again, what went through is not"
    )
    world.executor.correct([Miscounted(BOUND, (4, 7))])
    await world.settled()
    assert len(world.server.requests_of("PATCH", POD)) == 3, "the kubelet said something else"


async def test_a_pod_is_corrected_only_once_the_watch_shows_its_binding(world: World) -> None:
    """The agent can name the GPUs before the answer to the binding arrives."""
    world.server.on("POST", BIND, Answer(code=201))
    world.server.on("PATCH", POD, Answer(pod("job")))
    world.begin()
    world.executor.correct([Miscounted(BOUND, (5, 7))])
    await world.settled()
    assert world.server.requests_of("PATCH", POD) == []
    world.executor.confirm({"uid-job": BOUND})
    world.executor.correct([Miscounted(BOUND, (5, 7))])
    await world.settled()
    assert len(world.server.requests_of("PATCH", POD)) == 1
