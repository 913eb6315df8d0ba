"""Reserves the GPUs of device plugins for GPU fractions: the steps before a pod with fractions is bound.

    decision: a fraction of GPU 3 of the node
      ├─ a reservation holds it ────────────────────────────────────────────┐
      └─ none: make one ──> kubelet gives it a GPU ──> the agent names it ──┴──> bind, with index and UUID of that GPU

If the plugin gives the reservation another GPU than the decision chose, the plugin's GPU counts. A reservation without
users is deleted. Until it has ended, no pod with whole GPUs is bound to its node, because the kubelet would refuse that
pod. The annotations of the user pods name their reservations, so the next leader knows the users.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.objects import FINISHED, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.requests import Requests
from orchestrator.control.carry_out.reservation_pods import GpuReservation, ReservationPods
from orchestrator.control.carry_out.volume_claims import ClaimNotReady
from orchestrator.names import SYSTEM_NAMESPACE
from orchestrator.observe.gpu_shares import (
    Share,
    free_instead,
    gpu_of_reservation,
    shares_of,
)
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.observe.request import gpu_request, is_reservation
from orchestrator.planner.model import DEVICE_MILLI, Binding
from orchestrator.planner.placements import Placement

logger = logging.getLogger(__name__)

RULE: Final = "reservation"
NOT_RESERVED: Final = "GpuNotReserved"
"""The reason of the Event on a pod whose fraction is on an unknown GPU."""
READY_SECONDS: Final = 60.0
"""Maximum time for kubelet and agent to report the GPU. The GPU is idle during this time."""
POLL_SECONDS: Final = 1.0
_NO_AGENT: Final = "no agent has written a GpuNode of node {node}, so the GPU of its fraction is unknown"


class Reservations:
    """Creates and ends reservations.

    `gpu_node` returns the agent's report by node name. `published` returns the nodes that publish their GPUs in
    ResourceSlices. `memory_mib` returns the memory of each GPU of a node.

    `warn` is called for pods whose GPU is unknown, `evict` for pods whose reservation was lost. If `has_agents` returns
    true (an agent has written a GpuNode in the cluster), a pod waits for the agent of its node.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        image: str,
        gpu_node: Callable[[str], GpuNode | None],
        published: Callable[[], Mapping[str, PublishedGpus]],
        memory_mib: Callable[[str], int],
        is_leader: Callable[[], bool],
        warn: Callable[[Pod, str, str], None],
        evict: Callable[[Pod, str, str], None],
        has_agents: Callable[[], bool] = lambda: False,
        ready_seconds: float = READY_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gpu_node = gpu_node
        self._published = published
        self._memory_mib = memory_mib
        self._is_leader = is_leader
        self._warn = warn
        self._evict = evict
        self._has_agents = has_agents
        self._ready_seconds = ready_seconds
        self._poll_seconds = poll_seconds
        self._pods = ReservationPods(transport, image, Requests(is_leader=is_leader, sleep=sleep))
        self._changed = asyncio.Event()
        self._by_uid: dict[str, GpuReservation] = {}
        self._attached: dict[str, tuple[GpuReservation, ...]] = {}
        self._users: dict[str, tuple[Pod, tuple[Share, ...]]] = {}
        self._used_milli: dict[str, dict[str, int]] = {}

    async def close(self) -> None:
        """Cancel the running requests."""
        await self._pods.close()

    def see(self, change: Change[Any]) -> None:
        """Take a change of the caches."""
        changed, is_there = change.object, change.type != "deleted"
        if isinstance(changed, Pod):
            if is_reservation(changed):
                self._see_reservation(changed, is_there=is_there)
            else:
                self._see_user(changed, is_there=is_there)
        elif not isinstance(changed, GpuNode):
            return
        self._changed.set()
        self._changed = asyncio.Event()

    def confirm(self, being_bound: Mapping[str, tuple[Pod, Placement]]) -> dict[str, Placement]:
        """Prepare the next decision: update the GPUs of reservations.

        Return, by uid, the new placements of pods that are being bound. Only pods whose GPUs can have changed are
        included. A pod with fractions gets the GPUs of its reservations. If a kubelet gave a whole GPU of the decision
        to another pod, an idle GPU replaces this GPU. Otherwise two pods would have the same GPU.
        """
        expected: dict[str, dict[int, tuple[str, str]]] = {}
        for reservation in self._pods.by_name.values():
            if reservation.uuid and not reservation.waiting:
                reservation.decided = reservation.index
            if reservation.waiting and not self._is_named(reservation):
                holder = (SYSTEM_NAMESPACE, reservation.name)
                expected.setdefault(reservation.node, {})[reservation.index] = holder
        whole = {uid: one for uid, one in being_bound.items() if not gpu_request(one[0]).is_shared}
        for pod, place in whole.values():
            if place.node not in self._published():
                holder = (pod.metadata.namespace, pod.metadata.name)
                expected.setdefault(place.node, {}).update(dict.fromkeys(place.devices, holder))
        moved = {node: free_instead(self._gpu_node(node), pods) for node, pods in expected.items()}
        for reservation in self._pods.by_name.values():
            if reservation.waiting and not reservation.uuid:
                index = moved[reservation.node].get(reservation.index, reservation.index)
                reservation.index = reservation.decided = index
        placements = {
            uid: Placement(
                place.node, tuple(sorted(moved[place.node].get(one, one) for one in place.devices))
            )
            for uid, (_, place) in whole.items()
            if place.node in moved
        }
        for uid in self._attached.keys() & being_bound.keys():
            attached = self._attached[uid]
            placements[uid] = Placement(attached[0].node, tuple(sorted(one.index for one in attached)))
        return placements

    def begin(self, pod: Pod, binding: Binding) -> bool:
        """Attach the pod to reservations of its GPUs. `ready` creates the missing reservation pods.

        Return whether `ready` must be awaited. Raises ClaimNotReady if the pod cannot be bound with these GPUs.
        """
        request, node = gpu_request(pod), binding.node
        if not (request.gpu_count or request.is_shared) or node in self._published():
            return False
        if not request.is_shared:
            return bool(self._unsettled(node))
        if self._gpu_node(node) is None:
            why = _NO_AGENT.format(node=node)
            if self._has_agents():
                raise ClaimNotReady(f"{why}: start `muster agent` there")
            self._warn(pod, NOT_RESERVED, f"{why}: it gets no device, and nothing holds one for it")
            return False
        portion_milli = request.portion_milli(self._memory_mib(node))
        there = [self._on(node, index, portion_milli) for index in binding.devices]
        for index, reservation in zip(binding.devices, there, strict=True):
            if reservation is not None and self._held_milli(reservation) + portion_milli > DEVICE_MILLI:
                raise ClaimNotReady(f"GPU {index} of node {node} is another one than was decided on")
        used = tuple(
            reservation or self._pods.plan(node, index)
            for index, reservation in zip(binding.devices, there, strict=True)
        )
        for reservation in used:
            reservation.waiting[pod.metadata.uid] = portion_milli
        self._attached[pod.metadata.uid] = used
        return True

    async def ready(self, pod: Pod, node: str, is_wanted: Callable[[], bool]) -> tuple[Share, ...]:
        """Wait until the pod can be bound. Return its shares of reserved GPUs; empty for whole GPUs.

        Raises ClaimNotReady if that is impossible or takes too long.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        while is_wanted():
            changed = self._changed
            attached = self._attached.get(pod.metadata.uid, ())
            why = self._waits_for(attached) if attached else self._unsettled(node)
            if not why:
                return tuple(Share(one.uid, one.index, one.uuid) for one in attached)
            if not self._is_leader():
                raise ClaimNotReady("another replica decides by now")
            if loop.time() - started >= self._ready_seconds:
                raise ClaimNotReady(f"{why} after {self._ready_seconds:.0f} s")
            await _wait(changed, self._poll_seconds)
        return ()

    def end(self, uid: str) -> None:
        """Detach the pod from its reservations, which other pods can then use."""
        for reservation in self._attached.pop(uid, ()):
            reservation.waiting.pop(uid, None)
            if not reservation.waiting and not reservation.is_begun:
                self._pods.by_name.pop(reservation.name, None)

    def sweep(self) -> None:
        """Delete the reservations without users, and evict the pods whose reservations were lost."""
        for reservation in list(self._pods.by_name.values()):
            if reservation.uid and not reservation.is_ending and not self._is_used(reservation):
                self._pods.delete(reservation)
        for pod, shares in list(self._users.values()):
            lost = [share for share in shares if self._is_lost(share)]
            if lost and pod.metadata.deletion_timestamp is None:
                message = (
                    f"evicted by the rule of {RULE}: its reservation of GPU {lost[0].index} ({lost[0].uuid}) on node "
                    f"{pod.spec.node_name} ended. The device plugin can give that GPU to another pod"
                )
                self._evict(pod, RULE, message)

    def _see_reservation(self, pod: Pod, *, is_there: bool) -> None:
        metadata = pod.metadata
        reservation = self._pods.by_name.get(metadata.name)
        if not is_there:
            self._by_uid.pop(metadata.uid, None)
            if reservation is not None:
                reservation.problem = f"the pod {metadata.name} that reserves a GPU of it was deleted"
                del self._pods.by_name[metadata.name]
            return
        if reservation is None:
            reservation = GpuReservation(metadata.name, pod.spec.node_name, is_begun=True)
            self._pods.by_name[metadata.name] = reservation
        reservation.uid = metadata.uid
        self._by_uid[metadata.uid] = reservation
        if pod.status.phase in FINISHED:
            reservation.is_finished = True
            why = pod.status.message or pod.status.reason or f"it has {pod.status.phase.lower()}"
            reservation.problem = f"node {reservation.node} has no GPU for {metadata.name}: {why}"
        elif metadata.deletion_timestamp is not None:
            reservation.is_ending = True
            reservation.problem = (
                f"the pod {metadata.name} that holds a GPU of node {reservation.node} is ending"
            )

    def _see_user(self, pod: Pod, *, is_there: bool) -> None:
        uid = pod.metadata.uid
        if uid in self._attached and (pod.spec.node_name or not is_there):
            self.end(uid)
        _, before = self._users.pop(uid, (None, ()))
        for share in before:
            self._used_milli[share.reservation].pop(uid, None)
            if not self._used_milli[share.reservation]:
                del self._used_milli[share.reservation]
        shares = shares_of(pod) if is_there else ()
        if shares:
            self._users[uid] = (pod, shares)
            portion_milli = gpu_request(pod).portion_milli(self._memory_mib(pod.spec.node_name))
        for share in shares:
            self._used_milli.setdefault(share.reservation, {})[uid] = portion_milli

    def _on(self, node: str, index: int, portion_milli: int) -> GpuReservation | None:
        """Return the reservation with this `index`, or one with this `decided` index and enough free `gpu_milli`, or
        None.
        """
        usable = [
            reservation
            for reservation in self._pods.by_name.values()
            if reservation.node == node and not reservation.problem and not reservation.is_ending
        ]
        for reservation in usable:
            self._is_named(reservation)
            if reservation.index == index:
                return reservation
        for reservation in usable:
            fits = self._held_milli(reservation) + portion_milli <= DEVICE_MILLI
            if reservation.decided == index and fits:
                return reservation
        return None

    def _held_milli(self, reservation: GpuReservation) -> int:
        used = self._used_milli.get(reservation.uid, {})
        return sum(reservation.waiting.values()) + sum(used.values())

    def _is_used(self, reservation: GpuReservation) -> bool:
        users = reservation.waiting or self._used_milli.get(reservation.uid)
        return bool(users) and not reservation.is_finished

    def _is_lost(self, share: Share) -> bool:
        reservation = self._by_uid.get(share.reservation)
        return reservation is None or reservation.is_finished or reservation.is_ending

    def _waits_for(self, attached: tuple[GpuReservation, ...]) -> str:
        """Create the missing reservation pods. Return the reason why the pod must wait; "" if it need not wait."""
        problem = next((reservation.problem for reservation in attached if reservation.problem), "")
        if problem:
            raise ClaimNotReady(problem)
        for reservation in attached:
            if not reservation.is_begun:
                why = self._unsettled(reservation.node)
                if why:
                    return why
                self._pods.make(reservation)
        for reservation in attached:
            if not reservation.uid or not self._is_named(reservation):
                return self._unnamed(reservation)
        return ""

    def _unnamed(self, reservation: GpuReservation) -> str:
        """Return the reason why the GPU of the reservation is unknown."""
        node = self._gpu_node(reservation.node)
        said = f"; it says: {node.spec.problem}" if node and node.spec.problem else ""
        return (
            f"the agent of node {reservation.node} has not said which GPU the pod "
            f"{SYSTEM_NAMESPACE}/{reservation.name} holds{said}"
        )

    def _is_named(self, reservation: GpuReservation) -> bool:
        """Return whether the GPU of the reservation is known, from the agent or from annotations of its users."""
        if reservation.uuid or not reservation.uid:
            return bool(reservation.uuid)
        for uid in self._used_milli.get(reservation.uid, ()):
            share = next(one for one in self._users[uid][1] if one.reservation == reservation.uid)
            reservation.index, reservation.uuid = share.index, share.uuid
            return True
        state = gpu_of_reservation(self._gpu_node(reservation.node), reservation.name)
        if state is None:
            return False
        reservation.index, reservation.uuid = state.index, state.uuid
        logger.info(
            "reservation %s holds GPU %d (%s) of %s",
            reservation.name,
            state.index,
            state.uuid,
            reservation.node,
        )
        return True

    def _unsettled(self, node: str) -> str:
        """Return the reason why no pod can get a whole GPU of the node now, "" if there is none."""
        for reservation in self._pods.by_name.values():
            holds = reservation.is_begun and not reservation.is_finished
            is_free = reservation.is_ending or not self._is_used(reservation)
            if reservation.node == node and holds and is_free:
                return f"the pod {SYSTEM_NAMESPACE}/{reservation.name} still holds a GPU of node {node}"
        for pod, shares in self._users.values():
            if pod.spec.node_name == node and any(map(self._is_lost, shares)):
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                return f"the pod {name} still has a GPU fraction on node {node} whose reservation has ended"
        return ""


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return
