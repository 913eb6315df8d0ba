"""Doubles of kubelets with device plugins and agents on simulated nodes, for tests with an operator that lies."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from orchestrator.cluster.resources import GPU_NODES, NODES, PODS
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import running

_GPU: Final = "nvidia.com/gpu"
_POLL_SECONDS: Final = 0.1
Json = Mapping[str, Any]


class Kubelets:
    """Gives each pod with running containers the last free GPUs of its node; muster counts the first free ones."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._given: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._said: dict[str, list[Json]] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._poll()
            await asyncio.sleep(_POLL_SECONDS)

    async def _poll(self) -> None:
        """Give GPUs to new running pods, and write the changed GpuNode of each node."""
        nodes = (await self._transport.get(NODES.path()))["items"]
        pods = {pod["metadata"]["uid"]: pod for pod in (await self._transport.get(PODS.path()))["items"]}
        self._given = {uid: held for uid, held in self._given.items() if uid in pods and _runs(pods[uid])}
        for node in nodes:
            name, count = node["metadata"]["name"], int(node["status"]["allocatable"][_GPU])
            free = set(range(count)) - {
                gpu for on, gpus in self._given.values() if on == name for gpu in gpus
            }
            for uid, pod in pods.items():
                is_new = uid not in self._given and pod["spec"].get("nodeName") == name
                if is_new and _runs(pod) and len(free) >= _wants(pod):
                    chosen = sorted(free)[len(free) - _wants(pod) :]
                    free -= set(chosen)
                    self._given[uid] = (name, tuple(chosen))
            await self._say(name, count, pods)

    async def _say(self, node: str, count: int, pods: Mapping[str, Json]) -> None:
        gpus: list[Json] = [{"index": index, "holders": [], "users": []} for index in range(count)]
        for uid, (on, indices) in self._given.items():
            for index in indices if on == node else ():
                metadata = pods[uid]["metadata"]
                holder = {"namespace": metadata["namespace"], "pod": metadata["name"], "container": "main"}
                gpus[index]["holders"].append(holder)
                gpus[index]["users"].append({"podUid": uid, "memoryMib": 1, "processes": 1})
        if self._said.get(node) != gpus:
            body = {
                "apiVersion": GPU_NODES.api_version,
                "kind": GPU_NODES.kind,
                "metadata": {"name": node},
                "spec": {"gpus": gpus},
            }
            await self._transport.apply(GPU_NODES.path(name=node), body, field_manager="tests")
            self._said[node] = gpus


@contextlib.asynccontextmanager
async def speaking(transport: Transport) -> AsyncIterator[None]:
    """Run kubelets for all nodes during the block; they write GpuNodes, as agents do."""
    async with running(Kubelets(transport).run()):
        yield


def _runs(pod: Json) -> bool:
    """Return whether a container of the pod runs, by its status and not by the phase, which others can write."""
    return any("running" in status["state"] for status in pod["status"].get("containerStatuses", ()))


def _wants(pod: Json) -> int:
    return sum(int(one["resources"].get("limits", {}).get(_GPU, 0)) for one in pod["spec"]["containers"])
