"""Writes the nominations of the last decision on the pods.

Only differences from the watch's state and from started writes are written. A pod has at most one such request at a
time; a newer decision is written after it. An ended nomination is removed only after the new nominations were answered.
If the operator ends in between, no nomination is lost, and the next decision resolves double nominations.
"""

import asyncio
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any

from orchestrator.cluster.nomination import annotate, nominate
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.requests import Requests, Task
from orchestrator.names import SCHEDULER_NAME
from orchestrator.observe.nominations import (
    eviction_annotations,
    nomination_of,
    shows_nomination,
    waiting_annotations,
)
from orchestrator.observe.pod_cache import PodCache
from orchestrator.planner.placements import Placement


class Nominations:
    """Writes nominations through `requests`. `pods` assumes each nomination until the watch shows it."""

    def __init__(
        self,
        transport: Transport,
        pods: PodCache,
        requests: Requests,
        on_denied: Callable[[Pod, str, str], None] = lambda _pod, _node, _why: None,
    ) -> None:
        """Create a writer without nominations.

        `on_denied` gets the pod, the node and the API server's message if it refuses one.
        """
        self._transport = transport
        self._pods = pods
        self._requests = requests
        self._shown: dict[str, Placement | None] = {}
        self._under_way: dict[str, asyncio.Future[None]] = {}
        self._unauthorized: set[str] = set()
        self._on_denied = on_denied
        self._denied: set[str] = set()

    def is_denied(self, uid: str) -> bool:
        """Return whether the API server refused the last nomination of the pod."""
        return uid in self._denied

    def of(self, pod: Pod) -> Placement | None:
        """Return the nomination of the pod, or of its successor. A started write counts as done."""
        uid = pod.metadata.uid
        return self._pods.nominations[uid] if uid in self._pods.nominations else nomination_of(pod)

    def is_echo(self, pod: Pod) -> bool:
        """Return whether this process wrote the pod's nomination."""
        uid = pod.metadata.uid
        return uid in self._pods.nominations and _says(pod, self._pods.nominations[uid])

    def see(self, change: Change[Any]) -> None:
        """Take a change of the caches."""
        pod = change.object
        if not isinstance(pod, Pod) or pod.spec.scheduler_name != SCHEDULER_NAME:
            return
        if change.type != "deleted" and shows_nomination(pod):
            self._shown[pod.metadata.uid] = nomination_of(pod)
        else:
            self._shown.pop(pod.metadata.uid, None)

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """Forget writes that the watch shows, and writes for pods that are deleted, or bound without an eviction."""
        for uid, place in list(self._pods.nominations.items()):
            pod = pods.get(uid)
            is_bound = pod is not None and _runs_on(pod) and uid not in self._pods.evictions
            is_shown = pod is not None and uid not in self._under_way and _says(pod, place)
            if pod is None or is_bound or is_shown:
                self._pods.forget_nomination(uid)
        self._unauthorized &= self._pods.nominations.keys()
        self._denied &= pods.keys()

    def begin(
        self,
        placements: Mapping[str, Placement],
        pods: Mapping[str, Pod],
        *,
        urgent: Container[str] = (),
        except_for: Container[str] = (),
    ) -> None:
        """Write these nominations and remove all others, in the background, except on the pods in `except_for`.

        The nominations of the pods in `urgent` (uids) are urgent requests.
        """
        for uid, place in placements.items():
            if uid in pods and uid not in except_for and not self._is_written(uid, place):
                self._write(pods[uid], place, urgent=uid in urgent)
        set_first = [future for uid, future in self._under_way.items() if uid in placements]
        assumed = self._pods.nominations
        for uid in [*self._shown, *(assumed.keys() - self._shown.keys())]:
            ends = uid in pods and uid not in placements and uid not in except_for
            if ends and not (uid in assumed and self._is_written(uid, None)):
                self._write(pods[uid], None, urgent=False, after=set_first)

    def under_way(self, uids: Collection[str]) -> list[asyncio.Future[None]]:
        """Return the futures of the running requests for these pods; a future is done when its request has ended."""
        return [self._under_way[uid] for uid in uids if uid in self._under_way]

    def carry(self, uid: str, place: Placement | None) -> None:
        """Let the pod's eviction write the nomination, as the result of `of`.

        The caller must call `settle` after the eviction.
        """
        if place is not None or uid in self._pods.nominations:
            self._pods.nominate(uid, place)
        self._under_way[uid] = asyncio.get_running_loop().create_future()

    def settle(self, pod: Pod, written: Placement | None) -> None:
        """End the request that wrote `written` on the pod. If a later decision differs, start the write of its
        nomination.
        """
        uid = pod.metadata.uid
        future = self._under_way.pop(uid, None)
        if future is not None:
            future.set_result(None)
        assumed = self._pods.nominations
        if uid in assumed and assumed[uid] != written:
            self._write(pod, assumed[uid], urgent=False)

    def _is_written(self, uid: str, place: Placement | None) -> bool:
        """Return whether the pod has this nomination, or a request is writing it.

        The next decision repeats a forbidden write.
        """
        assumed = self._pods.nominations
        current = assumed[uid] if uid in assumed else self._shown.get(uid)
        return current == place and uid not in self._unauthorized

    def _write(
        self,
        pod: Pod,
        place: Placement | None,
        *,
        urgent: bool,
        after: Collection[asyncio.Future[None]] = (),
    ) -> None:
        uid = pod.metadata.uid
        self._pods.nominate(uid, place)
        self._unauthorized.discard(uid)
        self._denied.discard(uid)
        if uid in self._under_way:
            return
        self._under_way[uid] = asyncio.get_running_loop().create_future()
        sent = place

        async def send() -> None:
            nonlocal sent
            sent = self._pods.nominations.get(uid)
            await self._send(pod, sent)

        def denied(why: str) -> None:
            if sent is not None:
                self._denied.add(uid)
                self._on_denied(pod, sent.node, why)

        self._requests.put(
            Task(
                subject=f"nominate {pod.metadata.namespace}/{pod.metadata.name}: {_words(place)}",
                call=send,
                is_due=lambda: uid in self._pods.nominations,
                refused=lambda: (
                    None
                ),  # the nomination stays assumed: the next decision uses the state of this process
                unauthorized=lambda: self._unauthorized.add(uid),
                denied=denied,
                over=lambda: self.settle(pod, sent),
                urgent=urgent,
            ),
            after=after,
        )

    async def _send(self, pod: Pod, place: Placement | None) -> None:
        metadata = pod.metadata
        pod_keys = {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}
        if pod.spec.node_name:
            await annotate(self._transport, **pod_keys, annotations=eviction_annotations(place))
        else:
            node = place.node if place else None
            await nominate(self._transport, **pod_keys, node=node, annotations=waiting_annotations(place))


def _runs_on(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None


def _says(pod: Pod, place: Placement | None) -> bool:
    return nomination_of(pod) == place and shows_nomination(pod) is (place is not None)


def _words(place: Placement | None) -> str:
    return "no longer" if place is None else f"{place.node} devices {list(place.devices)}"
