"""Reads the waivers of a run: a YAML list of id, host, fact, owner, reason and expiry."""

from collections.abc import Collection
from datetime import date
from pathlib import Path

from orchestrator import document
from validation.errors import WaiverError
from validation.judge.waivers import LEAST_CHARACTERS, OF_HOSTS, Waiver, last_day


class _Document(document.Document):
    error_type = WaiverError


def load_waivers(path: Path, check_ids: Collection[str], today: date) -> list[Waiver]:
    """Return the waivers of the file. Raises WaiverError that names file and line.

    A waiver needs an owner, a reason, a fact, a day within a year, and a check that exists. A waiver for a check of
    hosts names a host.
    """
    read = _Document(path)
    waivers = read.convert(list[Waiver])
    for number, waiver in enumerate(waivers):
        for name in ("owner", "reason"):
            if not getattr(waiver, name).strip():
                raise read.error((number, name), f"the waiver of `{waiver.id}` has no {name}")
        if waiver.id not in check_ids:
            raise read.error((number, "id"), f"there is no check `{waiver.id}`")
        _check_fact(read, number, waiver)
        _check_day(read, number, waiver, today)
        if any((o.id, o.host, o.fact) == (waiver.id, waiver.host, waiver.fact) for o in waivers[:number]):
            raise read.error((number, "id"), f"`{waiver.id}` is waived twice")
    return waivers


def _check_fact(read: _Document, number: int, waiver: Waiver) -> None:
    if len(waiver.fact.strip()) < LEAST_CHARACTERS:
        raise read.error(
            (number, "fact" if waiver.fact else "id"),
            f"the waiver of `{waiver.id}` names no fact: write a part of the sentence of the check, at least "
            f"{LEAST_CHARACTERS} characters",
        )
    if OF_HOSTS in waiver.id and not waiver.host.strip():
        raise read.error((number, "id"), f"the waiver of `{waiver.id}` names no host: add `host`")
    if OF_HOSTS not in waiver.id and waiver.host:
        raise read.error((number, "host"), f"`{waiver.id}` is not about a host: leave `host` out")


def _check_day(read: _Document, number: int, waiver: Waiver, today: date) -> None:
    try:
        expires = date.fromisoformat(waiver.expires)
    except ValueError as error:
        message = f"`{waiver.expires}` is not a day such as 2026-12-31"
        raise read.error((number, "expires"), message) from error
    if waiver.expires != expires.isoformat():
        raise read.error((number, "expires"), f"`{waiver.expires}`: write {expires.isoformat()}")
    if expires < today:
        message = (
            f"the waiver of `{waiver.id}` expired on {waiver.expires}: ask {waiver.owner} again, or mend it"
        )
        raise read.error((number, "expires"), message)
    if waiver.expires > last_day(today.isoformat()):
        message = f"the waiver of `{waiver.id}` lasts for more than a year: name an earlier day"
        raise read.error((number, "expires"), message)
