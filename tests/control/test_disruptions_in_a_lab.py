"""Evictions and migrations of running pods, by the real operator on a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Event, Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import EVENTS, NODES, POD_DISRUPTION_BUDGETS, PODS, STATEFUL_SETS
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.audit import evictions_in
from orchestrator.names import TIMED_OUT_ANNOTATION
from tests.cluster.waiting import DEADLINE_SECONDS, running, until
from tests.control.operators import must, operator, prepare

pytestmark = pytest.mark.lab


class Site:
    """A lab of two nodes with an operator, its pods on a watch, and the command line."""

    def __init__(self, lab: Lab, account: Path, transport: Transport, pods: Reflector[Pod]) -> None:
        self.lab = lab
        self.account = account
        self.operators = ExitStack()
        self.transport = transport
        self.pods = pods

    async def restart_operator(self) -> None:
        """Stop the operator, if there is one, and start another."""
        await asyncio.to_thread(self.operators.close)
        self.operators.enter_context(operator(self.account, self.account.with_suffix(".log")))

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(must, self.lab.kubeconfig, *arguments)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.run(*arguments, "--json"))

    async def runs(self, workload: str) -> None:
        """Wait until a pod of the workload runs, because a budget protects only running pods."""
        await until(
            lambda: any(
                each.status.phase == "Running" and not each.metadata.deletion_timestamp
                for each in self.of(workload)
            )
        )

    async def records(self, workload: str, namespace: str) -> Any:
        """Return the record of its evictions once it exists: the operator writes it after the eviction."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            found: list[str] = []
            while workload not in found:
                found = [each.workload for each in await evictions_in(self.transport, namespace)]
                await asyncio.sleep(0.05)
        return await self.json("why-evicted", workload, "-p", namespace.removeprefix("muster-"))

    async def events_with(self, namespace: str, *reasons: str) -> list[Event]:
        """Return the events of a namespace once there is one for each of the reasons."""
        events: list[Event] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not set(reasons) <= {each.reason for each in events}:
                events = (await self.transport.list(EVENTS.path(namespace), Event)).items
                await asyncio.sleep(0.05)
        return events

    def of(self, workload: str) -> list[Pod]:
        """Return the pods of a workload that have not ended."""
        return [
            each
            for each in self.pods.objects.values()
            if each.metadata.labels.get("muster.dev/workload") == workload
            and each.status.phase not in ("Succeeded", "Failed")
        ]

    def nodes_of(self, workload: str) -> list[str]:
        """Return the nodes of its pods that are not terminating."""
        return sorted(
            each.spec.node_name
            for each in self.of(workload)
            if each.spec.node_name and not each.metadata.deletion_timestamp
        )


@pytest.fixture
async def site(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        pods = Reflector(transport, PODS, Pod)
        made = Site(own_lab, account, transport, pods)
        with made.operators:
            await made.restart_operator()
            async with running(pods.run()):
                await pods.synced()
                yield made


async def test_jobs_leave_an_unhealthy_gpu_and_an_unhealthy_node(site: Site) -> None:
    await site.run("project", "create", "team-a", "-g", "8")
    for name, gpus, *kind in (("job", "2"), ("desk", "1", "--interactive"), ("hit", "1")):
        await site.run("submit", name, "-i", "quickstart", "-g", gpus, "-p", "team-a", *kind)
    await until(lambda: all(site.nodes_of(each) == ["dgx1-1"] for each in ("job", "desk", "hit")))

    (hit,) = site.of("hit")
    gpu = hit.metadata.annotations["muster.dev/gpu-devices"]
    mark = {"metadata": {"annotations": {"muster.dev/unhealthy-gpus": gpu}}}
    await site.transport.patch(NODES.path(name="dgx1-1"), mark)
    await until(lambda: all(each.metadata.uid != hit.metadata.uid for each in site.of("hit")))
    assert site.nodes_of("job") == ["dgx1-1"], "its GPUs are healthy"

    mark = {"metadata": {"labels": {"muster.dev/unhealthy": "xid-79"}}}
    await site.transport.patch(NODES.path(name="dgx1-1"), mark)
    await until(lambda: site.nodes_of("job") == site.nodes_of("hit") == ["dgx1-2"])
    assert site.nodes_of("desk") == ["dgx1-1"], "interactive work is not preemptible and stays"
    answer = await site.json("explain", "desk", "-p", "team-a")
    assert "dgx1-1 is unhealthy (label muster.dev/unhealthy=xid-79)" in answer["endangered"]
    for name, why in (("hit", f"GPU {gpu} of dgx1-1 is unhealthy"), ("job", "xid-79")):
        records = await site.records(name, "muster-team-a")
        assert {each["rule"] for each in records} == {"unhealthy"}
        assert why in records[0]["message"]
    await site.events_with("muster-team-a", "MovedOffUnhealthy", "OnUnhealthyHardware")


async def test_a_disruption_budget_protects_a_job_and_the_one_that_waits_is_told(site: Site) -> None:
    for team, quota in (("team-a", "16"), ("team-b", "0")):
        await site.run("project", "create", team, "-g", quota)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "muster-team-b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"muster.dev/workload": "young"}}},
    }
    await site.transport.create(POD_DISRUPTION_BUDGETS.path("muster-team-b"), budget)
    for name in ("old", "young"):
        await site.run("submit", name, "-i", "quickstart", "-g", "8", "-p", "team-b")
        await site.runs(name)
    await site.run("submit", "first", "-i", "quickstart", "-g", "8", "-p", "team-a")
    await until(lambda: site.nodes_of("first"))
    assert site.nodes_of("young"), "the youngest would have gone, but for the budget"
    assert not site.nodes_of("old")

    await site.run("submit", "second", "-i", "quickstart", "-g", "8", "-p", "team-a")
    await until(
        lambda: any(
            "protected by the disruption budget muster-team-b/keep" in each.message
            for pod in site.of("second")
            for each in pod.status.conditions
        ),
    )
    await site.transport.delete(POD_DISRUPTION_BUDGETS.path("muster-team-b", "keep"))
    await until(lambda: site.nodes_of("second"))
    assert not site.nodes_of("young")


async def test_an_evicted_job_has_time_to_save_its_work_and_its_place_is_taken_only_then(site: Site) -> None:
    """Its containers continue for a while after the signal to end."""
    for team, quota in (("team-a", "16"), ("team-b", "0")):
        await site.run("project", "create", team, "-g", quota)
    for name in ("old", "saves"):
        await site.run("submit", name, "-i", "quickstart", "-g", "8", "-p", "team-b")
        await site.runs(name)
    (saves,) = site.of("saves")
    path = PODS.path("muster-team-b", saves.metadata.name)
    mark = {"muster.dev/checkpoint-grace-seconds": "45", "muster.dev/lab-stop-seconds": "1000"}
    await site.transport.patch(path, {"metadata": {"annotations": mark}})
    await site.run("submit", "new", "-i", "quickstart", "-g", "8", "-p", "team-a")
    gone = saves.metadata.uid
    await until(lambda: site.pods.objects[gone].metadata.deletion_timestamp)
    victim = site.pods.objects[gone]
    assert "by the rule of quota" in victim.metadata.annotations["muster.dev/eviction-reason"]
    await until(
        lambda: any(
            each.message.startswith("WaitingForRelease")
            for pod in site.of("new")
            for each in pod.status.conditions
        ),
    )
    raw: dict[str, Any] = await site.transport.get(path)
    assert raw["metadata"]["deletionGracePeriodSeconds"] == 45
    assert raw["status"]["phase"] == "Running"
    (record,) = await site.records("saves", "muster-team-b")
    assert record["graceSeconds"] == 45

    # other jobs come and end meanwhile: each change causes a decision, and none of these evicts or binds more
    await site.run("submit", "more", "-i", "quickstart", "-g", "1", "-p", "team-b")
    await until(lambda: any(each.status.conditions for each in site.of("more")))
    assert site.pods.objects[gone].status.phase == "Running"
    assert not site.nodes_of("new")
    assert site.nodes_of("old"), "nobody else was evicted while the place was being left"

    await site.transport.patch(path, {"metadata": {"annotations": {"muster.dev/lab-stop-seconds": "0"}}})
    await until(lambda: site.nodes_of("new") == [victim.spec.node_name])
    assert site.nodes_of("old")


async def test_interactive_work_is_warned_and_stopped_at_its_projects_time_limit(site: Site) -> None:
    await site.run("project", "create", "team-a", "-g", "4", "--interactive-time-limit", "20s")
    await site.run("submit", "job", "-i", "quickstart", "-g", "1", "-p", "team-a")
    await site.run("submit", "desk", "-i", "quickstart", "-g", "1", "--interactive", "-p", "team-a")
    await site.runs("job")
    await site.runs("desk")
    await site.restart_operator()
    await until(
        lambda: all(
            each.metadata.labels.get("muster.dev/workload") != "desk" for each in site.pods.objects.values()
        )
    )
    listed = await site.run("list", "-p", "team-a", "--no-headers")
    assert {line.split()[0]: line.split()[1] for line in listed.splitlines()} == {
        "desk": "TimedOut",
        "job": "Running",
    }
    events = await site.events_with("muster-team-a", "TimeLimit")
    assert any("may run for 20s" in each.message for each in events if each.reason == "TimeLimit")
    again = {"metadata": {"annotations": {TIMED_OUT_ANNOTATION: None}}, "spec": {"replicas": 1}}
    await site.transport.patch(STATEFUL_SETS.path("muster-team-a", "desk"), again)
    await site.runs("desk")
