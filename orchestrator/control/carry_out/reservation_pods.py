"""The reservation pods, which hold GPUs of device plugins for pods with GPU fractions: list, creation and deletion."""

import logging
import secrets
from dataclasses import dataclass, field
from typing import Final

from orchestrator.cluster.errors import AlreadyExists, NotFound
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.requests import Requests, Task
from orchestrator.names import SYSTEM_NAMESPACE
from orchestrator.submit.reservation_manifest import NAME_PREFIX, reservation_pod

logger = logging.getLogger(__name__)

_UNKNOWN: Final = -1


@dataclass(slots=True, eq=False)
class GpuReservation:
    """One reservation. `index` is the GPU of the decision until the agent reports the real GPU; `uuid` is "" until
    then.

    `decided` keeps the index of the decision, because decisions made before the agent's report use it. `uid` is ""
    until the watch shows the pod. `waiting` has the `gpu_milli` of the pods that are being bound to it, by uid.
    `problem` is the reason why it can no longer be used.
    """

    name: str
    node: str
    index: int = _UNKNOWN
    decided: int = _UNKNOWN
    uuid: str = ""
    uid: str = ""
    waiting: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    is_begun: bool = False
    is_ending: bool = False
    is_finished: bool = False


class ReservationPods:
    """The reservations by name.

    `plan` adds a reservation, and it is removed after its pod has ended. `requests` sends the writes.
    """

    def __init__(self, transport: Transport, image: str, requests: Requests) -> None:
        self._transport = transport
        self._image = image
        self._requests = requests
        self.by_name: dict[str, GpuReservation] = {}

    async def close(self) -> None:
        """Cancel the running writes."""
        await self._requests.close()

    def plan(self, node: str, index: int) -> GpuReservation:
        """Return a new reservation, whose pod is created later. Its name is random, so no old report of an agent has
        this name.
        """
        reservation = GpuReservation(f"{NAME_PREFIX}{secrets.token_hex(5)}", node, index, index)
        self.by_name[reservation.name] = reservation
        return reservation

    def make(self, reservation: GpuReservation) -> None:
        """Start the creation of the pod. If the API server refuses it, `problem` is set."""
        reservation.is_begun = True
        is_made = False

        async def create() -> None:
            nonlocal is_made
            body = reservation_pod(reservation.name, reservation.node, self._image)
            try:
                await self._transport.create(PODS.path(SYSTEM_NAMESPACE), body)
            except AlreadyExists:
                logger.info("reservation %s: it was made before its answer was lost", reservation.name)
            is_made = True

        def refused() -> None:
            reservation.problem = (
                f"the API server refused the pod {reservation.name} that was to hold a GPU of it"
            )

        def unauthorized() -> None:
            reservation.problem = (
                f"muster may not make pods in {SYSTEM_NAMESPACE}: apply its operator YAML again"
            )

        def over() -> None:
            if not is_made and not reservation.uid:
                self.by_name.pop(reservation.name, None)

        self._requests.put(
            Task(
                subject=f"make {reservation.name} for a GPU of {reservation.node}",
                call=create,
                # a creation without an answer may have succeeded, so it is repeated until the watch shows the
                # pod
                is_due=lambda: not reservation.uid,
                refused=refused,
                unauthorized=unauthorized,
                over=over,
            )
        )

    def delete(self, reservation: GpuReservation) -> None:
        """Start the deletion of a reservation pod that no fraction uses any more."""
        reservation.is_ending = True
        path = PODS.path(SYSTEM_NAMESPACE, reservation.name)

        async def delete() -> None:
            try:
                await self._transport.delete(path, uid=reservation.uid)
            except NotFound:
                logger.info("reservation %s: it was deleted already", reservation.name)

        def refused() -> None:
            reservation.is_ending = False  # the next sweep tries again

        self._requests.put(
            Task(
                subject=f"delete {reservation.name} of {reservation.node}, which has no users",
                call=delete,
                is_due=lambda: reservation.name in self.by_name,
                refused=refused,
            )
        )
