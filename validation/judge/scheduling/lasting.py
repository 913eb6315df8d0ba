"""Finds violations that are states: a wrong state at any moment, or a state that lasts for too long.

A violation is reported in every scenario during which it lasts, even if no event of that scenario caused it.
"""

from collections.abc import Callable, Iterable

from validation.judge.events import CommandRun, GpusSeen, PodSeen
from validation.judge.scheduling.history import History, Violation
from validation.judge.state import State, replay

Faults = Callable[[State], Iterable[str]]
"""Returns the faults of a state, in words."""


def wrong_states(history: History, faults: Faults) -> list[Violation]:
    """Return the faults that exist at any moment of the judged time, each once with the time of its first moment."""
    first: dict[str, int] = {}
    state = State()
    begun = False
    for event in history.events:
        if event.t_ms >= history.since_ms and not begun:
            begun = True
            _note(first, faults(state), history.since_ms)
        state.apply(event)
        if begun:
            _note(first, faults(state), event.t_ms)
    if not begun:
        _note(first, faults(state), history.since_ms)
    return [Violation(t_ms, message) for message, t_ms in first.items()]


def _note(first: dict[str, int], messages: Iterable[str], t_ms: int) -> None:
    for message in messages:
        first.setdefault(message, t_ms)


def overdue_states(history: History, faults: Faults) -> list[Violation]:
    """Return the faults that last for more than `window_ms`, without those that ended before the judged time.

    A fault lasts from the event that caused it to the event that ended it, or to the end of the history.
    """
    violations: list[Violation] = []
    wrong_since: dict[str, int] = {}

    def note_overdue(until_ms: int, messages: Iterable[str]) -> None:
        violations.extend(
            Violation(max(wrong_since[message], history.since_ms), message)
            for message in sorted(messages)
            if until_ms - wrong_since[message] > history.window_ms and until_ms >= history.since_ms
        )

    for event, state in replay(history.events):
        if isinstance(event, PodSeen | GpusSeen | CommandRun):
            now = dict.fromkeys(faults(state), event.t_ms)
            note_overdue(event.t_ms, [message for message in wrong_since if message not in now])
            wrong_since = {message: wrong_since.get(message, t_ms) for message, t_ms in now.items()}
    note_overdue(max(history.end_ms, history.events[-1].t_ms if history.events else 0), wrong_since)
    return violations
