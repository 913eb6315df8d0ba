"""Judges the utilization of the GPUs in a window in which jobs held them, from the pages of the agents."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun, without_gaps
from validation.judge.events import Event, SamplesSeen
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.timeline import Timeline
from validation.judge.use.utilization import (
    Standard,
    Utilization,
    held_by_kubelets,
    judge_utilization,
    measure_utilization,
    samples_of,
)
from validation.judge.verdict import Verdict


@dataclass(frozen=True, slots=True)
class UseResult:
    """The judgement, the measured utilization, and the evidence. `causes` say why nodes have no values."""

    judgement: Judgement
    measured: Utilization | None = None
    evidence: Evidence = NO_EVIDENCE
    causes: Sequence[str] = ()


def judge_use(
    standard: Standard,
    least: Evidence,
    circumstances: Circumstances,
    timeline: Timeline,
    window: Window | None,
) -> UseResult:
    """Return the verdict on the use of the GPUs, from the events of the window."""
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return UseResult(unrun)
    if window is None:
        return UseResult(Judgement(Verdict.INCONCLUSIVE, "no step of the scenario ran"))
    during = timeline.events[window.start_event : window.until_event]
    samples = samples_of(during)
    nodes = {name: gpus for name, gpus in timeline.state_before(window.until_event).nodes.items() if gpus}
    use = measure_utilization(
        samples,
        held_by_kubelets(during, window.started_ms, window.ended_ms),
        from_ms=window.started_ms,
        until_ms=window.ended_ms,
        gpus_total=sum(nodes.values()),
    )
    in_window = [sample for sample in samples if window.started_ms < sample.t_ms <= window.ended_ms]
    evidence = msgspec.structs.replace(
        timeline.evidence_between(window.from_event, window.until_event), samples=len(in_window)
    )
    judgement = _judge(use, standard, shortfall(least, evidence), sorted(nodes.keys() - heard_nodes(during)))
    return UseResult(without_gaps(judgement, timeline, window), use, evidence, _causes(during))


def _judge(use: Utilization, standard: Standard, missing: str, silent: Sequence[str]) -> Judgement:
    if silent:
        return Judgement(Verdict.ERROR, f"no page of the agent of {', '.join(silent)}")
    if missing:
        return Judgement(Verdict.ERROR, missing)
    judgement = judge_utilization(use, standard)
    # the report shows the measured values beside the verdict; a PASS has the same reason in every run
    return Judgement(Verdict.PASS) if judgement.verdict == Verdict.PASS else judgement


def heard_nodes(events: Sequence[Event]) -> set[str]:
    """Return the nodes whose agents answered."""
    return {event.node for event in events if isinstance(event, SamplesSeen) and not event.problem}


def _causes(events: Sequence[Event]) -> list[str]:
    """Return why nodes had no values for some time; each reason once."""
    problems = [event for event in events if isinstance(event, SamplesSeen) and event.problem]
    return list(dict.fromkeys(f"{event.node}: {event.problem}" for event in problems))
