"""The scheduling loop keeps the nominations of its planner: on the pods, and between decisions."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.planner.model import Binding, Eviction, Plan, Snapshot
from tests.cluster.fake_api_server import (
    SILENCE,
    Answer,
    FakeApiServer,
    access_to,
    event,
    page,
    serving,
)
from tests.cluster.fake_api_server import Watch as Watched
from tests.cluster.fake_api_server import pod as sent_pod
from tests.cluster.waiting import until
from tests.control.decide.test_scheduler import LISTS, NOTHING

PODS = "/api/v1/namespaces/team/pods"
JOB = {"metadata": {"name": "old", "namespace": "team", "uid": "job-old"}}


def waiting(name: str, **fields: Any) -> dict[str, Any]:
    """Return a pod of muster's scheduler. A pod whose name begins with `old` belongs to that job."""
    pod = sent_pod(name, **fields)
    pod["spec"]["schedulerName"] = "muster"
    if name.startswith("old"):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "old", "uid": "job-old", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    return pod


class Loop:
    """A loop on a scripted server. Its planner returns the test's next decision, and keeps the snapshots."""

    def __init__(self, server: FakeApiServer, transport: Transport) -> None:
        self.server = server
        self.observer = Observer(transport)
        self.is_gone, self.is_back = asyncio.Event(), asyncio.Event()
        self.decision = NOTHING
        self.snapshot = Snapshot((), (), ())
        stale = waiting("stale")
        stale["status"]["nominatedNodeName"] = "n9"
        pods = [waiting("new"), waiting("old-1", node="n1"), stale]
        for path in LISTS:
            items = {"/api/v1/pods": pods, "/apis/batch/v1/jobs": [JOB]}.get(path, [])
            server.on("GET", path, page(*items))
        gone = event("DELETED", waiting("old-1", node="n1", version="11"))
        back = event("ADDED", waiting("old-2", version="12"))
        server.on("WATCH", "/api/v1/pods", Watched(self.is_gone, gone, self.is_back, back, SILENCE))
        for name in ("new", "old-2", "stale"):
            server.on("PATCH", f"{PODS}/{name}/status", Answer(sent_pod(name)))
        server.on("PATCH", f"{PODS}/old-1", Answer(sent_pod("old-1")))
        server.on("POST", f"{PODS}/old-1/eviction", Answer(code=201))
        self.loop = SchedulerLoop(
            transport,
            self.observer,
            on_plan=lambda _reading, _plan: None,
            is_leader=lambda: True,
            planner=self._plan,
        )

    def _plan(self, snapshot: Snapshot) -> Plan:
        self.snapshot = snapshot
        return self.decision

    async def decide(self, *nominations: Binding, **decision: Any) -> None:
        self.decision = replace(NOTHING, nominations=nominations, **decision)
        await self.loop.catch_up()
        await self.loop.decide()

    def places(self) -> dict[str, str]:
        """Return the nominated node of each pod in the last snapshot."""
        return {
            pod.id: pod.nominated_node
            for workload in self.snapshot.workloads
            for pod in workload.pods
            if pod.nominated_node
        }

    def written(self, name: str) -> list[str | None]:
        """Return the nominated nodes that were written to a pending pod."""
        patches = self.server.requests_of("PATCH", f"{PODS}/{name}/status")
        return [patch.body["status"]["nominatedNodeName"] for patch in patches]


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    async with serving() as server, Transport(access_to(server)) as transport:
        loop = Loop(server, transport)
        async with loop.observer.running():
            yield loop


async def test_the_nomination_of_a_migrated_pod_is_inherited_by_the_next_one_of_its_job(loop: Loop) -> None:
    new, old = Binding("uid-new", "uid-new", "n1", (0, 1)), Binding("uid-old-1", "job-old", "n2", (0, 1))
    eviction = Eviction("uid-old-1", "job-old", "uid-new", "consolidation", "moved")
    await loop.decide(new, old, evictions=(eviction,))
    assert loop.places() == {"uid-stale": "n9"}, "what another leader wrote"
    await loop.decide(new, old)
    assert loop.places() == {"uid-new": "n1", "uid-old-1": "n2"}, "although the watch shows nothing of it"

    loop.is_gone.set()
    await until(lambda: "uid-old-1" not in loop.observer.pods.objects)
    placeholder = Binding("uid-old-1/returning", "job-old", "n3", (2, 3))
    await loop.decide(new, bindings=(placeholder,))
    assert loop.places() == {"uid-new": "n1", "uid-old-1/returning": "n2"}
    await loop.decide(new, placeholder)
    assert loop.places() == {"uid-new": "n1", "uid-old-1/returning": "n3"}

    loop.is_back.set()
    await until(lambda: "uid-old-2" in loop.observer.pods.objects)
    await loop.decide(new, Binding("uid-old-2", "job-old", "n3", (2, 3)))
    assert loop.places() == {"uid-new": "n1", "uid-old-2": "n3"}
    await until(lambda: loop.written("old-2"))
    await loop.decide()
    await until(lambda: len(loop.written("new")) >= 2 and len(loop.written("old-2")) >= 2)
    assert loop.written("new") == ["n1", None]
    assert loop.written("old-2") == ["n3", None]
    assert loop.written("stale") == [None]
