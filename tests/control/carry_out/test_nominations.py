"""The requests of nominations: which ones are written, and in which order with other requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.executor import Executor
from orchestrator.control.carry_out.requests import (
    FORBIDDEN_ATTEMPTS,
    REQUESTS_IN_FLIGHT,
    UNHURRIED_IN_FLIGHT,
)
from orchestrator.names import NOMINATED_DEVICES_ANNOTATION, SUCCESSOR_NOMINATION_ANNOTATION
from orchestrator.observe.nominations import with_nomination
from orchestrator.observe.pod_cache import PodCache
from orchestrator.planner.model import Binding, Eviction
from orchestrator.planner.placements import Placement
from tests.cluster.fake_api_server import (
    CUT,
    Answer,
    FakeApiServer,
    Hang,
    Request,
    Watch,
    access_to,
    error_answer,
    serving,
)
from tests.cluster.fake_api_server import pod as sent_pod
from tests.cluster.test_eviction import eviction_blocked
from tests.cluster.waiting import DEADLINE_SECONDS, ManualClock, until
from tests.control.carry_out.test_executor import executing
from tests.observe.objects import pod
from tests.observe.test_nominations import leaving

PODS = "/api/v1/namespaces/muster-team-a/pods"
STATUS = f"{PODS}/new/status"
BIND = f"{PODS}/new/binding"
OLD = f"{PODS}/old"
EVICT = f"{OLD}/eviction"
WAITS = pod("new", gpus=2)
RUNS = pod("old", gpus=2, node="n1", phase="Running")
PLACE = Placement("n1", (0, 1))
NOMINATED = with_nomination(WAITS, PLACE)
NOMINATION = Binding("uid-new", "new", "n1", (0, 1))
MOVED = Binding("uid-old", "old", "n2", (6, 7))
EVICTION = Eviction("uid-old", "old", "new", "quota", "2 GPUs reclaimed for new")


class World:
    """An executor on a server that accepts all requests, unless `script` has other answers, and caches that the test
    fills.
    """

    def __init__(
        self, server: FakeApiServer, transport: Transport, clock: ManualClock, request_seconds: float
    ) -> None:
        self.server = server
        self.refused = 0
        self.leads = True
        self.pods: dict[str, Pod] = {}
        self.script: dict[str, list[Any]] = {}
        self.cache = PodCache()
        self.executor = Executor(
            transport,
            self.cache,
            is_leader=lambda: self.leads,
            on_refused=self._refuse,
            request_seconds=request_seconds,
            sleep=clock.sleep,
        )
        self.show(WAITS, RUNS)
        for path in (STATUS, OLD):
            server.on("PATCH", path, self._answer)
        for path in (EVICT, BIND):
            server.on("POST", path, self._answer)

    def _answer(self, request: Request) -> Any:
        others = self.script.get(request.path)
        return others.pop(0) if others else Answer(sent_pod("any"))

    def _refuse(self) -> None:
        self.refused += 1

    def show(self, *pods: Pod) -> None:
        """Let the watch show these pods."""
        for each in pods:
            before = self.pods.get(each.metadata.uid)
            self.pods[each.metadata.uid] = each
            self.executor.see(Change("modified" if before else "added", each, before))

    async def decide(
        self, *nominations: Binding, evict: tuple[Eviction, ...] = (), bind: tuple[Binding, ...] = ()
    ) -> None:
        """Begin the requests of a decision, and wait until all of them are answered."""
        self.executor.confirm(self.pods)
        self.executor.begin(evict, bind, self.pods, nominations)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self.executor.idle()

    def paths(self) -> list[str]:
        """Return the paths of all requests, in order."""
        return [each.path for each in self.server.requests]

    def places(self) -> list[tuple[str | None, str | None]]:
        """Return the nominated node and the devices in each patch of the pending pod."""
        return [
            (
                each.body["status"]["nominatedNodeName"],
                each.body["metadata"]["annotations"][NOMINATED_DEVICES_ANNOTATION],
            )
            for each in self.server.requests_of("PATCH", STATUS)
        ]

    def successors(self) -> list[str | None]:
        """Return the successor's nomination in each patch of the terminating pod."""
        return [
            each.body["metadata"]["annotations"][SUCCESSOR_NOMINATION_ANNOTATION]
            for each in self.server.requests_of("PATCH", OLD)
        ]


@asynccontextmanager
async def world_of(request_seconds: float) -> AsyncIterator[World]:
    clock = ManualClock()
    async with (
        serving() as server,
        Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, _: low) as transport,
    ):
        world = World(server, transport, clock, request_seconds)
        async with world.executor:
            yield world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Yield a world that waits for answers as long as the test runs."""
    async with world_of(DEADLINE_SECONDS) as world:
        yield world


@pytest.fixture
async def hasty() -> AsyncIterator[World]:
    """Yield a world that waits so briefly that a busy machine can miss an answer, and then asks again."""
    async with world_of(0.1) as world:
        yield world


async def test_a_nomination_is_written_once_and_counts_until_the_watch_shows_it(world: World) -> None:
    for _ in range(3):
        await world.decide(NOMINATION)
        assert world.cache.nominations == {"uid-new": PLACE}
    world.show(NOMINATED)
    await world.decide(NOMINATION)
    assert world.places() == [("n1", "0,1")]
    assert not world.cache.nominations


async def test_nominations_of_a_former_leader_are_neither_written_again_nor_forgotten_at_their_end(
    world: World,
) -> None:
    world.show(NOMINATED)
    await world.decide(NOMINATION)
    assert world.places() == []
    await world.decide()
    assert world.places() == [(None, None)]
    assert world.cache.nominations == {"uid-new": None}
    world.show(WAITS)
    await world.decide()
    assert not world.cache.nominations
    assert len(world.places()) == 1


async def test_a_nomination_that_cannot_be_read_is_taken_away(world: World) -> None:
    world.show(with_nomination(WAITS, Placement("n1", (0, 0))))
    await world.decide()
    await world.decide()
    assert world.places() == [(None, None)]


async def test_the_preemptors_nomination_is_written_before_any_eviction(world: World) -> None:
    world.script[STATUS] = [Watch(CUT)]
    await world.decide(NOMINATION, evict=(EVICTION,))
    assert world.paths() == [STATUS, STATUS, OLD, EVICT]


async def test_an_eviction_does_not_wait_for_longer_than_an_answer_takes(hasty: World) -> None:
    hasty.script[STATUS] = [Hang()] * 10_000
    hasty.executor.begin([EVICTION], [], hasty.pods, [NOMINATION])
    await until(lambda: EVICT in hasty.paths())


async def test_the_place_of_a_moved_pods_successor_is_in_the_evictions_own_patch(world: World) -> None:
    await world.decide(NOMINATION, MOVED, evict=(EVICTION,))
    assert world.paths() == [STATUS, OLD, EVICT]
    assert world.successors() == ["n2:6,7"]
    assert world.cache.nominations["uid-old"] == Placement("n2", (6, 7))
    world.show(leaving("n2:6,7", name="old"))
    await world.decide(NOMINATION, MOVED)
    assert "uid-old" not in world.cache.nominations
    assert world.successors() == ["n2:6,7"]


async def test_pods_of_one_gang_do_not_wait_for_each_others_evictions(world: World) -> None:
    world.script[EVICT] = [Hang()]
    other = pod("old-2", gpus=2, node="n1", phase="Running")
    world.show(other)
    world.server.on("PATCH", f"{PODS}/old-2", Answer(sent_pod("any")))
    world.server.on("POST", f"{PODS}/old-2/eviction", Answer(code=201))
    stale = [
        Eviction(each, "old", "old", "stale-gang", "it starts anew") for each in ("uid-old", "uid-old-2")
    ]
    world.executor.begin(stale, [], world.pods, [MOVED, Binding("uid-old-2", "old", "n2", (4, 5))])
    await until(lambda: f"{PODS}/old-2/eviction" in world.paths() and EVICT in world.paths())
    assert world.paths().count(EVICT) == 1


async def test_a_forged_place_does_not_survive_an_eviction(world: World) -> None:
    await world.decide(NOMINATION, evict=(EVICTION,))
    assert world.successors() == [None]


async def test_the_place_of_a_pod_that_leaves_is_changed_and_ended_on_the_pod_itself(world: World) -> None:
    world.show(leaving("n2:6,7", name="old"))
    await world.decide(Binding("uid-old", "old", "n3", (1, 2)))
    assert world.successors() == ["n3:1,2"]
    world.show(leaving("n3:1,2", name="old"))
    await world.decide()
    assert world.successors() == ["n3:1,2", None]
    assert EVICT not in world.paths()


async def test_new_nominations_are_written_before_ended_ones(world: World) -> None:
    """The placement moves from the terminating pod to its successor, and belongs to one of them at all times."""
    world.show(leaving("n1:0,1", name="old"))
    world.script[STATUS] = [Watch(CUT), error_answer(500, "InternalError")]
    await world.decide(NOMINATION)
    assert world.paths() == [STATUS, STATUS, STATUS, OLD]


async def test_an_eviction_that_a_budget_forbids_leaves_no_place_behind(world: World) -> None:
    world.script[EVICT] = [eviction_blocked()]
    await world.decide(NOMINATION, MOVED, evict=(EVICTION,))
    assert world.successors() == ["n2:6,7", None]
    assert "uid-old" not in world.cache.nominations
    assert world.refused == 1


async def test_nothing_is_written_for_a_bound_pod_and_the_binding_empties_its_nomination(
    world: World,
) -> None:
    world.show(NOMINATED)
    elsewhere = Binding("uid-new", "new", "n2", (0, 1))
    await world.decide(elsewhere, bind=(NOMINATION,))
    await world.decide()
    assert world.paths() == [BIND]
    (request,) = world.server.requests_of("POST", BIND)
    assert request.body["metadata"]["annotations"] == {
        "muster.dev/gpu-devices": "0,1",
        "muster.dev/admitted": "uid-new",
        NOMINATED_DEVICES_ANNOTATION: "",
    }


async def test_a_binding_empties_a_nomination_that_the_watch_has_not_shown(world: World) -> None:
    await world.decide(NOMINATION)
    await world.decide(bind=(NOMINATION,))
    (request,) = world.server.requests_of("POST", BIND)
    assert request.body["metadata"]["annotations"][NOMINATED_DEVICES_ANNOTATION] == ""
    assert not world.cache.nominations


@pytest.mark.parametrize(
    "failure", [Watch(CUT), Hang(), error_answer(500, "InternalError"), error_answer(429)]
)
async def test_a_nomination_without_an_answer_is_repeated(hasty: World, failure: Any) -> None:
    hasty.script[STATUS] = [failure, failure]
    await hasty.decide(NOMINATION)
    assert len(hasty.places()) >= 3
    assert set(hasty.places()) == {("n1", "0,1")}


async def test_a_nomination_that_is_not_allowed_yet_is_repeated(world: World) -> None:
    """In the namespace of a new project, no later change would lead to another decision."""
    world.script[STATUS] = [error_answer(403), error_answer(403)]
    await world.decide(NOMINATION)
    assert world.places() == [("n1", "0,1")] * 3


async def test_a_forbidden_nomination_is_tried_again_by_the_next_decision_and_counts_meanwhile(
    world: World,
) -> None:
    world.script[STATUS] = [error_answer(403)] * FORBIDDEN_ATTEMPTS
    await world.decide(NOMINATION)
    assert len(world.places()) == FORBIDDEN_ATTEMPTS
    assert world.cache.nominations == {"uid-new": PLACE}
    await world.decide(NOMINATION)
    await world.decide(NOMINATION)
    assert len(world.places()) == FORBIDDEN_ATTEMPTS + 1


async def test_a_nomination_whose_end_is_forbidden_is_ended_by_the_next_decision(world: World) -> None:
    world.show(NOMINATED)
    world.script[STATUS] = [error_answer(403)] * FORBIDDEN_ATTEMPTS
    for _ in range(3):
        await world.decide()
    assert world.places() == [(None, None)] * (FORBIDDEN_ATTEMPTS + 1)


@pytest.mark.parametrize("code", [404, 422])
async def test_a_nomination_that_is_refused_still_counts_here_and_is_not_asked_for_again(
    world: World, code: int
) -> None:
    world.script[STATUS] = [error_answer(code)]
    await world.decide(NOMINATION)
    await world.decide(NOMINATION)
    assert len(world.places()) == 1
    assert world.cache.nominations == {"uid-new": PLACE}
    assert world.refused == 0


@pytest.mark.parametrize(
    "now",
    [None, pod("new", gpus=2, node="n9"), pod("new", gpus=2, phase="Succeeded", node="n9")],
    ids=["gone", "bound", "ended"],
)
async def test_a_nomination_ends_with_its_pods_wait(world: World, now: Pod | None) -> None:
    await world.decide(NOMINATION)
    if now is None:
        gone = world.pods.pop("uid-new")
        world.executor.see(Change("deleted", gone, gone))
    else:
        world.show(now)
    await world.decide()
    assert not world.cache.nominations
    assert len(world.places()) == 1


async def test_a_pod_that_is_to_come_has_nothing_to_write_on(world: World) -> None:
    await world.decide(Binding("uid-old/returning", "old", "n2", (6, 7)))
    assert world.paths() == []


async def test_a_standby_operator_nominates_no_pod(world: World) -> None:
    world.leads = False
    world.executor.begin([], [], world.pods, [NOMINATION])
    async with world.executor:
        pass
    assert world.paths() == []


class HeldTransport(Transport):
    """A transport that answers requests when the gate of their kind is opened."""

    def __init__(self) -> None:
        self.patches, self.creations = asyncio.Event(), asyncio.Event()
        self.paths: list[str] = []
        self.bodies: list[Any] = []

    async def create(self, path: str, body: Any, kind: Any = dict, *, params: Any = None) -> Any:
        self.paths.append(path)
        await self.creations.wait()
        return {}

    async def patch(self, path: str, body: Any, kind: Any = dict, **_options: Any) -> Any:
        self.paths.append(path)
        self.bodies.append(body)
        await self.patches.wait()
        return {}


def waiting(prefix: str, count: int) -> tuple[dict[str, Pod], list[Binding]]:
    """Return this number of pods, with a placement for each."""
    pods = [pod(f"{prefix}-{number}") for number in range(count)]
    return {each.metadata.uid: each for each in pods}, [
        Binding(each.metadata.uid, prefix, "n1", ()) for each in pods
    ]


async def test_nominations_without_a_waiting_pod_yield_to_bindings() -> None:
    transport = HeldTransport()
    bindings_before, nominations = waiting("kept", 2 * REQUESTS_IN_FLIGHT)
    bound, bindings = waiting("bound", 2 * REQUESTS_IN_FLIGHT)
    async with executing(transport) as executor:
        executor.begin([], [], bindings_before, nominations)
        await until(lambda: len(transport.paths) >= UNHURRIED_IN_FLIGHT)
        executor.begin([], bindings, {**bindings_before, **bound}, nominations)
        await until(lambda: len(transport.paths) >= REQUESTS_IN_FLIGHT)
        assert [path.rpartition("/")[2] for path in transport.paths] == (
            ["status"] * UNHURRIED_IN_FLIGHT + ["binding"] * (REQUESTS_IN_FLIGHT - UNHURRIED_IN_FLIGHT)
        )
        transport.creations.set()
        await until(lambda: len(transport.paths) >= UNHURRIED_IN_FLIGHT + len(bindings))
        assert sum(path.endswith("status") for path in transport.paths) == UNHURRIED_IN_FLIGHT
        transport.patches.set()
        await executor.idle()
    assert len(transport.paths) == len(nominations) + len(bindings)


async def test_a_decision_during_the_write_of_a_nomination_is_written_after_it() -> None:
    transport = HeldTransport()
    pods = {"uid-new": WAITS}
    cache = PodCache()
    async with executing(transport, cache) as executor:
        executor.begin([], [], pods, [NOMINATION])
        await until(lambda: transport.paths)
        for node in ("n2", "n3"):
            executor.begin([], [], pods, [Binding("uid-new", "new", node, (4, 5))])
        assert cache.nominations == {"uid-new": Placement("n3", (4, 5))}
        assert len(transport.paths) == 1
        transport.patches.set()
        await executor.idle()
    assert [body["status"]["nominatedNodeName"] for body in transport.bodies] == ["n1", "n3"]


async def test_an_eviction_that_waited_for_a_nomination_precedes_later_ones() -> None:
    transport = HeldTransport()
    bound, bindings = waiting("bound", 2 * REQUESTS_IN_FLIGHT)
    async with executing(transport) as executor:
        executor.begin([EVICTION], bindings, {"uid-new": WAITS, "uid-old": RUNS, **bound}, [NOMINATION])
        await until(lambda: len(transport.paths) == REQUESTS_IN_FLIGHT)
        assert transport.paths[0] == STATUS
        transport.patches.set()
        await until(lambda: len(transport.paths) > REQUESTS_IN_FLIGHT)
        await asyncio.sleep(0)
        transport.creations.set()
        await executor.idle()
    assert transport.paths.index(OLD) <= REQUESTS_IN_FLIGHT + 1
    assert len(transport.paths) == len(bindings) + len((STATUS, OLD, EVICT))
