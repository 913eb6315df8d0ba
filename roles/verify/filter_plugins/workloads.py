"""Filters that judge the workloads of a namespace by their status and their pods."""

from collections.abc import Iterable
from typing import Any

_Object = dict[str, Any]
_OVER = ("Succeeded", "Failed")
_PRESSURES = {
    "DiskPressure": "free space in /var/lib/kubelet and /var/lib/containerd, where 15 % of the disk must be free",
    "MemoryPressure": "end programs outside Kubernetes that use its memory",
    "PIDPressure": "end programs that start many processes",
}
_STATIC = "Node"
"""Kind of the owner of a static pod."""


def pressed_nodes(nodes: list[_Object], left_out: list[str]) -> list[str]:
    """Return a sentence for each node with pressure on disk, memory or processes, which therefore gets no pods."""
    return [
        f"node {_name(node)} has {each['type']} ({each.get('message', '')}): {_PRESSURES[each['type']]}"
        for node in nodes
        if _name(node) not in left_out
        for each in (node.get("status") or {}).get("conditions") or []
        if each.get("type") in _PRESSURES and each.get("status") == "True"
    ]


def starting_pods(pods: list[_Object], left_out: list[str]) -> list[str]:
    """Return the names of the pods that are not ready but can become ready, except on omitted hosts.

    Unschedulable pods are not among them.
    """
    return [_name(pod) for pod in _down(pods, left_out) if not _unschedulable(pod)]


def unavailable_workloads(
    workloads: list[_Object], pods: list[_Object], left_out: list[str]
) -> list[dict[str, str]]:
    """Return one entry for each DaemonSet, Deployment and static pod that is not available.

    A Deployment is available if its condition says so. A DaemonSet must have a ready pod on every node except omitted
    hosts. An entry has the name of the workload, the number of its ready pods, and a pod that is not ready, with
    container, node and reason. Without such a pod, pod, container and node are empty.
    """
    down = _down(pods, left_out)
    found = []
    for workload in workloads:
        state = _state(workload, pods, left_out)
        if state:
            pod = next((pod for pod in down if _belongs(pod, workload)), {})
            found.append(_entry(f"{workload['kind']} {_name(workload)}", state, pod))
    static = [pod for pod in down if _owner(pod).get("kind") == _STATIC]
    return found + [_entry(f"static pod {_name(pod)}", "not ready", pod) for pod in static]


def reduced_workloads(workloads: list[_Object], pods: list[_Object], left_out: list[str]) -> list[str]:
    """Return a sentence for each available Deployment with fewer available pods than replicas."""
    lines = []
    for workload in workloads:
        if workload["kind"] == "DaemonSet" or _state(workload, pods, left_out):
            continue
        wanted, there = _replicas(workload)
        if there < wanted:
            pod = next((pod for pod in _down(pods, left_out) if _belongs(pod, workload)), {})
            why = f": {_name(pod)} {_reason(pod)}" if pod else ""
            lines.append(f"{workload['kind']} {_name(workload)} has {there} of {wanted} pods{why}")
    return lines


def _state(workload: _Object, pods: list[_Object], left_out: list[str]) -> str:
    """Return how many pods of a workload are ready or available; empty if the workload is available."""
    status = workload.get("status") or {}
    if workload["kind"] == "DaemonSet":
        ready = [pod for pod in pods if _belongs(pod, workload) and _is_ready(pod)]
        there = len([pod for pod in ready if _node(pod) not in left_out])
        elsewhere = len({_node(pod) for pod in pods if _belongs(pod, workload) and _node(pod) in left_out})
        wanted = status.get("desiredNumberScheduled", 0) - elsewhere
        return f"{there} of {wanted} pods are ready" if there < wanted else ""
    wanted, there = _replicas(workload)
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or []}
    if wanted == 0 or conditions.get("Available") == "True":
        return ""
    return f"{there} of {wanted} pods are available"


def _replicas(workload: _Object) -> tuple[int, int]:
    """Return the number of a Deployment's replicas, and the number of its available pods."""
    status = workload.get("status") or {}
    return workload["spec"].get("replicas", 1), status.get("availableReplicas") or 0


def _entry(workload: str, state: str, pod: _Object) -> dict[str, str]:
    return {
        "workload": workload,
        "state": state,
        "pod": _name(pod) if pod else "",
        "container": _container(pod).get("name", ""),
        "node": _node(pod),
        "why": _reason(pod) if pod else "it has no pod",
    }


def _down(pods: Iterable[_Object], left_out: list[str]) -> list[_Object]:
    return [
        pod
        for pod in pods
        if not _is_ready(pod)
        and pod.get("status", {}).get("phase") not in _OVER
        and not pod["metadata"].get("deletionTimestamp")
        and _node(pod) not in left_out
        and _owner(pod).get("kind") in ("DaemonSet", "ReplicaSet", _STATIC)
    ]


def _is_ready(pod: _Object) -> bool:
    return _conditions(pod).get("Ready", {}).get("status") == "True"


def _unschedulable(pod: _Object) -> bool:
    return _conditions(pod).get("PodScheduled", {}).get("reason") == "Unschedulable"


def _conditions(pod: _Object) -> dict[str, _Object]:
    return {each["type"]: each for each in pod.get("status", {}).get("conditions") or []}


def _reason(pod: _Object) -> str:
    """Return why a pod is not ready, in the words of the kubelet or the scheduler."""
    if _unschedulable(pod):
        return f"has no node: {_conditions(pod)['PodScheduled'].get('message', '')}"
    state = _container(pod).get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    if waiting:
        said = waiting.get("message", "")
        return f"is in {waiting.get('reason', 'waiting')}" + (f": {said}" if said else "")
    if ended:
        return f"ended with {ended.get('exitCode')}, {ended.get('reason', 'without a reason')}"
    return "is not ready" if pod.get("status", {}).get("phase") == "Running" else "has not started"


def _container(pod: _Object) -> _Object:
    """Return the status of the first container that is not ready, init containers first; empty if there is none."""
    status = pod.get("status", {})
    for each in status.get("initContainerStatuses") or []:
        if (each.get("state") or {}).get("terminated", {}).get("exitCode") != 0 and not each.get("started"):
            return dict(each)
    for each in status.get("containerStatuses") or []:
        if not each.get("ready"):
            return dict(each)
    return {}


def _belongs(pod: _Object, workload: _Object) -> bool:
    """Whether a pod belongs to a workload. A Deployment's pod is owned by a ReplicaSet NAME-HASH."""
    owner = _owner(pod)
    if workload["kind"] == "DaemonSet":
        return owner.get("kind") == "DaemonSet" and owner.get("name") == _name(workload)
    return owner.get("kind") == "ReplicaSet" and str(owner.get("name", "")).rpartition("-")[0] == _name(
        workload
    )


def _owner(pod: _Object) -> _Object:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((dict(owner) for owner in owners if owner.get("controller")), {})


def _node(pod: _Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _name(item: _Object) -> str:
    return str(item["metadata"]["name"])


class FilterModule:
    """The filters of this role."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "pressed_nodes": pressed_nodes,
            "starting_pods": starting_pods,
            "unavailable_workloads": unavailable_workloads,
            "reduced_workloads": reduced_workloads,
        }
