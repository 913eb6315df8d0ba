"""Requests to the API server that a check consists of, and how their answers are read."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from validation.judge.check_verdict import Judgement
from validation.judge.events import GpusSeen

Json = dict[str, Any]
OK: Final = 200
CREATED: Final = 201
ACCEPTED: Final = 202
CONFLICT: Final = 409
GROUP: Final = "resource.k8s.io"
DEVICE_CLASS: Final = "gpu.nvidia.com"
DRA_NAMESPACE: Final = "dra-test"
"""The names that the page gives in its examples."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the API server; `advice` is what helps where it is answered otherwise than it should be.

    It is sent again while its answer says, by `is_early`, that it was sent too early, for `within_ms` at most. Where a
    text is asked for that is no JSON, the `lines` of it that match count.
    """

    method: str
    path: str
    content: Mapping[str, Any] | None = None
    advice: str = ""
    is_early: Callable[[int, Json], bool] | None = None
    within_ms: int = 0
    lines: re.Pattern[str] | None = None

    @property
    def body(self) -> str:
        """What is sent with it, as JSON of one form; empty: nothing."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":")) if self.content else ""

    @property
    def created(self) -> str:
        """The path of what it creates; empty: nothing."""
        return f"{self.path}/{self.content['metadata']['name']}" if self.content else ""


@dataclass(frozen=True, slots=True)
class ApiCheck:
    """What is proven, by which source, by which requests, and the verdict on the objects that answer them.

    `contradicts` says what kubelets told otherwise meanwhile; empty: nothing.
    """

    title: str
    source: str
    requests: tuple[Request, ...]
    judge: Callable[[Sequence[Json]], Judgement]
    contradicts: Callable[[Sequence[Json], Sequence[GpusSeen]], str] | None = None


def document_of(answer: str) -> Json | None:
    """The object of a JSON text; None if it is none."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def at(value: object, *path: str) -> Any:
    """What is at the path of keys; None where there is nothing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def objects(value: object) -> list[Json]:
    """Those of a list that are objects."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def claim_of(version: str, name: str, device: Mapping[str, Any]) -> Mapping[str, Any]:
    """A claim as the page prints it, in that version."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceClaim",
        "metadata": {"namespace": DRA_NAMESPACE, "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", **device}]}},
    }
