"""Reserves idle nodes of a cluster in service: cordons them, and gives them back.

No pod is evicted or deleted. A node with a pod is never taken, and a pod that comes to a taken node ends the run.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.cluster.errors import ClusterError, Conflict, NotFound
from orchestrator.cluster.objects import FINISHED, Node, Pod
from orchestrator.cluster.resources import NODES, PODS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.names import GROUP, SYSTEM_NAMESPACE
from orchestrator.observe.request import concerns_gpus, is_reservation
from orchestrator.progress import Reporter
from validation.errors import TargetError

ANNOTATION: Final = f"{GROUP}/validation"
"""On a node: the run that has reserved it, a counter that increases while the run is alive, and whether the run
cordoned the node.
"""
SETTLE_SECONDS: Final = 5.0
"""Time from the cordon to the second look at the pods. Within it, a scheduler finishes bindings that it has begun."""
DEAD_SECONDS: Final = 60.0
"""If the counter of a reservation does not increase for this time, its run was killed."""
POLL_SECONDS: Final = 5.0
"""Time between two looks at the pods of the taken nodes, and between two renewals."""
RETURN_SECONDS: Final = 60.0
"""Maximum duration of the attempts to give the nodes back."""
_SYSTEM: Final = frozenset({"kube-system", SYSTEM_NAMESPACE})
_MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a static pod."""


@dataclass(slots=True)
class Reservation:
    """The nodes that a run has reserved, and the reasons why it has not reserved the others."""

    transport: Transport
    run: str
    progress: Reporter
    taken: list[str] = field(default_factory=list)
    busy: dict[str, str] = field(default_factory=dict)
    _cordoned: dict[str, bool] = field(default_factory=dict)
    _renewed: int = 0

    async def take(self, names: Sequence[str]) -> None:
        """Reserve each of the nodes that is ready and has no pod. Raises TargetError, ClusterError.

        Nodes of runs that were killed are given back first.
        """
        await self._recover()
        holders = await self._holders()
        for name in names:
            reason = holders.get(name) or await self._reserve(name)
            if reason:
                self._leave_out(name, reason)
        if self.taken:
            await asyncio.sleep(SETTLE_SECONDS)
        holders = await self._holders()
        for name in [name for name in self.taken if name in holders]:
            await self._give_back(name)
            self._leave_out(name, holders[name])
        if not self.taken:
            raise TargetError("no host of the site is idle; run again later, or drain one")
        self.progress(f"in service: reserved {', '.join(self.taken)}")

    async def renew(self) -> str:
        """Renew the reservation. Return the reason if the nodes must be given back immediately, or an empty string.

        Raises ClusterError.
        """
        self._renewed += 1
        for name in self.taken:
            try:
                node = await self.transport.get(NODES.path(name=name), Node)
            except NotFound:
                return f"{name} is not a node any more"
            held = _reservation(node)
            if held is None or held["run"] != self.run or not node.spec.unschedulable:
                return f"{name} was opened by an administrator"
            params = {"fieldSelector": f"spec.nodeName={name}"}
            pods = (await self.transport.list(PODS.path(), Pod, params=params)).items
            if held_by := dict(_held(pods)).get(name):
                return f"{name} {held_by}"
            body = {"metadata": {"annotations": {ANNOTATION: self._text(name)}}}
            await self.transport.patch(NODES.path(name=name), body, content_type=MERGE_PATCH)
        return ""

    async def give_back(self) -> None:
        """Give all nodes back in their former state.

        Raises TargetError after RETURN_SECONDS, with the command that does it.
        """
        deadline = time.monotonic() + RETURN_SECONDS
        while self.taken:
            try:
                await self._give_back(self.taken[-1])
            except ClusterError as error:
                if time.monotonic() > deadline:
                    commands = "; ".join(f"kubectl uncordon {name}" for name in self.taken)
                    raise TargetError(f"nodes are still reserved: {error}; run: {commands}") from error
                await asyncio.sleep(1)

    def _leave_out(self, name: str, reason: str) -> None:
        self.busy[name] = reason
        self.progress(f"in service: {name} {reason}, so it is left out")

    async def _recover(self) -> None:
        """Give back the nodes of runs that were killed. Raises TargetError if another run is alive."""
        before = _reserved(await self._nodes())
        if not before:
            return
        names = ", ".join(sorted(before))
        self.progress(
            f"in service: waiting {DEAD_SECONDS:g} s, to see whether the run that reserved {names} is alive"
        )
        deadline = time.monotonic() + DEAD_SECONDS
        while time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            now = _reserved(await self._nodes())
            alive = next((name for name in now if now[name] != before.get(name)), None)
            if alive is not None:
                raise TargetError(
                    f"{alive} is reserved by another run, {now[alive]['run']}; wait for its end"
                )
            if not now:
                return
        for name, held in before.items():
            self.progress(f"in service: {name} was reserved by a run that was killed, and is given back")
            await self._return(name, held["run"], is_cordoned=held["cordoned"])

    async def _reserve(self, name: str) -> str:
        """Cordon and annotate the node. Return why it cannot be taken; empty if it is taken."""
        while True:
            try:
                node = await self.transport.get(NODES.path(name=name), Node)
                if _reservation(node) is not None:
                    return "was reserved by another run at the same moment"
                if reason := _unusable(node):
                    return reason
                self._cordoned[name] = not node.spec.unschedulable
                body = {
                    "metadata": {
                        "resourceVersion": node.metadata.resource_version,
                        "annotations": {ANNOTATION: self._text(name)},
                    },
                    "spec": {"unschedulable": True},
                }
                self.taken.append(name)
                await self.transport.patch(NODES.path(name=name), body, content_type=MERGE_PATCH)
            except Conflict:  # the node's kubelet or a controller changed it
                self.taken.remove(name)
                continue
            except NotFound:
                self.taken = [other for other in self.taken if other != name]
                return "is not a node"
            return ""

    async def _give_back(self, name: str) -> None:
        await self._return(name, self.run, is_cordoned=self._cordoned[name])
        self.taken.remove(name)

    async def _return(self, name: str, run: str, *, is_cordoned: bool) -> None:
        """Remove the reservation of the run, and open the node if the run cordoned it."""
        while True:
            try:
                node = await self.transport.get(NODES.path(name=name), Node)
                held = _reservation(node)
                if held is None or held["run"] != run:
                    return
                body: dict[str, Any] = {
                    "metadata": {
                        "resourceVersion": node.metadata.resource_version,
                        "annotations": {ANNOTATION: None},
                    }
                }
                if is_cordoned:
                    body["spec"] = {"unschedulable": None}
                await self.transport.patch(NODES.path(name=name), body, content_type=MERGE_PATCH)
            except Conflict:
                continue
            except NotFound:
                return
            return

    def _text(self, name: str) -> str:
        held = {"run": self.run, "renewed": self._renewed, "cordoned": self._cordoned[name]}
        return json.dumps(held, sort_keys=True)

    async def _nodes(self) -> Sequence[Node]:
        return (await self.transport.list(NODES.path(), Node)).items

    async def _holders(self) -> dict[str, str]:
        """Return, for each node with a pod or a nominated pod, a text about it."""
        pods = (await self.transport.list(PODS.path(), Pod)).items
        return dict(_held(pods))


def _held(pods: Iterable[Pod]) -> list[tuple[str, str]]:
    held = []
    for pod in pods:
        if pod.status.phase in FINISHED:
            continue
        if pod.spec.node_name and _occupies(pod):
            held.append((pod.spec.node_name, "has a pod"))
        elif pod.status.nominated_node_name and not pod.spec.node_name:
            held.append((pod.status.nominated_node_name, "is nominated for a pod"))
    return held


def _occupies(pod: Pod) -> bool:
    """Return whether the pod belongs to a user, or has GPUs. Pods that `kubectl drain` leaves in place do not count."""
    if concerns_gpus(pod) or is_reservation(pod) or pod.spec.resource_claims:
        return True
    owner = pod.metadata.controller
    is_of_node = (owner is not None and owner.kind == "DaemonSet") or _MIRROR in pod.metadata.annotations
    return not is_of_node and pod.metadata.namespace not in _SYSTEM


def _unusable(node: Node) -> str:
    """Return why the node cannot be taken; empty if it can be."""
    ready = next((one.status for one in node.status.conditions if one.type == "Ready"), "")
    return "" if ready == "True" else "is not ready"


def _reserved(nodes: Iterable[Node]) -> dict[str, Mapping[str, Any]]:
    found = {node.metadata.name: _reservation(node) for node in nodes}
    return {name: held for name, held in found.items() if held is not None}


def _reservation(node: Node) -> dict[str, Any] | None:
    """Return the reservation on the node; None if there is none.

    An annotation that a user wrote in another form counts as the reservation of an unknown run that cordoned the node.
    """
    text = node.metadata.annotations.get(ANNOTATION)
    if text is None:
        return None
    try:
        held = json.loads(text)
        return {
            "run": str(held["run"]),
            "renewed": int(held["renewed"]),
            "cordoned": held["cordoned"] is True,
        }
    except (ValueError, TypeError, KeyError):
        return {"run": "", "renewed": 0, "cordoned": False}
