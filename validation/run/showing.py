"""Runs the command of a view of the orchestrator and records its output.

For a log it also records the kubelet's log.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from orchestrator.errors import MusterError
from orchestrator.progress import Reporter
from validation.judge.api import services
from validation.judge.api.api_request import OK
from validation.judge.api.containers import LOG, digests, job_of, kind_of, object_path
from validation.judge.api.services import MOUNTS, URL
from validation.judge.check_verdict import Window
from validation.judge.events import AnswerSeen, RequestAnswered
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict
from validation.judge.views.lists import MAX_PROBLEM, is_page, judge_answer, view_of
from validation.report import record
from validation.targets.base import Target
from validation.targets.recorder import Recorder

POLL_MS: Final = 500
"""Interval at which a log is read, because no event reports new lines."""
LINE_MS: Final = 60_000
"""Maximum wait for the first line of a log."""
URL_MS: Final = 60_000
"""Maximum delay of a SERVICE URL. The ingress controller must accept the Ingress and know the pod."""
PAGE_MS: Final = 10_000
"""Maximum delay of a page. It shows figures that the operator writes into projects with a delay."""


async def open_pages(target: Target, views: Sequence[str]) -> str:
    """Serve the pages if one of the views is a page. Return the reason why the pages cannot be served; empty if they
    are served.
    """
    if not any(is_page(view) for view in views):
        return ""
    try:
        await target.open_pages()
    except MusterError as error:
        return str(error)
    return ""


async def show(
    recorder: Recorder,
    target: Target,
    view: str,
    result: record.CheckResult,
    from_event: int,
    *,
    progress: Reporter,
) -> None:
    """Run the command of the view. Record its output and the window of its events."""
    line, is_log = view_of(view).line, kind_of(view) == LOG
    if view_of(view).page:
        await _open_page(recorder, target, view, result, from_event, progress=progress)
        return
    start, started_ms = len(recorder.events), recorder.now_ms()
    progress.update(f"{result.id}: {line}")
    if kind_of(view) == URL:
        await _open_url(recorder, target, view)
        end, ended_ms = len(recorder.events), recorder.now_ms()
        result.volatile.window = Window(from_event, start, end, started_ms, ended_ms)
        return
    if is_log:
        await _read_log(recorder, view, patience_ms=LINE_MS)
    command = await target.execute(line, started_ms=started_ms)
    problem = command.stderr.strip().rpartition("\n")[2]
    output = digests(command.stdout, is_whole=True) if is_log else command.stdout
    recorder.record(AnswerSeen(recorder.now_ms(), view, line, command.exit_code, output, problem))
    if is_log:
        await _read_log(recorder, view)
    elif path := object_path(view):
        answered = await recorder.answer_of(view, "GET", path)
        if kind_of(view) == MOUNTS:
            answered = msgspec.structs.replace(answered, answer=services.mounts_of(answered.answer))
        recorder.record(answered)
    end, ended_ms = len(recorder.events), recorder.now_ms()
    result.volatile.window = Window(from_event, start, end, started_ms, ended_ms)


async def _open_page(
    recorder: Recorder,
    target: Target,
    view: str,
    result: record.CheckResult,
    from_event: int,
    *,
    progress: Reporter,
) -> None:
    """Open the page repeatedly until it shows the state, for at most `PAGE_MS`. Record its last content."""
    line = view_of(view).line
    due_ms = recorder.now_ms() + PAGE_MS
    progress.update(f"{result.id}: {line}")
    while True:
        start, started_ms = len(recorder.events), recorder.now_ms()
        page = await target.show_page(view)
        answer = AnswerSeen(
            recorder.now_ms(), view, line, int(bool(page.problem)), page.output, page.problem[:MAX_PROBLEM]
        )
        window = Window(from_event, start, len(recorder.events), started_ms, recorder.now_ms())
        timeline = Timeline([*recorder.events, answer])
        judgement, _ = judge_answer(answer, timeline, window)
        if judgement.verdict == Verdict.PASS or recorder.now_ms() >= due_ms:
            break
        await recorder.changed(POLL_MS)
    recorder.record(answer)
    end, ended_ms = len(recorder.events), recorder.now_ms()
    result.volatile.window = Window(from_event, start, end, started_ms, ended_ms)


async def _open_url(recorder: Recorder, target: Target, view: str) -> None:
    """Run the command and open the URL that it shows, until it is answered with 200, for at most `URL_MS`.

    Record the last output and the last answers.
    """
    line = view_of(view).line
    due_ms = recorder.now_ms() + URL_MS
    while True:
        command = await target.execute(line, started_ms=recorder.now_ms())
        url = services.first_url(command.stdout, job_of(view)[1])
        problem = command.stderr.strip().rpartition("\n")[2][:MAX_PROBLEM]
        answer = AnswerSeen(recorder.now_ms(), view, line, command.exit_code, url, problem)
        opened = [
            (path, await target.open_url(one))
            for path, one in ((services.AT, url), (services.BESIDE, services.beside(url)))
            if url
        ]
        if (opened and opened[0][1].status == OK) or command.exit_code or recorder.now_ms() >= due_ms:
            break
        await recorder.changed(POLL_MS)
    recorder.record(answer)
    for path, (status, problem) in opened:
        recorder.record(
            RequestAnswered(recorder.now_ms(), view, "GET", path, status, problem=problem[:MAX_PROBLEM])
        )


async def _read_log(recorder: Recorder, view: str, *, patience_ms: int = 0) -> None:
    """Record the kubelet's log of the view's job as soon as it has a line, or the problem.

    Wait at most `patience_ms`.
    """
    project, workload = job_of(view)
    due_ms = recorder.now_ms() + patience_ms
    while True:
        pods = [pod for pod in recorder.pods_of({project}) if pod.workload == workload and pod.holds]
        text, problem = await recorder.log_of(pods[-1]) if pods else ("", f"{workload} has no pod on a node")
        lines = digests(text, is_whole=False)
        if lines or recorder.now_ms() >= due_ms:
            break
        await recorder.changed(POLL_MS)
    path = f"/api/v1/namespaces/{pods[-1].namespace}/pods/{pods[-1].pod}/log" if pods else ""
    status = 0 if problem else 200
    recorder.record(RequestAnswered(recorder.now_ms(), view, "GET", path, status, lines, problem=problem))
