"""ResourceClaims through the real operator, API server and controller manager: allocated, reserved, bound, released.

Nodes and pods are simulated; ResourceSlices have the form of NVIDIA's driver (tests/musterlab/recorded).
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import musterlab.kube_scheduler
from musterbench.schedulers import kube_scheduler
from musterlab import nodes, profiles
from musterlab.cluster import Lab, start
from orchestrator.cluster.device_objects import ResourceClaim
from orchestrator.cluster.errors import Conflict
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare

pytestmark = pytest.mark.lab

RECORDED = Path(__file__).parents[1] / "musterlab" / "recorded" / "resourceslice-memory.yaml"
TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
NAMESPACE = "muster-team-a"
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": "device.driver == 'gpu.nvidia.com' && "
                    "device.attributes['gpu.nvidia.com'].type == 'gpu'"
                }
            }
        ],
        "extendedResourceName": "nvidia.com/gpu",
    },
}


def slice_of(node: str, *, shareable: bool = False) -> dict[str, Any]:
    """Return the recorded ResourceSlice of the driver for a node."""
    recorded = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))["devices"]
    published: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"00000-gpu.nvidia.com-{node}"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": copy.deepcopy(recorded),
        },
    }
    for device in published["spec"]["devices"]:
        uuid = device["attributes"]["uuid"]
        uuid["string"] = f"{uuid['string']}-{node}"
        if not shareable:
            del device["allowMultipleAllocations"]
            del device["capacity"]["memory"]["requestPolicy"]
    return published


def claim_spec(version: str = "v1", count: int = 1, **more: Any) -> dict[str, Any]:
    request = {"deviceClassName": "gpu.nvidia.com", "count": count, "allocationMode": "ExactCount", **more}
    exact = request if version == "v1beta1" else {"exactly": request}
    return {"devices": {"requests": [{"name": "gpu", **exact}]}}


def pod(name: str, *claims: dict[str, Any], scheduler: str = "muster", **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "resources": {"claims": [{"name": claim["name"]} for claim in claims]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "resourceClaims": list(claims),
            "tolerations": [{"operator": "Exists"}],
            **spec,
        },
    }


def devices_held(claim: ResourceClaim) -> list[tuple[str, str]]:
    """Return pool and device of each result in a claim's allocation."""
    allocation = claim.status.allocation
    return [(each.pool, each.device) for each in allocation.devices.results] if allocation else []


class Site:
    """Two nodes with eight published GPUs each, a team, and the operator."""

    def __init__(self, lab: Lab, transport: Transport) -> None:
        self.lab = lab
        self.transport = transport
        self.pods = Reflector(transport, PODS, Pod)
        self.claims = Reflector(transport, RESOURCE_CLAIMS, ResourceClaim)

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(must, self.lab.kubeconfig, *arguments)

    async def add_node(self, name: str, *, shareable: bool = False) -> None:
        profile = profiles.load(profiles.DEFAULT_PROFILE)
        capacity = {key: amount for key, amount in profile.capacity.items() if key != "nvidia.com/gpu"}
        labels = {key: text for key, text in profile.labels.items() if not key.startswith("nvidia.com/")}
        body = nodes.node(name, replace(profile, capacity=capacity, labels=labels))
        await self.transport.create(NODES.path(), body)
        await self.transport.create(RESOURCE_SLICES.path(), slice_of(name, shareable=shareable))

    async def make_claim(self, name: str, version: str = "v1", **spec: Any) -> None:
        resource = replace(RESOURCE_CLAIMS, version=version)
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": claim_spec(version, **spec),
        }
        await self.transport.create(resource.path(NAMESPACE), body)

    async def make_template(self, name: str, namespace: str = NAMESPACE, **spec: Any) -> None:
        body = {
            "apiVersion": TEMPLATES.api_version,
            "kind": TEMPLATES.kind,
            "metadata": {"name": name},
            "spec": {"spec": claim_spec(**spec)},
        }
        await self.transport.create(TEMPLATES.path(namespace), body)

    async def make_pod(self, name: str, *claims: dict[str, Any], **spec: Any) -> None:
        await self.transport.create(PODS.path(NAMESPACE), pod(name, *claims, **spec))

    async def make_interactive_pod(self, name: str, *claims: dict[str, Any]) -> None:
        body = pod(name, *claims)
        body["metadata"]["labels"] = {"muster.dev/type": "interactive"}
        await self.transport.create(PODS.path(NAMESPACE), body)

    def node_of(self, name: str) -> str:
        names = (each.spec.node_name for each in self.pods.objects.values() if each.metadata.name == name)
        return next(names, "")

    def claim(self, name: str) -> ResourceClaim:
        return next(each for each in self.claims.objects.values() if each.metadata.name == name)

    def devices_of(self, name: str) -> list[tuple[str, str]]:
        """Return pool and device of each result in a claim's allocation."""
        return devices_held(self.claim(name))

    def holders(self) -> dict[tuple[str, str], list[str]]:
        """Return the claims that are allocated each device, by pool and device."""
        holders: dict[tuple[str, str], list[str]] = {}
        for claim in self.claims.objects.values():
            for device in devices_held(claim):
                holders.setdefault(device, []).append(claim.metadata.name)
        return holders

    def doubles_of_muster(self) -> list[list[str]]:
        """Return the groups of claims with the same device, where one claim belongs to a pod of muster.

        When one of two such claims is released, kube-scheduler takes the device as free, and can allocate it to another
        claim of its own.
        """
        return [
            names
            for names in self.holders().values()
            if len(names) > 1 and any(name.startswith("muster-") for name in names)
        ]

    async def waits_because(self, name: str, *, part: str) -> None:
        def says() -> bool:
            return any(
                part in condition.message
                for each in self.pods.objects.values()
                if each.metadata.name == name
                for condition in each.status.conditions
            )

        await until(says)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("claims", nodes=0, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def site(lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    account = await prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(lab.kubeconfig)) as transport:
        made = Site(lab, transport)
        await transport.create(DEVICE_CLASSES.path(), CLASS)
        await made.add_node("dra-1")
        await made.add_node("dra-2")
        with operator(account, tmp_path / "operator.log"):
            async with running(made.pods.run()), running(made.claims.run()):
                await made.run("project", "create", "team-a", "-g", "8")
                yield made


def named(claim: str) -> dict[str, Any]:
    return {"name": "gpu", "resourceClaimName": claim}


def template(name: str) -> dict[str, Any]:
    return {"name": "gpu", "resourceClaimTemplateName": name}


async def test_claims_are_allocated_reserved_and_given_back(site: Site) -> None:
    await site.make_claim("one")
    await site.make_claim("old", version="v1beta1")
    await site.make_pod("first", named("one"))
    await site.make_pod("second", named("old"))
    await until(lambda: site.node_of("first") and site.node_of("second"))
    await until(lambda: site.devices_of("one") and site.devices_of("old"))
    assert site.devices_of("one") != site.devices_of("old")
    claim = site.claim("one")
    assert claim.metadata.finalizers == ["resource.kubernetes.io/delete-protection"]
    assert [user.name for user in claim.status.reserved_for] == ["first"]
    assert claim.status.allocation is not None
    assert claim.status.allocation.allocation_timestamp
    # a claim that two pods share counts once, and is reserved for both
    await site.make_pod("third", named("one"))
    await until(lambda: site.node_of("third") == site.node_of("first"))
    await until(lambda: len(site.claim("one").status.reserved_for) == 2)
    # templates, and the quota of 8: a pod beyond it stays pending
    await site.make_template("four", count=4)
    await site.make_pod("fourth", template("four"))
    await until(lambda: site.node_of("fourth"))
    await site.make_claim("eight", count=8)
    await site.make_claim("last")
    await site.make_interactive_pod("fifth", named("eight"))
    await until(lambda: site.node_of("fifth"))
    await site.make_interactive_pod("seventh", named("last"))
    await site.waits_because("seventh", part="holds 8 GPUs of that kind and its quota is 8 GPUs")
    # the missing claim is named in the reason
    await site.make_pod("sixth", named("none"))
    await site.waits_because("sixth", part=f"there is no ResourceClaim {NAMESPACE}/none")
    # the devices are released with the pod
    await site.transport.delete(PODS.path(NAMESPACE, "fifth"), grace_seconds=0)
    await until(lambda: site.node_of("seventh"))


async def test_whole_gpus_come_by_claims_and_claims_of_others_are_left_alone(site: Site) -> None:
    await site.run("submit", "train", "-i", "quickstart", "-g", "2", "-p", "team-a")

    def placed() -> list[Pod]:
        return [
            each
            for each in site.pods.objects.values()
            if each.metadata.labels.get("muster.dev/workload") == "train" and each.spec.node_name
        ]

    await until(lambda: bool(placed()))
    (bound,) = placed()
    status = bound.status.extended_resource_claim_status
    assert status is not None
    (mapping,) = status.request_mappings
    assert mapping.resource_name == "nvidia.com/gpu"
    allocation = site.claim(status.resource_claim_name).status.allocation
    assert allocation is not None
    assert mapping.request_name == allocation.devices.results[0].request
    assert len(site.devices_of(status.resource_claim_name)) == 2
    assert bound.metadata.annotations["muster.dev/gpu-devices"] == ",".join(
        sorted(device.removeprefix("gpu-") for _, device in site.devices_of(status.resource_claim_name))
    )

    # a claim that another client allocated keeps its devices, whichever pods use it
    await site.make_claim("theirs")
    claim = await site.transport.get(RESOURCE_CLAIMS.path(NAMESPACE, "theirs"), ResourceClaim)
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "dra-2", "device": "gpu-0"}
    user = {"resource": "pods", "name": "somebody", "uid": "00000000-0000-0000-0000-000000000001"}
    body = {
        "metadata": {"uid": claim.metadata.uid},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
    }
    await site.transport.patch(RESOURCE_CLAIMS.path(NAMESPACE, "theirs", "status"), body)
    await site.make_claim("seven", count=7)
    await site.make_claim("one")
    await site.make_pod("wide", named("seven"))
    await site.make_pod("narrow", named("one"))
    await until(lambda: site.node_of("wide") and site.node_of("narrow"))
    await until(lambda: site.devices_of("seven") and site.devices_of("one"))
    held = [*site.devices_of("seven"), *site.devices_of("one")]
    assert ("dra-2", "gpu-0") not in held
    assert len(set(held)) == 8


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.rare)])
async def test_two_schedulers_at_once_give_no_device_to_two_claims(
    site: Site, tmp_path: Path, count: int
) -> None:
    """Each scheduler has `count` pods, on the same nodes. Muster gives up colliding allocations, and bare pods then
    end: how many depends on the speed of both. Pods made in their place after the race are bound and kept.

    128 GPUs stay free: kube-scheduler retries a pod without a GPU only after up to five minutes.
    """
    nodes = (2 * count + 128) // 8
    for number in range(3, nodes + 1):
        await site.add_node(f"dra-{number}")
    await site.run("project", "update", "team-a", "-g", str(2 * count + 8))
    program = await musterlab.kube_scheduler.find(Reporter(lambda _line: None))
    scheduler = await kube_scheduler(site.lab, tmp_path, program)
    async with scheduler.running():
        slots = asyncio.Semaphore(8)

        async def make(namespace: str, body: dict[str, Any]) -> None:
            async with slots:
                while True:
                    try:
                        return await site.transport.create(PODS.path(namespace), body)
                    except Conflict:  # several simultaneous pods conflict on one object quota
                        continue

        for namespace in (NAMESPACE, "default"):
            await site.make_template("single", namespace)
        await asyncio.gather(
            *(
                make(namespace, pod(f"{scheduler}-{number}", template("single"), scheduler=scheduler))
                for number in range(count)
                for scheduler, namespace in (("muster", NAMESPACE), ("default-scheduler", "default"))
            )
        )

        def not_deleted() -> list[Pod]:
            return [each for each in site.pods.objects.values() if each.metadata.deletion_timestamp is None]

        def unsettled() -> list[object]:
            pods = not_deleted()
            uids = {each.metadata.uid for each in pods}
            users = {user.uid for claim in site.claims.objects.values() for user in claim.status.reserved_for}
            return [
                *site.doubles_of_muster(),
                *(each.metadata.name for each in pods if not each.spec.node_name),
                *(each.metadata.name for each in pods if each.metadata.uid not in users),
                *(users - uids),
            ]

        async def settle() -> int:
            """Return how many pods of muster are kept when both schedulers have nothing left to do."""
            try:
                await until(lambda: not unsettled(), seconds=300)
            except TimeoutError:
                pytest.fail(f"doubles, pods without node or claim, users that are gone: {unsettled()[:20]}")
            return sum(each.metadata.name.startswith("muster-") for each in not_deleted())

        # a pod can also lose after it counted as kept, while the watch of the claims is behind that of the pods
        made = [f"muster-{number}" for number in range(count)]
        while lost := count - await settle():
            again = [f"muster-{number}" for number in range(len(made), len(made) + lost)]
            for name in again:
                await make(NAMESPACE, pod(name, template("single")))
            made += again
            assert len(made) < 5 * count
            await until(lambda: set(again) <= {each.metadata.name for each in not_deleted()})  # noqa: B023 - now
