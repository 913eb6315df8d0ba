"""Sends the requests of a check to the API server, and deletes the objects that they created."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from validation.judge.api.api_checks import API_CHECKS, is_answered_well
from validation.judge.api.api_request import CREATED, Request, document_of
from validation.judge.api.containers import claim_path
from validation.judge.check_verdict import Window
from validation.judge.events import RequestAnswered
from validation.report import record
from validation.scenario.images import NO_MAP, ImageMap
from validation.targets.recorder import Recorder

CLAIM_SIZE: Final = "1Gi"
NOT_FOUND: Final = 404
DELETED_MS: Final = 60_000
POLL_MS: Final = 250
"""The interval of repeated requests. The allocation of a ResourceClaim is removed as soon as its pod has ended."""


async def send_requests(
    recorder: Recorder, name: str, result: record.CheckResult, from_event: int, images: ImageMap = NO_MAP
) -> None:
    """Send one request after the other until one fails. Store the window of their events in `result`.

    The requests have the site's names of images. The record has the printed names.

    All created objects are deleted in every case: the last one first, each with its uid as a precondition.
    """
    start, started_ms = len(recorder.events), recorder.now_ms()
    created: list[tuple[str, str]] = []
    try:
        for request in API_CHECKS[name].requests:
            answered = await _send(recorder, name, request, images)
            if not is_answered_well(request, answered):
                break
            if request.created:
                created.append((request.created, _uid(answered.answer)))
    finally:
        for path, uid in reversed(created):
            await recorder.request(name, "DELETE", path, _deletion(uid))
        await _until_deleted(recorder, name, API_CHECKS[name].vanishes if created else "")
        end, ended_ms = len(recorder.events), recorder.now_ms()
        result.volatile.window = Window(from_event, start, end, started_ms, ended_ms)


async def _send(recorder: Recorder, name: str, request: Request, images: ImageMap) -> RequestAnswered:
    """Send the request. While the answer says that it is too early, send it again. Record the last answer."""
    due_ms = recorder.now_ms() + request.within_ms
    body = images.body(request.body)
    while True:
        answered = await recorder.answer_of(name, request.method, request.path, body)
        document = document_of(answered.answer) or {}
        is_early = request.is_early is not None and request.is_early(answered.status, document)
        if not is_early or recorder.now_ms() >= due_ms:
            break
        await recorder.changed(POLL_MS)
    answered = msgspec.structs.replace(answered, body=request.body)
    if request.lines is not None:
        lines = [line.strip() for line in answered.answer.splitlines() if request.lines.search(line)]
        answered = msgspec.structs.replace(answered, answer="\n".join(lines))
    recorder.record(answered)
    return answered


async def _until_deleted(recorder: Recorder, name: str, path: str) -> None:
    """Wait until the API server does not know the object any more, for at most DELETED_MS. Record nothing."""
    due_ms = recorder.now_ms() + DELETED_MS
    while path and recorder.now_ms() < due_ms:
        if (await recorder.answer_of(name, "GET", path)).status == NOT_FOUND:
            return
        await recorder.changed(POLL_MS)


async def create_claims(recorder: Recorder, claims: Mapping[str, Sequence[str]]) -> str:
    """Create PVCs of the default class with access mode ReadWriteMany.

    Return why a PVC was not created; empty if all were created.

    The PVCs are deleted with the namespace of their project.
    """
    for project, names in claims.items():
        for name in names:
            body = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": CLAIM_SIZE}},
                },
            }
            answered = await recorder.request("claims", "POST", claim_path(project, ""), json.dumps(body))
            if answered.problem or answered.status != CREATED:
                return f"claim {name} of {project} is not created: {answered.problem or answered.status}"
    return ""


def _uid(answer: str) -> str:
    metadata: Any = (document_of(answer) or {}).get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def _deletion(uid: str) -> str:
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",  # the API server orphans the pods of a Job by default
    }
    return json.dumps(options | ({"preconditions": {"uid": uid}} if uid else {}))
