"""The guard against objects that crash the process when it reads them, or whose handling raises unknown errors.

    process crashes on an object ──> its next start finds the name (`last_object`) and counts it in the ConfigMap
    the second time, in any replica ──> the object is set aside: no process reads it any more
    an observer of an object raises ──> the object is left out, and the others are observed

If a bound pod cannot be read, its node gets no new pods, because its use of the node is unknown. `first_decisions`
handles workloads on which a decision crashes.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.last_object import Envelope, Identity, LastObject
from orchestrator.cluster.objects import ConfigMap, Pod, PodSpec, PodStatus
from orchestrator.cluster.reflector import Change, HasMetadata
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.cluster.wire import Wire
from orchestrator.control.decide.first_decisions import MAX_DEATHS, PATH
from orchestrator.control.report.record import write_record
from orchestrator.names import FIRST_DECISIONS_CONFIG_MAP, SYSTEM_NAMESPACE
from orchestrator.observe.unreadable import SkippedObject, SkippedPod

logger = logging.getLogger(__name__)

T = TypeVar("T")
Seen = TypeVar("Seen", bound=HasMetadata)

FIELD_MANAGER: Final = "muster-set-aside"
KEY: Final = "objects.json"
MAX_LISTED: Final = 1000
WRITE_SECONDS: Final = 2.0
"""Maximum time that a new leader waits for the record."""
EXCLUDED: Final = (
    "the operator ended each time it read it, so it is set aside; delete it and create it differently. "
    f"For another try, delete the ConfigMap {SYSTEM_NAMESPACE}/{FIRST_DECISIONS_CONFIG_MAP} and restart the operator"
)


class Dead(Wire, frozen=True):
    """An object that crashed processes, and the ids of these crashes, so that no crash is counted twice."""

    object: Identity
    deaths: tuple[str, ...]


class _Node(Wire, frozen=True):
    node_name: str = ""


class _Phase(Wire, frozen=True):
    phase: str = ""


class _PodEnvelope(Envelope, frozen=True):
    spec: _Node = _Node()
    status: _Phase = _Phase()


class ObjectGuard:
    """Notes each object while it is read, and leaves out objects that crash the process or raise unknown errors."""

    def __init__(self, last: LastObject | None = None) -> None:
        self.last = last or LastObject()
        self._dead: dict[str, Dead] = {}
        self._excluded: dict[str, Identity] = {}
        self._mistakes: dict[str, SkippedObject] = {}
        self._death = uuid.uuid4().hex

    async def recall(self, transport: Transport) -> None:
        """Read the record of earlier crashes, and add the object that crashed the previous process."""
        try:
            found = await transport.get(PATH, ConfigMap)
            listed = msgspec.json.decode(found.data.get(KEY, "[]"), type=list[Dead])
        except NotFound:
            listed = []
        except (ClusterError, msgspec.DecodeError) as error:
            logger.warning("the objects that are set aside are not known: %s", error)
            return
        self._dead = {dead.object.uid: dead for dead in listed}
        ended = self.last.found
        if ended is not None:
            before = self._dead.pop(ended.uid, Dead(ended, ()))
            deaths = tuple(dict.fromkeys((*before.deaths, self._death)))
            self._dead[ended.uid] = Dead(ended, deaths)
            logger.error("the process before ended with %s, %d times so far", ended, len(deaths))
            if await self._write(transport):
                self.last.found = None
        self._excluded = {
            uid: dead.object for uid, dead in self._dead.items() if len(dead.deaths) >= MAX_DEATHS
        }

    async def forget_deleted(self, transport: Transport, uids: Callable[[], Container[str]]) -> None:
        """Remove deleted objects from the record. `uids` returns the uids of all existing objects."""
        there = uids() if self._dead else ()
        deleted = [uid for uid in self._dead if uid not in there]
        for uid in deleted:
            del self._dead[uid]
            self._excluded.pop(uid, None)
        if deleted:
            await self._write(transport)

    def decoder(self, kind: str, decode: Callable[[msgspec.Raw], T]) -> Callable[[msgspec.Raw], T]:
        """Return a decoder that notes the object while it decodes it, and raises only DecodeError and
        RecursionError.
        """
        enter, leave = self.last.enter, self.last.leave

        def read(raw: msgspec.Raw) -> Any:
            if self._excluded and (stand_in := self._stand_in(kind, raw)) is not None:
                return stand_in
            enter(kind, raw)
            try:
                return decode(raw)
            except (msgspec.DecodeError, RecursionError):
                raise
            except Exception as error:
                logger.exception("an object of kind %s raises an unknown error", kind)
                raise msgspec.DecodeError(_mistake(error)) from error
            finally:
                leave()

        return read

    def guarded(
        self,
        kind: str,
        tell: Callable[[Change[Seen]], None],
        followers: Sequence[Callable[[Change[Any]], None]],
    ) -> Callable[[Change[Seen]], None]:
        """Return a function that calls `tell` with a change, and raises nothing.

        `tell` also calls the followers. If `tell` raises, the followers get a change that deletes the object. A bound
        pod is not deleted but replaced by a pod without content.
        """
        enter, leave = self.last.enter, self.last.leave

        def see(change: Change[Any]) -> None:
            metadata = change.object.metadata
            if self._mistakes:
                self._mistakes.pop(metadata.uid, None)
            enter(kind, metadata)
            try:
                tell(change)
            except Exception as error:
                left_out = self._leave_out(kind, change, error)
                for follower in followers:
                    try:
                        follower(left_out)
                    except Exception:
                        logger.exception("%s: it cannot be left out", Identity.of(kind, metadata))
            finally:
                leave()

        return see

    def _leave_out(self, kind: str, change: Change[Any], error: Exception) -> Change[Any]:
        """Note that the object raised an error. Return the change that leaves the object out."""
        changed, metadata, why = change.object, change.object.metadata, _mistake(error)
        skipped = SkippedObject.of(kind, metadata, why)
        logger.exception("%s; it is skipped", skipped)
        if change.type == "deleted":
            return change
        self._mistakes[metadata.uid] = skipped
        if not (isinstance(changed, Pod) and changed.spec.node_name):
            return Change("deleted", changed, changed)
        spec = PodSpec(node_name=changed.spec.node_name)
        return Change(
            "modified", SkippedPod(metadata=metadata, spec=spec, status=changed.status, why=why), changed
        )

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the objects that raised unknown errors."""
        yield from self._mistakes.values()

    def is_excluded(self, uid: str) -> bool:
        """Return whether the object is set aside, so that no process reads it."""
        return uid in self._excluded

    def _stand_in(self, kind: str, raw: msgspec.Raw) -> SkippedPod | None:
        """Return a substitute for a bound pod that is set aside; None if `raw` is not set aside. Raises DecodeError."""
        envelope = msgspec.json.decode(raw, type=_PodEnvelope if kind == PODS.kind else Envelope)
        if envelope.metadata.uid not in self._excluded:
            return None
        if not isinstance(envelope, _PodEnvelope) or not envelope.spec.node_name:
            raise msgspec.DecodeError(EXCLUDED)
        return SkippedPod(
            metadata=envelope.metadata,
            spec=PodSpec(node_name=envelope.spec.node_name),
            status=PodStatus(phase=envelope.status.phase),
            why=EXCLUDED,
        )

    async def _write(self, transport: Transport) -> bool:
        listed = list(self._dead.values())[-MAX_LISTED:]
        data = {KEY: msgspec.json.encode(listed).decode()}
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await write_record(transport, FIRST_DECISIONS_CONFIG_MAP, data, field_manager=FIELD_MANAGER)
        except (ClusterError, TimeoutError) as error:
            logger.warning("the deaths of the operator are not recorded: %r", error)
            return False
        return True


def _mistake(error: Exception) -> str:
    return f"a mistake in muster: {type(error).__name__}: {str(error)[:200]}"
