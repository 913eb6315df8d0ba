"""Deviations that a person has accepted before the run.

A waiver is for one fact (in a check of hosts: of one host), and for at most a year.
"""

import calendar
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from validation.judge.verdict import Verdict

MAX_REASON_CHARACTERS: Final = 1000
"""Maximum length of the reason that a host check gives. A longer reason is cut."""
OF_HOSTS: Final = "/layer/"
"""A part of the id of every host check."""
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
LEAST_CHARACTERS: Final = 4
"""Minimum length of a fact. A shorter text is part of many reasons, and would excuse all of them."""


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The acceptance of a failure: until the day `expires` (YYYY-MM-DD, included), the `owner` accepts that check `id`
    fails because of `fact`.

    `fact` is a part of a sentence of the check. `host` is the host of that sentence, only for a check of hosts.
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
    """Return the waivers that together excuse every sentence of a failed check; empty if a sentence remains.

    Waivers apply until they expire, and only to a failure. `said` are the sentences of the failure.
    """
    valid = [waiver for waiver in waivers if waiver.id == check_id and not problem(waiver, today)]
    if verdict != Verdict.FAIL or not said:
        return []
    excusing = [next((waiver for waiver in valid if _excuses(waiver, sentence)), None) for sentence in said]
    found = [waiver for waiver in excusing if waiver is not None]
    return list(dict.fromkeys(found)) if len(found) == len(excusing) else []


def sentences(reason: str) -> list[str]:
    """Return the sentences of the reason of a check of hosts. A cut reason has none, because its end is unknown.

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


def problem(waiver: Waiver, today: str) -> str:
    """Return why the waiver cannot be accepted on the day `today`; empty if it can.

    A waiver has an owner, a reason, a fact and a day within a year. A waiver of a check of hosts has a host; others
    have none.
    """
    if not waiver.owner.strip() or not waiver.reason.strip():
        return "has no owner or no reason"
    if len(waiver.fact.strip()) < LEAST_CHARACTERS:
        return f"names no fact of at least {LEAST_CHARACTERS} characters"
    if bool(waiver.host.strip()) != (OF_HOSTS in waiver.id):
        return "names no host, or is not about a host"
    if not is_day(today) or not is_day(waiver.expires):
        return f"expires on {waiver.expires}, which is no day"
    if not today <= waiver.expires <= last_day(today):
        return f"expires on {waiver.expires}, before {today} or more than a year after it"
    return ""


def is_day(text: str) -> bool:
    """Return whether the text is a day of the calendar, such as 2026-12-31."""
    if not _DAY.fullmatch(text):
        return False
    year, month, day = (int(part) for part in text.split("-"))
    return year > 0 and 0 < month <= 12 and 0 < day <= calendar.monthrange(year, month)[1]


def _excuses(waiver: Waiver, sentence: str) -> bool:
    of_host = (
        not waiver.host or re.search(rf"(?<![\w.-]){re.escape(waiver.host)}(?![\w-])", sentence) is not None
    )
    return of_host and waiver.fact in sentence
