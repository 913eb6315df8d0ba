"""Judges a training job from the document that its container printed, and the reports of the kubelet and the driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from validation.judge.causes import explain_pods
from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun, without_gaps
from validation.judge.events import Event, GpusSeen, OutputSeen
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.timeline import Timeline
from validation.judge.training.digests import KnownGpus, judge_digests
from validation.judge.training.training_result import (
    TrainingResult,
    describe,
    end_of,
    judge_mounts,
    judge_training,
    rate_of,
)
from validation.judge.units import seconds
from validation.judge.verdict import Verdict

RESNET50: Final = "resnet50"
MOUNTS: Final = "mounts"
DIGESTS: Final = "digests"
SECOND_MS: Final = 1000
"""The kubelet reports times in whole seconds, so the real run time can be one second longer than their difference."""


class TrainingJob(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The job whose result is judged, the devices on which it must have trained, and the number of `mounts` of its
    data.

    With the `result` digests, its pods repeat exact computations on all `devices`. Other jobs do not have this key.
    """

    project: str
    workload: str
    device: Literal["gpu", "cpu"]
    devices: int
    mounts: int = 0
    result: Literal["digests"] | msgspec.UnsetType = msgspec.UNSET

    @property
    def checks(self) -> tuple[str, ...]:
        """The checks that judge the job's result."""
        if self.result == DIGESTS:
            return (DIGESTS,)
        return (RESNET50, MOUNTS) if self.mounts else (RESNET50,)


@dataclass(frozen=True, slots=True)
class JobCheck:
    """One check of a job. The job must end within `within_ms`."""

    name: str
    job: TrainingJob
    within_ms: int
    least: Evidence


@dataclass(frozen=True, slots=True)
class JobResult:
    """The judgement, and its evidence."""

    judgement: Judgement
    evidence: Evidence = NO_EVIDENCE
    causes: Sequence[str] = ()
    """If a job left no output: why its pods do not run."""


def outputs_of(job: TrainingJob, events: Sequence[Event]) -> list[OutputSeen]:
    """Return the outputs of the job's containers, in order."""
    return [
        event
        for event in events
        if isinstance(event, OutputSeen) and (event.project, event.workload) == (job.project, job.workload)
    ]


def judge_job(
    check: JobCheck, circumstances: Circumstances, timeline: Timeline, window: Window | None
) -> JobResult:
    """Return the verdict on one check of a job, from the events of the window."""
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return JobResult(unrun)
    if window is None:
        return JobResult(Judgement(Verdict.INCONCLUSIVE, "no step of the scenario ran"))
    evidence = timeline.evidence_before(window.until_event, [check.job.project])
    during = timeline.events[window.from_event : window.until_event]
    missing = shortfall(check.least, evidence)
    if missing:
        return JobResult(Judgement(Verdict.ERROR, missing), evidence)
    outputs = outputs_of(check.job, during)
    if not outputs:
        waited_ms = window.ended_ms - window.started_ms
        late = waited_ms >= check.within_ms
        verdict = Verdict.FAIL if late else Verdict.INCONCLUSIVE
        return JobResult(
            Judgement(verdict, f"{check.job.workload} left no result in {seconds(waited_ms)}"),
            evidence,
            explain_pods(timeline.state_before(window.until_event), [check.job.project]),
        )
    if check.name == DIGESTS:
        judgement = judge_digests(check.job.device, check.job.devices, outputs, _known_gpus(timeline, window))
    else:
        judgement = _judge_outputs(check, outputs, during)
    return JobResult(without_gaps(judgement, timeline, window), evidence)


def _judge_outputs(check: JobCheck, outputs: Sequence[OutputSeen], during: Sequence[Event]) -> Judgement:
    read = [(output, result) for output in outputs if (result := parse(output.line)) is not None]
    fault = _fault(check.job, outputs, read)
    if fault is not None:
        return fault
    ((output, result),) = read
    if check.name == MOUNTS:
        return judge_mounts(result, check.job.mounts)
    judgement = judge_training(result)
    unseen = _judge_use(check.job, output, during) if judgement.verdict == Verdict.PASS else None
    if unseen is not None or judgement.verdict != Verdict.PASS:
        return unseen or judgement
    rate = rate_of(result)
    return Judgement(Verdict.PASS, describe(rate) if rate is not None else "")


def _known_gpus(timeline: Timeline, window: Window) -> KnownGpus:
    """Return the GPUs that the API server and the agents reported before the end of the window."""
    reports = [event for event in timeline.events[: window.until_event] if isinstance(event, GpusSeen)]
    indices = {(event.node, gpu.uuid): gpu.index for event in reports for gpu in event.gpus if gpu.uuid}
    return KnownGpus(timeline.state_before(window.until_event).nodes, indices)


def _fault(
    job: TrainingJob, outputs: Sequence[OutputSeen], read: Sequence[tuple[OutputSeen, TrainingResult]]
) -> Judgement | None:
    """Return the verdict on a job that did not print exactly one document of a successful run. None if it did."""
    unread = _unread(outputs, read)
    if unread is not None:
        return unread
    if len(read) != 1:
        return Judgement(
            Verdict.FAIL, f"{job.workload} printed {len(read)} documents of a training run, not one"
        )
    contradiction = _contradiction(job, *read[0])
    return Judgement(Verdict.FAIL, contradiction) if contradiction else None


def _unread(
    outputs: Sequence[OutputSeen], read: Sequence[tuple[OutputSeen, TrainingResult]]
) -> Judgement | None:
    """Return the verdict on a job of which an output is unknown or a pod failed; None if there is no such pod."""
    unknown = next((output for output in outputs if output.problem), None)
    failed = next((output for output in outputs if output.exit_code), None)
    if unknown is not None:
        return Judgement(Verdict.ERROR, f"the output of {unknown.pod} could not be read: {unknown.problem}")
    if failed is None:
        return None
    reason = next((f": {end_of(result)}" for output, result in read if output is failed), "")
    return Judgement(Verdict.FAIL, f"{failed.pod} ended with exit code {failed.exit_code}{reason}")


def parse(line: str) -> TrainingResult | None:
    """Return the document of a training run; None if the line is no such document."""
    try:
        return msgspec.json.decode(line, type=TrainingResult)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _contradiction(job: TrainingJob, output: OutputSeen, result: TrainingResult) -> str:
    """Return how the document contradicts the kubelet or the scenario; empty if it does not."""
    environment = result.environment
    if (environment.device_kind, len(environment.devices)) != (job.device, job.devices):
        had = f"{len(environment.devices)} {environment.device_kind}"
        return f"it trained on {had}, not on {job.devices} {job.device}"
    timed_ms = sum(window.elapsed_ns for window in result.windows) // 1_000_000
    ran_ms = output.ran_ms + SECOND_MS
    if timed_ms > ran_ms:
        return f"it timed {seconds(timed_ms)} of training, and its container ran for {seconds(ran_ms)}"
    return ""


def _judge_use(job: TrainingJob, output: OutputSeen, during: Sequence[Event]) -> Judgement | None:
    """Return None if the driver of the node reported the job's processes on the requested number of GPUs, else the
    verdict.
    """
    if job.device != "gpu":
        return None
    of_node = [event for event in during if isinstance(event, GpusSeen) and event.node == output.node]
    if not of_node:
        return Judgement(
            Verdict.INCONCLUSIVE,
            f"only the job says that it used its GPUs: {output.node} has no agent that asks the driver",
        )
    used = {gpu.index for event in of_node for gpu in event.gpus if output.uid in gpu.users}
    if len(used) < job.devices:
        return Judgement(
            Verdict.FAIL,
            f"the driver of {output.node} named processes of {output.pod} on {len(used)} GPUs, not on {job.devices}",
        )
    return None
