"""Parses bodies and queries of requests, and refuses requests, as ONTAP does."""

import fnmatch
import itertools
from typing import Any

Record = dict[str, Any]


class Refused(Exception):
    """The cluster refuses a request, with an HTTP status and an error code of ONTAP."""

    def __init__(self, message: str, *, status: int = 400, code: str = "262179") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def nested(body: Any) -> Any:
    """Return a body with `a.b: 1` written as `a: {b: 1}`. ONTAP accepts both forms."""
    if isinstance(body, list):
        return [nested(item) for item in body]
    if not isinstance(body, dict):
        return {"true": True, "false": False}.get(body, body) if isinstance(body, str) else body
    result: Record = {}
    for key, value in body.items():
        inner = result
        *parents, leaf = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        merge(inner, {leaf: nested(value)})
    return result


def values(record: Any, path: str) -> list[Any]:
    """Return the values at a dotted path. A list on the path stands for all its members."""
    found = [record]
    for part in path.split("."):
        members = itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in found)
        found = [item[part] for item in members if isinstance(item, dict) and part in item]
    return list(itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in found))


def matches(record: Record, path: str, pattern: str) -> bool:
    """Return whether a record matches one part of a query, with ONTAP's `a|b`, `a,b` and `*`."""
    wanted = [choice.strip() for choice in pattern.replace(",", "|").split("|")]
    present = [
        str(value).lower() if isinstance(value, bool) else str(value) for value in values(record, path)
    ]
    return any(fnmatch.fnmatchcase(value, choice) for value in present for choice in wanted)


def merge(record: Record, change: Record) -> None:
    """Merge a change into a record. Dictionaries are merged member by member."""
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(record.get(key), dict):
            merge(record[key], value)
        else:
            record[key] = value
