"""`orchestrator.control.decide.first_decisions`: leaders whose processes end during a decision, one after the other."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Condition, Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.first_decisions import (
    KEY,
    MAX_DEATHS,
    PARTS,
    PATH,
    FirstDecisions,
    LeftOut,
)
from orchestrator.devices.model import ClaimSpec
from orchestrator.planner.model import PodState, Snapshot, Workload
from tests.cluster.fake_api_server import Answer, FakeApiServer, Request, access_to, error_answer, serving
from tests.cluster.waiting import ManualClock
from tests.observe import objects
from tests.planner import builders


class ConfigMapServer:
    """Stores the one ConfigMap that the guard writes, for all leaders."""

    def __init__(self, server: FakeApiServer) -> None:
        self.data: dict[str, str] | None = None
        self.writes = 0
        self._server = server
        for _ in range(400):
            server.on("GET", PATH, self._get)
            server.on("PATCH", PATH, self._patch)

    def _get(self, _request: Request) -> Answer:
        if self.data is None:
            return error_answer(404, "NotFound", "not found")
        return Answer({"metadata": {"name": "muster-first-decisions"}, "data": self.data})

    def _patch(self, request: Request) -> Answer:
        body: dict[str, Any] = request.body
        self.data = body["data"]
        self.writes += 1
        return Answer(body)

    @property
    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.data or {})[KEY])
        return record


class Ended(Exception):
    """The process ends."""


class Leader:
    """A leading process, which ends if a decision contains one of the workloads `poison`."""

    def __init__(self, transport: Transport, poison: Sequence[str], pods: dict[str, Pod]) -> None:
        self.clock = ManualClock()
        self._poison = frozenset(poison)
        self._pods = pods
        self.guard = FirstDecisions(transport, is_leader=lambda: True, clock=self.clock)

    async def decide(self, *workloads: Workload) -> tuple[set[str], LeftOut]:
        """Return the workloads on which it decided, and those that it left out."""
        snapshot = Snapshot((), (), workloads)
        left_out = await self.guard.begin(snapshot, self._pods)
        tried = {workload.id for workload in workloads} - {*left_out.untried, *left_out.excluded}
        if tried & self._poison:
            raise Ended
        self.guard.returned(snapshot)
        return tried, left_out


async def outcome(
    transport: Transport,
    workloads: Sequence[Workload],
    poison: Sequence[str],
    *,
    pods: dict[str, Pod] | None = None,
    first_decisions: list[set[str]] | None = None,
) -> tuple[int, set[str], set[str]]:
    """Start leaders until one has tried all workloads; return the number of deaths, the decided ones, and those set
    aside.
    """
    for deaths in range(100):
        leader = Leader(transport, poison, pods or {})
        await leader.guard.recall()
        decided: set[str] = set()
        try:
            for number in range(200):
                leader.clock.now += 10.0
                tried, left_out = await leader.decide(*workloads)
                decided |= tried
                if number == 0 and first_decisions is not None:
                    first_decisions.append(tried)
                if not left_out.untried:
                    return deaths, decided, set(left_out.excluded)
        except Ended:
            continue
    raise AssertionError("the leaders go on ending")


def jobs(count: int) -> list[Workload]:
    return [builders.workload(f"job-{number}", "team", 1, age=number) for number in range(count)]


async def test_a_workload_that_ends_the_operator_twice_is_set_aside_alone() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        deaths, decided, excluded = await outcome(transport, jobs(1), ["job-0"])
        assert (deaths, decided, excluded) == (MAX_DEATHS, set(), {"job-0"})
        leader = Leader(transport, [], {})
        await leader.guard.recall()
        assert (await leader.decide(*jobs(1)))[1] == LeftOut(untried=(), excluded=("job-0",))


async def test_of_a_batch_only_the_culprits_are_set_aside_and_the_others_are_decided_at_once() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        everything = jobs(40)
        deaths, decided, excluded = await outcome(transport, everything, ["job-7", "job-23"])
        assert excluded == {"job-7", "job-23"}
        assert decided == {workload.id for workload in everything} - excluded
        assert deaths <= 6


async def test_after_a_death_the_first_decision_is_without_the_suspects() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        old, new = jobs(6)[:5], jobs(6)[5]
        decided = {pod.id: waiting("Unschedulable: no room") for workload in old for pod in workload.pods}
        first: list[set[str]] = []
        await outcome(transport, [*old, new], [new.id], pods=decided, first_decisions=first)
        assert first == [{workload.id for workload in old}] * 2


def waiting(message: str) -> Pod:
    pod = objects.pod("x")
    condition = Condition(type="PodScheduled", status="False", message=message)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[condition]))


async def test_a_pod_that_was_skipped_was_in_no_decision() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        store = ConfigMapServer(server)
        (job,) = jobs(1)
        leader = Leader(transport, [], {pod.id: waiting("Skipped: not yet") for pod in job.pods})
        await leader.guard.begin(Snapshot((), (), (job,)), leader._pods)
        assert list(store.record["trying"]) == ["job-0"]


async def test_a_leader_that_ended_in_its_first_decision_without_new_workloads_makes_all_suspects() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        everything = jobs(20)
        decided = {
            pod.id: waiting("Unschedulable: no room") for workload in everything for pod in workload.pods
        }
        deaths, _, excluded = await outcome(transport, everything, ["job-3"], pods=decided)
        assert excluded == {"job-3"}
        assert deaths <= 4


@pytest.mark.parametrize("evidence", ["a pod is bound", "a pod is nominated", "a pod says why it waits"])
async def test_a_leader_that_is_killed_after_its_decision_returned_leaves_no_suspects(evidence: str) -> None:
    """The record is cleared a second later. Before that, the effects of the decision show that it returned."""
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        everything = jobs(60)
        killed = Leader(transport, [], {})
        await killed.guard.begin(Snapshot((), (), tuple(everything)), {})
        pods = {}
        if evidence == "a pod is bound":
            bound = [pod.placed(PodState.ALLOCATED, "node-1", (0,)) for pod in everything[7].pods]
            everything[7] = everything[7].with_pods(tuple(bound))
        for pod in everything[7].pods:
            nominated = objects.pod("x")
            status = msgspec.structs.replace(nominated.status, nominated_node_name="node-1")
            nominated = msgspec.structs.replace(nominated, status=status)
            says = waiting("Unschedulable: no room")
            pods[pod.id] = {"a pod is nominated": nominated, "a pod says why it waits": says}.get(evidence)
        leader = Leader(transport, [], {uid: pod for uid, pod in pods.items() if pod is not None})
        await leader.guard.recall()
        tried, left_out = await leader.decide(*everything)
        assert (len(tried), left_out) == (60, LeftOut())


async def test_all_suspects_are_tried_one_decision_after_the_other() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        with pytest.raises(Ended):
            await Leader(transport, ["job-0"], {}).decide(*jobs(40))
        leader = Leader(transport, [], {})
        await leader.guard.recall()
        await leader.decide(*jobs(40))
        assert not leader.guard.has_trial
        leader.clock.now += 10.0
        for _ in range(100):
            await leader.decide(*jobs(40))
        assert not leader.guard.has_trial
        assert (await leader.decide(*jobs(40)))[1] == LeftOut()


async def test_a_claim_that_comes_after_its_pod_makes_the_workload_new() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        store = ConfigMapServer(server)
        leader = Leader(transport, [], {})
        (job,) = jobs(1)
        await leader.decide(job)
        await leader.decide(job)
        assert store.writes == 1
        await leader.decide(*jobs(2))
        assert list(store.record["trying"]) == ["job-1"]
        claimed = job.with_pods(
            tuple(
                replace(pod, request=replace(pod.request, claim_specs=(ClaimSpec(()),))) for pod in job.pods
            )
        )
        await leader.guard.begin(Snapshot((), (), (claimed,)), {})
        assert list(store.record["trying"]) == ["job-0"]


async def test_workloads_that_were_decided_cost_no_write() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        store = ConfigMapServer(server)
        leader = Leader(transport, [], {})
        for _ in range(20):
            await leader.decide(*jobs(10))
        assert store.writes <= 2


async def test_a_set_aside_workload_is_forgotten_when_it_is_deleted() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        await outcome(transport, jobs(2), ["job-1"])
        leader = Leader(transport, [], {"job-0-0": waiting("Unschedulable: no room")})
        await leader.guard.recall()
        assert (await leader.decide(*jobs(1)))[1] == LeftOut()


async def test_other_new_workloads_have_every_second_decision_beside_trials() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        ConfigMapServer(server)
        dying = Leader(transport, ["job-0"], {})
        everything = jobs(2 * PARTS)
        with pytest.raises(Ended):
            await dying.decide(*everything)
        leader = Leader(transport, [], {})
        await leader.guard.recall()
        await leader.decide(*everything)
        leader.clock.now += 10.0
        fresh = builders.workload("fresh", "team", 1, age=100)
        decisions = [await leader.decide(*everything, fresh) for _ in range(2)]
        assert ["fresh" in tried for tried, _ in decisions] == [False, True]
        assert len(decisions[0][0]) == 2


async def test_a_record_that_cannot_be_written_or_read_delays_nothing() -> None:
    async with serving() as server, Transport(access_to(server)) as transport:
        for _ in range(5):
            server.on("GET", PATH, error_answer(403, "Forbidden", "no right"))
            server.on("PATCH", PATH, error_answer(403, "Forbidden", "no right"))
        leader = Leader(transport, [], {})
        await leader.guard.recall()
        assert (await leader.decide(*jobs(3)))[0] == {"job-0", "job-1", "job-2"}
