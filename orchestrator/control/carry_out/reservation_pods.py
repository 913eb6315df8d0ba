"""The pods that hold GPUs of device plugins for pods with fractions: their list, creation and deletion."""

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
    """One reservation; `index` is the GPU that was decided on until the agent names it, `uuid` is "" until then.

    `decided` is equal for decisions that do not know the agent's report yet. `uid` is "" until the watch shows it.
    `waiting` are the pods that are being bound with fractions of it, by uid, with the amounts. `problem` says why it
    cannot be used any more.
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
    """The reservations by name, from their plan to the end of their pods; `requests` writes them."""

    def __init__(self, transport: Transport, image: str, requests: Requests) -> None:
        self._transport = transport
        self._image = image
        self._requests = requests
        self.by_name: dict[str, GpuReservation] = {}

    async def close(self) -> None:
        """End the writes that are under way."""
        await self._requests.close()

    def plan(self, node: str, index: int) -> GpuReservation:
        """Return a new one, whose pod is created later. No agent has ever reported its name."""
        reservation = GpuReservation(f"{NAME_PREFIX}{secrets.token_hex(5)}", node, index, index)
        self.by_name[reservation.name] = reservation
        return reservation

    def make(self, reservation: GpuReservation) -> None:
        """Begin to make its pod; `problem` says if the API server does not let us."""
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
                # once it was begun it may be there: it ends by its deletion alone
                is_due=lambda: not reservation.uid,
                refused=refused,
                unauthorized=unauthorized,
                over=over,
            )
        )

    def delete(self, reservation: GpuReservation) -> None:
        """Begin to delete its pod, which has no users."""
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
