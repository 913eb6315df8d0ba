"""Grants of ResourceClaims when answers are lost, others write, and the watch lags, on a server that stores claims."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from orchestrator.cluster.device_objects import ResourceClaim
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.claim_grants import ClaimGrants
from orchestrator.control.carry_out.executor import Executor
from orchestrator.devices.model import MAX_USERS, Allocation, Claim, ClaimSpec, DeviceResult, NodeTerm
from orchestrator.labels import LabelRequirement
from orchestrator.observe.claim_reader import ClaimReader
from orchestrator.observe.extended_claims import claim_name, part_claim
from orchestrator.observe.pod_cache import PodCache
from orchestrator.observe.request import pod_request
from orchestrator.observe.resource_claims import allocation_object
from orchestrator.observe.unreadable import Boundary
from orchestrator.planner.model import Binding, ClaimGrant
from tests.cluster.fake_api_server import CUT, Answer, FakeApiServer, access_to, error_answer, serving
from tests.cluster.waiting import ManualClock, until
from tests.observe import objects as workload_objects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.fake_api_server import Request

CLAIM = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/gpu"
NODES = NodeTerm(fields=(LabelRequirement("metadata.name", "In", ("node-1",)),))


def job(name: str = "job", *, node: str = "") -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
            "spec": {
                "nodeName": node,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
            },
        },
        Pod,
    )


def allocation(device: str = "gpu-0", *conditions: str) -> Allocation:
    result = DeviceResult(
        "gpu",
        ("gpu.example.com", "node-1", device),
        binding_conditions=conditions,
        binding_failure_conditions=("broken",) if conditions else (),
    )
    return Allocation((result,), nodes=NODES)


def binding(
    pod: Pod, device: str = "gpu-0", *, grants: bool = True, conditions: tuple[str, ...] = ()
) -> Binding:
    claim = Claim("uid-gpu", "team", "gpu", ClaimSpec(()))
    given = (ClaimGrant(claim, allocation(device, *conditions)),) if grants else ()
    return Binding(pod.metadata.uid, "workload", "node-1", (0,), given)


class ClaimServer:
    """One ResourceClaim as the API server stores it. Answers to the writes numbered in `lost` are cut off after the
    write.
    """

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.version = 5
        self.claim: dict[str, Any] | None = {
            "metadata": {"name": "gpu", "namespace": "team", "uid": "uid-gpu"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {},
        }
        self.lost: set[int] = set()
        self.after_write: dict[int, Callable[[], None]] = {}
        self.writes = 0
        self.after_read: dict[int, Callable[[], None]] = {}
        self.reads = 0
        self.bound: list[str] = []
        self.owners: list[tuple[str, ...]] = []
        self.serve_claim(CLAIM)

    def forget_claim(self) -> None:
        self.claim = None

    def serve_claim(self, path: str) -> None:
        self.server.on("GET", path, self._get)
        self.server.on("PATCH", path, self._patch)
        self.server.on("PATCH", f"{path}/status", self._patch)

    def serve(self, pod: Pod) -> None:
        path = f"/api/v1/namespaces/team/pods/{pod.metadata.name}"
        self.server.on("POST", f"{path}/binding", lambda request: self._bind(pod, request))
        self.server.on(
            "GET",
            path,
            lambda _: Answer(
                {
                    "metadata": {
                        "name": pod.metadata.name,
                        "namespace": "team",
                        "uid": pod.metadata.uid,
                        "annotations": {
                            "muster.dev/gpu-devices": "0",
                            "muster.dev/admitted": pod.metadata.uid,
                        },
                    },
                    "spec": {"nodeName": "node-1" if pod.metadata.uid in self.bound else ""},
                }
            ),
        )

    @property
    def users(self) -> list[str]:
        assert self.claim is not None
        return [user["uid"] for user in self.claim["status"].get("reservedFor") or ()]

    @property
    def held(self) -> list[str]:
        assert self.claim is not None
        given = self.claim["status"].get("allocation")
        return [result["device"] for result in given["devices"]["results"]] if given else []

    def read(self) -> ResourceClaim:
        return msgspec.convert(self.object(), ResourceClaim)

    def change(self, **status: object) -> None:
        """Write a status as another client."""
        assert self.claim is not None
        self.version += 1
        self.claim["status"] |= status

    def delete(self) -> None:
        """Delete the claim as its owner. With a finalizer it stays."""
        assert self.claim is not None
        self.version += 1
        self.claim["metadata"]["deletionTimestamp"] = "2026-11-25T01:00:00Z"

    def object(self) -> dict[str, Any]:
        assert self.claim is not None
        metadata = {**self.claim["metadata"], "resourceVersion": str(self.version)}
        return {**self.claim, "metadata": metadata}

    def _get(self, _request: Request) -> Answer:
        self.reads += 1
        self.after_read.get(self.reads, lambda: None)()
        return error_answer(404, "NotFound") if self.claim is None else Answer(self.object())

    def take(self, answer: Answer) -> Any:
        self.writes += 1
        self.after_write.get(self.writes, lambda: None)()
        return CUT if self.writes in self.lost else answer

    def _patch(self, request: Request) -> Any:
        if self.claim is None:
            return error_answer(404, "NotFound")
        metadata = request.body["metadata"]
        same = metadata["uid"] == self.claim["metadata"]["uid"]
        if not same or metadata["resourceVersion"] != str(self.version):
            return error_answer(409, "Conflict", "the object has been modified")
        status = request.body.get("status", {})
        held = self.claim["status"].get("allocation")
        if held and status.get("allocation"):
            assert status["allocation"]["devices"] == held["devices"], "an allocation is immutable"
        assert len(status.get("reservedFor") or ()) <= MAX_USERS
        self.version += 1
        if "finalizers" in metadata:
            self.claim["metadata"]["finalizers"] = metadata["finalizers"]
        self.claim["status"] = {
            key: value for key, value in {**self.claim["status"], **status}.items() if value is not None
        }
        return self.take(Answer(self.object()))

    def _bind(self, pod: Pod, _request: Request) -> Any:
        assert self.claim is not None
        assert pod.metadata.uid in self.users, "bound without a reservation"
        assert self.claim["metadata"]["finalizers"], "allocated without a finalizer"
        if pod.metadata.uid in self.bound:
            return error_answer(409, "Conflict", "already assigned")
        self.bound.append(pod.metadata.uid)
        return self.take(Answer(code=201))


class World:
    """An executor with claims. `show` lets the watch show the stored claim."""

    def __init__(self, server: FakeApiServer, transport: Transport, clock: ManualClock) -> None:
        self.api = ClaimServer(server)
        self.reader = ClaimReader(Boundary())
        self.grants = ClaimGrants(
            transport, self.reader.cache, version="v1", shown_seconds=0, sleep=clock.sleep
        )
        self.leads = True
        self.refused = 0
        self.unready: list[str] = []
        self.cache = PodCache()
        self.executor = Executor(
            transport,
            self.cache,
            is_leader=lambda: self.leads,
            on_refused=self._refuse,
            on_unready=lambda _pod, _node, why: self.unready.append(why),
            grants=self.grants,
            request_seconds=0.5,
            sleep=clock.sleep,
        )
        self.show()

    def _refuse(self) -> None:
        self.refused += 1

    def show(self) -> None:
        self.reader.note(self.api.read(), is_there=True)

    def begin(self, *pods: Pod, **of_binding: Any) -> None:
        for pod in pods:
            self.api.serve(pod)
        self.executor.begin(
            [], [binding(pod, **of_binding) for pod in pods], {pod.metadata.uid: pod for pod in pods}
        )

    def held(self) -> list[str]:
        return [
            result.device_id[2]
            for listed in self.reader.cache.assumed.values()
            for result in (listed.allocation.results if listed.allocation else ())
        ]

    async def settled(self) -> None:
        await until(lambda: not self.executor.is_busy)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        yield made


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    clock = ManualClock()
    async with (
        serving() as server,
        Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, _: low) as transport,
    ):
        made = World(server, transport, clock)
        async with made.executor:
            yield made


@asynccontextmanager
async def taken_over(world: World) -> AsyncIterator[World]:
    """Yield the world of a new leader, to which the watch has shown the present claim."""
    async with running() as leader:
        leader.api.claim, leader.api.version = world.api.claim, world.api.version
        leader.show()
        yield leader


@pytest.mark.parametrize("lost", [set(), {1}, {2}, {3}, {1, 2, 3}, {2, 4}], ids=str)
async def test_a_pod_is_bound_with_its_devices_whichever_answer_is_lost(world: World, lost: set[int]) -> None:
    world.api.lost = lost
    world.begin(job())
    await world.settled()
    assert world.api.bound == ["uid-job"]
    assert world.api.held == ["gpu-0"]
    assert world.refused == 0
    world.executor.confirm({"uid-job": job(node="node-1")})
    assert world.held() == ["gpu-0"], "the watch does not show the allocation yet"
    world.show()
    world.executor.confirm({"uid-job": job(node="node-1")})
    assert not world.held()


async def test_the_writes_for_a_deleted_pod_count_until_the_watch_shows_them(world: World) -> None:
    world.api.lost = {2}
    world.api.after_write[2] = lambda: world.executor.confirm(
        {}
    )  # the pod was deleted, so its binding is no longer due
    world.begin(job())
    await world.settled()
    assert world.api.held == ["gpu-0"]
    assert not world.api.bound
    world.executor.confirm({})
    assert world.held() == ["gpu-0"]
    world.show()
    world.executor.confirm({})
    assert not world.held()


async def test_a_binding_that_is_not_due_any_more_keeps_no_devices(world: World) -> None:
    world.begin(job())
    world.executor.confirm({})
    await world.settled()
    world.executor.confirm({})
    assert not world.api.held
    assert not world.held()


async def test_a_claim_allocated_by_another_scheduler_is_decided_again(world: World) -> None:
    other = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "gpu-7"}]}}
    world.api.change(allocation=other, reservedFor=[{"resource": "pods", "name": "x", "uid": "uid-x"}])
    world.begin(job())
    await world.settled()
    assert world.refused == 1
    assert world.api.users == ["uid-x"]
    assert not world.api.bound
    world.show()
    world.executor.confirm({"uid-job": job()})
    assert not world.held()


async def test_a_claim_that_was_made_anew_does_not_get_the_devices_of_the_old_one(world: World) -> None:
    assert world.api.claim is not None
    world.api.claim["metadata"]["uid"] = "uid-new"
    world.api.version += 1
    world.begin(job())
    await world.settled()
    assert world.refused == 1
    assert not world.api.held
    assert not world.held()


async def test_a_claim_that_is_deleted_is_decided_again(world: World) -> None:
    world.api.claim = None
    world.begin(job())
    await world.settled()
    assert world.refused == 1
    assert not world.held()


async def test_a_claim_that_its_owner_deletes_while_it_is_reserved_gets_nothing(world: World) -> None:
    """Its finalizer was just written, so the claim still exists until Kubernetes removes the finalizer."""
    api = world.api
    api.after_write[1] = api.delete
    world.begin(job())
    await world.settled()
    assert world.refused == 1
    assert not api.held
    assert not api.users
    assert not api.bound
    assert not world.held()


async def test_a_claim_with_as_many_pods_as_it_can_have_takes_no_more(world: World) -> None:
    users = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(MAX_USERS)]
    given = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "gpu-0"}]}}
    world.api.change(allocation=given, reservedFor=users)
    world.show()
    world.begin(job(), grants=False)
    await world.settled()
    assert world.refused == 1
    assert len(world.api.users) == MAX_USERS


async def test_pods_that_share_a_claim_are_bound_at_once(world: World) -> None:
    world.begin(job("one"), job("two"), job("three"))
    await world.settled()
    assert sorted(world.api.bound) == ["uid-one", "uid-three", "uid-two"]
    assert sorted(world.api.users) == ["uid-one", "uid-three", "uid-two"]
    assert world.api.held == ["gpu-0"]
    assert world.refused == 0


async def test_a_new_leader_binds_the_pod_whose_claim_was_reserved(world: World) -> None:
    world.api.lost = {3}
    world.begin(job())
    await until(lambda: world.api.held == ["gpu-0"])
    await world.settled()
    async with taken_over(world) as other:
        other.begin(job(), grants=False)
        await other.settled()
        assert other.api.bound == ["uid-job"]
        assert other.api.users == ["uid-job"]


async def test_taking_devices_back_does_not_take_those_given_meanwhile(world: World) -> None:
    waiting = job()
    world.begin(waiting)
    await world.settled()
    world.show()
    world.api.bound.clear()
    world.executor.confirm({"uid-job": job(node="node-1")})
    world.api.lost = {4}
    before = world.api.writes

    def again(request: Request) -> Any:
        answer = world.api._patch(request)
        if world.api.writes == before + 1:
            # the answer is lost; before the retry, the pod gets its devices again
            world.api.change(
                allocation={
                    "devices": {
                        "results": [
                            {
                                "request": "gpu",
                                "driver": "gpu.example.com",
                                "pool": "node-1",
                                "device": "gpu-0",
                            }
                        ]
                    }
                },
                reservedFor=[{"resource": "pods", "name": "job", "uid": "uid-job"}],
            )
            world.show()
        return answer

    world.api.server._scripts["PATCH", f"{CLAIM}/status"] = [again]
    world.executor.begin([], [], {"uid-job": waiting}, deallocations=["team/gpu"])
    await world.settled()
    assert world.api.held == ["gpu-0"]
    assert world.api.users == ["uid-job"]


async def test_devices_of_a_pod_that_is_bound_are_not_taken_back(world: World) -> None:
    world.begin(job())
    await world.settled()
    world.show()
    world.executor.begin([], [], {"uid-job": job(node="node-1")}, deallocations=["team/gpu"])
    await world.settled()
    assert world.api.held == ["gpu-0"]


async def test_a_pod_is_not_bound_with_devices_that_were_taken_back(world: World) -> None:
    waiting = job()
    world.begin(waiting)
    await world.settled()
    world.show()
    async with taken_over(world) as leader:
        leader.executor.begin([], [], {"uid-job": waiting}, deallocations=["team/gpu"])
        await leader.settled()
        assert not leader.api.held
        # the watch does not show that yet, and the next decision binds with the allocation of the claim
        leader.begin(waiting, grants=False)
        await leader.settled()
        assert not leader.api.bound
        assert leader.refused


async def test_devices_are_not_taken_back_from_a_pod_that_is_being_bound(world: World) -> None:
    waiting = job()
    world.begin(waiting)
    await world.settled()
    world.show()
    async with taken_over(world) as leader:
        leader.executor.begin([], [], {"uid-job": waiting}, deallocations=["team/gpu"])
        leader.begin(waiting, grants=False)  # before any request of the previous decision was sent
        await leader.settled()
        assert leader.api.bound == ["uid-job"]
        assert leader.api.held == ["gpu-0"]


def prepared(kind: str) -> list[dict[str, Any]]:
    """Return `status.devices` with this state of the device, as the driver writes it."""
    conditions = [{"type": kind, "status": "True"}]
    return [{"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "conditions": conditions}]


async def test_a_pod_is_bound_when_its_device_is_prepared(world: World) -> None:
    held, bound = list[str](), list[str]()

    def prepare() -> None:
        held[:], bound[:] = world.api.held, world.api.bound
        world.api.change(devices=prepared("ready"))

    world.api.after_read[4] = prepare
    world.begin(job(), conditions=("ready",))
    await world.settled()
    assert (held, bound) == (["gpu-0"], []), "before it was prepared"
    assert world.api.bound == ["uid-job"]


@pytest.mark.parametrize("kind", ["broken", ""], ids=["failed", "never ready"])
async def test_a_device_that_cannot_be_prepared_is_taken_back(world: World, kind: str) -> None:
    if kind:
        world.api.change(devices=prepared(kind))
        world.show()
    world.begin(job(), conditions=("ready",))
    await world.settled()
    assert not world.api.bound
    assert not world.api.held
    assert len(world.unready) == 1
    world.executor.confirm({"uid-job": job()})
    assert not world.held()


async def test_a_device_that_the_claim_holds_already_is_waited_for_too(world: World) -> None:
    waits = asyncio.Event()
    world.api.after_read[2] = waits.set
    world.begin(job(), conditions=("ready",))
    await waits.wait()
    world.executor.confirm({})
    async with taken_over(world) as other:
        bound = list[str]()

        def prepare() -> None:
            bound[:] = other.api.bound
            other.api.change(devices=prepared("ready"))

        other.api.after_read[3] = prepare
        other.begin(job(), grants=False)
        await other.settled()
        assert not bound, "before it was prepared"
        assert other.api.bound == ["uid-job"]


async def test_a_former_leader_allocates_nothing_and_binds_nothing(world: World) -> None:
    world.leads = False
    world.begin(job(), conditions=("ready",))
    await world.settled()
    assert world.refused == 1
    assert not world.api.held
    assert not world.held()


async def test_a_new_leader_binds_with_the_claim_that_was_made_for_whole_gpus(world: World) -> None:
    pod = workload_objects.pod("job", namespace="team", gpus=1)
    name = claim_name(pod)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "job", "uid": pod.metadata.uid, "controller": True}
    assert world.api.claim is not None
    world.api.claim["metadata"] |= {"name": name, "ownerReferences": [owner], "finalizers": ["x"]}
    world.api.change(
        allocation=allocation_object(allocation()),
        reservedFor=[{"resource": "pods", "name": "job", "uid": pod.metadata.uid}],
    )
    _, concerned = world.reader.note(world.api.read(), is_there=True)
    assert pod.metadata.uid in concerned
    read = world.reader.read_pod(pod, pod_request(pod), None)
    assert read is not None
    assert read.keys == (f"team/{name}",)
    assert read.extended is None
    status = "/api/v1/namespaces/team/pods/job/status"
    world.api.server.on("PATCH", status, Answer({}))
    world.api.server.on("GET", CLAIM.removesuffix("gpu") + name, lambda _: Answer(world.api.object()))
    world.begin(pod, grants=False)
    await world.settled()
    assert world.api.bound == [pod.metadata.uid]
    (request,) = world.api.server.requests_of("PATCH", status)
    assert request.body["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == name


@pytest.mark.parametrize("lost", [set(), {1}, {2}, {3}, {1, 2, 3}], ids=str)
async def test_a_part_is_claimed_and_the_kubelet_told_whichever_answer_is_lost(
    world: World, lost: set[int]
) -> None:
    limits = {"limits": {"muster.dev/gpu-part": "1"}}
    pod = workload_objects.pod(
        "job", namespace="team", spec={"containers": [{"name": "c", "resources": limits}]}
    )
    extended = part_claim(pod, "gpu.nvidia.com", 1)
    assert extended is not None
    (choice,) = extended.spec.requests
    capacity = (("memory", (16 << 30) * 10**9),)
    request = replace(choice.alternatives[0], capacity=capacity)
    wanted = replace(extended, spec=ClaimSpec((replace(choice, alternatives=(request,)),)))
    result = DeviceResult("gpu-part", ("gpu.nvidia.com", "node-1", "gpu-0"), share_id="s", consumed=capacity)
    grant = ClaimGrant(wanted, Allocation((result,), nodes=NODES), extended=True)
    api, path = world.api, f"/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/{claim_name(pod)}"
    api.lost = lost
    api.forget_claim()

    def create(request: Request) -> Any:
        if api.claim is not None:
            return error_answer(409, "AlreadyExists")
        api.claim = request.body | {"status": {}}
        api.claim["metadata"]["uid"] = "uid-made"
        return api.take(Answer(api.object()))

    api.server.on("POST", path.rpartition("/")[0], create)
    api.serve_claim(path)
    status = "/api/v1/namespaces/team/pods/job/status"
    api.server.on("PATCH", status, lambda _: api.take(Answer({})))
    api.serve(pod)
    decided = Binding(pod.metadata.uid, "workload", "node-1", (0,), (grant,))
    world.executor.begin([], [decided], {pod.metadata.uid: pod})
    await world.settled()
    assert api.bound == [pod.metadata.uid]
    assert api.claim is not None
    (listed,) = api.claim["spec"]["devices"]["requests"]
    assert listed["exactly"]["capacity"] == {"requests": {"memory": "16Gi"}}
    assert api.held == ["gpu-0"]
    *_, last = api.server.requests_of("PATCH", status)
    assert last.body["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": claim_name(pod),
        "requestMappings": [
            {"containerName": "c", "resourceName": "muster.dev/gpu-part", "requestName": "gpu-part"}
        ],
    }


async def test_a_device_that_another_claim_holds_too_is_given_up(world: World) -> None:
    theirs = {
        "metadata": {"namespace": "team", "name": "theirs", "uid": "uid-theirs", "resourceVersion": "9"},
        "status": {"allocation": allocation_object(allocation())},
    }
    world.reader.note(msgspec.convert(theirs, ResourceClaim), is_there=True)
    world.begin(job())
    await world.settled()
    assert world.refused == 1
    assert not world.api.bound
