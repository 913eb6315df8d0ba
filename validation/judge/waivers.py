"""Deviations that somebody answers for, accepted before the run and not for ever."""

from collections.abc import Sequence

import msgspec

from validation.judge.verdict import Verdict


class Waiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The failure of the check `id` is accepted by `owner` until the day `expires` (YYYY-MM-DD), that day included."""

    id: str
    owner: str
    reason: str
    expires: str


def accepted(waivers: Sequence[Waiver], check_id: str, verdict: Verdict, today: str) -> Waiver | None:
    """The waiver that applies to this verdict on the day `today`: only to a failure, and only until it expires."""
    if verdict != Verdict.FAIL:
        return None
    return next((waiver for waiver in waivers if waiver.id == check_id and today <= waiver.expires), None)
