"""Who may be evicted for whom, by which rule, and in which order.

Whoever is furthest above what it may hold gives first; of its work the lowest priority, then what has grown beyond its
minimum, then the youngest. `rules` says which rule must hold before each reclaimed victim; work that a quota covers is
never a candidate.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.decision import Decision
from orchestrator.planner.entitlement import Coverage, Victim, coverage, filling_order
from orchestrator.planner.gangs import give_up_chunks
from orchestrator.planner.model import Amounts, Eviction, Pod, PodState, Workload
from orchestrator.planner.ordering import dominant_share, is_over_share
from orchestrator.planner.quota import gpus, preempt_min_runtime, reclaim_min_runtime
from orchestrator.planner.rules import (
    Figures,
    entitled_amounts,
    exceeds_somewhere,
    holds_more_than_entitled,
    is_better_served,
    plus,
    restores_quota,
    where_they_part,
    within,
)

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Ruling:
    """By which rule a victim's pods may be taken, with the figures that make it so."""

    rule: str
    message: str


ClaimKey = tuple[bool, int, int, int, str]
VictimKey = tuple[int, bool, int, int, str, str]
Judge = Callable[[Victim], Ruling | None]


class Court:
    """Judges which reclaims are lawful on the ledger as it stands."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._ledger = decision.ledger
        self._tree = decision.tree

    def ruling(self, reclaimer: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule by which the victim may be taken now, or None. `asked` is not yet on the ledger."""
        ours, theirs = self._where_they_part(reclaimer.project, victim.workload.project)
        if ours is None or theirs is None:
            return None
        our_side, their_side = self._figures(ours), self._figures(theirs)
        if victim.model:
            return self._ruling_on_model(ours, theirs, asked, victim.model)
        above = f"{theirs} holds {gpus(their_side.held[0])} GPUs"
        if restores_quota(our_side, asked, their_side, their_side.held):
            quota = gpus(their_side.quota[0])
            return Ruling("quota", f"{above}, over its quota of {quota}; {ours} is within its own")
        if holds_more_than_entitled(their_side, their_side.held):
            return Ruling(
                "fair-share", f"{above}, over its fair share of {gpus(entitled_amounts(their_side)[0])}"
            )
        return None

    def _ruling_on_model(self, ours: str, theirs: str, asked: Amounts, model: str) -> Ruling | None:
        """Our quota for the model goes before what they hold of it beyond theirs, though their total covers it."""
        held, quota = self._ledger.model_held, self._tree.model_quota
        mine, lent = held.get((ours, model), 0), held.get((theirs, model), 0)
        our_side = self._figures(ours)
        if (
            mine + asked[0] > quota[ours, model]
            or lent <= quota[theirs, model]
            or not within(plus(our_side.held, asked), our_side.quota)
        ):
            return None
        return Ruling(
            "quota",
            f"{theirs} holds {gpus(lent)} GPUs of {model}, over its quota of {gpus(quota[theirs, model])} for that "
            f"model; {ours} is within its own of {gpus(quota[ours, model])}",
        )

    def leaves_balance(self, reclaimer: Workload, asked: Amounts, victims: Iterable[Victim]) -> bool:
        """Whether, after the evictions, nobody who lost is served worse than the side that takes."""
        resources = [each for each in self._tree.resources if asked[each]]
        for project in sorted({victim.workload.project for victim in victims}):
            ours, theirs = self._where_they_part(reclaimer.project, project)
            if ours is None or theirs is None:
                continue
            taker, loser = self._figures(ours), self._figures(theirs)
            if exceeds_somewhere(plus(taker.held, asked), taker.quota) and is_better_served(
                taker, plus(taker.held, asked), loser, loser.held, resources
            ):
                return False
        return True

    def candidates(self, reclaimer: Workload, model: str | None = None) -> dict[str, list[Victim]]:
        """Borrowed work of others by the side that would lose it, most dispensable first.

        For a claim on a GPU model, also what runs on such GPUs without a quota for them; it comes last.
        """
        by_project: dict[str, list[Workload]] = {}
        for workload in self._decision.running():
            by_project.setdefault(workload.project, []).append(workload)
        sides = {self._where_they_part(reclaimer.project, project)[1] for project in by_project}
        found: dict[str, list[Victim]] = {}
        for side in sorted(side for side in sides if side is not None):
            covered = self._coverage(side, by_project)
            lent = [each for each in covered.lent if each.model == model]
            seconds = self._tree.nearest(side, reclaim_min_runtime)
            found[side] = self._chunks((*lent, *covered.borrowed), seconds)
        return found

    def claim(self, side: str) -> ClaimKey:
        """How strong a side's claim to what it holds is: the weakest, which gives first, sorts first."""
        figures, project = self._figures(side), self._tree.projects[side]
        resources = self._tree.resources
        share = dominant_share(figures.held, entitled_amounts(figures), self._ledger.capacity, resources)
        return (
            not is_over_share(figures, resources),
            project.priority,
            -share,
            -project.created_at_us,
            side,
        )

    def _coverage(self, side: str, by_project: Mapping[str, Sequence[Workload]]) -> Coverage:
        pieces = filling_order(by_project.get(side, ()))
        parts = [self._coverage(child, by_project) for child in self._tree.children.get(side, ())]
        inside = sorted(
            (piece for part in parts for piece in part.covered), key=lambda each: each.workload.preemptible
        )
        pieces += [*inside, *(piece for part in parts for piece in part.borrowed)]
        models = {model: self._tree.model_quota[side, model] for model in self._tree.promised_models}
        return coverage(pieces, self._tree.quota[side], self._tree.resources, models, self._model_of)

    def _model_of(self, pod: Pod) -> str:
        account = self._ledger.by_name.get(pod.node or "")
        return "" if account is None else account.model

    def _chunks(self, borrowed: Iterable[Victim], min_runtime_seconds: int) -> list[Victim]:
        """Borrowed pieces as victims: surplus pods first, the core with everything that the workload holds."""
        chunks: list[Victim] = []
        now_us = self._decision.snapshot.now_us
        for piece in reversed(tuple(borrowed)):
            workload = piece.workload
            if not piece.is_core:
                chunks.append(piece)
            elif not is_protected(workload, min_runtime_seconds, now_us):
                is_all = len(piece.pods) == len(workload.pods)
                chunks.append(
                    piece if is_all else Victim(workload, give_up_chunks(workload)[-1], model=piece.model)
                )
        claims = {each: self.claim(each) for each in {victim.workload.project for victim in chunks}}
        return sorted(
            chunks, key=lambda each: (bool(each.model), claims[each.workload.project], dispensable(each))
        )

    def _where_they_part(self, ours: str, theirs: str) -> tuple[str | None, str | None]:
        return where_they_part(self._tree.lineage[ours], self._tree.lineage[theirs])

    def _figures(self, name: str) -> Figures:
        return self._ledger.figures(name, self._decision.shares)


def dispensable(victim: Victim) -> VictimKey:
    """Sort key of victims of one project: lowest priority, surplus before what a gang needs, youngest."""
    workload = victim.workload
    return (
        workload.priority,
        victim.is_core,
        -workload.started_at_us,
        -workload.created_at_us,
        workload.name,
        workload.id,
    )


def lower_priorities(decision: Decision, preemptor: Workload) -> list[Victim]:
    """What a workload may preempt inside its own project: less urgent work that can be taken back."""
    seconds = decision.tree.nearest(preemptor.project, preempt_min_runtime)
    now_us = decision.snapshot.now_us
    found: list[Victim] = []
    for workload in decision.running():
        if (
            workload.project != preemptor.project
            or not workload.preemptible
            or workload.priority >= preemptor.priority
        ):
            continue
        *surplus, everything = give_up_chunks(workload)
        found += [Victim(workload, chunk, is_core=False) for chunk in surplus]
        if not is_protected(workload, seconds, now_us):
            found.append(Victim(workload, everything))
    return sorted(found, key=dispensable)


def movable(decision: Decision, beneficiary: Workload) -> list[Victim]:
    """What could be moved to make room: the pods of all work that can be taken back."""
    found = [
        Victim(workload, (pod,))
        for workload in decision.running()
        if workload.preemptible
        and workload.id != beneficiary.id
        and all(pod.state is not PodState.RELEASING for pod in workload.pods)
        for pod in reversed(workload.pods)
        if pod.state is PodState.ALLOCATED
    ]
    return sorted(found, key=dispensable)


def is_protected(workload: Workload, min_runtime_seconds: int, now_us: int) -> bool:
    """Whether the workload started too short a time ago to be given up as a whole."""
    return (
        bool(now_us and min_runtime_seconds)
        and now_us < workload.started_at_us + min_runtime_seconds * _SECOND_US
    )


def evictions_for(beneficiary: Workload, taken: Iterable[tuple[Victim, Ruling]]) -> list[Eviction]:
    """The plan's evictions, one for each pod, with the sentence that the pod's owner will read."""
    return [
        Eviction(
            pod=pod.id,
            workload=victim.workload.id,
            beneficiary=beneficiary.id,
            rule=ruling.rule,
            message=(
                f"{gpus(pod.request.gpu_milli)} GPUs reclaimed for {beneficiary.name} of {beneficiary.project} "
                f"by the rule of {ruling.rule}: {ruling.message}"
            ),
        )
        for victim, ruling in taken
        for pod in victim.pods
        if pod.state is PodState.ALLOCATED
    ]
