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
CLAIM_VERSION: Final = "v1"
CLAIMS: Final = f"/apis/{GROUP}/{CLAIM_VERSION}/namespaces/{DRA_NAMESPACE}/resourceclaims"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the API server. `advice` is the remedy for an unexpected answer.

    If `is_early` says of an answer that the request came too early, it is sent again for at most `within_ms`. For an
    answer that is text and not JSON, only the `lines` that match count.
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
        """Return the content of the request as JSON in one fixed form; empty without content."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":")) if self.content else ""

    @property
    def created(self) -> str:
        """Return the path of the object that the request creates; empty if it creates none."""
        return f"{self.path}/{self.content['metadata']['name']}" if self.content else ""


@dataclass(frozen=True, slots=True)
class ApiCheck:
    """A check of the API server: its title, the source of the requirement, the requests, and the verdict on the
    answers.

    `contradicts` returns the contradiction of the kubelets to the answers in the same time; empty if there is none.
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
    """Return the value at the path of keys; None if there is none.

    Example: `at({"spec": {"gpu": 2}}, "spec", "gpu")` returns `2`.
    """
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def objects(value: object) -> list[Json]:
    """Those of a list that are objects."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def claim_of(name: str) -> Mapping[str, Any]:
    """A claim to one GPU as the page prints it, in the version that Kubernetes 1.34 and newer serve.

    The page prints v1beta1, which newer releases serve only with --runtime-config.
    """
    return {
        "apiVersion": f"{GROUP}/{CLAIM_VERSION}",
        "kind": "ResourceClaim",
        "metadata": {"namespace": DRA_NAMESPACE, "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}]}},
    }
