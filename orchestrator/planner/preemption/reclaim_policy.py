"""Whom a project may take GPUs back from, on the ledger as it stands.

At the level where two lineages part, a side may lose a piece when it holds more than it may (rule `fair-share`) or more
than its quota while the taking side stays within its own (rule `quota`).

A pod within the quota of its side stays, unless a claim is on its GPU model and the quota would hold on another. CPUs
and memory that the GPUs of a node need can be taken back for a claim on GPUs within the quota.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from operator import add

from orchestrator.planner.accounting.amounts import (
    Figures,
    amount_text,
    entitled_amounts,
    exceeds_where_requested,
    gpus,
    minus,
    plus,
)
from orchestrator.planner.accounting.coverage import (
    Coverage,
    Victim,
    coverage,
    filling_order,
    in_filling_order,
)
from orchestrator.planner.accounting.quota import reclaim_min_runtime
from orchestrator.planner.accounting.quota_checks import keeps_limits
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts, Pod, Workload
from orchestrator.planner.ordering import dominant_share, is_over_share
from orchestrator.planner.preemption.candidates import Piece
from orchestrator.planner.preemption.node_options import Harm, Option
from orchestrator.planner.preemption.nominations import held_behind
from orchestrator.planner.preemption.victim_selection import Losses, Order
from orchestrator.planner.preemption.victims import (
    EvictionReason,
    divergence_point,
    is_better_served,
    is_protected,
    needed_pods,
    restores_quota,
)
from orchestrator.planner.session import Session

SideKey = tuple[bool, int, int, int, str]


class ReclaimPolicy:
    """What one project may reclaim from others, for one decision."""

    moves = False

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ledger = session.ledger
        self._tree = session.tree
        self._entitled: dict[str, Amounts] = {}
        self._parting: dict[tuple[str, str], tuple[str | None, str | None]] = {}
        self._promising: dict[tuple[str, str], bool] = {}
        self._side_keys: dict[str, tuple[tuple[int, ...], SideKey]] = {}
        self._covered: dict[tuple[str, str | None], frozenset[str]] = {}
        self._coverage_version = -1
        self._claimed_model: str | None = None
        self._claimed: Amounts = (0, 0, 0)
        self._has_protection = bool(session.snapshot.now_us) and any(
            project.reclaim_min_runtime_seconds for project in self._tree.projects.values()
        )

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Protection depends on where the lineages part, everything else on the piece's project alone."""
        return ("reclaim", workload.project if self._has_protection else "")

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Note what is claimed, and of which GPU model."""
        self._claimed = chunk_amounts(chunk)
        model = self._session.models.claim(workload, chunk) if self._tree.promised_models else None
        self._claimed_model = model if model in self._tree.promised_models else None

    def may_go(self, workload: Workload, piece: Piece) -> bool:
        """Whether the piece has run for as long as its project asks for.

        Pieces of the own project are left to `is_closed`: without protection this is the same for all claimants, and
        what is counted for one is used for the next.
        """
        if piece.is_move:
            return False
        if not self._has_protection or not piece.is_core:
            return True
        _, theirs = self._divergence_point(workload.project, piece.project)
        if theirs is None:
            return False
        seconds = self._tree.nearest(theirs, reclaim_min_runtime)
        return not is_protected(piece.workload, seconds, self._session.snapshot.now_us)

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Whether no rule lets the project lose anything now."""
        ours, theirs = self._divergence_point(workload.project, project)
        if ours is None or theirs is None:
            return True
        if not frees_gpus and self._takes_lent_cpus(workload, requested, project):
            return False
        held = self._ledger.allocated[theirs]
        entitled = self._entitled.get(theirs)
        if entitled is None:
            entitled = self._entitled[theirs] = entitled_amounts(self._figures(theirs))
        if held[0] > entitled[0] or held[1] > entitled[1] or held[2] > entitled[2]:
            return False
        return self._reason(workload, requested, project) is None

    def harm(self, option: Option) -> Harm:
        """Pods within quota count first."""
        return option.harm(option.covered)

    def order(self, workload: Workload) -> Order:
        """Pods that have not started first, then the side with the weakest claim, then `victim_order`."""
        sides: dict[str, SideKey] = {}

        def key(piece: Piece) -> tuple[object, ...]:
            side = sides.get(piece.project)
            if side is None:
                theirs = self._divergence_point(workload.project, piece.project)[1] or piece.project
                side = sides[piece.project] = self._side_key(theirs)
            return (not piece.is_harmless, piece.has_started, side, piece.order)

        return key

    def falls_below_quota(self, workload: Workload, pieces: Sequence[Piece]) -> bool:
        """Whether a project, or a department on its side, would hold less than its quota without these pieces."""
        victims: dict[str, list[Pod]] = {}
        for piece in pieces:
            pods = victims.setdefault(piece.workload.id, [])
            pods += [pod for pod in piece.pods if pod.id not in self._ledger.evicted]
        if not self._promises_anything(workload, victims):
            return False
        leaving: dict[str, list[int]] = {}
        leaving_model: dict[tuple[str, str], int] = {}
        for name, pods in victims.items():
            loser = self._session.workload(name)
            for pod in {pod.id: pod for pod in pods}.values():
                amounts, model = pod.request.amounts, self._model_of(pod)
                for side in self._lineage_below(workload.project, loser.project):
                    sums = leaving.setdefault(side, [0, 0, 0])
                    for resource in self._tree.resources:
                        sums[resource] += amounts[resource]
                    if model in self._tree.promised_models:
                        key = (side, model)
                        leaving_model[key] = leaving_model.get(key, 0) + amounts[0]
        lost = {name: tuple(sums) for name, sums in leaving.items()}
        self._add_stale(victims, leaving, leaving_model)
        for name, sums in leaving.items():
            held, quota = self._ledger.allocated[name], self._tree.quota[name]
            for resource in self._tree.resources:
                # CPU without a bound is promised to nobody; a GPU quota without a bound promises all GPUs.
                promised = quota[resource] < UNLIMITED or resource == 0
                remaining = held[resource] - sums[resource]
                if promised and lost[name][resource] and remaining < quota[resource]:
                    return True
        return any(
            self._ledger.model_held.get((name, model), 0) - amount < self._tree.model_quota[name, model]
            for (name, model), amount in leaving_model.items()
        )

    def _promises_anything(self, workload: Workload, victims: Iterable[str]) -> bool:
        """Whether quotas, be it for a GPU model, promise these workloads' sides anything that they could lose."""
        if self._tree.promised_models:
            return True
        for name in victims:
            key = (workload.project, self._session.workload(name).project)
            known = self._promising.get(key)
            if known is None:
                quotas = [self._tree.quota[side] for side in self._lineage_below(*key)]
                known = self._promising[key] = any(
                    gpu or 0 < cpu < UNLIMITED or 0 < memory < UNLIMITED for gpu, cpu, memory in quotas
                )
            if known:
                return True
        return False

    def _add_stale(
        self,
        victims: Collection[str],
        leaving: Mapping[str, list[int]],
        leaving_model: dict[tuple[str, str], int],
    ) -> None:
        """Add what is left of stale gangs, which goes at the end of this decision: nobody has a quota by it."""
        for gang, survivors in self._session.stale_gangs():
            lineage = () if gang.id in victims else self._tree.lineage.get(gang.project, ())
            for pod, side in product(survivors, lineage):
                amounts, key = pod.request.amounts, (side, self._model_of(pod))
                if side in leaving:
                    leaving[side][:] = map(add, leaving[side], amounts)
                if key in leaving_model:
                    leaving_model[key] += amounts[0]

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Whether no quota covers the victim; for a claim on a GPU model, whether none for that model does."""
        _, theirs = self._divergence_point(workload.project, victim.workload.project)
        if theirs is None:
            return False
        if self._holds_lent_cpus(workload, victim):
            return True
        covered = self._covered_of(theirs)
        return not any(pod.id in covered for pod in victim.pods)

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """The rule by which the victim may be taken now, or None. `requested` is not yet on the ledger.

        What a workload needs to run goes by the rule `fair-share` only if its surplus, which goes with it, is not all
        that its side holds too much of: it would be entitled to come back, and whoever took its place, in turn.
        """
        behind = plus(held_behind(self._session, victim.workload), self._surplus_of(victim))
        project = victim.workload.project
        reason = self._reason(workload, requested, project, chunk_amounts(victim.pods), behind=behind)
        if (
            reason is None
            and self._holds_lent_cpus(workload, victim)
            and self._takes_lent_cpus(workload, requested, project)
        ):
            reason = EvictionReason(
                "quota",
                f"{victim.workload.name} holds CPUs and memory that the GPUs of its node need; {workload.project} is "
                "within its quota",
            )
        return reason

    def _takes_lent_cpus(self, workload: Workload, requested: Amounts, project: str) -> bool:
        """Whether the claim is on GPUs within the quota, and no quota of CPUs or memory protects the project."""
        ours, _ = self._divergence_point(workload.project, project)
        if ours is None or not self._lends_cpus(workload, project):
            return False
        side = self._figures(ours)
        return not exceeds_where_requested(plus(side.held, requested), side.quota, requested)

    def _lends_cpus(self, workload: Workload, project: str) -> bool:
        quotas = (self._tree.quota[name] for name in self._lineage_below(workload.project, project))
        return bool(self._claimed[0]) and all(min(cpu, memory) >= UNLIMITED for _, cpu, memory in quotas)

    def _holds_lent_cpus(self, workload: Workload, victim: Victim) -> bool:
        """Whether the victim holds no GPUs, and CPUs or memory of a node whose GPUs need them.

        Each GPU needs an equal part of the CPUs and the memory of its node. A claim on more than that part for each of
        its GPUs takes nothing from such victims.
        """
        if any(pod.request.gpu_milli for pod in victim.pods):
            return False
        gpu_milli, cpu_milli, memory_bytes = self._claimed
        accounts = (self._ledger.by_name.get(pod.node or "") for pod in victim.pods)
        return any(
            (gpus_milli := account.node.gpu_count * DEVICE_MILLI)
            and cpu_milli * gpus_milli <= account.node.cpu_milli * gpu_milli
            and memory_bytes * gpus_milli <= account.node.memory_bytes * gpu_milli
            for account in accounts
            if account is not None
        ) and self._lends_cpus(workload, victim.workload.project)

    def _surplus_of(self, victim: Victim) -> Amounts:
        """What runs of the victim beyond what its workload needs, if it is all of the workload."""
        needed = {pod.id for pod in needed_pods(victim)}
        surplus = (pod for pod in victim.pods if pod.id not in needed)
        return chunk_amounts(
            [
                pod
                for pod in surplus
                if pod.id not in self._ledger.evicted and not self._session.seats.is_nominated(pod)
            ]
        )

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Whether the cap on evictions is kept so far."""
        return session.limits.may_evict(victim.pods for victim, _ in losses)

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Whether nobody who lost is served worse than the side that took, and quotas and limits are kept."""
        victims = [victim for victim, _ in losses]
        return (
            session.limits.may_evict(victim.pods for victim in victims)
            and keeps_limits(session.ledger, workload)
            and self._leaves_balance(workload, victims)
        )

    def _reason(
        self,
        workload: Workload,
        requested: Amounts,
        project: str,
        victim: Amounts | None = None,
        *,
        behind: Amounts = (0, 0, 0),
    ) -> EvictionReason | None:
        """The rule by which the project may lose something, or what `victim` holds, now.

        A victim holds some of what its side holds too much of: work without GPUs does not go because others of its
        side borrow GPUs. It would come back, and nothing would be settled. Nor does a victim that waits for its room
        lose it because less urgent work of its project, which holds `behind`, got some meanwhile.
        """
        ours, theirs = self._divergence_point(workload.project, project)
        if ours is None or theirs is None:
            return None
        our_side, their_side = self._figures(ours), self._figures(theirs)
        over = self._exceeded(their_side.held, their_side.quota, victim)
        if over is not None and restores_quota(our_side, requested, their_side, their_side.held):
            return EvictionReason(
                "quota",
                f"{theirs} holds {amount_text(their_side.held[over], over)}, over its quota of "
                f"{amount_text(their_side.quota[over], over)}; {ours} is within its own",
            )
        entitled = entitled_amounts(their_side)
        over = self._exceeded(minus(their_side.held, behind), entitled, victim)
        if over is not None:
            return EvictionReason(
                "fair-share",
                f"{theirs} holds {amount_text(their_side.held[over], over)}, over its fair share of "
                f"{amount_text(entitled[over], over)}",
            )
        model = self._claimed_model
        return None if model is None else self._model_reason(ours, theirs, requested, model)

    def _model_reason(self, ours: str, theirs: str, requested: Amounts, model: str) -> EvictionReason | None:
        """Our quota for the model goes before what they hold of it beyond theirs, though their total covers it."""
        held, quota = self._ledger.model_held, self._tree.model_quota
        mine, lent = held.get((ours, model), 0), held.get((theirs, model), 0)
        our_side = self._figures(ours)
        if (
            mine + requested[0] > quota[ours, model]
            or lent <= quota[theirs, model]
            or exceeds_where_requested(plus(our_side.held, requested), our_side.quota, requested)
        ):
            return None
        return EvictionReason(
            "quota",
            f"{theirs} holds {amount_text(lent, 0)} of {model}, over its quota of {gpus(quota[theirs, model])} for "
            f"that model; {ours} is within its own of {gpus(quota[ours, model])}",
        )

    def _leaves_balance(self, reclaimer: Workload, victims: Sequence[Victim]) -> bool:
        """Whether, after the evictions, nobody who lost is served worse than the side that takes."""
        requested = chunk_amounts(self._session.next_chunk(reclaimer))
        for project in sorted({victim.workload.project for victim in victims}):
            ours, theirs = self._divergence_point(reclaimer.project, project)
            if ours is None or theirs is None:
                continue
            taker, loser = self._figures(ours), self._figures(theirs)
            # Within its quota the taker gets what is promised, however the loser is served.
            if exceeds_where_requested(taker.held, taker.quota, requested) and is_better_served(
                taker, taker.held, loser, loser.held, self._tree.resources
            ):
                return False
        return True

    def _side_key(self, side: str) -> SideKey:
        """How strong a side's claim to what it holds is: the weakest, which gives first, sorts first."""
        held = tuple(self._ledger.allocated[side])
        known = self._side_keys.get(side)
        if known is not None and known[0] == held:
            return known[1]
        figures, project = self._figures(side), self._tree.projects[side]
        resources = self._tree.resources
        share = dominant_share(figures.held, entitled_amounts(figures), self._ledger.capacity, resources)
        key = (
            not is_over_share(figures, resources),
            project.priority,
            -share,
            -project.created_at_us,
            side,
        )
        self._side_keys[side] = (held, key)
        return key

    def _covered_of(self, side: str) -> frozenset[str]:
        """Return the ids of the side's pods within quota, less those that another model would serve as well."""
        if self._coverage_version != len(self._session.seats.evictions):
            self._covered.clear()
            self._coverage_version = len(self._session.seats.evictions)
        key = (side, self._claimed_model)
        covered = self._covered.get(key)
        if covered is None:
            whole = self._coverage(side)
            lent = {pod.id for part in whole.lent if part.model == self._claimed_model for pod in part.pods}
            pods = (pod.id for part in whole.covered for pod in part.pods)
            covered = self._covered[key] = frozenset(pods) - lent
        return covered

    def _coverage(self, side: str) -> Coverage:
        children = self._tree.children.get(side, ())
        own = filling_order(self._session.running(side))
        if children:
            parts = [(child, self._coverage(child)) for child in children]
            inside = in_filling_order(piece for _, part in parts for piece in part.covered)
            # Work that took a sibling's place by its fair share does not make way before what that sibling borrows.
            fair = [piece for child, part in parts for piece in self._within_share(child, part)]
            known = set(map(id, fair))
            beyond = (piece for _, part in parts for piece in part.borrowed if id(piece) not in known)
            pieces = [*inside, *in_filling_order(fair), *in_filling_order([*own, *beyond])]
        else:
            pieces = own
        models = {model: self._tree.model_quota[side, model] for model in self._tree.promised_models}
        return coverage(pieces, self._tree.quota[side], self._tree.resources, models, self._model_of)

    def _within_share(self, name: str, part: Coverage) -> Sequence[Victim]:
        """What the project's fair share of GPUs covers beyond its quota."""
        figures = self._figures(name)
        entitled_milli = entitled_amounts(figures)[0]
        if not part.borrowed or entitled_milli <= figures.quota[0]:
            return ()
        bounds = (entitled_milli, UNLIMITED, UNLIMITED)
        within = coverage([*part.covered, *part.borrowed], bounds, resources=(0,)).covered
        borrowed = set(map(id, part.borrowed))
        return [piece for piece in within if id(piece) in borrowed]

    def _model_of(self, pod: Pod) -> str:
        account = self._ledger.by_name.get(pod.node or "")
        return "" if account is None else account.model

    def _exceeded(self, held: Amounts, bounds: Amounts, victim: Amounts | None) -> int | None:
        """The first resource of which more is held than the bound, some of it by the victim, if given."""
        for resource in self._tree.resources:
            if held[resource] > bounds[resource] and (victim is None or victim[resource]):
                return resource
        return None

    def _lineage_below(self, ours: str, theirs: str) -> Sequence[str]:
        """The other project and its departments up to where the lineages part."""
        lineage = self._tree.lineage[theirs]
        side = self._divergence_point(ours, theirs)[1]
        return lineage[: lineage.index(side) + 1] if side is not None else lineage

    def _divergence_point(self, ours: str, theirs: str) -> tuple[str | None, str | None]:
        key = (ours, theirs)
        known = self._parting.get(key)
        if known is None:
            known = divergence_point(self._tree.lineage[ours], self._tree.lineage[theirs])
            self._parting[key] = known
        return known

    def _figures(self, name: str) -> Figures:
        return self._ledger.figures(name, self._session.shares)
