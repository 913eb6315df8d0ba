"""A PersistentVolumeClaim that waits for its first consumer gets its volume at the pod's node, before the binding."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestrator.cluster.objects import PersistentVolumeClaim, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.executor import Executor
from orchestrator.control.carry_out.volume_claims import Claims
from orchestrator.names import SELECTED_NODE_ANNOTATION
from orchestrator.observe.pod_cache import PodCache
from orchestrator.observe.volumes import StorageObject, Volumes
from orchestrator.planner.model import Binding
from tests.cluster.fake_api_server import Answer, FakeApiServer, Request, access_to, error_answer, serving
from tests.cluster.waiting import DEADLINE_SECONDS, until
from tests.observe.objects import claim, mounting, pod, storage_class, volume

CLAIM = "/api/v1/namespaces/muster-team-a/persistentvolumeclaims/data"
LABELS = {"n-1": {"host": "n-1"}, "n-2": {"host": "n-2"}}
JOB = pod("job", gpus=1, spec=mounting("data"))
DISK = storage_class("disk")


class World:
    """An executor and its caches, which the test fills like a watch."""

    def __init__(self, server: FakeApiServer, transport: Transport, seconds: float) -> None:
        self.server = server
        self.volumes = Volumes()
        self.leads = True
        self.refused = 0
        self.unready: list[tuple[str, str]] = []
        self.claims = Claims(
            transport,
            self.volumes,
            LABELS.__getitem__,
            is_leader=lambda: self.leads,
            claim_seconds=seconds,
            missing_seconds=seconds / 2,
            poll_seconds=0.01,
        )
        self.cache = PodCache()
        self.executor = Executor(
            transport,
            self.cache,
            is_leader=lambda: self.leads,
            on_refused=self._refuse,
            on_unready=lambda pod, _node, why: self.unready.append((pod.metadata.name, why)),
            claims=self.claims,
        )

        self.after_selection: Callable[[], None] = lambda: None
        server.on("PATCH", CLAIM, self._select)

    def _select(self, _request: Request) -> Answer:
        self.after_selection()
        return Answer({})

    def _refuse(self) -> None:
        self.refused += 1

    def show(self, *objects: StorageObject) -> None:
        for each in objects:
            self.volumes.note(each, is_there=True)
            self.claims.see(Change("modified", each))

    def begin(self, job: Pod = JOB, node: str = "n-1") -> None:
        binding = Binding(job.metadata.uid, "workload", node, (0,))
        self.server.on("POST", self.bind_path(job), Answer(code=201))
        self.executor.begin([], [binding], {job.metadata.uid: job})

    @staticmethod
    def bind_path(job: Pod) -> str:
        return f"/api/v1/namespaces/muster-team-a/pods/{job.metadata.name}/binding"

    def bound(self) -> list[str]:
        return [each.path.split("/")[-2] for each in self.server.requests_of("POST")]

    def selected(self) -> list[Any]:
        return [
            each.body["metadata"]["annotations"][SELECTED_NODE_ANNOTATION]
            for each in self.server.requests_of("PATCH", CLAIM)
        ]

    async def settled(self) -> None:
        await until(lambda: not self.executor.is_busy)


@asynccontextmanager
async def world_of(seconds: float) -> AsyncIterator[World]:
    async with serving() as server, Transport(access_to(server)) as transport:
        made = World(server, transport, seconds)
        async with made.executor:
            yield made


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_of(60) as made:
        yield made


@pytest.fixture
async def hasty() -> AsyncIterator[World]:
    """Yield a world whose patience ends almost immediately."""
    async with world_of(0.05) as made:
        yield made


def waiting(version: str = "1", node: str = "") -> PersistentVolumeClaim:
    annotations = {SELECTED_NODE_ANNOTATION: node} if node else {}
    return claim("data", "disk", annotations=annotations, resourceVersion=version)


async def test_the_pod_is_bound_when_the_claim_is_and_others_do_not_wait(world: World) -> None:
    world.show(DISK, waiting())
    world.begin()
    await until(lambda: world.selected() == ["n-1"])
    assert "uid-job" in world.cache.bindings, "its GPUs are kept"
    async with asyncio.timeout(DEADLINE_SECONDS):
        await world.executor.idle()
    world.begin(pod("other", gpus=1))
    await until(lambda: world.bound() == ["other"])
    world.show(waiting("2", "n-1"))
    world.show(claim("data", "disk", volume="v", resourceVersion="3"))
    await asyncio.sleep(0)
    assert world.bound() == ["other"], "the volume is not known yet"
    world.show(volume("v", {"host": ("n-1",)}))
    await until(lambda: world.bound() == ["other", "job"])
    await world.settled()
    (request,) = world.server.requests_of("PATCH", CLAIM)
    assert request.body["metadata"]["resourceVersion"] == "1"
    assert request.body["metadata"]["uid"] == "uid-data"
    assert world.unready == []


@pytest.mark.parametrize(
    "objects",
    [
        [claim("data")],
        [claim("data", "fast"), storage_class("fast", "Immediate")],
        [claim("data", "unknown")],
        [claim("data", volume="v"), volume("v")],
    ],
)
async def test_a_claim_that_waits_for_no_scheduler_is_left_alone(
    world: World, objects: list[StorageObject]
) -> None:
    world.show(*objects)
    world.begin()
    await world.settled()
    assert world.bound() == ["job"]
    assert world.selected() == []


async def test_a_node_that_another_leader_wrote_is_written_over(world: World) -> None:
    world.show(DISK, waiting("5", "n-2"))
    world.begin()
    await until(lambda: world.selected() == ["n-1"])
    world.show(waiting("6", "n-1"), volume("v"), claim("data", "disk", volume="v"))
    await world.settled()
    assert world.bound() == ["job"]


async def test_a_node_that_is_written_already_is_not_written_again(world: World) -> None:
    world.show(DISK, waiting("5", "n-1"))
    world.begin()
    world.show(volume("v"), claim("data", "disk", volume="v"))
    await world.settled()
    assert world.bound() == ["job"]
    assert world.selected() == []


async def test_two_pods_of_one_claim_do_not_pull_it_to_and_fro(world: World) -> None:
    second = pod("second", gpus=1, spec=mounting("data"))
    world.show(DISK, waiting())
    world.begin()
    world.begin(second, "n-2")
    await until(lambda: world.selected() == ["n-1"])
    world.show(waiting("2", "n-1"))
    world.show(volume("v", {"host": ("n-1",)}), claim("data", "disk", volume="v"))
    await world.settled()
    assert world.selected() == ["n-1"]
    assert world.bound() == ["job"]
    assert world.unready == [("second", "the volume of the claim data cannot be reached from n-2")]
    assert set(world.cache.bindings) == {"uid-job"}


async def test_a_claim_that_takes_too_long_is_given_up_with_its_node(hasty: World) -> None:
    hasty.after_selection = lambda: hasty.show(waiting("2", "n-1"))
    hasty.show(DISK, waiting())
    hasty.begin()
    await hasty.settled()
    assert hasty.bound() == []
    assert hasty.selected() == ["n-1", None]
    assert hasty.unready == [("job", "the claim data has no volume on n-1 after 0 s")]
    assert hasty.refused == 1
    assert not hasty.cache.bindings, "its GPUs are free"


async def test_a_node_that_the_provisioner_gives_back_is_given_up_at_once(world: World) -> None:
    world.show(DISK, waiting())
    world.begin()
    await until(lambda: world.selected() == ["n-1"])
    world.show(waiting("3"))
    await world.settled()
    assert world.bound() == []
    ((_, why),) = world.unready
    assert "its provisioner has given the node back" in why


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], "there is no claim data in muster-team-a"),
        ([claim("data", phase="Lost")], "the claim data has lost its volume"),
        ([claim("data", deletionTimestamp="2026-11-21T10:00:00Z")], "the claim data is being deleted"),
        (
            [storage_class("disk", provisioner="kubernetes.io/no-provisioner"), waiting()],
            "class disk creates none: name a volume in its spec.volumeName",
        ),
        (
            [claim("data", volume="v"), volume("v", {"host": ("n-2",)})],
            "the volume of the claim data cannot be reached from n-1",
        ),
    ],
)
async def test_a_claim_that_cannot_be_had_says_why(
    hasty: World, objects: list[StorageObject], why: str
) -> None:
    hasty.show(*objects)
    hasty.begin()
    await hasty.settled()
    assert hasty.bound() == []
    assert hasty.selected() == []
    ((name, said),) = hasty.unready
    assert name == "job"
    assert why in said


@pytest.mark.parametrize("code", [403, 409])
async def test_a_refused_or_lost_request_is_made_again(world: World, code: int) -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        server.on("PATCH", CLAIM, error_answer(code), Answer({}))
        made = World(server, transport, 60)
        async with made.executor:
            made.show(DISK, waiting())
            made.begin()
            await until(lambda: made.selected() == ["n-1", "n-1"])
            made.show(waiting("2", "n-1"), volume("v"), claim("data", "disk", volume="v"))
            await made.settled()
            assert made.bound() == ["job"]


async def test_a_claim_on_which_nothing_may_be_written_says_so(hasty: World) -> None:
    hasty.server._scripts["PATCH", CLAIM] = [error_answer(403, "Forbidden", "may not patch")]
    hasty.show(DISK, waiting())
    hasty.begin()
    await hasty.settled()
    assert hasty.bound() == []
    ((_, said),) = hasty.unready
    assert "cannot be given a node" in said
    assert "may not patch" in said


async def test_a_standby_operator_writes_nothing_and_a_deleted_pod_is_not_waited_for(world: World) -> None:
    world.leads = False
    world.show(DISK, waiting())
    world.begin()
    await asyncio.sleep(0)
    world.executor.confirm({})
    await world.settled()
    assert world.selected() == []
    assert world.bound() == []
    assert world.unready == []
