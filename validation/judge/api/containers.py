"""Judges the output of the command line for a running container: its log, and the answers of a shell in it.

Only the digests of a log's lines are compared, so that a record contains no output of a job. To test a volume, one job
writes the name of its own pod into it, and another job reads the name. The name differs in each run, so a job that
reads it has the same volume.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Final

from validation.judge.api import services
from validation.judge.api.api_request import at, document_of, last_answer
from validation.judge.api.services import MOUNTS, URL
from validation.judge.check_verdict import Judgement
from validation.judge.events import AnswerSeen, Event, PodSeen, RequestAnswered
from validation.judge.state import State, Workload
from validation.judge.verdict import Verdict

LOG: Final = "log"
SHELL: Final = "shell"
MAX_LINES: Final = 2000
"""Maximum number of lines of a log that are compared, from its first line on."""
_DIGITS: Final = 16
WRITTEN: Final = "written"
READ: Final = "read"
REUSED: Final = "reused"
CLONED: Final = "cloned"
VOLUMES: Final = (WRITTEN, READ, REUSED, CLONED)
"""The kinds of views of a volume, in order.

A first job writes, and a second job on another node reads. A third job reads after both were deleted. A job with a
clone of the volume reads the same text.
"""
SNAPSHOT: Final = "snapshot"
KINDS: Final = (LOG, SHELL, *VOLUMES, SNAPSHOT, MOUNTS, URL)
WORKLOAD_LABEL: Final = "muster.dev/workload"
CLAIM: Final = "test"
_FILE: Final = "/tmp/pvc1mount/written-by"  # noqa: S108 - where the paper mounts it, in a container
_POD: Final = re.compile(r"[a-z0-9.-]{1,253}")
TITLES: Final = {
    LOG: "The log of {name} is printed as the kubelet of its node has it",
    SHELL: "A shell opens in the container of {name}, and answers with the name of its pod",
    WRITTEN: "{name} writes into its volume and syncs",
    READ: "{name}, on another node, reads in its volume what was written, and both have one claim",
    REUSED: "{name} reads in its volume what was written, when all others are deleted; the claim is the same",
    CLONED: "{name} reads in a clone of the volume what was written; the clone is a volume of its own",
    SNAPSHOT: "A snapshot of the volume of {name} is taken and ready, and names the volume",
    MOUNTS: "The description of {name} shows its volumes and the directories where they are mounted",
    URL: "{name} answers at its SERVICE URL",
}
LINES: Final = {
    LOG: "muster logs {name} -p {project}",
    SHELL: "muster bash {name} -p {project} <<< 'cat /etc/hostname'",
    WRITTEN: (
        "muster bash {name} -p {project} "
        f"<<< 'dd if=/etc/hostname of={_FILE} conv=fsync && cat /etc/hostname'"
    ),
    **dict.fromkeys(
        (READ, REUSED, CLONED), f"muster bash {{name}} -p {{project}} <<< 'cat {_FILE} /etc/hostname'"
    ),
    SNAPSHOT: f"muster -p {{project}} data snapshot create {CLAIM} of-{{name}} --json",
    MOUNTS: "muster get {name} -p {project}",
    URL: "muster list jobs -p {project} -o json",
}
_NAME: Final = re.compile(rf"({'|'.join(LINES)})/([a-z0-9.-]{{1,63}})/([a-z0-9.-]{{1,63}})")


def claim_path(project: str, name: str = CLAIM) -> str:
    """Return the path of a PVC in the namespace of a project; without a name, the path of all PVCs there."""
    return f"/api/v1/namespaces/muster-{project}/persistentvolumeclaims{f'/{name}' if name else ''}"


def object_path(view: str) -> str:
    """Return the path of the object that the API server is asked for after the command of a view.

    It is the path of the job's PVC, of the snapshot, or of the job's pods. Empty if the view needs no such object.
    """
    kind = kind_of(view)
    if kind not in (*VOLUMES, SNAPSHOT, MOUNTS):
        return ""
    project, name = job_of(view)
    if kind == MOUNTS:
        return f"/api/v1/namespaces/muster-{project}/pods?labelSelector={WORKLOAD_LABEL}={name}"
    if kind == SNAPSHOT:
        group = "/apis/snapshot.storage.k8s.io/v1"
        return f"{group}/namespaces/muster-{project}/volumesnapshots/of-{name}"
    return claim_path(project, f"pvc-{name}-0" if kind == CLONED else CLAIM)


def kind_of(view: str) -> str:
    """Return the kind of a view by its name: `log`, `shell` or a volume; empty if it is not a view of a container.

    Example: `kind_of("log/team-a/train")` returns `'log'`.
    """
    match = _NAME.fullmatch(view)
    return match[1] if match else ""


def job_of(view: str) -> Workload:
    """Return the job of a view of a container.

    Raises ValueError if the view has no name of the form `KIND/PROJECT/NAME`.
    """
    match = _NAME.fullmatch(view)
    if match is None:
        raise ValueError(f"{view} names no container")
    return match[2], match[3]


def digests(text: str, *, is_whole: bool) -> str:
    """Return the digests of the first lines, one in each line.

    An unfinished last line is left out, unless `is_whole`.
    """
    lines = text.strip().split("\n") if text.strip() else []
    whole = lines if is_whole or text.endswith("\n") else lines[:-1]
    return "\n".join(
        hashlib.sha256(line.rstrip().encode()).hexdigest()[:_DIGITS] for line in whole[:MAX_LINES]
    )


def judge_container(
    answer: AnswerSeen, during: Sequence[Event], earlier: Sequence[Event], state: State
) -> Judgement:
    """Return the verdict on the output of a successful command for a container, given the `state` before it."""
    kind = kind_of(answer.view)
    if kind == LOG:
        return _judge_log(answer, during)
    if kind in VOLUMES:
        return _judge_volume(answer, during, earlier, state)
    if kind == SNAPSHOT:
        return _judge_snapshot(answer, during)
    if kind in {URL, MOUNTS}:
        judge = services.judge_url if kind == URL else services.judge_mounts
        return judge(answer, during)
    _, workload = job_of(answer.view)
    if answer.output.strip() in _running(state, answer.view):
        return Judgement(Verdict.PASS)
    return Judgement(
        Verdict.FAIL, f"`{answer.line}` does not print the name of a pod of {workload} that runs"
    )


def _running(state: State, view: str) -> dict[str, str]:
    """Return the running pods of the view's job, each with its node."""
    pods = state.by_workload().get(job_of(view), [])
    return {pod.pod: pod.node for pod in pods if pod.holds and pod.phase == "Running"}


def _judge_volume(
    answer: AnswerSeen, during: Sequence[Event], earlier: Sequence[Event], state: State
) -> Judgement:
    kind = kind_of(answer.view)
    written = answer if kind == WRITTEN else _last_written(earlier, job_of(answer.view)[0])
    if written is None:
        return Judgement(Verdict.INCONCLUSIVE, "nothing was written before")
    claims = _claim(during, answer.view), _claim([*earlier, *during], written.view)
    for claim in claims:
        if isinstance(claim, Judgement):
            return claim
    fault = _wrong_content(answer, written, earlier, state)
    if not fault and kind == CLONED:
        fault = _wrong_clone(claims, during, answer.view)
    elif not fault and claims[0] != claims[1]:
        fault = f"the claim {CLAIM} is another one than when it was written to"
    return Judgement(Verdict.FAIL, fault) if fault else Judgement(Verdict.PASS)


def _wrong_clone(claims: Sequence[object], during: Sequence[Event], view: str) -> str:
    """Return why the PVC of the job is not a clone; empty if it is one."""
    own, original = (claim if isinstance(claim, tuple) else ("", "") for claim in claims)
    if any(one == other for one, other in zip(own, original, strict=True)):
        return f"the clone is the claim {CLAIM} or its volume"
    source = at(_last_object(during, view), "spec", "dataSource")
    is_clone = (at(source, "kind"), at(source, "name")) == ("PersistentVolumeClaim", CLAIM)
    return "" if is_clone else f"the claim of {job_of(view)[1]} is no clone of {CLAIM}"


def _judge_snapshot(answer: AnswerSeen, during: Sequence[Event]) -> Judgement:
    last = last_answer(during, answer.view, "the snapshot")
    if isinstance(last, Judgement):
        return last
    snapshot = document_of(last.answer)
    if at(snapshot, "status", "readyToUse") is not True:
        return Judgement(Verdict.FAIL, "the snapshot is not ready")
    if at(snapshot, "spec", "source", "persistentVolumeClaimName") != CLAIM:
        return Judgement(Verdict.FAIL, f"the snapshot is not of the claim {CLAIM}")
    return Judgement(Verdict.PASS)


def _last_object(during: Sequence[Event], view: str) -> object:
    """Return the object in the last answer for the view; None if it has no object."""
    answers = [event for event in during if isinstance(event, RequestAnswered) and event.check == view]
    return document_of(answers[-1].answer) if answers else None


def _wrong_content(answer: AnswerSeen, written: AnswerSeen, earlier: Sequence[Event], state: State) -> str:
    """Return the fault of the text that the job read, or of the job that wrote the text. Empty if both are right."""
    kind, (_, workload), writer = kind_of(answer.view), job_of(answer.view), job_of(written.view)
    words, nodes, content = answer.output.split(), _running(state, answer.view), written.output.strip()
    if not words or words[-1] not in nodes:
        return f"`{answer.line}` did not run in a pod of {workload}"
    if words[:-1] != ([] if kind == WRITTEN else [content]):
        return f"{workload} does not read the text that {writer[1]} wrote"
    if kind == WRITTEN:
        return ""
    pods = [event for event in earlier if isinstance(event, PodSeen) and event.pod == content]
    if writer not in [(pod.project, pod.workload) for pod in pods]:
        return f"{workload} reads a text that names no pod of {writer[1]}"
    present = [pod for pod in state.by_workload().get(writer, []) if pod.pod == content]
    fault = ""
    if kind == REUSED and present:
        fault = f"{writer[1]} is not deleted"
    elif kind == READ and all(pod.node == nodes[words[-1]] for pod in present):
        fault = f"{writer[1]} is not on another node"
    return fault


def _last_written(events: Sequence[Event], project: str) -> AnswerSeen | None:
    """Return the last successful write of a job of the project."""
    answers = (event for event in reversed(events) if isinstance(event, AnswerSeen) and not event.exit_code)
    return next((a for a in answers if kind_of(a.view) == WRITTEN and job_of(a.view)[0] == project), None)


def _claim(events: Sequence[Event], view: str) -> tuple[str, str] | Judgement:
    """Return the uid and the volume of the PVC from the API server's answer for this view; a verdict if they are not
    known.
    """
    last = last_answer(events, view, "the claim", f"the claim {CLAIM}")
    if isinstance(last, Judgement):
        return last
    try:
        claim = json.loads(last.answer)
        uid, volume = claim["metadata"]["uid"], claim["spec"]["volumeName"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return Judgement(Verdict.FAIL, f"the claim {CLAIM} has no volume")
    if not uid or not volume:
        return Judgement(Verdict.FAIL, f"the claim {CLAIM} has no volume")
    return str(uid), str(volume)


def _judge_log(answer: AnswerSeen, during: Sequence[Event]) -> Judgement:
    """Judge a printed log by two logs of the kubelet. A log only grows.

    The printed log must begin with the kubelet's log from before the command. The kubelet's log from after the command
    must begin with the printed log. The last printed line may be cut.
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
        return Judgement(Verdict.FAIL, f"`{answer.line}` prints another log than the kubelet has")
    return Judgement(Verdict.PASS)


def only_judged(answer: AnswerSeen) -> str:
    """Return only the judged part of the output: the digests of a log, or the words that can be names of pods."""
    kind, text = kind_of(answer.view), answer.output.strip()
    if kind == LOG:
        return text
    if kind == MOUNTS:
        return services.volumes_line(answer.output)
    if kind in {SNAPSHOT, URL}:
        return services.HIDDEN if kind == URL and services.is_url(text) else ""
    words = text.split()
    are_names = len(words) <= (2 if kind in {READ, REUSED, CLONED} else 1) and all(map(_POD.fullmatch, words))
    return text if are_names else ""
