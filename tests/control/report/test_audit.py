"""The record of evictions, on an API server in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.audit import (
    MAX_RECORDS,
    Audit,
    EvictionRecord,
    evictions_in,
    newest_evictions,
)
from orchestrator.manifests.render import documents, render
from orchestrator.observe.snapshot import Reading
from orchestrator.planner import model
from orchestrator.roles import ROLES
from tests.cli.memory_api_server import serving
from tests.cluster.waiting import ManualClock, running, until
from tests.planner import builders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-b"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
RECORDS = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/evictionrecords"
MESSAGE = "2 GPUs reclaimed for d-2 of team-d by the rule of quota: team-b holds 4 GPUs, over its quota of 2"


@pytest.fixture
def server() -> Iterator[MemoryApiServer]:
    with serving() as server:
        yield server


@pytest.fixture
async def transport(server: MemoryApiServer) -> AsyncIterator[Transport]:
    access = Access(server=server.url, namespace="", context="", user="", ssl=None, token=lambda: None)
    async with Transport(access) as transport:
        yield transport


def an_audit(transport: Transport) -> Audit:
    """Return an audit that knows the victim b-1 and the beneficiary d-2."""
    loser = builders.workload("b-1", "team-b", 2000)
    held = replace(loser.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=(0, 1))
    snapshot = model.Snapshot(
        (), (), (replace(loser, pods=(held,)), builders.workload("d-2", "team-d", 2000))
    )
    made = Audit(transport, clock=lambda: 1_767_225_600.25)
    made.know(Reading(snapshot, {}, {}), model.Plan((), (an_eviction(),), {}, {}, {}))
    return made


def an_eviction(pod: str = "b-1-0") -> model.Eviction:
    return model.Eviction(pod=pod, workload="b-1", beneficiary="d-2", rule="quota", message=MESSAGE)


def a_pod(uid: str = "b-1-0") -> Pod:
    metadata = {"name": f"name-{uid}", "namespace": NAMESPACE, "uid": uid}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "dgx1-1"}}, Pod)


async def test_an_eviction_leaves_a_record_of_victim_gpus_preemptor_and_rule(
    server: MemoryApiServer, transport: Transport
) -> None:
    written = an_audit(transport)
    written.note(a_pod(), an_eviction())
    assert await written.write()
    (record,) = await evictions_in(transport, NAMESPACE)
    assert record == EvictionRecord(
        at="2026-01-01T00:00:00.250000Z",
        project="team-b",
        workload="b-1",
        workload_id="b-1",
        pod="name-b-1-0",
        pod_uid="b-1-0",
        gpu_milli=2000,
        node="dgx1-1",
        devices=(0, 1),
        beneficiary="d-2",
        beneficiary_project="team-d",
        rule="quota",
        message=MESSAGE,
    )


async def test_memory_of_a_gpu_is_recorded_as_its_part_of_the_gpus_of_the_node(
    server: MemoryApiServer, transport: Transport
) -> None:
    loser = builders.workload("b-1", "team-b", 1000)
    request = model.Request(gpu_memory_mib=8192, shared_devices=2)
    held = replace(
        loser.pods[0], request=request, state=model.PodState.ALLOCATED, node="large", devices=(0, 1)
    )
    nodes = (builders.node("small", gpu_memory_mib=16_384), builders.node("large", gpu_memory_mib=32_768))
    by_a_decision, by_the_watch = an_audit(transport), an_audit(transport)
    snapshot = model.Snapshot(nodes, (), (replace(loser, pods=(held,)),))
    by_a_decision.know(Reading(snapshot, {}, {}), model.Plan((), (an_eviction(),), {}, {}, {}))
    by_the_watch.know_workload(snapshot.workloads[0], nodes)
    for written in (by_a_decision, by_the_watch):
        written.note(a_pod(), an_eviction())
        await written.write()
    assert {record.gpu_milli for record in await evictions_in(transport, NAMESPACE)} == {500}


async def test_an_eviction_is_told_as_an_event_on_the_pod(
    server: MemoryApiServer, transport: Transport
) -> None:
    written = an_audit(transport)
    written.note(a_pod(), an_eviction())
    await written.write()
    (event,) = server.all("events")
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Reclaimed", MESSAGE)
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == ("name-b-1-0", "b-1-0")
    assert event["lastTimestamp"] == "2026-01-01T00:00:00Z"


async def test_a_rule_without_an_event_reason_of_its_own_is_an_eviction(
    server: MemoryApiServer, transport: Transport
) -> None:
    written = an_audit(transport)
    written.note(a_pod(), replace(an_eviction(), rule="unheard-of"))
    await written.write()
    assert server.all("events")[0]["reason"] == "Evicted"


async def test_records_are_added_to_those_of_an_earlier_operator(
    server: MemoryApiServer, transport: Transport
) -> None:
    for uid in ("b-1-0", "b-1-1"):
        written = an_audit(transport)
        written.note(a_pod(uid), an_eviction(uid))
        await written.write()
    assert [each.pod_uid for each in await evictions_in(transport, NAMESPACE)] == ["b-1-0", "b-1-1"]


async def test_a_write_that_fails_for_a_while_is_written_later_and_once(
    server: MemoryApiServer, transport: Transport
) -> None:
    server.refuse("POST", RECORDS, 500, "InternalError")
    written = an_audit(transport)
    written.note(a_pod(), an_eviction())
    assert not await written.write()
    assert len(server.all("events")) == 1
    server.allow("POST", RECORDS)
    assert await written.write()
    assert len(await evictions_in(transport, NAMESPACE)) == 1
    assert len(server.all("events")) == 1


async def test_a_forbidden_write_is_given_up_and_logged(
    server: MemoryApiServer, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse("POST", RECORDS, 403, "Forbidden")
    written = an_audit(transport)
    written.note(a_pod(), an_eviction())
    assert await written.write()
    assert "on no record" in caplog.text
    assert await evictions_in(transport, NAMESPACE) == []


async def test_a_missing_event_costs_no_record(server: MemoryApiServer, transport: Transport) -> None:
    server.refuse("POST", EVENTS, 403, "Forbidden")
    written = an_audit(transport)
    written.note(a_pod(), an_eviction())
    assert await written.write()
    assert len(await evictions_in(transport, NAMESPACE)) == 1


async def test_the_audit_writes_in_the_background_and_repeats_with_a_growing_pause(
    server: MemoryApiServer, transport: Transport
) -> None:
    clock = ManualClock()
    server.refuse("POST", RECORDS, 503, "ServiceUnavailable")
    written = Audit(transport, clock=lambda: 0.0, sleep=clock.sleep)
    async with running(written.run()):
        written.note(a_pod(), an_eviction())
        await until(lambda: len(clock.slept) >= 3)
        server.allow("POST", RECORDS)
        await until(lambda: server.all("evictionrecords"))
    assert clock.slept[:3] == [1.0, 2.0, 4.0]


async def test_an_operator_that_is_told_to_stop_still_writes_its_notes(
    server: MemoryApiServer, transport: Transport
) -> None:
    written = an_audit(transport)
    task = asyncio.create_task(written.run())
    await asyncio.sleep(0)
    written.note(a_pod(), an_eviction())
    task.cancel()
    await asyncio.wait({task})
    assert len(await evictions_in(transport, NAMESPACE)) == 1


async def test_the_newest_records_of_a_namespace_are_kept(
    server: MemoryApiServer, transport: Transport
) -> None:
    for start in range(0, 300, 100):
        written = Audit(transport, clock=lambda: 1_767_225_600.0 + start)  # noqa: B023 - at once
        for number in range(start, start + 100):
            written.note(a_pod(f"{number:03}"), an_eviction(f"{number:03}"))
        await written.write()
    records = await evictions_in(transport, NAMESPACE)
    assert [each.pod_uid for each in records] == [f"{number:03}" for number in range(100, 300)]
    assert len(server.all("evictionrecords")) == MAX_RECORDS


async def test_the_newest_of_all_namespaces_are_read_and_no_more(
    server: MemoryApiServer, transport: Transport
) -> None:
    for number in range(MAX_RECORDS + 50):
        namespace = f"muster-team-{number % 3}"
        spec = {
            "at": f"2026-01-01T{number // 60:02d}:{number % 60:02d}:00Z", "project": f"team-{number % 3}",
            "workload": "w", "workloadId": "w", "pod": f"p{number}", "podUid": f"u{number}", "gpuMilli": 1000,
            "node": "n", "rule": "quota", "message": "",
        }  # fmt: skip
        server.add(
            {
                "apiVersion": "muster.dev/v1alpha1",
                "kind": "EvictionRecord",
                "metadata": {"name": f"r{number}", "namespace": namespace},
                "spec": spec,
            }
        )
    everywhere = await newest_evictions(transport, [None])
    assert [one.pod for one in everywhere] == [f"p{number}" for number in range(50, MAX_RECORDS + 50)]
    own = await newest_evictions(transport, ["muster-team-0", "muster-team-1"])
    assert {one.project for one in own} == {"team-0", "team-1"}
    assert own == sorted(own, key=lambda one: one.at)


async def test_an_eviction_of_an_unknown_workload_is_noted_all_the_same(
    server: MemoryApiServer, transport: Transport
) -> None:
    written = Audit(transport)
    written.note(a_pod(), an_eviction())
    await written.write()
    (record,) = await evictions_in(transport, NAMESPACE)
    assert (record.workload, record.beneficiary, record.node) == ("name-b-1-0", "", "dgx1-1")


async def test_an_operator_that_starts_records_the_evictions_that_the_one_before_could_not(
    server: MemoryApiServer, transport: Transport
) -> None:
    because = {"muster.dev/eviction-reason": MESSAGE}
    going = {"labels": {"muster.dev/workload": "b-1"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = []
    for uid, changes, noted, manager in (
        ("recorded", going, because, "muster-operator"),
        ("unrecorded", going, because, "muster-operator"),
        ("forged-in-a-template", going, because, "kube-controller-manager"),
        ("not-gone", {}, because, "muster-operator"),
        ("deleted-by-its-user", going, {}, ""),
    ):
        fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in noted}}}
        metadata = {
            "name": f"name-{uid}",
            "namespace": NAMESPACE,
            "uid": uid,
            "annotations": noted,
            "managedFields": [{"manager": manager, "fieldsV1": fields}],
            **changes,
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "dgx1-1"}}
        server.add(body)
        pods.append(msgspec.convert(body, Pod))
    before = an_audit(transport)
    before.note(pods[0], an_eviction())
    await before.write()
    after = Audit(transport)
    after.recall(pods)
    assert await after.write()
    first, second = await evictions_in(transport, NAMESPACE)
    assert (first.pod_uid, first.beneficiary) == ("recorded", "d-2")
    assert (second.pod_uid, second.workload, second.rule, second.message) == (
        "unrecorded",
        "b-1",
        "quota",
        MESSAGE,
    )


def test_only_the_operator_may_write_records_and_all_viewers_of_a_project_may_read_them() -> None:
    roles = {
        each["metadata"]["name"]: each["rules"]
        for each in documents(render("any"))
        if each["kind"] == "ClusterRole"
    }
    (rule,) = [each for each in roles["muster-operator-writer"] if "evictionrecords" in each["resources"]]
    assert rule["verbs"] == ["create", "list", "delete"]
    for name in ROLES:
        verbs = {
            verb for each in roles[name] if "evictionrecords" in each["resources"] for verb in each["verbs"]
        }
        assert verbs == (set() if name == "muster-user" else {"get", "list", "watch"})
    for name in ("muster-operator", "muster-operator-writer"):
        assert not any("configmaps" in each["resources"] for each in roles[name])
