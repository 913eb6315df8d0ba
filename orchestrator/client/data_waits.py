"""Waits until a volume or a snapshot is ready, and reports its provisioner's messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from orchestrator.client.data_errors import ProvisioningFailed, StillPending
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import Event, PersistentVolumeClaim, VolumeSnapshot
from orchestrator.cluster.resources import CLAIMS, EVENTS, VOLUME_SNAPSHOTS, Resource
from orchestrator.submit.datasets import BOUND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.cluster.transport import Transport

READY_SECONDS: Final = 300.0
"""Time after which the command reports that a volume or snapshot takes longer."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 2.0
_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
_NEVER: Final = "CSI driver does not support"
"""Prefix of external-provisioner's final errors (pkg/controller/controller.go)."""


class Wait:
    """A wait for an object, of at most `patience_seconds`. `report` gets a line for each change."""

    def __init__(
        self, transport: Transport, patience_seconds: float, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._transport = transport
        self._patience_seconds = patience_seconds
        self._report = report
        self._reported = ""

    async def for_volume(self, namespace: str, name: str, uid: str, *, undo: bool = True) -> None:
        """Return when the volume is bound, or waits for the first pod that mounts it.

        Raises ProvisioningFailed if its provisioner cannot create it; with `undo` the PVC is deleted before. Raises
        StillPending if the time is over.
        """

        async def is_done(problem: str, reasons: set[str]) -> bool:
            claim = await self._transport.get(CLAIMS.path(namespace, name), PersistentVolumeClaim)
            self._say(problem or f"volume {name} is being made …")
            return claim.status.phase == BOUND or _FIRST_CONSUMER in reasons

        await self._until(is_done, CLAIMS, namespace, name, uid, undo=undo)

    async def for_snapshot(self, namespace: str, name: str, uid: str) -> None:
        """Return when the snapshot can be restored.

        Raises ProvisioningFailed after deleting the snapshot, or StillPending.
        """

        async def is_done(problem: str, _reasons: set[str]) -> bool:
            snapshot = await self._transport.get(VOLUME_SNAPSHOTS.path(namespace, name), VolumeSnapshot)
            self._say(problem or f"snapshot {name} is being taken …")
            return bool(snapshot.status and snapshot.status.ready_to_use)

        await self._until(is_done, VOLUME_SNAPSHOTS, namespace, name, uid)

    async def until_deleted(self, namespace: str, name: str, uid: str) -> bool:
        """Wait until the PVC with that uid is deleted. Return False if it still exists after `patience_seconds`."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        try:
            async with asyncio.timeout(self._patience_seconds):
                while await self._is_there(namespace, name, uid):
                    self._say(f"volume {name} is being deleted …")
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(pause_seconds * 1.5, _MAX_PAUSE_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _until(
        self,
        is_done: Callable[[str, set[str]], Awaitable[bool]],
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        undo: bool = True,
    ) -> None:
        pause_seconds, problem = _FIRST_PAUSE_SECONDS, ""
        try:
            async with asyncio.timeout(self._patience_seconds):
                while True:
                    problem, reasons = await self._events(namespace, uid)
                    if await is_done(problem, reasons):
                        return
                    if _NEVER in problem:
                        break
                    await asyncio.sleep(pause_seconds)
                    pause_seconds = min(pause_seconds * 1.5, _MAX_PAUSE_SECONDS)
        except asyncio.CancelledError:
            word = _word(resource)
            self._say(
                f"{word} {name} is still being created; cancel it with 'muster data {word} delete {name}'"
            )
            raise
        except TimeoutError as error:
            if not problem:
                raise _still_pending(resource, name, self._patience_seconds) from error
        subject = f"{_word(resource)} {name}"
        if not undo:
            raise ProvisioningFailed(f"the storage cannot create {subject}, and retries: {problem}")
        await self._transport.delete(resource.path(namespace, name), uid=uid)
        raise ProvisioningFailed(f"the storage cannot create {subject}, which was deleted again: {problem}")

    async def _events(self, namespace: str, uid: str) -> tuple[str, set[str]]:
        """Return the last warning about an object, "" if there is none, and the reasons of all its events."""
        params = {"fieldSelector": f"involvedObject.uid={uid}"}
        page = await self._transport.list(EVENTS.path(namespace), Event, params=params)
        events = [event for event in page.items if event.involved_object.uid == uid]
        warnings = [event for event in events if event.type == "Warning"]
        last = max(warnings, key=lambda event: event.last_timestamp or event.event_time or "", default=None)
        return last.message if last else "", {event.reason for event in events}

    async def _is_there(self, namespace: str, name: str, uid: str) -> bool:
        try:
            claim = await self._transport.get(CLAIMS.path(namespace, name), PersistentVolumeClaim)
        except NotFound:
            return False
        return claim.metadata.uid == uid

    def _say(self, line: str) -> None:
        if line != self._reported:
            self._reported = line
            self._report(line)


def _word(resource: Resource) -> str:
    return "volume" if resource is CLAIMS else "snapshot"


def _still_pending(resource: Resource, name: str, seconds: float) -> StillPending:
    word = _word(resource)
    return StillPending(
        f"{word} {name} is not ready after {seconds:g} seconds, and is still being created. Watch it with "
        f"'muster data {word} list', or cancel it with 'muster data {word} delete {name}'"
    )
