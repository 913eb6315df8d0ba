"""Judges the SERVICE URL of a job, and the volumes that its description shows.

A URL is judged by two requests: one to the URL, one to a path beside it that no job has.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from validation.judge.api.api_request import OK, Json, at, document_of, last_answer, objects
from validation.judge.check_verdict import Judgement
from validation.judge.events import AnswerSeen, Event, RequestAnswered
from validation.judge.verdict import Verdict

URL: Final = "url"
MOUNTS: Final = "mounts"
VOLUMES_OF: Final = "VOLUMES: "
AT: Final = "SERVICE URL"
BESIDE: Final = "SERVICE URL-no-such-job"
"""The `path` of the request events. The record names the host only in the output of the command."""
HIDDEN: Final = "http://host/path"
"""Replaces the URL in a redacted record."""
_URL: Final = re.compile(r"(https?://[^\s/?#]+)(/[^\s?#]*)?")


def first_url(output: str, name: str) -> str:
    """Return the first SERVICE URL of the job in the output of `muster list jobs -o json`; empty if there is none."""
    try:
        rows = objects(json.loads(output))
    except (ValueError, RecursionError):
        return ""
    urls = next((row.get("serviceUrls") for row in rows if row.get("name") == name), None)
    url = urls[0] if isinstance(urls, list) and urls else ""
    return url if isinstance(url, str) and is_url(url) else ""


def is_url(text: str) -> bool:
    """Return whether the text is a URL of HTTP without a query."""
    return _URL.fullmatch(text) is not None


def beside(url: str) -> str:
    """Return a URL at the same host that belongs to no job.

    Example: `beside("http://a.example.com/team-a-note/")` returns `'http://a.example.com/team-a-note-no-such-job'`.
    """
    host, path = _URL.sub(r"\1", url), _URL.sub(r"\2", url)
    return f"{host}{path.rstrip('/') or '/'}-no-such-job"


def mounts_of(answer: str) -> str:
    """Return the PVCs of the pods in an answer of the API server, with their directories in the first container.

    The result is a JSON list of texts such as `data at /work`, without the rest of the pods.
    """
    found = [text for pod in objects(at(document_of(answer), "items")) for text in _mounts(pod)]
    return json.dumps(sorted(set(found)))


def _mounts(pod: Json) -> Iterator[str]:
    claims = {
        volume.get("name"): f"{at(pod, 'metadata', 'name')}-{volume.get('name')}"
        if "ephemeral" in volume
        else at(volume, "persistentVolumeClaim", "claimName")
        for volume in objects(at(pod, "spec", "volumes"))
    }
    for container in objects(at(pod, "spec", "containers"))[:1]:
        for mount in objects(container.get("volumeMounts")):
            if claim := claims.get(mount.get("name")):
                yield f"{claim} at {mount.get('mountPath')}"


def volumes_line(output: str) -> str:
    """Return the line of the description with the volumes of the job; empty if there is none."""
    return next((line for line in output.splitlines() if line.startswith(VOLUMES_OF)), "")


def judge_mounts(answer: AnswerSeen, during: Sequence[Event]) -> Judgement:
    """Return PASS if the description shows each PVC that the pods of the job mount with its directory, and no other."""
    last = last_answer(during, answer.view, "the pods")
    if isinstance(last, Judgement):
        return last
    try:
        mounted = json.loads(last.answer)
    except (ValueError, RecursionError):
        mounted = None
    if not isinstance(mounted, list) or not mounted:
        return Judgement(Verdict.INCONCLUSIVE, "the pods of the job mount no volume")
    shown = volumes_line(answer.output).removeprefix(VOLUMES_OF).split(", ")
    if sorted(shown) != sorted(map(str, mounted)):
        return Judgement(
            Verdict.FAIL, f"`{answer.line}` does not show the volumes {', '.join(map(str, mounted))}"
        )
    return Judgement(Verdict.PASS, ", ".join(shown))


def judge_url(answer: AnswerSeen, during: Sequence[Event]) -> Judgement:
    """Return PASS if the URL is answered with 200, and the path beside it is not."""
    if not is_url(answer.output.strip()):
        return Judgement(Verdict.FAIL, f"`{answer.line}` shows no SERVICE URL")
    found = [event for event in during if isinstance(event, RequestAnswered) and event.check == answer.view]
    for path in (AT, BESIDE):
        of_path = [event for event in found if (event.method, event.path) == ("GET", path)]
        if not of_path:
            return Judgement(Verdict.INCONCLUSIVE, f"the {path} was not opened")
        if of_path[-1].problem:
            return Judgement(Verdict.ERROR, f"the {path} is not answered: {of_path[-1].problem}")
        if (of_path[-1].status == OK) != (path == AT):
            return Judgement(Verdict.FAIL, f"the {path} is answered with {of_path[-1].status}")
    return Judgement(Verdict.PASS, f"HTTP {OK}")
