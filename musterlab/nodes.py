"""Creates the simulated nodes and the rights of kwok through the API server, after it has started."""

import asyncio
import datetime
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from musterlab.components import KIND_LABEL, MANAGED_ANNOTATION
from musterlab.errors import StartError
from musterlab.pki import KWOK_USER
from musterlab.profiles import Profile
from orchestrator.cluster.objects import Node
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODES, Resource
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter

CONCURRENT_REQUESTS = 32

_FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)
_POLL_SECONDS = 0.1
_READY_SECONDS = 120.0
_SIMULATED = "simulated"
_READY_SECONDS_PER_NODE = 0.2
_KUBELET_VERSION = "v1.36.3"


@dataclass(frozen=True)
class NodeGroup:
    """A number of nodes of one profile."""

    profile: Profile
    count: int


def names(groups: Sequence[NodeGroup]) -> Iterator[tuple[str, Profile]]:
    """Yield the name and profile of each node: `<prefix>-1`, `<prefix>-2`, ..., counted over all groups of a prefix."""
    counted: dict[str, int] = {}
    for group in groups:
        prefix = group.profile.prefix
        for _ in range(group.count):
            counted[prefix] = counted.get(prefix, 0) + 1
            yield f"{prefix}-{counted[prefix]}", group.profile


def node(name: str, profile: Profile, *, tainted: bool = False) -> dict[str, Any]:
    """Return the Node object that a kubelet would register. The node becomes Ready when kwok manages it.

    `tainted` adds the taint for simulated nodes, so that only pods with a toleration for it run there.
    """
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        KIND_LABEL: _SIMULATED,
    }
    taints = [{"key": KIND_LABEL, "value": _SIMULATED, "effect": "NoSchedule"}] if tainted else []
    stamp = {"nvidia.com/gfd.timestamp": str(int(datetime.datetime.now(datetime.UTC).timestamp()))}
    has_gpus = "nvidia.com/gpu" in profile.capacity
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels, **(stamp if has_gpus else {}), **profile.labels},
            "annotations": {MANAGED_ANNOTATION: _SIMULATED},
        },
        "spec": {"taints": taints},
        "status": {
            "capacity": dict(profile.capacity),
            "allocatable": dict(profile.capacity),
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "kwok://0.8.0",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": _KUBELET_VERSION,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
                **profile.node_info,
            },
        },
    }


async def permit_kwok(transport: Transport) -> None:
    """Give kwok the rights of kubelets, and exempt its requests from the API server's queues."""
    metadata = {"name": KWOK_USER}
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["pods"],
            "verbs": ["get", "list", "watch", "delete", "patch", "update"],
        },
        {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch", "update"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["create", "get", "list", "patch", "update", "watch"],
        },
    ]
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": KWOK_USER}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": KWOK_USER}
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "clusterScope": True,
        "namespaces": ["*"],
    }
    flow = {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 500,
        "rules": [
            {"subjects": [{"kind": "User", "user": {"name": KWOK_USER}}], "resourceRules": [everything]}
        ],
    }
    for resource, body in (
        (CLUSTER_ROLES, {"metadata": metadata, "rules": rules}),
        (CLUSTER_ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [user]}),
        (_FLOW_SCHEMAS, {"metadata": {"name": "muster-lab-kwok"}, "spec": flow}),
    ):
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        await transport.create(resource.path(), {**kinds, **body})


async def create_all(transport: Transport, groups: Sequence[NodeGroup], *, tainted: bool) -> None:
    """Create all simulated nodes, `CONCURRENT_REQUESTS` at a time."""
    remaining = names(groups)

    async def create() -> None:
        for name, profile in remaining:
            await transport.create(NODES.path(), node(name, profile, tainted=tainted))

    await asyncio.gather(*(create() for _ in range(CONCURRENT_REQUESTS)))


def usable(candidate: Node) -> bool:
    """Return whether a node is Ready and no longer has the taint of nodes that are not ready."""
    ready = any(
        condition.type == "Ready" and condition.status == "True" for condition in candidate.status.conditions
    )
    return ready and not any(taint.key == "node.kubernetes.io/not-ready" for taint in candidate.spec.taints)


async def wait_until_usable(transport: Transport, node_names: Set[str], reporter: Reporter) -> None:
    """Wait until pods can run on every node of these names.

    Raises:
        StartError: a node is not usable in time; the message names one.
    """
    deadline = asyncio.get_running_loop().time() + _READY_SECONDS + _READY_SECONDS_PER_NODE * len(node_names)
    while node_names:
        page = await transport.list(NODES.path(), Node)
        usable_names = {candidate.metadata.name for candidate in page.items if usable(candidate)}
        waiting = node_names - usable_names
        if not waiting:
            return
        reporter.update(f"{len(node_names) - len(waiting)} of {len(node_names)} nodes are Ready")
        if asyncio.get_running_loop().time() > deadline:
            raise StartError(
                f"{len(waiting)} of {len(node_names)} nodes did not become Ready, {min(waiting)} among them"
            )
        await asyncio.sleep(_POLL_SECONDS)
