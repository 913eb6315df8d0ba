"""Sends the requests of a check to the API server, and deletes what they created; reads logs as a witness."""

import json
from typing import Any, Final

from validation.judge.api_checks import API_CHECKS, document_of, is_answered_well
from validation.judge.check_verdict import Window
from validation.judge.containers import digests, job_of
from validation.judge.events import RequestAnswered
from validation.report import record
from validation.targets.recorder import Recorder

POLL_MS: Final = 500
"""A log has no event that says that it has grown."""


async def send_requests(recorder: Recorder, name: str, result: record.CheckResult, from_event: int) -> None:
    """Send one request after the other until one fails; keep in `result` which events these are.

    What was created is deleted whatever happens, the last first, and only that: by its uid.
    """
    start, started_ms = len(recorder.events), recorder.now_ms()
    created: list[tuple[str, str]] = []
    try:
        for request in API_CHECKS[name].requests:
            answered = await recorder.request(name, request.method, request.path, request.body)
            if not is_answered_well(request, answered):
                break
            if request.created:
                created.append((request.created, _uid(answered.answer)))
    finally:
        for path, uid in reversed(created):
            await recorder.request(name, "DELETE", path, _deletion(uid))
        end, ended_ms = len(recorder.events), recorder.now_ms()
        result.volatile.window = Window(from_event, start, end, started_ms, ended_ms)


async def read_log(recorder: Recorder, view: str, *, patience_ms: int = 0) -> None:
    """Record what the kubelet has of the log of the job that the view is about, once there is a line, or why not."""
    project, workload = job_of(view)
    due_ms = recorder.now_ms() + patience_ms
    while True:
        pods = [pod for pod in recorder.pods_of({project}) if pod.workload == workload and pod.holds]
        text, problem = await recorder.log_of(pods[-1]) if pods else ("", f"{workload} has no pod on a node")
        if text or recorder.now_ms() >= due_ms:
            break
        await recorder.changed(POLL_MS)
    path = f"/api/v1/namespaces/{pods[-1].namespace}/pods/{pods[-1].pod}/log" if pods else ""
    status, lines = 0 if problem else 200, digests(text, is_whole=False)
    recorder.record(RequestAnswered(recorder.now_ms(), view, "GET", path, status, lines, problem=problem))


def _uid(answer: str) -> str:
    metadata: Any = (document_of(answer) or {}).get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    return uid if isinstance(uid, str) else ""


def _deletion(uid: str) -> str:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    return json.dumps(options | ({"preconditions": {"uid": uid}} if uid else {}))
