"""The requests of a check of the API server, and functions that read the answers."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from validation.judge.check_verdict import Judgement
from validation.judge.events import Event, GpusSeen, RequestAnswered
from validation.judge.verdict import Verdict

Json = dict[str, Any]
OK: Final = 200
CREATED: Final = 201
ACCEPTED: Final = 202
CONFLICT: Final = 409
GROUP: Final = "resource.k8s.io"
DEVICE_CLASS: Final = "gpu.nvidia.com"
DRA_NAMESPACE: Final = "dra-test"
"""The namespace in the examples of Google's page on GPU workloads with DRA."""
CLAIM_VERSION: Final = "v1"
CLAIMS: Final = f"/apis/{GROUP}/{CLAIM_VERSION}/namespaces/{DRA_NAMESPACE}/resourceclaims"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the API server. `advice` is the remedy for an unexpected answer.

    If `is_early` is true for an answer, the request came too early and is sent again for at most `within_ms`. If the
    answer is text and not JSON, only the lines that match `lines` count.
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

    `contradicts` returns the contradiction between the answers and the kubelets' reports of the same time, or an empty
    string. `vanishes` is the path of an object that is deleted with the created ones, and waited for.
    """

    title: str
    source: str
    requests: tuple[Request, ...]
    judge: Callable[[Sequence[Json]], Judgement]
    contradicts: Callable[[Sequence[Json], Sequence[GpusSeen]], str] | None = None
    vanishes: str = ""


def last_answer(
    events: Sequence[Event], view: str, subject: str, named: str = ""
) -> RequestAnswered | Judgement:
    """Return the last answer for a view; a verdict if the API server was not asked or did not return the object.

    `named` is the subject with its name, for the message of an object that cannot be read.
    """
    answers = [event for event in events if isinstance(event, RequestAnswered) and event.check == view]
    if not answers:
        return Judgement(Verdict.INCONCLUSIVE, f"the API server was not asked for {subject}")
    last = answers[-1]
    if last.problem or last.status != OK:
        return Judgement(Verdict.ERROR, f"{named or subject} cannot be read: {last.problem or last.status}")
    return last


def document_of(answer: str) -> Json | None:
    """Return the object of a JSON text; None if the text is no JSON object."""
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
    """Return the JSON objects of a list; empty if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def claim_of(name: str) -> Mapping[str, Any]:
    """Return the ResourceClaim for one GPU of the page's example, in the API version that Kubernetes 1.34 and newer
    serve.

    The page prints v1beta1, which newer releases serve only with --runtime-config.
    """
    return {
        "apiVersion": f"{GROUP}/{CLAIM_VERSION}",
        "kind": "ResourceClaim",
        "metadata": {"namespace": DRA_NAMESPACE, "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}]}},
    }
