"""Reservations of GPUs when answers are lost, the operator is killed, and others interfere. The server stores pods; its
kubelet chooses GPUs, and an agent reports them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from orchestrator import names
from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.executor import Executor
from orchestrator.control.carry_out.reservations import NOT_RESERVED, RULE, Reservations
from orchestrator.observe.pod_cache import PodCache
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.planner.model import Binding
from tests.cluster.fake_api_server import CUT, Answer, FakeApiServer, Hang, access_to, error_answer, serving
from tests.cluster.waiting import ManualClock, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.fake_api_server import JSON, Request

PODS: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/pods"
NODE: Final = "node-1"
GPUS: Final = 4


class Cluster:
    """The pods of a cluster with one node, whose kubelet gives the highest free GPU first.

    `lost` are the numbers of the writes whose answers are cut off. The operator is killed before the write
    `dies_before`, or after the write `dies_after`.
    """

    def __init__(self) -> None:
        self.pods: dict[str, JSON] = {}
        self.gpus: dict[str, int] = {}
        self.order = list(reversed(range(GPUS)))
        self.agent_sees, self.agent_problem = True, ""
        self.writes = 0
        self.lost: frozenset[int] = frozenset()
        self.dies_before = self.dies_after = 0
        self.is_dead = False
        self.made = 0
        self.violation: AssertionError | None = None

    def serve(self, server: FakeApiServer) -> None:
        server.on("POST", PODS, lambda request: self._write(lambda: self._create(server, request)))
        for name, pod in self.pods.items():
            self._serve_pod(server, name, pod)

    def add(self, server: FakeApiServer, name: str, *, devices: int = 1, part: str = "0.5") -> None:
        """Add a pod with GPU fractions, or with whole GPUs if `part` is empty."""
        annotations = {
            names.GPU_FRACTION_ANNOTATION: part,
            names.GPU_FRACTION_DEVICES_ANNOTATION: str(devices),
        }
        limits = {} if part else {names.GPU_RESOURCE: str(devices)}
        self.pods[name] = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{name}",
                "annotations": annotations if part else {},
            },
            "spec": {
                "schedulerName": "muster",
                "nodeName": "",
                "containers": [{"name": "c", "resources": {"limits": limits}}],
            },
            "status": {"phase": "Pending"},
        }
        self._serve_pod(server, name, self.pods[name])

    def reservations(self) -> dict[str, JSON]:
        return {name: pod for name, pod in self.pods.items() if names.RESERVATION_LABEL in _labels(pod)}

    def users(self) -> dict[str, JSON]:
        """Return the bound pods with GPU fractions, by name."""
        return {
            name: pod
            for name, pod in self.pods.items()
            if names.GPU_RESERVATIONS_ANNOTATION in pod["metadata"].get("annotations", {})
        }

    def unused(self) -> list[str]:
        """Return the reservations of which no pod has a fraction."""
        used = {
            uid
            for pod in self.users().values()
            for uid in pod["metadata"]["annotations"][names.GPU_RESERVATIONS_ANNOTATION].split(",")
        }
        return [name for name, pod in self.reservations().items() if pod["metadata"]["uid"] not in used]

    def gpu_node(self) -> GpuNode:
        """Return the GpuNode that the node's agent writes."""
        gpus: list[JSON] = [
            {"index": index, "uuid": uuid(index), "memoryMib": 32510, "holders": []} for index in range(GPUS)
        ]
        for name, index in self.gpus.items() if self.agent_sees else ():
            gpus[index]["holders"] = [{"namespace": self.pods[name]["metadata"]["namespace"], "pod": name}]
        seen: JSON = {"problem": self.agent_problem} if self.agent_problem else {"gpus": gpus}
        return msgspec.convert({"metadata": {"name": NODE}, "spec": seen}, GpuNode)

    def remove(self, name: str) -> None:
        """Delete the pod and free its GPU."""
        self.pods.pop(name, None)
        self.gpus.pop(name, None)

    def check(self) -> None:
        """Check that no GPU has more than a whole in fractions, and that each pod sees the GPUs of its own
        reservations.
        """
        promised: dict[str, float] = {}
        by_uid = {pod["metadata"]["uid"]: name for name, pod in self.reservations().items()}
        for pod in self.users().values():
            annotations = pod["metadata"]["annotations"]
            reserved = annotations[names.GPU_RESERVATIONS_ANNOTATION].split(",")
            held = [self.gpus[by_uid[uid]] for uid in reserved]
            assert annotations[names.GPU_UUIDS_ANNOTATION] == ",".join(map(uuid, held))
            assert annotations[names.GPU_DEVICES_ANNOTATION] == ",".join(map(str, held))
            for index in held:
                part = float(annotations[names.GPU_FRACTION_ANNOTATION])
                promised[uuid(index)] = promised.get(uuid(index), 0) + part
        assert all(part <= 1 for part in promised.values()), promised

    def _write(self, change: Callable[[], Answer]) -> Any:
        self.writes += 1
        if self.is_dead or self.writes == self.dies_before:
            self.is_dead = True
            return Hang()
        answer = change()
        if self.writes == self.dies_after:
            self.is_dead = True
            return Hang()
        return CUT if self.writes in self.lost else answer

    def _create(self, server: FakeApiServer, request: Request) -> Answer:
        body = request.body
        name = body["metadata"]["name"]
        if name in self.pods:
            return error_answer(409, "AlreadyExists")
        self.made += 1
        self.pods[name] = {**body, "status": {"phase": "Running"}}
        self.pods[name]["metadata"]["uid"] = f"uid-{name}"
        free = [index for index in self.order if index not in self.gpus.values()]
        if free:
            self.gpus[name] = free[0]
        else:
            self.pods[name]["status"] = {"phase": "Failed", "message": "Allocate failed"}
        self._serve_pod(server, name, self.pods[name])
        return Answer(body, 201)

    def _serve_pod(self, server: FakeApiServer, name: str, pod: JSON) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}"
        server.on("DELETE", path, lambda request: self._write(lambda: self._delete(name, request)))
        server.on("POST", f"{path}/binding", lambda request: self._write(lambda: self._bind(name, request)))
        server.on("GET", path, lambda _: Answer(self.pods[name]))

    def _delete(self, name: str, request: Request) -> Answer:
        if name not in self.pods:
            return error_answer(404, "NotFound")
        assert request.body["preconditions"] == {"uid": self.pods[name]["metadata"]["uid"]}
        self.remove(name)
        return Answer({})

    def _bind(self, name: str, request: Request) -> Answer:
        pod = self.pods[name]
        if pod["spec"]["nodeName"]:
            return error_answer(409, "Conflict", "already assigned")
        pod["spec"]["nodeName"] = NODE
        pod["metadata"]["annotations"] |= request.body["metadata"]["annotations"]
        if not pod["metadata"]["annotations"].get(names.GPU_FRACTION_ANNOTATION):
            free = [index for index in self.order if index not in self.gpus.values()]
            self.gpus[name] = free[0]
        try:
            self.check()
        except AssertionError as error:
            self.violation = error
        return Answer(code=201)


class Leader:
    """An operator's executor. `tick` shows it the cluster, and lets it begin the bindings in `decided`."""

    def __init__(
        self,
        cluster: Cluster,
        server: FakeApiServer,
        transport: Transport,
        clock: ManualClock,
        **options: Any,
    ) -> None:
        self.cluster = cluster
        self.server = server
        self.unready: dict[str, str] = {}
        self.warned: list[tuple[str, str]] = []
        self.evicted: list[tuple[str, str, str]] = []
        self.decided: dict[str, tuple[int, ...]] = {}
        self.has_agent = True
        self.published: dict[str, PublishedGpus] = {}
        self._seen: dict[str, Pod] = {}
        reservations = Reservations(
            transport,
            image="image",
            gpu_node=lambda _node: self.cluster.gpu_node() if self.has_agent else None,
            published=lambda: self.published,
            memory_mib=lambda _node: 32510,
            is_leader=lambda: True,
            warn=lambda pod, reason, _message: self.warned.append((pod.metadata.name, reason)),
            evict=lambda pod, rule, message: self.evicted.append((pod.metadata.name, rule, message)),
            poll_seconds=0.001,
            sleep=clock.sleep,
            **{"ready_seconds": 3600.0, **options},
        )
        self.cache = PodCache()
        self.executor = Executor(
            transport,
            self.cache,
            is_leader=lambda: True,
            on_refused=lambda: None,
            on_unready=lambda pod, _node, why: self.unready.update({pod.metadata.name: why}),
            reservations=reservations,
            sleep=clock.sleep,
        )
        cluster.serve(server)

    def add(self, name: str, *devices: int, part: str = "0.5") -> None:
        self.cluster.add(self.server, name, devices=len(devices), part=part)
        self.decided[name] = devices

    def show(self) -> None:
        """Show it the present cluster."""
        if self.cluster.violation is not None:
            raise self.cluster.violation
        now = {pod["metadata"]["uid"]: msgspec.convert(pod, Pod) for pod in self.cluster.pods.values()}
        for uid, pod in self._seen.items():
            if uid not in now:
                self.executor.see(Change("deleted", pod))
        for uid, pod in now.items():
            self.executor.see(Change("modified" if uid in self._seen else "added", pod))
        self._seen = now
        self.executor.see(Change("modified", self.cluster.gpu_node()))
        self.executor.confirm(now)

    def tick(self) -> None:
        self.show()
        waiting = [
            pod
            for pod in self._seen.values()
            if pod.metadata.name in self.decided
            and not pod.spec.node_name
            and pod.metadata.uid not in self.cache.bindings
            and pod.metadata.name not in self.unready
        ]
        bindings = [
            Binding(pod.metadata.uid, "workload", NODE, self.decided[pod.metadata.name]) for pod in waiting
        ]
        self.executor.begin([], bindings, self._seen)

    async def goes_on_until(self, condition: Callable[[], bool]) -> None:
        def is_so() -> bool:
            self.tick()
            return condition()

        await until(is_so)

    def is_bound(self, *pods: str) -> bool:
        return all(self.cluster.pods[name]["spec"]["nodeName"] for name in pods)

    def seen_by(self, name: str) -> str:
        visible: str = self.cluster.pods[name]["metadata"]["annotations"][names.GPU_UUIDS_ANNOTATION]
        return visible


def uuid(index: int) -> str:
    return f"GPU-{index:04}"


def _labels(pod: JSON) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return labels


@asynccontextmanager
async def leading(cluster: Cluster, **options: Any) -> AsyncIterator[Leader]:
    clock = ManualClock()
    async with (
        serving() as server,
        Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, _: low) as transport,
    ):
        leader = Leader(cluster, server, transport, clock, **options)
        async with leader.executor:
            yield leader


@pytest.fixture
async def leader() -> AsyncIterator[Leader]:
    async with leading(Cluster()) as made:
        yield made


async def test_two_halves_share_a_reservation_and_see_the_gpu_that_the_kubelet_gave_it(
    leader: Leader,
) -> None:
    leader.add("one", 0)
    leader.add("other", 0)
    await leader.goes_on_until(lambda: leader.is_bound("one", "other"))
    assert leader.seen_by("one") == leader.seen_by("other") == uuid(3), "not the one that was decided on"
    assert leader.cluster.made == 1
    ((name, reservation),) = leader.cluster.reservations().items()
    assert leader.cluster.gpus[name] == 3
    assert reservation["spec"]["nodeName"] == NODE
    (container,) = reservation["spec"]["containers"]
    assert container["resources"]["limits"][names.GPU_RESOURCE] == "1"
    leader.cluster.remove("one")
    leader.tick()
    assert leader.cluster.reservations(), "the other half is there"
    leader.cluster.remove("other")
    await leader.goes_on_until(lambda: not leader.cluster.reservations())


async def test_the_learned_gpu_counts_before_the_pod_is_bound(leader: Leader) -> None:
    leader.add("job", 0, 1)
    leader.cluster.agent_sees = False
    await leader.goes_on_until(lambda: leader.cluster.made == 2)
    assert leader.cache.bindings["uid-job"].devices == (0, 1)
    leader.cluster.agent_sees = True
    await leader.goes_on_until(lambda: leader.is_bound("job"))
    assert leader.seen_by("job") == f"{uuid(2)},{uuid(3)}"


async def test_a_pod_that_is_being_bound_counts_on_an_unused_gpu(leader: Leader) -> None:
    """The kubelet gave GPU 0, intended for the fractions, to another pod. The GPU of the
    fractions is not reported yet.
    """
    cluster = leader.cluster
    leader.add("left", 0, part="0.25")
    leader.add("right", 0, part="0.25")
    cluster.agent_sees = False
    await leader.goes_on_until(lambda: cluster.made == 1)
    (reservation,) = cluster.reservations()
    got = cluster.gpus.pop(reservation)
    cluster.add(leader.server, "theirs", part="")
    cluster.gpus["theirs"] = 0
    cluster.agent_sees = True
    leader.show()
    assumed = leader.cache.bindings
    assert [assumed[f"uid-{name}"].devices for name in ("left", "right")] == [(1,), (1,)]
    leader.add("later", 1, part="0.25")  # a decision that knows the fractions on this GPU shares it
    leader.tick()
    cluster.gpus[reservation] = got
    await leader.goes_on_until(lambda: leader.is_bound("left", "right", "later"))
    assert {leader.seen_by(name) for name in ("left", "right", "later")} == {uuid(got)}
    assert cluster.made == 1


async def test_a_whole_gpu_that_is_being_bound_counts_on_an_unused_one(leader: Leader) -> None:
    leader.add("part", 0)
    await leader.goes_on_until(lambda: leader.is_bound("part"))
    leader.cluster.remove("part")  # no whole GPU is bound until the fraction's reservation is deleted
    leader.add("whole", 1, part="")
    leader.tick()
    assert leader.cache.bindings["uid-whole"].devices == (1,)
    leader.cluster.add(leader.server, "theirs", part="")
    leader.cluster.gpus["theirs"] = 1
    leader.show()
    assert leader.cache.bindings["uid-whole"].devices == (0,)
    await leader.goes_on_until(lambda: leader.is_bound("whole"))


async def test_a_decision_that_does_not_know_the_gpu_yet_takes_no_second_one(leader: Leader) -> None:
    """The decision was made while the first pod counted on GPU 0, on which it is not."""
    leader.add("one", 0)
    await leader.goes_on_until(lambda: leader.cluster.made == 1)
    leader.show()
    await until(lambda: leader.is_bound("one"))
    leader.add("other", 0)
    other = msgspec.convert(leader.cluster.pods["other"], Pod)
    leader.executor.begin([], [Binding("uid-other", "workload", NODE, (0,))], {"uid-other": other})
    await leader.goes_on_until(lambda: leader.is_bound("other"))
    assert leader.seen_by("one") == leader.seen_by("other")
    leader.add("large", 0, part="0.6")
    await leader.goes_on_until(lambda: leader.is_bound("large"))
    assert leader.seen_by("large") != leader.seen_by("one")
    assert leader.cluster.made == 2


async def test_parts_that_are_too_much_together_do_not_share_though_their_gpu_changed(leader: Leader) -> None:
    """The second pod was decided for GPU 3 before the first one turned out to be there."""
    leader.add("one", 0)
    await leader.goes_on_until(lambda: leader.is_bound("one"))
    leader.add("large", 3, part="0.6")
    await leader.goes_on_until(lambda: "large" in leader.unready)
    assert not leader.is_bound("large")
    leader.unready.clear()
    leader.decided["large"] = (1,)
    await leader.goes_on_until(lambda: leader.is_bound("large"))
    assert leader.seen_by("large") != leader.seen_by("one")


@pytest.mark.parametrize("lost", [{1}, {2}, {1, 2}, {3}, {1, 2, 3, 4, 5}], ids=str)
async def test_nothing_is_made_twice_or_left_behind_if_any_answer_is_lost(
    leader: Leader, lost: set[int]
) -> None:
    leader.cluster.lost = frozenset(lost)
    leader.add("job", 0)
    await leader.goes_on_until(lambda: leader.is_bound("job"))
    assert leader.cluster.made == 1
    leader.cluster.remove("job")
    await leader.goes_on_until(lambda: not leader.cluster.reservations())


@pytest.mark.parametrize("when", ["dies_before", "dies_after"])
@pytest.mark.parametrize("write", range(1, 9))
async def test_an_operator_that_is_killed_at_any_write_leaves_nothing_and_binds_nothing_twice(
    when: str, write: int
) -> None:
    """Of two pods, one has two GPUs. The writes are 3 reservations, fewer if they share, 2
    bindings, and the deletions.
    """
    cluster = Cluster()
    setattr(cluster, when, write)
    async with leading(cluster) as killed:
        killed.add("one", 0)
        killed.add("two", 0, 1)
        await killed.goes_on_until(lambda: cluster.is_dead or killed.is_bound("one", "two"))
        decided = killed.decided
        if not cluster.is_dead:
            cluster.remove("one")
            cluster.remove("two")
            await killed.goes_on_until(lambda: cluster.is_dead or not cluster.reservations())
    cluster.is_dead, cluster.dies_before, cluster.dies_after = False, 0, 0
    async with leading(cluster) as leader:
        leader.decided = {name: devices for name, devices in decided.items() if name in cluster.pods}
        await leader.goes_on_until(lambda: leader.is_bound(*leader.decided) and not leader.unready)
        await leader.goes_on_until(lambda: cluster.unused() == [])
        cluster.check()
        assert not leader.evicted
        for name in ("one", "two"):
            cluster.remove(name)
        await leader.goes_on_until(lambda: not cluster.reservations())


async def test_a_whole_gpu_waits_until_an_unused_reservation_is_deleted(leader: Leader) -> None:
    leader.add("part", 0)
    await leader.goes_on_until(lambda: leader.is_bound("part"))
    ((name, reservation),) = leader.cluster.reservations().items()
    reservation["metadata"]["deletionTimestamp"] = "2026-11-23T09:00:00Z"  # the kubelet has not ended it yet
    leader.cluster.remove("part")
    leader.add("whole", 0, 1, 2, 3, part="")
    for _ in range(5):
        leader.tick()
        await leader.executor.idle()
    assert "uid-whole" in leader.cache.bindings
    assert not leader.is_bound("whole")
    leader.cluster.remove(name)
    await leader.goes_on_until(lambda: leader.is_bound("whole"))


@pytest.mark.parametrize("how", ["gone", "ending", "failed"])
async def test_a_pod_that_lost_its_reservation_is_evicted_before_its_gpu_is_given_away(
    leader: Leader, how: str
) -> None:
    leader.add("job", 0)
    await leader.goes_on_until(lambda: leader.is_bound("job"))
    ((name, reservation),) = leader.cluster.reservations().items()
    if how == "gone":
        leader.cluster.remove(name)
    elif how == "ending":
        reservation["metadata"]["deletionTimestamp"] = "2026-11-23T09:00:00Z"
    else:
        reservation["status"]["phase"] = "Failed"
    leader.tick()
    ((evicted, rule, message),) = leader.evicted
    assert (evicted, rule) == ("job", RULE)
    assert uuid(3) in message
    leader.add("whole", 0, part="")
    leader.add("part", 1)
    for _ in range(5):
        leader.tick()
        await leader.executor.idle()
    assert not leader.is_bound("whole")
    assert not leader.is_bound("part")
    leader.cluster.remove("job")
    leader.cluster.remove(name)
    await leader.goes_on_until(lambda: leader.is_bound("whole", "part"))


async def test_a_kubelet_without_a_gpu_delays_the_pod_and_leaves_nothing_behind(leader: Leader) -> None:
    leader.cluster.order = []
    leader.add("job", 0)
    await leader.goes_on_until(lambda: "job" in leader.unready)
    assert "Allocate failed" in leader.unready["job"]
    await leader.goes_on_until(lambda: not leader.cluster.reservations())
    assert not leader.cache.bindings


@pytest.mark.parametrize("problem", ["", "NVML: libnvidia-ml.so.1 is not in /driver"])
async def test_an_agent_that_names_no_gpu_is_not_waited_for_for_ever(problem: str) -> None:
    async with leading(Cluster(), ready_seconds=0.0) as leader:
        leader.cluster.agent_sees, leader.cluster.agent_problem = False, problem
        leader.add("job", 0)
        await leader.goes_on_until(lambda: "job" in leader.unready)
        assert f"the agent of node {NODE} has not said which GPU" in leader.unready["job"]
        assert ("it says: " in leader.unready["job"], problem in leader.unready["job"]) == (
            bool(problem),
            True,
        )
        await leader.goes_on_until(lambda: not leader.cluster.reservations())


@pytest.mark.parametrize(("elsewhere", "is_bound"), [(False, True), (True, False)], ids=["runs", "waits"])
async def test_without_an_agent_on_the_node_nothing_is_guessed(*, elsewhere: bool, is_bound: bool) -> None:
    async with leading(Cluster(), has_agents=lambda: elsewhere) as leader:
        leader.has_agent = False
        leader.add("job", 0)
        await leader.goes_on_until(lambda: leader.is_bound("job") or bool(leader.unready))
        assert leader.is_bound("job") is is_bound
        assert not leader.cluster.made
        assert names.GPU_UUIDS_ANNOTATION not in leader.cluster.pods["job"]["metadata"]["annotations"]
        if is_bound:
            assert leader.warned == [("job", NOT_RESERVED)]
        else:
            assert "no agent has written a GpuNode" in leader.unready["job"]


async def test_nothing_is_reserved_where_gpus_come_by_claims(leader: Leader) -> None:
    leader.published[NODE] = PublishedGpus(ids=(("driver", NODE, "gpu-0"),))
    leader.add("job", 0)
    await leader.goes_on_until(lambda: leader.is_bound("job"))
    assert not leader.cluster.made


async def test_reservation_annotations_of_a_template_are_removed(leader: Leader) -> None:
    leader.has_agent = False
    leader.add("job", 0)
    forged = {names.GPU_UUIDS_ANNOTATION: "all", names.GPU_RESERVATIONS_ANNOTATION: "uid-of-another"}
    leader.cluster.pods["job"]["metadata"]["annotations"] |= forged
    await leader.goes_on_until(lambda: leader.is_bound("job"))
    assert leader.seen_by("job") == ""


async def test_a_right_that_is_missing_is_named(leader: Leader) -> None:
    leader.server._scripts.clear()
    leader.server.on("POST", PODS, error_answer(403, "Forbidden"))
    leader.add("job", 0)
    await leader.goes_on_until(lambda: "job" in leader.unready)
    assert "apply its operator YAML again" in leader.unready["job"]
    leader.tick()
    assert not leader.cache.bindings
