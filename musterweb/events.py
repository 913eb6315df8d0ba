"""A page that updates itself: the server sends its body again when the body has changed (server-sent events)."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from musterweb.errors import SignInNeeded
from musterweb.person import BEAT_SECONDS, ENDED, Person
from musterweb.sessions import OVER
from orchestrator.client.projects import NoSuchProject
from orchestrator.cluster.errors import Forbidden, Unauthorized
from orchestrator.errors import MusterError

Render = Callable[[], Awaitable[str]]


async def follow(person: Person, render: Render, is_over: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """Yield a `page` event with each new body, a `state` event on each beat, and one `end` at the sign-out.

    If the body cannot be rendered, `state` has the reason, and the next beat tries again. If the person may not see the
    data any more, or the project was deleted, a `page` event empties the page.

    `at` of each event is the time of the body that the browser shows, or "" if this stream has sent no body.
    """
    number, digest, failure, shown_at = -1, b"", "", ""
    yield b"retry: 2000\n\n"
    while True:
        latest = await person.news(number, BEAT_SECONDS)
        try:
            if is_over():
                raise SignInNeeded(ENDED if person.is_ended else OVER)  # noqa: TRY301
            person.wake()
            if (latest > number or failure) and person.sight is not None and person.is_live:
                at = _time_of(person)
                body = await render()
                failure, shown_at = "", at
                new_digest = hashlib.sha256(body.encode()).digest()
                if new_digest != digest:
                    digest = new_digest
                    yield _event("page", {"html": body, **state_of(person), "at": at})
        except (SignInNeeded, Unauthorized) as error:
            if isinstance(error, Unauthorized):
                person.end()
            yield _event("end", {"problem": ENDED if person.is_ended else str(error)})
            return
        except MusterError as error:
            failure = str(error)
            if isinstance(error, (Forbidden, NoSuchProject)) and digest:
                digest = b""
                yield _event("page", {"html": "", "live": False, "at": shown_at, "problem": failure})
        number = latest
        state = {**state_of(person), "at": shown_at}
        if failure:
            state |= {"live": False, "problem": person.problem or failure}
        yield _event("state", state)


def state_of(person: Person) -> dict[str, object]:
    """Return whether the page is live, the time of its state, and the reason if it is not current."""
    return {"live": person.is_live, "at": _time_of(person), "problem": person.problem}


def _time_of(person: Person) -> str:
    sight = person.sight
    return datetime.fromtimestamp(sight.at_us / 1_000_000, UTC).strftime(TIME) if sight else ""


TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


def _event(kind: str, content: object) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"
