"""Reads the waivers of a run: a YAML list of id, owner, reason and expiry. One that has expired is refused."""

from collections.abc import Collection
from datetime import date
from pathlib import Path

from orchestrator import document
from validation.errors import WaiverError
from validation.judge.waivers import Waiver


class _Document(document.Document):
    error_type = WaiverError


def load_waivers(path: Path, check_ids: Collection[str], today: date) -> list[Waiver]:
    """The waivers of the file. Raises WaiverError that names file and line.

    Refused are: one without an owner or a reason, one that has expired, one for a check that there is not.
    """
    read = _Document(path)
    waivers = read.convert(list[Waiver])
    for number, waiver in enumerate(waivers):
        for name in ("owner", "reason"):
            if not getattr(waiver, name).strip():
                raise read.error((number, name), f"the waiver of `{waiver.id}` has no {name}")
        try:
            expires = date.fromisoformat(waiver.expires)
        except ValueError as error:
            message = f"`{waiver.expires}` is not a day such as 2026-12-31"
            raise read.error((number, "expires"), message) from error
        if expires < today:
            message = f"the waiver of `{waiver.id}` expired on {waiver.expires}: ask {waiver.owner} again, or mend it"
            raise read.error((number, "expires"), message)
        if waiver.id not in check_ids:
            raise read.error((number, "id"), f"there is no check `{waiver.id}`")
        if waiver.id in [other.id for other in waivers[:number]]:
            raise read.error((number, "id"), f"`{waiver.id}` is waived twice")
    return waivers
