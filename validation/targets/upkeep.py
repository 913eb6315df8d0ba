"""Performs maintenance through the API server: cordons and drains nodes, and kills the operator in the cluster."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.cluster.errors import ClusterError, Conflict, EvictionBlocked, NotFound
from orchestrator.cluster.objects import Lease, Pod
from orchestrator.cluster.resources import LEASES, NODES, PODS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.names import LEASE_NAME, SYSTEM_NAMESPACE
from validation.errors import TargetError
from validation.judge.events import PodSeen

EVICT_SECONDS: Final = 60.0
END_SECONDS: Final = 35.0
"""Maximum wait for the end of an evicted pod: Kubernetes' default grace period of 30 s, and 5 s."""
TAKEOVER_SECONDS: Final = 60.0
"""Maximum wait for another leader. A standby operator takes over 12 s after the last renewal.

A newly started operator must read the cluster first.
"""
_POLL_SECONDS: Final = 0.25


async def cordon_nodes(transport: Transport | None, nodes: Mapping[str, bool]) -> None:
    """Cordon (True) or uncordon (False) each of these nodes. Raises TargetError."""
    transport = _connected(transport)
    try:
        for name, is_closed in nodes.items():
            spec = {"spec": {"unschedulable": is_closed or None}}
            await transport.patch(NODES.path(name=name), spec, content_type=MERGE_PATCH)
    except ClusterError as error:
        raise TargetError(f"the nodes cannot be cordoned or opened: {error}") from error


async def evict_pods(transport: Transport | None, pods: Sequence[PodSeen]) -> None:
    """Evict each pod as soon as the disruption budgets allow it. Raises TargetError after EVICT_SECONDS."""
    transport = _connected(transport)
    deadline = time.monotonic() + EVICT_SECONDS
    for pod in pods:
        while not await _is_evicted(transport, pod):
            if time.monotonic() > deadline:
                raise TargetError(
                    f"pod {pod.namespace}/{pod.pod} could not be evicted within {EVICT_SECONDS:g} s: "
                    "a PodDisruptionBudget forbids it"
                )
            await asyncio.sleep(_POLL_SECONDS)


async def evict_one_by_one(transport: Transport | None, pods: Sequence[PodSeen]) -> None:
    """Evict the pods in the order of their submission, each after the one before has ended. Raises TargetError.

    The scheduler gives GPUs to the job that lost its pod first. If pods ended in a random order, jobs would start again
    in a random order.
    """
    for pod in sorted(pods, key=lambda pod: pod.submitted_us):
        await evict_pods(transport, [pod])
        deadline = time.monotonic() + END_SECONDS
        while not await _has_ended(_connected(transport), pod):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)


async def _has_ended(transport: Transport, pod: PodSeen) -> bool:
    try:
        found = await transport.get(PODS.path(pod.namespace, pod.pod), Pod)
    except NotFound:
        return True
    except ClusterError as error:
        raise TargetError(f"pod {pod.namespace}/{pod.pod} cannot be read: {error}") from error
    return found.metadata.uid != pod.uid or found.status.phase in {"Succeeded", "Failed"}


async def _is_evicted(transport: Transport, pod: PodSeen) -> bool:
    """Evict the pod. Return False if a disruption budget forbids it, else True."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.pod, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    try:
        await transport.create(f"{PODS.path(pod.namespace, pod.pod)}/eviction", body)
    except (NotFound, Conflict):  # the pod was deleted, or another pod has its name
        return True
    except EvictionBlocked:
        return False
    except ClusterError as error:
        raise TargetError(f"pod {pod.namespace}/{pod.pod} cannot be evicted: {error}") from error
    return True


async def leader(transport: Transport | None) -> str:
    """Return the holder of the operator's lease; empty if there is none. Raises TargetError."""
    try:
        with contextlib.suppress(NotFound):
            lease = await _connected(transport).get(LEASES.path(SYSTEM_NAMESPACE, LEASE_NAME), Lease)
            return lease.spec.holder_identity or ""
    except ClusterError as error:
        raise TargetError(f"the leader cannot be read: {error}") from error
    return ""


async def kill_leading_pod(transport: Transport | None, holder: str) -> str:
    """Delete the pod of the operator that holds the lease, without a grace period.

    If the holder is not a pod, return this problem. Otherwise return "".

    Raises TargetError.
    """
    name = holder.partition("_")[0]
    try:
        await _connected(transport).delete(PODS.path(SYSTEM_NAMESPACE, name), grace_seconds=0)
    except NotFound:
        return f"the operator that leads, {holder or 'nobody'}, is no pod of {SYSTEM_NAMESPACE}"
    except ClusterError as error:
        raise TargetError(f"the operator's pod {name} cannot be deleted: {error}") from error
    return ""


async def until_another_leads(transport: Transport | None, killed: str) -> None:
    """Wait until another operator than the killed one holds the lease. Raises TargetError."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < deadline:
        if await leader(transport) not in {"", killed}:
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise TargetError(f"no other operator leads {TAKEOVER_SECONDS:g} s after {killed} was killed")


def _connected(transport: Transport | None) -> Transport:
    if transport is None:
        raise TargetError("the cluster is not connected")
    return transport
