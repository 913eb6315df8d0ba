"""Takes the pods of muster off a node, and gives the node back.

A drained node is cordoned and marked by the label `muster.dev/unhealthy=drained`. The operator then migrates its jobs:
whole gangs, each after its grace period, as soon as they fit elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.client.nodes import no_such_node
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import FINISHED, Node, Pod
from orchestrator.cluster.resources import NODES, PODS
from orchestrator.errors import TimedOut
from orchestrator.names import DRAINED, SCHEDULER_NAME, UNHEALTHY_KEY
from orchestrator.submit.name_rules import is_object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.cluster.transport import Transport

_POLL_SECONDS: Final = 1.0


class NotDrained(TimedOut):
    """The time limit passed, and jobs are still on the node."""


@dataclass(frozen=True, slots=True)
class Occupants:
    """The pods on a node that have not ended: those that muster scheduled, and the number of others."""

    pods: Sequence[Pod]
    others: int


class DrainClient:
    """The drains of nodes behind one API server. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def occupants(self, node: str) -> Occupants:
        """Return the pods on the node. Raises NoSuchNode."""
        await self._node(node)
        page = await self._transport.list(PODS.path(), Pod, params={"fieldSelector": f"spec.nodeName={node}"})
        present = [pod for pod in page.items if pod.status.phase not in FINISHED]
        ours = [pod for pod in present if pod.spec.scheduler_name == SCHEDULER_NAME]
        return Occupants(ours, len(present) - len(ours))

    async def mark(self, node: str) -> None:
        """Cordon the node, and mark it as drained unless it has another mark. Raises NoSuchNode."""
        labels = (await self._node(node)).metadata.labels
        marks = {} if labels.get(UNHEALTHY_KEY) else {UNHEALTHY_KEY: DRAINED}
        await self._patch(node, {"metadata": {"labels": marks}, "spec": {"unschedulable": True}})

    async def uncordon(self, node: str) -> str:
        """Uncordon the node, and remove the mark of a drain. Return any other mark, which stays, or "".

        Raises NoSuchNode.
        """
        mark = (await self._node(node)).metadata.labels.get(UNHEALTHY_KEY, "")
        marks = {UNHEALTHY_KEY: None} if mark == DRAINED else {}
        await self._patch(node, {"metadata": {"labels": marks}, "spec": {"unschedulable": None}})
        return "" if mark == DRAINED else mark

    async def until_empty(
        self,
        node: str,
        *,
        timeout_seconds: float,
        names: Mapping[str, str],
        reasons: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        """Wait until no pod of muster is on the node. Raises NotDrained with the remaining jobs.

        `names` has the job of each pod uid, `reasons` why a job stays. `report` gets a line for each change.
        """
        deadline = time.monotonic() + timeout_seconds
        last: dict[str, str] = {}
        while True:
            states = _states((await self.occupants(node)).pods, names)
            for job in last.keys() - states.keys():
                report(f"{job}: has left {node}")
            for job, state in states.items():
                if last.get(job) != state:
                    report(f"{job}: {state}")
            last = states
            if not states:
                return
            if time.monotonic() >= deadline:
                holders = "; ".join(f"{job}: {reasons.get(job) or state}" for job, state in states.items())
                raise NotDrained(
                    f"{node} is not empty after {timeout_seconds:g} s: {holders}. It stays cordoned, and jobs "
                    f"leave it as soon as they can. --force stops those that stay; 'muster node uncordon {node}' "
                    "ends the drain"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def _node(self, name: str) -> Node:
        if not is_object_name(name):
            raise no_such_node(name)
        try:
            return await self._transport.get(NODES.path(name=name), Node)
        except NotFound as error:
            raise no_such_node(name) from error

    async def _patch(self, name: str, patch: dict[str, object]) -> None:
        await self._transport.patch(NODES.path(name=name), patch)


def _states(pods: Sequence[Pod], names: Mapping[str, str]) -> dict[str, str]:
    """Return, for each job, the number of its pods and their state."""
    by_job: dict[str, list[Pod]] = {}
    for pod in pods:
        metadata = pod.metadata
        by_job.setdefault(names.get(metadata.uid, f"{metadata.namespace}/{metadata.name}"), []).append(pod)
    return {job: _state(of_job) for job, of_job in sorted(by_job.items())}


def _state(pods: Sequence[Pod]) -> str:
    count = f"{len(pods)} pod{'s' * (len(pods) > 1)}"
    ending = [pod for pod in pods if pod.metadata.deletion_timestamp is not None]
    if not ending:
        return f"{count}, not evicted yet"
    until = max(pod.metadata.deletion_timestamp or "" for pod in ending)
    return f"{count}, {len(ending)} terminating until {until}"
