"""All poisonous objects together on a real API server: a healthy job is bound, and each poisonous object is named."""

import asyncio
from pathlib import Path

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.errors import Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Event, Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import CLAIMS, EVENTS, NODES, PODS, PROJECTS, STORAGE_CLASSES
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.control.report.skipped import NoRecord, Record, recorded
from tests import poison_objects as poison
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare
from tests.poison_objects import HEALTHY, NAMESPACE, Row

pytestmark = pytest.mark.lab

REFUSED = {"signs", "digits", "later"}
"""Pods that newer API servers reject: their affinities have impossible label values, or unknown operators."""

DEPARTMENTS = 100
"""The part of the chain of 1,000 departments that is created: it is too deep, and each department gets a namespace."""


async def listed(transport: Transport) -> dict[str, str]:
    """Return the reasons of the objects in the record, by path."""
    try:
        record: Record = await recorded(transport)
    except NoRecord:
        return {}
    return {f"{each.namespace}/{each.name}".removeprefix("/"): each.why for each in record.objects}


async def create_all(transport: Transport) -> tuple[int, set[str]]:
    """Create the objects of every row, with running pods on the last node. Return their
    number, and the refused names.
    """
    page = await transport.list(NODES.path(), dict)
    first, last = page.items[0]["metadata"]["name"], page.items[-1]["metadata"]["name"]
    objects = [(PROJECTS.path(), project) for project in poison.chain(DEPARTMENTS)]
    for row in poison.rows(last).values():
        await grow(transport, first, row)
        objects += [(STORAGE_CLASSES.path(), storage_class) for storage_class in row.storage_classes]
        objects += [(CLAIMS.path(NAMESPACE), claim) for claim in row.claims]
        objects += [(PODS.path(NAMESPACE), pod) for pod in row.pods]
    refused = set()
    for path, body in objects:
        try:
            await transport.create(path, body)
        except Invalid:
            refused.add(body["metadata"]["name"])
    return len(objects) - len(refused), refused


async def grow(transport: Transport, node: str, row: Row) -> None:
    """Give a node the resources that the row has for nodes."""
    if row.node_allocatable:
        amounts = dict(row.node_allocatable)
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await transport.patch(NODES.path(None, node, "status"), status, content_type=MERGE_PATCH)


async def test_with_all_poison_at_once_a_healthy_job_is_bound_and_each_culprit_is_named(
    own_lab: Lab, tmp_path: Path
) -> None:
    table = poison.rows("dgx1-2")
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        pods = Reflector(transport, PODS, Pod)
        log = tmp_path / "operator.log"
        with operator(account, log):
            await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "8")
            _, refused = await create_all(transport)
            assert refused <= REFUSED
            async with running(pods.run()):
                await pods.synced()
                await transport.create(PODS.path(NAMESPACE), poison.pod(HEALTHY, 1))

                def of(name: str) -> Pod | None:
                    return next((each for each in pods.objects.values() if each.metadata.name == name), None)

                await until(lambda: (pod := of(HEALTHY)) is not None and pod.spec.node_name)
                for row in table.values():
                    name = row.culprit.rpartition("/")[2]
                    if name in refused or not name:
                        continue
                    if row.words == "NoNodeMatches":
                        await until(lambda: _waits(of(name)).startswith("NoNodeMatches"))  # noqa: B023 - awaited
                    else:
                        async with asyncio.timeout(60):
                            while row.words not in (await listed(transport)).get(row.culprit, ""):  # noqa: ASYNC110
                                await asyncio.sleep(0.1)
            async with asyncio.timeout(60):
                while not {"gang", "nested", "devices", "fraction"} <= await warned(transport):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            text = await asyncio.to_thread(must, own_lab.kubeconfig, "cluster", "status")
        assert "the decision failed" not in log.read_text()
        assert "muster-team-a  gang " in text


async def warned(transport: Transport) -> set[str]:
    """Return the names of pods with Events from the operator."""
    page = await transport.list(EVENTS.path(NAMESPACE), Event)
    return {each.involved_object.name for each in page.items if each.reason in ("Skipped", "Unschedulable")}


def _waits(pod: Pod | None) -> str:
    conditions = pod.status.conditions if pod is not None else []
    return next((each.message for each in conditions if each.type == "PodScheduled"), "")
