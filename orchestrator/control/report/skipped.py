"""The report of skipped objects: lines in the log, and the ConfigMap that `muster cluster status` reads.

The leader writes the ConfigMap `muster-skipped` after each change of the list. No decision reads it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from orchestrator.cluster.errors import ClusterError, Forbidden, NotFound
from orchestrator.cluster.objects import ConfigMap
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.record import write_record
from orchestrator.errors import MusterError
from orchestrator.names import SKIPPED_CONFIG_MAP, SYSTEM_NAMESPACE
from orchestrator.observe.unreadable import SkippedObject
from orchestrator.planner.model import Snapshot

logger = logging.getLogger(__name__)

FIELD_MANAGER: Final = "muster-skipped"
PATH: Final = CONFIG_MAPS.path(SYSTEM_NAMESPACE, SKIPPED_CONFIG_MAP)
KEY: Final = "skipped.json"
MAX_LISTED: Final = 200
"""Maximum number of listed objects: a ConfigMap holds 1 MiB, and people read only the first objects."""
MAX_CHARACTERS: Final = 400
MAX_LOGGED: Final = 20
"""Maximum number of newly skipped objects of a decision that get a line in the log and an Event."""
MAX_NAMED: Final = 5
"""Maximum number of left-over workloads in a line of the log."""
WRITE_SECONDS: Final = 1.0
"""Minimum time between two writes of the record."""
POLL_SECONDS: Final = 60.0
"""Interval of writes without a change of the list, because the ConfigMap can have been changed or deleted."""


class NoRecord(MusterError):
    """There is no record of skipped objects, or it cannot be read."""


class Listed(msgspec.Struct, frozen=True, rename="camel"):
    """One skipped object. `since` is RFC 3339."""

    kind: str
    namespace: str
    name: str
    why: str
    since: str

    @property
    def path(self) -> str:
        """Namespace and name, for example `muster-team-a/x`; only the name for a node or a project."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The leader's skipped objects, the number of `more` objects, and the number of `left_over` workloads."""

    objects: tuple[Listed, ...] = ()
    more: int = 0
    left_over: int = 0


def left_over_names(snapshot: Snapshot, left_over: Sequence[str]) -> tuple[str, ...]:
    """Return the left-over workloads (ids) of a decision as `project/name`."""
    if not left_over:
        return ()
    names = {workload.id: f"{workload.project}/{workload.name}" for workload in snapshot.workloads}
    return tuple(names[workload_id] for workload_id in left_over if workload_id in names)


class SkippedRecord:
    """Writes the skipped objects of the last decision into the log and, while `is_leader()`, into the ConfigMap."""

    def __init__(
        self,
        transport: Transport,
        *,
        is_leader: Callable[[], bool],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._now = now
        self._sleep = sleep
        self._since: dict[SkippedObject, str] = {}
        self._record = Record()
        self._left_over: tuple[str, ...] = ()
        self._is_first = True
        self._changed = asyncio.Event()

    def note(
        self, objects: Iterable[SkippedObject], *, left_over: tuple[str, ...] = ()
    ) -> list[SkippedObject]:
        """Store the skipped objects and left-over workloads of the last decision. Return the newly skipped objects."""
        self._log_left_over(left_over)
        there = list(objects)
        new = [entry for entry in there if entry not in self._since]
        at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ") if new else ""
        for entry in new[:MAX_LOGGED]:
            logger.warning("skipped: %s", entry)
        if len(new) > MAX_LOGGED:
            logger.warning("skipped: %d objects more", len(new) - MAX_LOGGED)
        readable_again = len(self._since) + len(new) - len(there)
        if readable_again:
            logger.info("%d objects are counted with again that were skipped", readable_again)
        if new or readable_again or len(left_over) != self._record.left_over or self._is_first:
            self._is_first = False
            self._since = {entry: self._since.get(entry, at) for entry in there}
            self._record = Record(
                tuple(
                    Listed(entry.kind, entry.namespace, entry.name, entry.why[:MAX_CHARACTERS], since)
                    for entry, since in list(self._since.items())[:MAX_LISTED]
                ),
                max(0, len(there) - MAX_LISTED),
                len(left_over),
            )
            self._changed.set()
        return new

    def _log_left_over(self, left_over: tuple[str, ...]) -> None:
        """Log the left-over workloads if they differ from those of the previous decision."""
        before, self._left_over = self._left_over, left_over
        if set(left_over) == set(before):
            return
        if not left_over:
            logger.info("the last decision reached every workload again")
            return
        more = len(left_over) - MAX_NAMED
        logger.warning(
            "the bound on work of a decision (max_work) left over %s first in the next: %s%s",
            "1 workload, which is" if len(left_over) == 1 else f"{len(left_over)} workloads, which are",
            ", ".join(left_over[:MAX_NAMED]),
            f" and {more} more" if more > 0 else "",
        )

    async def run(self) -> None:
        """Write until cancelled; failures of the API are logged and waited out."""
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                logger.debug("the skipped objects are recorded again")
            self._changed.clear()
            try:
                await self.write()
            except ClusterError as error:
                logger.warning("the skipped objects are not recorded yet: %s", error)
                self._changed.set()
            await self._sleep(WRITE_SECONDS)

    async def write(self) -> None:
        """Write the record. Raises subclasses of ClusterError."""
        if not self._is_leader():
            return
        data = {KEY: msgspec.json.encode(self._record).decode()}
        await write_record(self._transport, SKIPPED_CONFIG_MAP, data, field_manager=FIELD_MANAGER)


async def recorded(transport: Transport) -> Record:
    """Return the leader's record of skipped objects. Raises NoRecord, and subclasses of ClusterError."""
    try:
        data = (await transport.get(PATH, ConfigMap)).data
        return msgspec.json.decode(data[KEY], type=Record)
    except NotFound as error:
        raise NoRecord(
            f"no operator of this version has led this cluster yet: there is no ConfigMap "
            f"{SYSTEM_NAMESPACE}/{SKIPPED_CONFIG_MAP}"
        ) from error
    except Forbidden as error:
        raise NoRecord(f"the list of skipped objects is for administrators: {error.message}") from error
    except (KeyError, msgspec.DecodeError) as error:
        raise NoRecord(
            f"the ConfigMap {SYSTEM_NAMESPACE}/{SKIPPED_CONFIG_MAP} cannot be read: {error}"
        ) from error
