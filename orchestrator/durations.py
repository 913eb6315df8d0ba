"""The notation of durations: `90s`, `5m`, `1h30m`."""

import re
from decimal import Decimal

from orchestrator.errors import InvalidField

_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)h)?(?:([0-9]+(?:\.[0-9]+)?)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?")


def parse_duration_seconds(field: str, text: str | None) -> int | None:
    """Return the seconds of `90s`, `5m`, `1h30m`, rounded to whole seconds.

    Example: `parse_duration_seconds("time", "1h30m")` returns `5400`.
    """
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if not text or match is None or len(text) > 32:
        raise InvalidField(
            f"{{{field}}} {{text!r}} is not a duration: give one such as 5s, 2m, 3h or 1h30m", text=text
        )
    hours, minutes, seconds = (Decimal(part or 0) for part in match.groups())
    total = round(hours * 3600 + minutes * 60 + seconds)
    if total >= 2**31:
        raise InvalidField(
            f"{{{field}}} {{text!r}} is not possible: it is {{total}} seconds, and 2147483647 are the most",
            text=text,
            total=total,
        )
    return total
