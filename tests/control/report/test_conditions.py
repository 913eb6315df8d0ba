from collections.abc import AsyncIterator

import msgspec
import pytest

from orchestrator.cluster.objects import Condition, Metadata, Pod, PodSpec, PodStatus
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.conditions import REFRESH_SECONDS, ConditionWriter
from tests.cluster.fake_api_server import (
    Answer,
    FakeApiServer,
    Request,
    access_to,
    error_answer,
    pod,
    serving,
)
from tests.cluster.waiting import ManualClock, running, until

STATUS = "/api/v1/namespaces/team/pods/job/status"


def waiting(message: str = "", node: str = "") -> Pod:
    conditions = [Condition(type="PodScheduled", status="False", message=message)] if message else []
    return Pod(
        metadata=Metadata(name="job", namespace="team", uid="uid-job", resource_version="7"),
        spec=PodSpec(node_name=node),
        status=PodStatus(conditions=conditions),
    )


class World:
    def __init__(self, server: FakeApiServer, transport: Transport) -> None:
        self.server = server
        self.pods = {"uid-job": waiting()}
        self.clock = ManualClock()
        self.messages: list[str] = []
        self.writer = ConditionWriter(
            transport,
            self.pods,
            is_leader=lambda: True,
            bindings_done=self._nothing_to_wait_for,
            clock=self.clock,
            on_new_reason=lambda _pod, message: self.messages.append(message),
        )
        server.on("PATCH", STATUS, Answer(pod("job")))

    async def _nothing_to_wait_for(self) -> None:
        pass

    def said(self) -> list[str]:
        return [each.body["status"]["conditions"][0]["message"] for each in self.server.requests_of("PATCH")]

    def want(self, code: str, message: str) -> None:
        self.writer.want({"uid-job": (code, message)})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with serving() as server, Transport(access_to(server)) as transport:
        yield World(server, transport)


async def test_a_pod_is_told_once_why_it_waits(world: World) -> None:
    async with running(world.writer.run()):
        world.want("ClusterFull", "no GPU is free")
        await until(world.said)
        world.want("ClusterFull", "no GPU is free")
        world.want("AtFairShare", "asks for 2")
        await until(lambda: len(world.said()) >= 2)
    assert world.said() == ["ClusterFull: no GPU is free", "AtFairShare: asks for 2"]


async def test_a_condition_that_a_pod_has_already_is_not_written_again(world: World) -> None:
    world.pods["uid-job"] = waiting("ClusterFull: no GPU is free")
    async with running(world.writer.run()):
        world.want("ClusterFull", "no GPU is free")
        world.want("AtFairShare", "asks for 2")
        await until(world.said)
    assert world.said() == ["AtFairShare: asks for 2"]


async def test_figures_that_change_within_one_reason_are_refreshed_now_and_then(world: World) -> None:
    async with running(world.writer.run()):
        world.want("ClusterFull", "1 GPU is free")
        await until(lambda: world.messages)
        world.want("ClusterFull", "2 GPUs are free")
        world.want("ClusterFull", "3 GPUs are free")
        world.clock.now += REFRESH_SECONDS
        world.want("ClusterFull", "4 GPUs are free")
        await until(lambda: len(world.said()) >= 2)
    assert world.said() == ["ClusterFull: 1 GPU is free", "ClusterFull: 4 GPUs are free"]


async def test_a_pod_that_was_bound_meanwhile_is_told_nothing(world: World) -> None:
    world.want("ClusterFull", "no GPU is free")
    world.pods["uid-job"] = waiting(node="node-1")
    world.pods["uid-other"] = Pod(metadata=Metadata(name="other", namespace="team", uid="uid-other"))
    world.writer.want({"uid-job": ("ClusterFull", "x"), "uid-other": ("ClusterFull", "x")})
    world.server.on("PATCH", STATUS.replace("job", "other"), Answer(pod("other")))
    async with running(world.writer.run()):
        await until(lambda: world.server.requests_of("PATCH"))
    assert [each.path for each in world.server.requests_of("PATCH")] == [STATUS.replace("job", "other")]


async def test_the_write_names_the_version_so_that_it_cannot_overtake_a_binding(world: World) -> None:
    async with running(world.writer.run()):
        world.want("ClusterFull", "no GPU is free")
        await until(world.said)
    assert world.server.requests_of("PATCH")[0].body["metadata"] == {"uid": "uid-job", "resourceVersion": "7"}


@pytest.mark.parametrize("code", [404, 409, 403, 500])
async def test_a_write_that_is_refused_does_not_end_the_writer(world: World, code: int) -> None:
    path = "/api/v1/namespaces/team/pods/first/status"
    world.server.on("PATCH", path, error_answer(code))
    world.pods["uid-first"] = Pod(metadata=Metadata(name="first", namespace="team", uid="uid-first"))
    async with running(world.writer.run()):
        world.writer.want({"uid-first": ("ClusterFull", "x")})
        await until(lambda: world.server.requests_of("PATCH", path))
        world.want("ClusterFull", "x")
        await until(lambda: world.server.requests_of("PATCH", STATUS))


async def test_a_pod_that_changed_meanwhile_is_told_at_its_new_version_without_another_decision(
    world: World,
) -> None:
    path = "/api/v1/namespaces/team/pods/first/status"

    def answer(request: Request) -> Answer:
        is_current = request.body["metadata"]["resourceVersion"] == "8"
        return Answer(pod("first")) if is_current else error_answer(409, "Conflict")

    world.server.on("PATCH", path, answer)
    first = Metadata(name="first", namespace="team", uid="uid-first", resource_version="7")
    world.pods["uid-first"] = Pod(metadata=first)
    async with running(world.writer.run()):
        world.writer.want({"uid-first": ("ClusterFull", "x")})
        await until(lambda: len(world.server.requests_of("PATCH", path)) >= 3)
        world.pods["uid-first"] = Pod(metadata=msgspec.structs.replace(first, resource_version="8"))
        await until(lambda: world.messages == ["ClusterFull: x"])
