"""The sessions of signed-in people, in the memory of this process, bounded in time and number."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from musterweb.errors import SignInNeeded, TooMany
from musterweb.person import ENDED, Person
from musterweb.security import new_secret

IDLE_SECONDS: Final = 30 * 60
"""Time without opening a page after which a session ends; the updates of an open page do not count."""
MAX_SECONDS: Final = 8 * 3600
MAX_SESSIONS: Final = 200
MAX_OWN_SESSIONS: Final = 10
"""Maximum number of sessions of one user; a further sign-in ends the one that was used longest ago."""
MAX_STREAMS: Final = 20
"""Maximum number of updating pages of a session."""
MAX_ALL_STREAMS: Final = 500
SWEEP_SECONDS: Final = 5.0

OVER: Final = "Your session is over: sign in again"


@dataclass
class Session:
    """One signed-in browser. Each form on its pages contains `form_token`."""

    person: Person
    began_at: float
    used_at: float
    form_token: str = field(default_factory=new_secret)
    streams: int = 0


class Sessions:
    """The sessions by digests of their cookies."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, person: Person) -> str:
        """Begin a session; return the value of its cookie. Raises TooMany if there are too many people."""
        own = [digest for digest, session in self._sessions.items() if session.person.user == person.user]
        if len(own) >= MAX_OWN_SESSIONS:
            self._drop(min(own, key=lambda digest: self._sessions[digest].used_at))
        if len(self._sessions) >= MAX_SESSIONS:
            raise TooMany("too many people are signed in here: try again in some minutes")
        secret, now = new_secret(), self._clock()
        self._sessions[_digest(secret)] = Session(person, now, now)
        return secret

    def find(self, secret: str, *, is_use: bool) -> Session:
        """Return the session of a cookie. `is_use` restarts its idle time. Raises SignInNeeded."""
        session = self._sessions.get(_digest(secret)) if secret else None
        if session is None:
            raise SignInNeeded("Sign in first")
        if session.person.is_ended:
            self.remove(secret)
            raise SignInNeeded(ENDED)
        if self._is_over(session):
            self.remove(secret)
            raise SignInNeeded(OVER)
        if is_use:
            session.used_at = self._clock()
        return session

    def remove(self, secret: str) -> None:
        """End the session of a cookie, if there is one, and forget its token."""
        self._drop(_digest(secret))

    def require_stream(self, session: Session) -> None:
        """Raise TooMany if the session, or the server, has the maximum number of updating pages."""
        everywhere = sum(other.streams for other in self._sessions.values())
        if session.streams >= MAX_STREAMS or everywhere >= MAX_ALL_STREAMS:
            raise TooMany("too many pages are open: close some, and open this one anew")

    @contextmanager
    def streaming(self, session: Session) -> Iterator[None]:
        """Count an updating page while the block runs.

        Raises TooMany, because two requests can pass `require_stream` at the same time.
        """
        self.require_stream(session)
        session.streams += 1
        try:
            with session.person.using():
                yield
        finally:
            session.streams -= 1

    async def sweep(self) -> None:
        """End expired sessions, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for digest, session in list(self._sessions.items()):
                if session.person.is_ended or self._is_over(session):
                    self._drop(digest)

    async def close(self) -> None:
        """End all sessions."""
        for digest in list(self._sessions):
            self._drop(digest)
        await asyncio.gather(*self._closing)

    def _drop(self, digest: bytes) -> None:
        session = self._sessions.pop(digest, None)
        if session is not None:
            session.person.end()
            task = asyncio.create_task(session.person.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _is_over(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used_at > IDLE_SECONDS or now - session.began_at > MAX_SECONDS


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
