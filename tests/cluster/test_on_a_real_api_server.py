"""The guarantees of the client on a real kube-apiserver, which the scripted server only imitates."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from orchestrator.cluster import errors
from orchestrator.cluster.binding import bind
from orchestrator.cluster.eviction import evict
from orchestrator.cluster.lease import LeaseElection
from orchestrator.cluster.objects import Lease, LeaseSpec, Metadata, Namespace, Node, Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.names import EVICTION_REASON, EVICTION_REASON_ANNOTATION, GPU_DEVICES_ANNOTATION
from tests.cluster.waiting import DEADLINE_SECONDS, running, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.cluster.kubeconfig import Access

pytestmark = pytest.mark.lab

DEVICES = {GPU_DEVICES_ANNOTATION: "0,1"}


@pytest.fixture
async def real(lab_access: Access) -> AsyncIterator[Transport]:
    async with Transport(lab_access, "muster-test") as transport:
        yield transport


@pytest.fixture
async def namespace(real: Transport) -> AsyncIterator[str]:
    """Yield a namespace for this test, in which pods can be created."""
    made = await real.create(
        NAMESPACES.path(),
        {"metadata": {"name": f"boundary-{os.urandom(4).hex()}"}},
        Namespace,
    )
    name = made.metadata.name
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await real.get(account)
                break
            except errors.NotFound:
                await asyncio.sleep(0.02)
    yield name
    pods = await real.list(PODS.path(name), Pod)
    for pod in pods.items:
        await real.delete(PODS.path(name, pod.metadata.name), grace_seconds=0)
    await real.delete(NAMESPACES.path(name=name))


async def make_pod(transport: Transport, namespace: str, name: str, **metadata: Any) -> Pod:
    body = {
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    }
    return await transport.create(PODS.path(namespace), body, Pod)


async def some_nodes(transport: Transport) -> list[str]:
    nodes = (await transport.list(NODES.path(), Node)).items
    assert len(nodes) >= 2
    return [node.metadata.name for node in nodes[:2]]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


# --- transport --------------------------------------------------------------------------------------------


async def test_a_list_follows_its_pages(real: Transport, namespace: str) -> None:
    names = [f"map-{number}" for number in range(7)]
    for name in names:
        await real.create(CONFIG_MAPS.path(namespace), config_map(name))
    listed = await real.list(CONFIG_MAPS.path(namespace), Namespace, params={"limit": 2})
    assert set(names) <= {item.metadata.name for item in listed.items}
    assert int(listed.resource_version) > 0


async def test_refusals_have_their_types(real: Transport, namespace: str) -> None:
    path = CONFIG_MAPS.path(namespace)
    made = await real.create(path, config_map("a", x="1"))
    with pytest.raises(errors.AlreadyExists):
        await real.create(path, config_map("a"))
    with pytest.raises(errors.NotFound):
        await real.get(CONFIG_MAPS.path(namespace, "absent"))
    with pytest.raises(errors.Invalid, match="RFC 1123"):
        await real.create(path, config_map("Not A Name"))
    await real.patch(CONFIG_MAPS.path(namespace, "a"), {"data": {"x": "2"}})
    with pytest.raises(errors.Conflict):
        await real.replace(CONFIG_MAPS.path(namespace, "a"), made)
    with pytest.raises(errors.Conflict):
        await real.delete(CONFIG_MAPS.path(namespace, "a"), uid="another")
    await real.delete(CONFIG_MAPS.path(namespace, "a"), uid=made["metadata"]["uid"])


async def test_apply_makes_changes_and_keeps_the_fields_of_others(real: Transport, namespace: str) -> None:
    path = CONFIG_MAPS.path(namespace, "applied")
    await real.apply(path, config_map("applied", ours="1"), field_manager="muster")
    await real.apply(path, config_map("applied", theirs="1"), field_manager="another")
    answer = await real.apply(path, config_map("applied", ours="2"), field_manager="muster")
    assert answer["data"] == {"ours": "2", "theirs": "1"}
    with pytest.raises(errors.Conflict):
        await real.apply(path, config_map("applied", ours="3"), field_manager="another", force=False)


async def test_a_watch_ends_in_time_and_brings_a_bookmark(real: Transport, namespace: str) -> None:
    version = (await real.list(PODS.path(namespace), Pod)).resource_version
    watch = real.watch(PODS.path(namespace), resource_version=version, timeout_seconds=3)
    async with asyncio.timeout(DEADLINE_SECONDS), aclosing(watch) as events:
        assert {event.type async for event in events} <= {"BOOKMARK"}


async def test_a_watch_from_a_version_that_is_not_there_yet_is_silent_and_ends_well(
    real: Transport, namespace: str
) -> None:
    """A reflector must not trust such a watch: see `Reflector._watch`."""
    version = int((await real.list(CONFIG_MAPS.path(namespace), Namespace)).resource_version)
    watch = real.watch(
        CONFIG_MAPS.path(namespace), resource_version=str(version + 10_000_000), timeout_seconds=3
    )
    await real.create(CONFIG_MAPS.path(namespace), config_map("unseen"))
    async with asyncio.timeout(DEADLINE_SECONDS), aclosing(watch) as events:
        assert [event.type async for event in events] == []


# --- reflector --------------------------------------------------------------------------------------------


async def test_a_reflector_follows_pods_from_birth_to_end(real: Transport, namespace: str) -> None:
    changes: list[Change[Pod]] = []
    reflector = Reflector(real, PODS, Pod, namespace=namespace, on_change=changes.append)
    await make_pod(real, namespace, "before")
    async with running(reflector.run()):
        await reflector.synced()
        assert [pod.metadata.name for pod in reflector.objects.values()] == ["before"]
        made = await make_pod(real, namespace, "after")
        await until(lambda: made.metadata.uid in reflector.objects)
        await real.patch(PODS.path(namespace, "after"), {"metadata": {"labels": {"x": "y"}}})
        await until(lambda: reflector.objects[made.metadata.uid].metadata.labels == {"x": "y"})
        await real.delete(PODS.path(namespace, "after"), grace_seconds=0)
        await until(lambda: made.metadata.uid not in reflector.objects)
    assert [change.type for change in changes if change.object.metadata.name == "before"] == ["added"]
    types = [change.type for change in changes if change.object.metadata.name == "after"]
    assert (types[0], types[-1], set(types[1:-1])) == ("added", "deleted", {"modified"})
    assert reflector.counters.decode_errors == 0


# --- bind and evict ---------------------------------------------------------------------------------------


async def test_a_reflector_of_metadata_alone_is_sent_nothing_else(real: Transport, namespace: str) -> None:
    pods = Reflector(real, PODS, Pod, namespace=namespace, metadata_only=True)
    await make_pod(real, namespace, "listed", labels={"seen": "list"})
    async with running(pods.run()):
        await until(lambda: len(pods.objects) == 1)
        await make_pod(real, namespace, "watched", labels={"seen": "watch"})
        await until(lambda: len(pods.objects) == 2)
    assert {pod.metadata.labels["seen"] for pod in pods.objects.values()} == {"list", "watch"}
    assert [pod.spec.containers for pod in pods.objects.values()] == [[], []]


async def test_a_bind_sets_the_node_and_the_devices_in_one_write(real: Transport, namespace: str) -> None:
    changes: list[Change[Pod]] = []
    reflector = Reflector(real, PODS, Pod, namespace=namespace, on_change=changes.append)
    node = (await some_nodes(real))[0]
    async with running(reflector.run()):
        await reflector.synced()
        pod = await make_pod(real, namespace, "a", annotations={"kept": "yes"})
        await bind(real, namespace=namespace, name="a", uid=pod.metadata.uid, node=node, annotations=DEVICES)
        await until(lambda: any(change.object.spec.node_name for change in changes))
    first = next(change.object for change in changes if change.object.spec.node_name)
    assert first.spec.node_name == node
    assert first.metadata.annotations == {"kept": "yes", **DEVICES}


async def test_a_bind_that_is_repeated_is_success_and_one_elsewhere_is_a_conflict(
    real: Transport, namespace: str
) -> None:
    here, there = await some_nodes(real)
    uid = (await make_pod(real, namespace, "a")).metadata.uid
    for _ in range(2):
        await bind(real, namespace=namespace, name="a", uid=uid, node=here, annotations=DEVICES)
    with pytest.raises(errors.Conflict, match=f"bound to {here} already, not to {there}"):
        await bind(real, namespace=namespace, name="a", uid=uid, node=there, annotations=DEVICES)
    with pytest.raises(errors.Conflict, match="other annotations"):
        await bind(
            real, namespace=namespace, name="a", uid=uid, node=here, annotations={GPU_DEVICES_ANNOTATION: "7"}
        )


async def test_a_bind_of_another_pod_of_that_name_is_a_conflict(real: Transport, namespace: str) -> None:
    node = (await some_nodes(real))[0]
    await make_pod(real, namespace, "a")
    with pytest.raises(errors.Conflict, match="is another pod now"):
        await bind(real, namespace=namespace, name="a", uid="former", node=node, annotations=DEVICES)
    with pytest.raises(errors.NotFound):
        await bind(real, namespace=namespace, name="absent", uid="x", node=node, annotations=DEVICES)
    assert (await real.get(PODS.path(namespace, "a"), Pod)).spec.node_name == ""


async def test_an_evicted_pod_says_why_before_it_ends(real: Transport, namespace: str) -> None:
    changes: list[Change[Pod]] = []
    reflector = Reflector(real, PODS, Pod, namespace=namespace, on_change=changes.append)
    node = (await some_nodes(real))[0]
    uid = (await make_pod(real, namespace, "a")).metadata.uid
    await bind(real, namespace=namespace, name="a", uid=uid, node=node, annotations=DEVICES)
    async with running(reflector.run()):
        await until(lambda: any(pod.status.phase == "Running" for pod in reflector.objects.values()))
        await evict(
            real,
            namespace=namespace,
            name="a",
            uid=uid,
            annotations={EVICTION_REASON_ANNOTATION: "team-b reclaims"},
        )
        await until(lambda: changes[-1].type == "deleted")
    conditions = {condition.type: condition for condition in changes[-1].object.status.conditions}
    assert conditions["DisruptionTarget"].status == "True"
    assert conditions["DisruptionTarget"].reason == EVICTION_REASON
    assert changes[-1].object.metadata.annotations[EVICTION_REASON_ANNOTATION] == "team-b reclaims"
    assert "Ready" in conditions
    await evict(
        real, namespace=namespace, name="a", uid=uid, annotations={EVICTION_REASON_ANNOTATION: "again"}
    )


async def test_an_eviction_leaves_another_pod_of_that_name_alone(real: Transport, namespace: str) -> None:
    before = await make_pod(real, namespace, "a")
    await evict(
        real, namespace=namespace, name="a", uid="former", annotations={EVICTION_REASON_ANNOTATION: "old"}
    )
    assert await real.get(PODS.path(namespace, "a"), Pod) == before


# --- lease ------------------------------------------------------------------------------------------------


def election(transport: Transport, namespace: str, identity: str) -> LeaseElection:
    return LeaseElection(
        transport,
        namespace=namespace,
        name="scheduler",
        identity=identity,
        lease_seconds=60,  # the leader does not lose the lease if the machine is slow for a while
        renew_seconds=0.2,
    )


async def test_leadership_passes_on_when_it_is_given_back(real: Transport, namespace: str) -> None:
    first, second = election(real, namespace, "first"), election(real, namespace, "second")
    await first.acquire()
    async with running(second.acquire()) as waiting, running(first.hold()):
        lease = await real.get(LEASES.path(namespace, "scheduler"), Lease)
        await until(lambda: first.is_leader() and not waiting.done())
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("first", 0)
    await first.release()
    await asyncio.wait_for(second.acquire(), DEADLINE_SECONDS)
    assert (first.is_leader(), second.is_leader()) == (False, True)


async def test_a_dead_leaders_lease_expires(real: Transport, namespace: str) -> None:
    await real.create(
        LEASES.path(namespace),
        Lease(Metadata("scheduler", namespace), LeaseSpec("dead", 1, None, None, 3)),
        Lease,
    )
    me = election(real, namespace, "me")
    await asyncio.wait_for(me.acquire(), DEADLINE_SECONDS)
    lease = await real.get(LEASES.path(namespace, "scheduler"), Lease)
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("me", 4)
    assert msgspec.structs.asdict(lease)["spec"].renew_time is not None


async def test_of_many_replicas_one_leads(real: Transport, namespace: str) -> None:
    replicas = [election(real, namespace, f"replica-{number}") for number in range(8)]
    tasks = [asyncio.ensure_future(replica.acquire()) for replica in replicas]
    try:
        await until(lambda: any(task.done() for task in tasks))
        assert [replica.is_leader() for replica in replicas].count(True) == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
