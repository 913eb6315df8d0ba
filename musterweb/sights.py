"""The rights and sights of people. A sight is the state of the objects that a person may see, at one moment.

Each person has watches with their own token. People whose rights and objects are equal, by comparison, share one sight,
and the bodies of the pages that depend on nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from orchestrator.client.jobs import Scope
from orchestrator.client.shared_objects import SharedObjects
from orchestrator.cluster.objects import Project
from orchestrator.views.gpus import GpuView
from orchestrator.views.jobs import WorkloadView
from orchestrator.views.nodes import NodeView

MAX_READING: Final = 2
"""Maximum number of people whose lists are read at the same time, because answers and handshakes take memory."""
MAX_READING_SECONDS: Final = 5.0
"""Maximum time for which a person's read occupies a slot, so that a read that hangs does not block others."""
MAX_ASKING: Final = 2
"""Maximum number of people whose rights are asked at the same time: each opens ten connections with a handshake."""
MAX_ASKING_SECONDS: Final = 1.0
"""Maximum time for which the requests about a person's rights occupy a slot."""
MAX_BODIES: Final = 50
"""Maximum number of cached bodies of one sight. Each query of a page has a body of its own."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The lists that a person may read: all jobs (`scopes` is None) or the jobs of some projects; nodes; projects.

    `left_out` are further projects whose jobs the person may list; they are too many to be shown.
    """

    scopes: tuple[Scope, ...] | None
    nodes: bool
    projects: bool
    edits_projects: bool
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """The objects at one moment. `nodes` or `projects` is None if the person may not see them."""

    at_us: int
    jobs: list[WorkloadView]
    gpus: dict[str, tuple[GpuView, ...]]
    nodes: list[NodeView] | None
    projects: list[Project] | None


@dataclass(eq=False)
class Seen:
    """A sight, its objects, and the results made from it.

    `known` has results for each set of caches that make the next sight faster.
    """

    sight: Sight
    objects: list[dict[str, Any]]
    known: list[Mapping[str, Any]]
    bodies: dict[str, str] = field(default_factory=dict)

    def keep_body(self, target: str, text: str) -> None:
        """Keep the body of a page of this sight; beyond the maximum the oldest is dropped."""
        if len(self.bodies) >= MAX_BODIES:
            del self.bodies[next(iter(self.bodies))]
        self.bodies[target] = text


class ReadingSlots:
    """Slots for people who read at the same time. A slot is free again at the end of the read, or after `seconds`."""

    def __init__(self, count: int = MAX_READING, seconds: float = MAX_READING_SECONDS) -> None:
        self._places = asyncio.BoundedSemaphore(count)
        self._seconds = seconds

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it while the block runs, at most `seconds`."""
        await self._places.acquire()
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()


class Sights:
    """The newest sight for each set of rights, as long as a person uses it, and the objects of all sights."""

    def __init__(self) -> None:
        self.objects = SharedObjects()
        self.reading = ReadingSlots()
        self.asking = ReadingSlots(MAX_ASKING, MAX_ASKING_SECONDS)
        self._newest: WeakValueDictionary[Rights, Seen] = WeakValueDictionary()

    def newest(self, rights: Rights) -> Seen | None:
        """Return the last sight with these rights."""
        return self._newest.get(rights)

    def add(self, rights: Rights, seen: Seen) -> None:
        """Record a new sight."""
        self._newest[rights] = seen


def are_same(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether two lists of caches have the same objects."""
    return len(before) == len(now) and all(old == new for old, new in zip(before, now, strict=True))
