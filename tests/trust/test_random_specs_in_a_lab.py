"""Five hundred random specifications of members, scheduled by the operator on a real API server.

By the test's own count, the project never holds more GPUs than its limit, and no pod is outside its namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.cluster.errors import ClusterError, Forbidden, Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import DEPLOYMENTS, JOBS, PODS, Resource
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.trust.objects import HOME, THEIRS, Body, job, pod, service_like

if TYPE_CHECKING:
    from tests.trust.conftest import Site

pytestmark = pytest.mark.lab

LIMIT = 4
BATCH, BATCHES = 50, 10
MARK = "random"

GPUS = st.sampled_from(["0", "1", "1", "2", "4", "8", "1k", "100"])
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            "muster.dev/gpu-fraction",
            "muster.dev/gpu-memory",
            "muster.dev/gpu-fraction-devices",
            "muster.dev/gpu-devices",
            "muster.dev/nominated-devices",
            "muster.dev/successor-nomination",
            "muster.dev/min-member",
            "muster.dev/preemptible",
            "muster.dev/sub-groups",
            "muster.dev/checkpoint-grace-seconds",
            "muster.dev/submitted-at",
        ]
    ),
    st.sampled_from(["", "0", "0.5", "2", "0,1,2,3,4,5,6,7", "40G", "true", "false", "9" * 300, "[]", "x"]),
    max_size=3,
)
RESOURCES = st.fixed_dictionaries(
    {}, optional={"limits": st.fixed_dictionaries({"nvidia.com/gpu": GPUS})}
).map(lambda resources: resources)
CONTAINER = st.fixed_dictionaries({"image": st.just("image"), "resources": RESOURCES})
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, min_size=1, max_size=2), "terminationGracePeriodSeconds": st.just(0)},
    optional={
        "schedulerName": st.sampled_from(["muster", "muster", "muster", "muster", "default-scheduler"]),
        "initContainers": st.lists(CONTAINER, max_size=1),
        "priorityClassName": st.sampled_from(["muster-train", "muster-inference", "system-node-critical"]),
        "hostNetwork": st.booleans(),
        "tolerations": st.sampled_from(
            [[{"key": "any", "operator": "Exists"}]] * 3 + [[{"operator": "Exists"}]]
        ),
    },
)
OBJECT = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["Pod", "Job", "Deployment"]),
        "replicas": st.integers(1, 4),
        "annotations": st.one_of(st.just({}), ANNOTATIONS),
        "spec": SPEC,
        "node": st.sampled_from(["", "", "", "", "node"]),
        "namespace": st.sampled_from([HOME] * 8 + [THEIRS, "default", "kube-system", "muster-system"]),
    }
)


def body_of(choice: Body, name: str, node: str) -> tuple[Resource, Body]:
    """Return the chosen object with this name, and its resource."""
    spec = {**choice["spec"]}
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [{"name": f"{kind[0]}{index}", **one} for index, one in enumerate(spec[kind])]
    if choice["node"]:
        spec["nodeName"] = node
    metadata = {"labels": {"app": "trust", MARK: name}, "annotations": choice["annotations"]}
    content = {"metadata": metadata, "spec": spec}
    if choice["kind"] == "Pod":
        return PODS, pod(name, content)
    if choice["kind"] == "Job":
        return JOBS, job(name, content, parallelism=choice["replicas"], completions=choice["replicas"])
    content["metadata"]["labels"] = {"app": "trust", MARK: name}
    body = service_like(DEPLOYMENTS, name, content, choice["replicas"])
    body["spec"]["selector"]["matchLabels"] = {MARK: name}
    return DEPLOYMENTS, body


def gpus_of(body: Body) -> Fraction:
    """Return the GPUs that a pod holds: the sum of its containers, or the most of any init container."""
    spec, annotations = body["spec"], body["metadata"].get("annotations", {})

    def whole(container: Body) -> Fraction:
        amount = container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", "0")
        return Fraction(amount.replace("k", "000"))

    before = [whole(container) for container in spec.get("initContainers", ())]
    count = max([sum(map(whole, spec["containers"]), Fraction(0)), *before])
    if count == 0 and "muster.dev/gpu-fraction" in annotations:
        devices = int(annotations.get("muster.dev/gpu-fraction-devices") or 1)
        return Fraction(annotations["muster.dev/gpu-fraction"]) * devices
    if count == 0 and "muster.dev/gpu-memory" in annotations:
        # 40G of a GPU's 80G
        return Fraction(len(annotations.get("muster.dev/gpu-devices", "").split(",")), 2)
    return count


def held(items: list[Body]) -> Fraction:
    """Return the number of GPUs of pods that have a node and have not ended."""
    on_nodes = [
        one
        for one in items
        if one["spec"].get("nodeName") and one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
    return sum(map(gpus_of, on_nodes), Fraction(0))


class Batch:
    """Creates fifty objects at the same time as a user with the role `edit`, waits until nothing changes, and
    deletes them.
    """

    def __init__(self, dev: Transport, admin: Transport, number: int) -> None:
        self._dev = dev
        self._admin = admin
        self._number = number
        self.outcomes: Counter[str] = Counter()

    async def run(self, choices: list[Body]) -> None:
        nodes = (await self._admin.get("/api/v1/nodes"))["items"]
        node = nodes[0]["metadata"]["name"]
        bodies = [
            (choice["namespace"], *body_of(choice, f"r{self._number}-{index}", node))
            for index, choice in enumerate(choices)
        ]
        await asyncio.gather(*(self._create(*body) for body in bodies))
        await self._settle()
        everywhere = (await self._admin.get(PODS.path()))["items"]
        ours = [one for one in everywhere if MARK in one["metadata"].get("labels", {})]
        assert {one["metadata"]["namespace"] for one in ours} <= {HOME}
        await self._delete()

    async def _create(self, namespace: str, resource: Resource, body: Body) -> None:
        try:
            await self._dev.create(resource.path(namespace), body)
            self.outcomes["created"] += 1
            assert namespace == HOME
        except Forbidden:
            self.outcomes["no right, or a quota of objects"] += 1
        except Invalid as error:
            self.outcomes["a rule" if "rule" in str(error) else "not possible"] += 1

    async def _settle(self) -> None:
        """Check the limit until each of muster's pods has a node or a reason for none, and nothing changes any more."""
        calm, before = 0, None
        async with asyncio.timeout(DEADLINE_SECONDS):
            while calm < 5:
                items = (await self._admin.get(PODS.path(HOME)))["items"]
                assert held(items) <= LIMIT
                state = sorted((one["metadata"]["uid"], one["spec"].get("nodeName", "")) for one in items)
                decided = all(map(_is_decided, items))
                calm = calm + 1 if decided and state == before else 0
                before = state
                await asyncio.sleep(0.1)

    async def _delete(self) -> None:
        for resource in (DEPLOYMENTS, JOBS, PODS):
            await self._admin.delete(resource.path(HOME), grace_seconds=0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (await self._admin.get(PODS.path(HOME)))["items"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def _is_decided(one: Body) -> bool:
    if one["spec"].get("schedulerName") != "muster" or one["spec"].get("nodeName"):
        return True
    return any(condition.get("message") for condition in one.get("status", {}).get("conditions", ()))


def test_none_of_500_takes_more_than_the_limit_or_leaves_its_namespace(site: Site) -> None:
    outcomes: Counter[str] = Counter()
    numbers = iter(range(10_000))

    async def run(choices: list[Body]) -> None:
        async with (
            Transport(load_access(site.kubeconfigs["dev"])) as dev,
            Transport(load_access(site.kubeconfigs["admin"])) as admin,
        ):
            batch = Batch(dev, admin, next(numbers))
            try:
                await batch.run(choices)
            except ClusterError as error:
                raise AssertionError(str(error)) from error
            outcomes.update(batch.outcomes)

    @settings(max_examples=BATCHES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(OBJECT, min_size=BATCH, max_size=BATCH))
    def holds(choices: list[Any]) -> None:
        asyncio.run(run(choices))

    holds()
    assert sum(outcomes.values()) >= BATCH * BATCHES
    assert outcomes["created"] >= BATCHES, outcomes  # otherwise the test proves nothing
    assert outcomes["a rule"] >= BATCHES, outcomes
