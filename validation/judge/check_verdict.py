"""Decides the verdict on one check from the events and its circumstances, for the run and for `rejudge`."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from validation.judge.causes import explain_pods
from validation.judge.convergence import Convergence, ConvergenceResult
from validation.judge.events import Event
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.scheduling.expectation import Actual, Expectation, differences, observe
from validation.judge.scheduling.history import History, Violation
from validation.judge.scheduling.invariants import INVARIANTS, OF_LIMITED_PROJECTS, SUBJECTS
from validation.judge.settling import Settling
from validation.judge.state import State, evictions
from validation.judge.timeline import Timeline
from validation.judge.units import seconds
from validation.judge.verdict import ACCEPTABLE, Verdict
from validation.judge.waivers import Waiver, accepted, sentences


class Circumstances(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The circumstances of a check that are not events of the cluster.

    An empty field means that the circumstance did not occur.

    - `not_applicable`: the reason of the profile.
    - `blocked_by`: an earlier check on which this check builds, and which did not pass.
    - `fault`: an error of the harness or the target.
    - `failure`: a command of the step that failed, or that should have been refused.
    - `unfinished`: the cause that ended the run before the check.
    - `target_problem`: the problem of the cluster at its end.
    """

    not_applicable: str = ""
    blocked_by: str = ""
    fault: str = ""
    failure: str = ""
    unfinished: str = ""
    target_problem: str = ""


class Window(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The events on which a verdict is based: the indices from `from_event` up to, but not including, `until_event`.

    A step begins at `from_event`. At `start_event` its commands have run, and the harness waits for the step from
    `started_ms` to `ended_ms`. For an invariant, `from_event` is the first event of its group of scenarios, and
    `started_ms` is the start of its scenario.
    """

    from_event: int
    start_event: int
    until_event: int
    started_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason. A PASS needs no reason. A judgement that is not `required` does not count."""

    verdict: Verdict
    reason: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class StepCheck:
    """The conditions of a step.

    `contradictions` are results of the oracle that differ from `expected` and that no erratum excuses.
    """

    expected: Expectation
    projects: Sequence[str]
    within_ms: int
    hold_ms: int
    least: Evidence
    contradictions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """The judgement on a step, and its evidence.

    `convergence` and `actual` are None if the harness did not wait for the step.
    """

    judgement: Judgement
    convergence: Convergence | None = None
    actual: Actual | None = None
    differences: Sequence[str] = ()
    evidence: Evidence = NO_EVIDENCE
    causes: Sequence[str] = ()
    """Why pods do not run, if the step did not end as expected."""


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """The judgement on an invariant, its violations, and how many subjects it had."""

    judgement: Judgement
    violations: Sequence[Violation] = ()
    subjects: int = 0
    evidence: Evidence = NO_EVIDENCE


class StepWatch:
    """Follows the events while a step settles: the state, the evictions, and how long the expectation has been
    satisfied.
    """

    def __init__(self, check: StepCheck, timeline: Timeline, window: Window) -> None:
        self._check = check
        self._timeline = timeline
        self._from_event = window.from_event
        self._started_ms = window.started_ms
        self._state: State = timeline.state_before(window.start_event)
        self._evicted: dict[str, str] = {}
        for pod in evictions(timeline.events[window.from_event : window.start_event]):
            self._note_eviction(pod.uid, pod.project, pod.workload)
        self._settling = Settling(within_ms=check.within_ms, hold_ms=check.hold_ms)

    def begin(self) -> Convergence | None:
        """Begin the wait. If the result is known already, return it."""
        return self._note(0)

    def follow(self, event: Event) -> Convergence | None:
        """Apply the next event. If the result is known now, return it.

        If the result is reached before the event, the event does not count.
        """
        now_ms = event.t_ms - self._started_ms
        convergence = self._settling.pass_time(now_ms)
        if convergence is not None:
            return convergence
        self._state.apply(event)
        for pod in evictions([event]):
            self._note_eviction(pod.uid, pod.project, pod.workload)
        return self._note(now_ms)

    def pass_time(self, now_ms: int) -> Convergence | None:
        """Note that no event came until `now_ms` (time in the run). If the result is known now, return it."""
        return self._settling.pass_time(now_ms - self._started_ms)

    def remaining_ms(self, now_ms: int) -> int:
        """Return the milliseconds after which the result is known if no event comes."""
        return self._settling.remaining_ms(now_ms - self._started_ms)

    def actual(self) -> Actual:
        """Return the present actual values."""
        return observe(self._state, list(self._evicted.values()), self._check.projects)

    def differences(self) -> list[str]:
        """Return the differences between the expectation and the present actual values."""
        return differences(self._check.expected, self.actual())

    def causes(self) -> list[str]:
        """Return why pods that should run do not run."""
        expected = self._check.expected
        pending = {name for state in expected.states for name in state.pending}
        return explain_pods(self._state, self._check.projects, (*sorted(pending), *expected.ended_jobs))

    def _note(self, now_ms: int) -> Convergence | None:
        ruled_out = bool(set(self._evicted.values()) - self._check.expected.may_be_evicted)
        return self._settling.note(now_ms, holds=not self.differences(), ruled_out=ruled_out)

    def _note_eviction(self, uid: str, project: str, workload: str) -> None:
        if project in self._check.projects and not self._timeline.evicted_before(uid, self._from_event):
            self._evicted.setdefault(uid, workload)


def judge_unrun(circumstances: Circumstances) -> Judgement | None:
    """Return the verdict on a check that did not run to its end; None if it did."""
    if circumstances.not_applicable:
        return Judgement(Verdict.NOT_APPLICABLE, circumstances.not_applicable)
    if circumstances.blocked_by:
        return Judgement(Verdict.BLOCKED, f"not run: {circumstances.blocked_by}")
    if circumstances.fault:
        return Judgement(Verdict.ERROR, circumstances.fault)
    if circumstances.unfinished:
        return Judgement(Verdict.INCONCLUSIVE, circumstances.unfinished)
    if circumstances.failure:
        return Judgement(Verdict.FAIL, circumstances.failure)
    return None


def judge_step(
    check: StepCheck, circumstances: Circumstances, timeline: Timeline, window: Window | None
) -> StepResult:
    """Return the verdict on a step, from the events of its window."""
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return StepResult(unrun)
    if window is None:
        return StepResult(Judgement(Verdict.INCONCLUSIVE, "the step was not waited for"))
    watch = StepWatch(check, timeline, window)
    convergence = watch.begin()
    for event in timeline.events[window.start_event : window.until_event]:
        convergence = convergence or watch.follow(event)
    convergence = convergence or watch.pass_time(window.ended_ms)
    evidence = timeline.evidence_before(window.until_event, check.projects)
    judgement = _judge_settled(check, convergence, evidence, circumstances.target_problem)
    lines = watch.differences()
    return StepResult(
        judgement=without_gaps(judgement, timeline, window),
        convergence=convergence,
        actual=watch.actual(),
        differences=lines,
        evidence=evidence,
        causes=watch.causes() if lines else (),
    )


def _judge_settled(
    check: StepCheck, convergence: Convergence | None, evidence: Evidence, target_problem: str
) -> Judgement:
    missing = shortfall(check.least, evidence)
    if missing:
        return Judgement(Verdict.ERROR, missing)
    if convergence is None:
        return Judgement(Verdict.INCONCLUSIVE, "the wait for the expected state was cut short")
    if convergence.result != ConvergenceResult.CONVERGED:
        reason = _unreached(convergence)
        return Judgement(Verdict.FAIL, f"{reason}; {target_problem}" if target_problem else reason)
    if check.contradictions:
        return Judgement(
            Verdict.ERROR,
            "the scenario expects another result than quotas and weights give, and no erratum excuses it: "
            + "; ".join(check.contradictions),
        )
    return Judgement(Verdict.PASS)


def judge_invariant(
    name: str,
    circumstances: Circumstances,
    timeline: Timeline,
    window: Window | None,
    *,
    least: Evidence,
) -> InvariantResult:
    """Return the verdict on an invariant: FAIL if it is violated, INCONCLUSIVE without a subject.

    Without a subject, the result does not count. Invariants about limits are an exception: they are required, because
    their scenario sets such a limit on a project.
    """
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return InvariantResult(unrun)
    if window is None:
        return InvariantResult(Judgement(Verdict.INCONCLUSIVE, "no step of the scenario ran"))
    during = timeline.events[window.from_event : window.until_event]
    history = History(
        [*timeline.nodes_before(window.from_event), *during], window.ended_ms, since_ms=window.started_ms
    )
    violations = [violation for violation in INVARIANTS[name](history) if violation.t_ms >= window.started_ms]
    evidence = timeline.evidence_between(window.from_event, window.until_event)
    noun, count_subjects = SUBJECTS[name]
    subjects = count_subjects(history)
    missing = shortfall(least, evidence)
    if violations:
        judgement = Judgement(Verdict.FAIL)
    elif missing:
        judgement = Judgement(Verdict.ERROR, missing)
    elif not subjects and name in OF_LIMITED_PROJECTS:
        judgement = Judgement(Verdict.INCONCLUSIVE, f"no subject, so nothing is proven: no {noun}")
    elif not subjects:
        judgement = Judgement(
            Verdict.INCONCLUSIVE, f"no subject, so it counts for nothing: no {noun}", required=False
        )
    else:
        judgement = without_gaps(Judgement(Verdict.PASS), timeline, window)
    return InvariantResult(judgement, violations, subjects, evidence)


def without_gaps(judgement: Judgement, timeline: Timeline, window: Window) -> Judgement:
    """Return the judgement. A PASS with possibly missing events, or on a disturbed cluster, becomes INCONCLUSIVE."""
    gaps = timeline.gaps(window.from_event, window.until_event)
    if judgement.verdict != Verdict.PASS:
        return judgement
    if not gaps:
        disturbance = timeline.disturbance(window.from_event, window.until_event)
        return Judgement(Verdict.INCONCLUSIVE, disturbance) if disturbance else judgement
    when = seconds(gaps[0].t_ms)
    return Judgement(
        Verdict.INCONCLUSIVE, f"the watch of {gaps[0].kind} was begun again at {when}: events may be missing"
    )


def mistake(error: Exception) -> Judgement:
    """Return the verdict on a check whose own code ended with an error of Python."""
    return Judgement(
        Verdict.ERROR, f"this is a mistake in muster: the check ended with {type(error).__name__}"
    )


def waive(
    judgement: Judgement, check_id: str, said: Sequence[str], waivers: Sequence[Waiver], today: str
) -> Judgement:
    """Return the judgement. If waivers excuse every sentence of a failure, it becomes WAIVED.

    `said` are the sentences of the failure. If `said` is empty, as for a check of hosts, the sentences are in the
    reason.
    """
    excused = accepted(waivers, check_id, judgement.verdict, said or sentences(judgement.reason), today)
    if not excused:
        return judgement
    words = "".join(
        f"deviation accepted by {one.owner} until {one.expires}: {one.reason}. " for one in excused
    )
    return Judgement(Verdict.WAIVED, f"{words}{judgement.reason}".strip())


def blocks_later_checks(judgement: Judgement, *, is_step: bool, fail_fast: bool) -> bool:
    """Return whether later checks must not run.

    With `fail_fast`, no later check may run. Otherwise, only checks that build on the state of this step may not run.
    """
    return judgement.required and judgement.verdict not in ACCEPTABLE and (is_step or fail_fast)


def _unreached(convergence: Convergence) -> str:
    within = seconds(convergence.within_ms)
    if convergence.result == ConvergenceResult.FLAPPED:
        return f"the expected state was reached but did not last, {convergence.flaps} times in {within}"
    if convergence.result == ConvergenceResult.RULED_OUT:
        return "a workload was evicted that nothing should have been taken from"
    return f"the expected state was not reached within {within}"
