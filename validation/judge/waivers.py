"""Deviations that a person answers for, accepted before the run: each of one host and one fact, for at most a year."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from validation.judge.verdict import Verdict

MAX_REASON_CHARACTERS: Final = 1000
"""The reason of a check of hosts is cut there."""
OF_HOSTS: Final = "/layer/"
"""The id of a check of hosts has it."""
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
LEAST_CHARACTERS: Final = 4
"""Shorter facts are parts of every reason, and would excuse all of them."""


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `owner` accepts until the day `expires` (YYYY-MM-DD), that day included, that the check `id` fails by `fact`.

    `fact` is a part of a sentence of the check. `host` is the host of that sentence; only a check of hosts has one.
    """

    id: str
    owner: str
    reason: str
    expires: str
    fact: str = ""
    host: str = ""


def accepted(
    waivers: Sequence[Waiver], check_id: str, verdict: Verdict, said: Sequence[str], today: str
) -> list[Waiver]:
    """The waivers that together excuse all that a failed check says; none if it says more than they name.

    They apply until they expire, and only to a failure. `said` are the sentences by which the check fails.
    """
    valid = [waiver for waiver in waivers if waiver.id == check_id and _applies(waiver, today)]
    if verdict != Verdict.FAIL or not said:
        return []
    excusing = [next((waiver for waiver in valid if _excuses(waiver, sentence)), None) for sentence in said]
    found = [waiver for waiver in excusing if waiver is not None]
    return list(dict.fromkeys(found)) if len(found) == len(excusing) else []


def sentences(reason: str) -> list[str]:
    """The sentences of the reason of a check of hosts; none of one that was cut, which may say anything.

    Example: `sentences("h1: no GPU; h2: no GPU")` returns `['h1: no GPU', 'h2: no GPU']`.
    """
    if len(reason) >= MAX_REASON_CHARACTERS:
        return []
    return [part for part in reason.split("; ") if part]


def last_day(today: str) -> str:
    """Return the last day for which a deviation can be accepted today: the same day of the next year.

    Example: `last_day("2026-11-27")` returns `'2027-11-27'`.
    """
    return f"{int(today[:4]) + 1:04}{today[4:]}"


def _applies(waiver: Waiver, today: str) -> bool:
    """Whether it could have been accepted that day: owner, reason, fact and host are there, and a year at most."""
    if not _DAY.fullmatch(today) or not _DAY.fullmatch(waiver.expires):
        return False
    has_host = bool(waiver.host) == (OF_HOSTS in waiver.id)
    has_fact = len(waiver.fact.strip()) >= LEAST_CHARACTERS
    has_words = bool(waiver.owner.strip() and waiver.reason.strip())
    return today <= waiver.expires <= last_day(today) and has_words and has_fact and has_host


def _excuses(waiver: Waiver, sentence: str) -> bool:
    of_host = (
        not waiver.host or re.search(rf"(?<![\w.-]){re.escape(waiver.host)}(?![\w-])", sentence) is not None
    )
    return of_host and waiver.fact in sentence
