"""Judges what the command line shows of a container that runs: its log, and the answer of a shell in it.

Of a log the digests of its lines are compared, so that a record has nothing of what a job printed.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.events import AnswerSeen, Event, RequestAnswered
from validation.judge.state import State, Workload
from validation.judge.verdict import Verdict

LOG: Final = "log"
SHELL: Final = "shell"
MAX_LINES: Final = 2000
"""The first ones of a log, which are compared."""
_DIGITS: Final = 16
_NAME: Final = re.compile(rf"({LOG}|{SHELL})/([a-z0-9.-]{{1,63}})/([a-z0-9.-]{{1,63}})")
_POD: Final = re.compile(r"[a-z0-9.-]{1,253}")
TITLES: Final = {
    LOG: "The log of {name} is printed as the kubelet of its node has it",
    SHELL: "A shell opens in the container of {name}, and answers with the name of its pod",
}
LINES: Final = {
    LOG: "muster logs {name} -p {project}",
    SHELL: "muster bash {name} -p {project} <<< 'cat /etc/hostname'",
}


def kind_of(view: str) -> str:
    """What a view of this name is about, `log` or `shell`; empty: neither."""
    match = _NAME.fullmatch(view)
    return match[1] if match else ""


def job_of(view: str) -> Workload:
    """Whose container it is about. Raises ValueError if the name is none of `KIND/PROJECT/NAME`."""
    match = _NAME.fullmatch(view)
    if match is None:
        raise ValueError(f"{view} names no container")
    return match[2], match[3]


def digests(text: str, *, is_whole: bool) -> str:
    """A digest of each of the first lines, one below the other; without the last one, unless it `is_whole`."""
    lines = text.strip().split("\n") if text.strip() else []
    whole = lines if is_whole or text.endswith("\n") else lines[:-1]
    return "\n".join(
        hashlib.sha256(line.rstrip().encode()).hexdigest()[:_DIGITS] for line in whole[:MAX_LINES]
    )


def judge_container(answer: AnswerSeen, during: Sequence[Event], state: State) -> Judgement:
    """The verdict on what a command that ended well printed of a container, in the `state` before it."""
    if kind_of(answer.view) == SHELL:
        project, workload = job_of(answer.view)
        pods = state.by_workload().get((project, workload), [])
        if answer.output.strip() in [pod.pod for pod in pods if pod.holds and pod.phase == "Running"]:
            return Judgement(Verdict.PASS)
        return Judgement(
            Verdict.FAIL, f"`{answer.line}` does not print the name of a pod of {workload} that runs"
        )
    return _judge_log(answer, during)


def _judge_log(answer: AnswerSeen, during: Sequence[Event]) -> Judgement:
    """A log grows: what was printed begins with what the kubelet had before, and that of after with what was printed.

    The last line that was printed may have been cut.
    """
    place = during.index(answer)
    requests = [
        (number, event)
        for number, event in enumerate(during)
        if isinstance(event, RequestAnswered) and event.check == answer.view
    ]
    before = next((event for number, event in reversed(requests) if number < place), None)
    after = next((event for number, event in requests if number > place), None)
    if before is None or after is None:
        return Judgement(Verdict.INCONCLUSIVE, "the kubelet was not asked for the log")
    problem = before.problem or after.problem
    if problem:
        return Judgement(Verdict.ERROR, f"the kubelet does not hand out the log: {problem}")
    first, printed, last = (text.split() for text in (before.answer, answer.output, after.answer))
    if not first:
        return Judgement(Verdict.INCONCLUSIVE, "the job has printed no line")
    if printed[: len(first)] != first or printed[:-1] != last[: len(printed) - 1]:
        return Judgement(Verdict.FAIL, f"`{answer.line}` does not print what the kubelet has of the log")
    return Judgement(Verdict.PASS)


def only_judged(answer: AnswerSeen) -> str:
    """What was printed if it can be the name of a pod; of a log its digests."""
    text = answer.output.strip()
    is_log = kind_of(answer.view) == LOG
    return text if is_log or _POD.fullmatch(text) else ""
