"""What people may see and what is to be seen, and how those who see the same share it.

Everybody has watches with a token of their own, and lists where nobody has the same yet. Whoever has the same rights,
and was sent the same objects, sees the same: that is made once, and so are the bodies of pages that show nothing else.
Whether the objects are the same is compared, never assumed.
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
"""So many people's lists are read at once: text and handshakes take memory that nobody needs afterwards."""
MAX_READING_SECONDS: Final = 5.0
"""Whose lists have not come by then goes on reading and keeps no others waiting: one person's may hang."""
MAX_ASKING: Final = 2
MAX_ASKING_SECONDS: Final = 1.0
"""Of so many people it is asked at once what they may list: each opens ten connections, with a handshake for each."""
MAX_BODIES: Final = 50
"""So many bodies of one sight are kept; queries make any number of them."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a person may list: all jobs (`scopes` is None) or those of some projects; nodes; projects.

    `left_out` are projects whose jobs they may list as well, but which are too many to be shown.
    """

    scopes: tuple[Scope, ...] | None
    nodes: bool
    projects: bool
    edits_projects: bool
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """What was to be seen at a moment. What the person may not see is None."""

    at_us: int
    jobs: list[WorkloadView]
    gpus: dict[str, tuple[GpuView, ...]]
    nodes: list[NodeView] | None
    projects: list[Project] | None


@dataclass(eq=False)
class Seen:
    """A sight, the objects that it was made of, and what was made of it.

    `known` are the parts of it by which the next one is made sooner, one mapping for each set of caches that has some.
    """

    sight: Sight
    objects: list[dict[str, Any]]
    known: list[Mapping[str, Any]]
    bodies: dict[str, str] = field(default_factory=dict)

    def keep_body(self, target: str, text: str) -> None:
        """Keep the body of a page of this sight; the oldest goes where there are too many."""
        if len(self.bodies) >= MAX_BODIES:
            del self.bodies[next(iter(self.bodies))]
        self.bodies[target] = text


class ReadingPlaces:
    """The places of those who read their lists, each for so many seconds at most."""

    def __init__(self, count: int = MAX_READING, seconds: float = MAX_READING_SECONDS) -> None:
        self._places = asyncio.BoundedSemaphore(count)
        self._seconds = seconds

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
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
    """The newest that was seen with each rights, for as long as anybody shows it, and the objects of all."""

    def __init__(self) -> None:
        self.objects = SharedObjects()
        self.reading = ReadingPlaces()
        self.asking = ReadingPlaces(MAX_ASKING, MAX_ASKING_SECONDS)
        self._newest: WeakValueDictionary[Rights, Seen] = WeakValueDictionary()

    def newest(self, rights: Rights) -> Seen | None:
        """Return what was seen last with these rights, whatever it was made of."""
        return self._newest.get(rights)

    def add(self, rights: Rights, seen: Seen) -> None:
        """Note what is seen now."""
        self._newest[rights] = seen


def are_same(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether two lists of caches have the same objects."""
    return len(before) == len(now) and all(old == new for old, new in zip(before, now, strict=True))
