"""The handling of unreadable objects: such an object is skipped and reported, and all others are read.

read ──> readable ───────────────────────────────────> snapshot
  └────> unreadable: a pending pod ──────────────────> stays pending, with the reason
                     a pod that holds GPUs ──────────> keeps its known GPUs; if unknown, all of its node
                     a node, a project, a budget ────> is left out (a budget: no pod of its namespace is evicted)
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from orchestrator.cluster.last_object import Identity, LastObject
from orchestrator.cluster.objects import Metadata, Pod

logger = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 1000
"""Maximum number of stored errors, so that a traceback is not logged again for every change."""

T = TypeVar("T")


class UnreadableRequest(ValueError):
    """The request of the pod is invalid; the message names the annotation or resource."""


@dataclass(frozen=True, slots=True, order=True)
class SkippedObject:
    """A skipped object with the reason. `namespace` is "" for nodes and projects."""

    kind: str
    namespace: str
    name: str
    uid: str
    why: str

    @classmethod
    def of(cls, kind: str, metadata: Metadata, why: str) -> "SkippedObject":
        """Return the entry for the object with this metadata."""
        return cls(kind, metadata.namespace, metadata.name, metadata.uid, why)

    def __str__(self) -> str:
        return f"{Identity(self.kind, self.namespace, self.name, self.uid)}: {self.why}"


class SkippedPod(Pod, frozen=True, kw_only=True):
    """A substitute for a skipped bound pod, with its name, its node and the reason. Its node gets no other pods."""

    why: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason why an object is unreadable, returned instead of the object."""

    why: str


class Boundary:
    """Reads one object, and catches its errors. `last` notes the object that is being read."""

    def __init__(self, last: LastObject | None = None) -> None:
        self._last = last or LastObject()
        self._logged: dict[str, None] = {}

    def read(self, kind: str, metadata: Metadata, read: Callable[[], T]) -> T | Unreadable:
        """Return the result of `read`, or the reason of its failure.

        A ValueError describes an error in the object. Any other exception is a defect of muster, and is logged with its
        traceback once for each object and message.
        """
        self._last.enter(kind, metadata)
        try:
            return read()
        except ValueError as error:
            return Unreadable(str(error))
        except Exception as error:
            why = f"a mistake in muster: {type(error).__name__}: {str(error)[:200]}"
            self._log(str(SkippedObject.of(kind, metadata, why)))
            return Unreadable(why)
        finally:
            self._last.leave()

    def _log(self, message: str) -> None:
        if message not in self._logged:
            self._logged[message] = None
            if len(self._logged) > MAX_REMEMBERED:
                del self._logged[next(iter(self._logged))]
            logger.exception("%s; it is skipped", message)


class ReadObjects:
    """Reads objects, and stores those that cannot be read."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._skipped: dict[str, SkippedObject] = {}

    def read(self, kind: str, metadata: Metadata, read: Callable[[], T]) -> T | Unreadable:
        """Return the result of `read`, or the reason of its failure."""
        outcome = self._boundary.read(kind, metadata, read)
        self.forget(metadata)
        if isinstance(outcome, Unreadable):
            self._skipped[metadata.uid] = SkippedObject.of(kind, metadata, outcome.why)
        return outcome

    def forget(self, metadata: Metadata) -> None:
        """Remove a deleted object."""
        self._skipped.pop(metadata.uid, None)

    def skipped(self) -> Iterable[SkippedObject]:
        """Return the objects that cannot be read."""
        return self._skipped.values()
