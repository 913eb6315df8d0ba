"""A pending pod starts in a simulation if and only if kube-scheduler finds a node for it, in random small clusters.

The pods have constraints between pods, node affinity, host ports and requests of every form.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from musterlab.cluster import Lab, start
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.planner.model import PodState
from orchestrator.simulation.reader import load
from orchestrator.simulation.run import settle
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.musterlab.gpu_pods import kube_scheduler_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.lab, pytest.mark.rare]

WORLDS: Final = 150
"""Number of clusters of each kind."""
ATTEMPTS: Final = 9
"""Number of pods that may be bound because the scheduler has not yet seen the bound pods."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACES: Final = ("muster-a", "muster-b")
DOMAINS: Final = ("kubernetes.io/hostname", "zone", "rack")
OPEN: Final = {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
AMOUNTS: Final = {
    "cpu": ("1", "1500m", "100m", "3"),
    "memory": ("1Gi", "512Mi", "1500M"),
    "ephemeral-storage": ("1Gi", "1G"),
    "hugepages-2Mi": ("2Mi", "4Mi"),
    "rdma/hca": ("1", "2"),
    "nvidia.com/gpu": ("1", "2"),
}
READY: Final = {
    "type": "Ready",
    "status": "True",
    "reason": "Test",
    "message": "",
    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

Manifest = dict[str, Any]


@dataclass
class Node:
    name: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    allocatable: dict[str, str]


@dataclass
class World:
    """Nodes, bound pods as (namespace, node, template), and the pending pod as (namespace, template)."""

    nodes: list[Node]
    bound: list[tuple[str, str, Manifest]]
    pending: tuple[str, Manifest]


def expression(rng: random.Random, keys: tuple[str, ...], values: tuple[str, ...]) -> Manifest:
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    named = {"values": rng.sample(values, rng.randint(1, 2))} if operator in {"In", "NotIn"} else {}
    return {"key": rng.choice(keys), "operator": operator, **named}


def selector(rng: random.Random) -> Manifest:
    if rng.random() < 0.1:
        return {}
    if rng.random() < 0.6:
        return {"matchLabels": {rng.choice(["app", "app", "tier"]): rng.choice("xxxy")}}
    return {
        "matchExpressions": [
            expression(rng, ("app", "tier"), ("x", "y", "z")) for _ in range(rng.randint(1, 2))
        ]
    }


def term(rng: random.Random) -> Manifest:
    scopes: tuple[Manifest, ...] = (
        {},
        {},
        {"namespaces": rng.sample(NAMESPACES, 1)},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": rng.choice(NAMESPACES)}}},
    )
    keys = rng.choice([{}, {}, {"matchLabelKeys": ["rev"]}, {"mismatchLabelKeys": ["rev"]}])
    selected = {"labelSelector": selector(rng), **keys} if rng.random() < 0.9 else {}
    return {"topologyKey": rng.choice(DOMAINS), **rng.choice(scopes), **selected}


def spread(rng: random.Random, key: str) -> Manifest:
    policies = {"nodeAffinityPolicy": ["Honor", "Ignore"], "nodeTaintsPolicy": ["Honor", "Ignore"]}
    return {
        "maxSkew": rng.randint(1, 2),
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector(rng),
        **({"matchLabelKeys": ["rev"]} if rng.random() < 0.25 else {}),
        **({"minDomains": rng.randint(1, 3)} if rng.random() < 0.25 else {}),
        **{name: rng.choice(values) for name, values in policies.items() if rng.random() < 0.4},
    }


def node_affinity(rng: random.Random) -> Manifest:
    number = {"key": "gen", "operator": rng.choice(["Gt", "Lt"]), "values": [rng.choice(["7", "9"])]}
    field = {"key": "metadata.name", "operator": rng.choice(["In", "NotIn"]), "values": ["n1"]}
    terms = rng.sample(
        [
            {"matchExpressions": [expression(rng, ("zone", "rack", "gen"), ("e", "w", "7"))]},
            {"matchExpressions": [number]},
            {"matchFields": [field]},
            {},
        ],
        rng.randint(1, 2),
    )
    return {REQUIRED: {"nodeSelectorTerms": terms}}


def ports(rng: random.Random) -> list[Manifest]:
    address = rng.choice(["", "10.0.0.1", "10.0.0.2", "0.0.0.0"])  # noqa: S104 - a host port, never bound
    port = {"containerPort": 80, "hostPort": 80, "protocol": rng.choice(["TCP", "UDP"])}
    return [port | ({"hostIP": address} if address else {})] if rng.random() < 0.5 else []


def constrained_pod(rng: random.Random, *, is_pending: bool) -> Manifest:
    affinity: Manifest = {}
    if rng.random() < 0.2:
        affinity["podAntiAffinity"] = {REQUIRED: [term(rng) for _ in range(rng.randint(1, 2))]}
    spec: Manifest = {"containers": [{"name": "c", "image": "i", "ports": ports(rng)}]}
    if is_pending:
        if rng.random() < 0.25:
            affinity["podAffinity"] = {REQUIRED: [term(rng) for _ in range(rng.randint(1, 2))]}
        if rng.random() < 0.25:
            affinity["nodeAffinity"] = node_affinity(rng)
        if rng.random() < 0.6:
            keys = rng.sample(DOMAINS, rng.randint(1, 2))
            spec["topologySpreadConstraints"] = [spread(rng, key) for key in keys]
        if rng.random() < 0.4:
            tolerations = [{"operator": "Exists"}, {"key": "odd.io/a", "value": "v"}]
            spec["tolerations"] = [rng.choice(tolerations)]
    labels = {key: rng.choice("xxxy") for key in ("app", "tier", "rev") if rng.random() < 0.8}
    return {"metadata": {"labels": labels}, "spec": {**spec, "affinity": affinity}}


def constrained(rng: random.Random) -> World:
    """Return a cluster whose pods have constraints between pods, and more than enough resources."""
    nodes = []
    for number in range(1, rng.randint(2, 4) + 1):
        labels = {"kubernetes.io/hostname": f"n{number}"}
        labels |= {key: rng.choice("ew") for key in ("zone", "rack") if rng.random() < 0.7}
        labels |= {"gen": rng.choice(["7", "8", "10", "ten"])} if rng.random() < 0.5 else {}
        effect = rng.choice(["NoSchedule", "PreferNoSchedule"])
        taints = [{"key": "odd.io/a", "value": rng.choice(["", "v"]), "effect": effect}]
        nodes.append(Node(f"n{number}", labels, taints if rng.random() < 0.3 else [], OPEN))
    bound = [
        (rng.choice(NAMESPACES), rng.choice(nodes).name, constrained_pod(rng, is_pending=False))
        for _ in range(rng.randint(2, 6))
    ]
    return World(nodes, bound, (rng.choice(NAMESPACES), constrained_pod(rng, is_pending=True)))


def resources(rng: random.Random) -> Manifest:
    requests = {name: rng.choice(AMOUNTS[name]) for name in AMOUNTS if rng.random() < 0.35}
    if any(name.startswith("hugepages") for name in requests):
        requests.setdefault("cpu", "100m")
    whole = {name: amount for name, amount in requests.items() if "/" in name or "hugepages" in name}
    return {"requests": requests, "limits": whole}


def requesting_pod(rng: random.Random) -> Manifest:
    containers = [{"name": f"c{at}", "image": "i", "resources": resources(rng)} for at in range(2)]
    starters = [
        {"name": f"i{at}", "image": "i", "resources": resources(rng)}
        | ({"restartPolicy": "Always"} if rng.random() < 0.5 else {})
        for at in range(rng.randint(0, 3))
    ]
    return {"metadata": {"labels": {}}, "spec": {"containers": containers, "initContainers": starters}}


def requesting(rng: random.Random) -> World:
    """Return a cluster of small nodes with resources of every kind."""
    nodes = []
    for number in range(1, rng.randint(1, 3) + 1):
        some = {"ephemeral-storage": "3Gi", "hugepages-2Mi": "10Mi", "rdma/hca": "3"}
        allocatable = {"cpu": rng.choice("46"), "memory": "5Gi", "pods": rng.choice(["2", "110"])}
        allocatable |= {"nvidia.com/gpu": "40"} | {n: a for n, a in some.items() if rng.random() < 0.8}
        nodes.append(Node(f"n{number}", {"kubernetes.io/hostname": f"n{number}"}, [], allocatable))
    bound = [
        (rng.choice(NAMESPACES), rng.choice(nodes).name, requesting_pod(rng))
        for _ in range(rng.randint(0, 3))
    ]
    return World(nodes, bound, (rng.choice(NAMESPACES), requesting_pod(rng)))


def starts(world: World, path: Path) -> bool:
    """Return whether the pending pod starts in a simulation."""
    workloads = [
        {"name": f"b{at}", "project": name.removeprefix("muster-"), "on": node, "template": template}
        for at, (name, node, template) in enumerate(world.bound)
    ]
    workloads.append(
        {"name": "p", "project": world.pending[0].removeprefix("muster-"), "template": world.pending[1]}
    )
    file = {
        "nodes": [
            {"name": each.name, "labels": each.labels, "taints": each.taints, "allocatable": each.allocatable}
            for each in world.nodes
        ],
        "projects": {"a": {"quota": 100}, "b": {"quota": 100}},
        # No pod is evicted: interactive workloads are not preemptible.
        "workloads": [{**each, "interactive": True} for each in workloads],
    }
    path.write_text(yaml.safe_dump(file, sort_keys=False))
    after = settle(load(path)).after
    return any(
        pod.state is PodState.ALLOCATED for each in after.workloads if each.name == "p" for pod in each.pods
    )


class Cluster:
    """The API server, on which a world is built and the pending pod is tried."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def build(self, world: World) -> None:
        for node in world.nodes:
            path = f"/api/v1/nodes/{node.name}"
            await self._transport.create(
                "/api/v1/nodes", {"metadata": {"name": node.name, "labels": node.labels}}
            )
            status = {"capacity": node.allocatable, "allocatable": node.allocatable, "conditions": [READY]}
            await self._transport.patch(f"{path}/status", {"status": status})
            # An admission plugin adds a taint to each new node.
            await self._transport.patch(path, {"spec": {"taints": node.taints or None}})
        for number, (namespace, node_name, template) in enumerate(world.bound):
            await self._create(namespace, f"b{number}", template, nodeName=node_name)

    async def runs(self, world: World, *, patient: bool) -> bool:
        """Create the pending pod, return whether kube-scheduler binds it, and delete it.

        If `patient`, the scheduler may see the nodes after its first attempt: it tries again after each change.
        """
        namespace, template = world.pending
        await self._create(namespace, "p", template)
        path = f"/api/v1/namespaces/{namespace}/pods/p"
        has_node = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not has_node:
                    pod = await self._transport.get(path, dict[str, Any])
                    has_node = bool(pod["spec"].get("nodeName"))
                    if pod["status"].get("conditions") and not patient:
                        break
                    await asyncio.sleep(0.02)
        await self._transport.delete(path, grace_seconds=0)
        return has_node

    async def clear(self) -> None:
        for namespace in NAMESPACES:
            await self._transport.delete(f"/api/v1/namespaces/{namespace}/pods", grace_seconds=0)
        await self._transport.delete("/api/v1/nodes")

    async def _create(self, namespace: str, name: str, template: Manifest, **spec: str) -> None:
        pod = {"metadata": {"name": name, **template["metadata"]}, "spec": {**template["spec"], **spec}}
        await self._transport.create(f"/api/v1/namespaces/{namespace}/pods", pod)


@pytest.fixture
def scheduled_lab(tmp_path: Path) -> Iterator[Lab]:
    """Yield a lab with kube-scheduler."""
    lab = start("kube-scheduler", nodes=1, detach=False, state_dir=tmp_path / "labs")
    with kube_scheduler_of(lab, tmp_path):
        yield lab
    lab.stop()


@pytest.mark.parametrize("kind", [constrained, requesting])
async def test_a_pod_starts_where_kube_scheduler_starts_it(
    kind: Any, scheduled_lab: Lab, tmp_path: Path
) -> None:
    outcomes = set()
    async with Transport(load_access(scheduled_lab.kubeconfig)) as transport:
        for namespace in NAMESPACES:
            await transport.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            await until_account(transport, namespace)
        cluster = Cluster(transport)
        for seed in range(WORLDS):
            await cluster.clear()
            world = kind(random.Random(seed))  # noqa: S311 - a random world, no secret
            expected = starts(world, tmp_path / "file.yaml")
            await cluster.build(world)
            for _ in range(1 if expected else ATTEMPTS):
                runs = await cluster.runs(world, patient=expected)
                if runs == expected:
                    break
            else:
                pytest.fail(f"{kind.__name__} {seed}: kube-scheduler says {runs}")
            outcomes.add(expected)
    assert outcomes == {True, False}


async def until_account(transport: Transport, namespace: str) -> None:
    """Wait for the account that the controller creates in each namespace; without it no pod can be created."""
    while True:
        try:
            await transport.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return
