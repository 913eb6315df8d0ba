"""The rules that decide from which projects a project may reclaim GPUs, for the current state of the ledger.

Two sides are compared at the level of the project tree at which their lineages diverge. By the rule `fair-share`, a
side can lose pods if it holds more than its fair share. By the rule `quota`, its own quota counts instead, and the
preemptor's side must stay within its quota.

A pod within the quota of its side is not evicted. There is one exception: a preemptor that is bound to a GPU model and
within its quotas for it. It can evict a pod within quota if the pod could also run on another model.

A workload within its GPU quota can also reclaim the CPUs and memory that the GPUs of a node need.
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
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota import reclaim_min_runtime
from orchestrator.planner.accounting.quota_checks import keeps_limits
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts, Pod, Workload
from orchestrator.planner.ordering import dominant_share, is_over_share
from orchestrator.planner.preemption.candidates import Candidate
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
from orchestrator.planner.preemption.within_quota import WithinQuota
from orchestrator.planner.session import Session

SideKey = tuple[bool, int, int, int, str]


class ReclaimPolicy:
    """The rules by which projects reclaim from each other, for one decision."""

    moves = False

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ledger = session.ledger
        self._tree = session.tree
        self._entitled: dict[str, Amounts] = {}
        self._parting: dict[tuple[str, str], tuple[str | None, str | None]] = {}
        self._promising: dict[tuple[str, str], bool] = {}
        self._side_keys: dict[str, tuple[tuple[int, ...], SideKey]] = {}
        self._within_quota = session.once(WithinQuota)
        self._claimed_model: str | None = None
        self._claimed: Amounts = (0, 0, 0)
        self._has_protection = bool(session.snapshot.now_us) and any(
            project.reclaim_min_runtime_seconds for project in self._tree.projects.values()
        )

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Return the key of the cached candidates. If minimum runtimes are set, it depends on the preemptor's project.

        The minimum runtime is that of the victim's side, at the level at which the two lineages diverge.
        """
        return ("reclaim", workload.project if self._has_protection else "")

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Store the requested amounts, and the GPU model if the chunk is bound to it and within the quotas for it."""
        self._claimed = chunk_amounts(chunk)
        model = self._session.models.claim(workload, chunk) if self._tree.models_with_quota else None
        self._claimed_model = model if model in self._tree.models_with_quota else None

    def may_go(self, workload: Workload, candidate: Candidate) -> bool:
        """Return whether the candidate is possibly borrowed and, unless it is elastic, has run for its minimum runtime.

        Without minimum runtimes, candidates of the preemptor's own project are not excluded here but by `is_closed`. So
        the result is the same for all preemptors, and they can share one ranking.
        """
        if candidate.is_move or self._within_quota.is_firm(candidate):
            return False
        if not self._has_protection or not candidate.is_core:
            return True
        _, theirs = self._divergence_point(workload.project, candidate.project)
        if theirs is None:
            return False
        seconds = self._tree.nearest(theirs, reclaim_min_runtime)
        return not is_protected(candidate.workload, seconds, self._session.snapshot.now_us)

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Return whether no rule now allows the eviction of any pod of the project."""
        ours, theirs = self._divergence_point(workload.project, project)
        if ours is None or theirs is None:
            return True
        if not frees_gpus and self._may_take_cpus(workload, requested, project):
            return False
        held = self._ledger.allocated[theirs]
        entitled = self._entitled.get(theirs)
        if entitled is None:
            entitled = self._entitled[theirs] = entitled_amounts(self._figures(theirs))
        if held[0] > entitled[0] or held[1] > entitled[1] or held[2] > entitled[2]:
            return False
        return self._reason(workload, requested, project) is None

    def harm(self, option: Option) -> Harm:
        """Return the harm, with the number of candidates within quota compared first."""
        return option.harm(option.covered)

    def order(self, workload: Workload) -> Order:
        """Return the sort key: pods that never started, then the least entitled side, then `victim_order`."""
        sides: dict[str, SideKey] = {}

        def key(candidate: Candidate) -> tuple[object, ...]:
            side = sides.get(candidate.project)
            if side is None:
                theirs = self._divergence_point(workload.project, candidate.project)[1] or candidate.project
                side = sides[candidate.project] = self._side_key(theirs)
            return (not candidate.is_harmless, candidate.has_started, side, candidate.order)

        return key

    def falls_below_quota(self, workload: Workload, candidates: Sequence[Candidate]) -> bool:
        """Return whether a project or department on the victims' side would fall below its quota without them."""
        victims: dict[str, list[Pod]] = {}
        for candidate in candidates:
            pods = victims.setdefault(candidate.workload.id, [])
            pods += [pod for pod in candidate.pods if pod.id not in self._ledger.evicted]
        if not self._has_any_quota(workload, victims):
            return False
        lost_amounts: dict[str, list[int]] = {}
        lost_of_model: dict[tuple[str, str], int] = {}
        for name, pods in victims.items():
            loser = self._session.workload(name)
            for pod in {pod.id: pod for pod in pods}.values():
                amounts, model = pod.request.amounts, self._within_quota.model_of(pod)
                for side in self._lineage_below(workload.project, loser.project):
                    sums = lost_amounts.setdefault(side, [0, 0, 0])
                    for resource in self._tree.resources:
                        sums[resource] += amounts[resource]
                    if model in self._tree.models_with_quota:
                        key = (side, model)
                        lost_of_model[key] = lost_of_model.get(key, 0) + amounts[0]
        lost = {name: tuple(sums) for name, sums in lost_amounts.items()}
        self._add_stale(victims, lost_amounts, lost_of_model)
        for name, sums in lost_amounts.items():
            held, quota = self._ledger.allocated[name], self._tree.quota[name]
            for resource in self._tree.resources:
                # An unlimited GPU quota guarantees all GPUs. An unlimited quota of CPU or memory guarantees
                # nothing.
                is_guaranteed = quota[resource] < UNLIMITED or resource == 0
                remaining = held[resource] - sums[resource]
                if is_guaranteed and lost[name][resource] and remaining < quota[resource]:
                    return True
        return any(
            self._ledger.model_held.get((name, model), 0) - amount < self._tree.model_quota[name, model]
            for (name, model), amount in lost_of_model.items()
        )

    def _has_any_quota(self, workload: Workload, victims: Iterable[str]) -> bool:
        """Return whether an eviction of these workloads could violate a quota of a project or department.

        If there is a quota for a GPU model, the result is always true.
        """
        if self._tree.models_with_quota:
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
        lost_amounts: Mapping[str, list[int]],
        lost_of_model: dict[tuple[str, str], int],
    ) -> None:
        """Add the pods of stale gangs to the lost amounts, because this decision evicts them at its end."""
        for gang, survivors in self._session.stale_gangs():
            lineage = () if gang.id in victims else self._tree.lineage.get(gang.project, ())
            for pod, side in product(survivors, lineage):
                amounts, key = pod.request.amounts, (side, self._within_quota.model_of(pod))
                if side in lost_amounts:
                    lost_amounts[side][:] = map(add, lost_amounts[side], amounts)
                if key in lost_of_model:
                    lost_of_model[key] += amounts[0]

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Return whether the victim is beyond the quota of its side, or beyond its quota for the claimed GPU model."""
        _, theirs = self._divergence_point(workload.project, victim.workload.project)
        if theirs is None:
            return False
        if self._holds_needed_cpus(workload, victim):
            return True
        covered = self._within_quota.pods(theirs, self._claimed_model)
        return not any(pod.id in covered for pod in victim.pods)

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """Return the rule by which the victim may be evicted now, or None. `requested` is not yet on the ledger.

        The elastic pods of a gang are evicted together with its core. By the rule `fair-share`, the core is a victim
        only if its side is over its fair share even without the elastic pods.

        Example: a side with a fair share of 4 GPUs runs a gang of 4 and an elastic pod of 1. If the core were evicted,
        the next decision would let this side reclaim 4 GPUs.
        """
        behind = plus(held_behind(self._session, victim.workload), self._elastic_amounts_of(victim))
        project = victim.workload.project
        reason = self._reason(workload, requested, project, chunk_amounts(victim.pods), behind=behind)
        if (
            reason is None
            and self._holds_needed_cpus(workload, victim)
            and self._may_take_cpus(workload, requested, project)
        ):
            reason = EvictionReason(
                "quota",
                f"{victim.workload.name} holds CPUs and memory that the GPUs of its node need; {workload.project} is "
                "within its quota",
            )
        return reason

    def _may_take_cpus(self, workload: Workload, requested: Amounts, project: str) -> bool:
        """Return whether the requested GPUs are within quota, and no CPU or memory quota protects the project."""
        ours, _ = self._divergence_point(workload.project, project)
        if ours is None or not self._has_no_cpu_quota(workload, project):
            return False
        side = self._figures(ours)
        return not exceeds_where_requested(plus(side.held, requested), side.quota, requested)

    def _has_no_cpu_quota(self, workload: Workload, project: str) -> bool:
        quotas = (self._tree.quota[name] for name in self._lineage_below(workload.project, project))
        return bool(self._claimed[0]) and all(min(cpu, memory) >= UNLIMITED for _, cpu, memory in quotas)

    def _holds_needed_cpus(self, workload: Workload, victim: Victim) -> bool:
        """Return whether the victim has no GPUs, and uses CPUs or memory that the GPUs of its node need.

        Each GPU needs an equal portion of the CPUs and the memory of its node. Example: 8 CPUs on a node with 8 GPUs
        and 64 CPUs. A preemptor that requests more than this portion for each of its GPUs cannot evict such a victim.
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
        ) and self._has_no_cpu_quota(workload, victim.workload.project)

    def _elastic_amounts_of(self, victim: Victim) -> Amounts:
        """Return the amounts of the victim's running elastic pods, if the victim is the whole workload."""
        needed = {pod.id for pod in needed_pods(victim)}
        elastic = (pod for pod in victim.pods if pod.id not in needed)
        return chunk_amounts(
            [
                pod
                for pod in elastic
                if pod.id not in self._ledger.evicted and not self._session.seats.is_nominated(pod)
            ]
        )

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Return whether the decision stays within its maximum number of evictions with these victims."""
        return session.limits.may_evict(victim.pods for victim, _ in losses)

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Return whether maximums and limits are kept, and no losing side gets less of its fair share than the
        preemptor's side.
        """
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
        """Return the rule by which the project may lose a pod now. If `victim` is given, it is the amounts of this pod.

        A victim must use a resource of which its side holds too much. If the side only borrows GPUs, the eviction of a
        pod without GPUs has no effect: the pod would start again. `behind` is subtracted before the comparison with the
        fair share. It is the result of `held_behind`.
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
        """Return the rule `quota` if side `theirs` is beyond its quota for the model and `ours` is within it, else
        None.

        The side `theirs` can be within its total quota.
        """
        held, quota = self._ledger.model_held, self._tree.model_quota
        mine, of_other = held.get((ours, model), 0), held.get((theirs, model), 0)
        our_side = self._figures(ours)
        if (
            mine + requested[0] > quota[ours, model]
            or of_other <= quota[theirs, model]
            or exceeds_where_requested(plus(our_side.held, requested), our_side.quota, requested)
        ):
            return None
        return EvictionReason(
            "quota",
            f"{theirs} holds {amount_text(of_other, 0)} of {model}, over its quota of {gpus(quota[theirs, model])} for "
            f"that model; {ours} is within its own of {gpus(quota[ours, model])}",
        )

    def _leaves_balance(self, reclaimer: Workload, victims: Sequence[Victim]) -> bool:
        """Return whether, after the evictions, no losing side gets less of its fair share than the preemptor's side."""
        requested = chunk_amounts(self._session.next_chunk(reclaimer))
        for project in sorted({victim.workload.project for victim in victims}):
            ours, theirs = self._divergence_point(reclaimer.project, project)
            if ours is None or theirs is None:
                continue
            taker, loser = self._figures(ours), self._figures(theirs)
            # within its quota, the preemptor's side may reclaim even if the losing side is then served worse
            if exceeds_where_requested(taker.held, taker.quota, requested) and is_better_served(
                taker, taker.held, loser, loser.held, self._tree.resources
            ):
                return False
        return True

    def _side_key(self, side: str) -> SideKey:
        """Return the sort key of a side.

        The side that is least entitled to its GPUs comes first and loses pods first.
        """
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

    def _exceeded(self, held: Amounts, bounds: Amounts, victim: Amounts | None) -> int | None:
        """Return the index of the first resource of which `held` exceeds `bounds`, or None.

        If `victim` is given, only resources that it uses count.
        """
        for resource in self._tree.resources:
            if held[resource] > bounds[resource] and (victim is None or victim[resource]):
                return resource
        return None

    def _lineage_below(self, ours: str, theirs: str) -> Sequence[str]:
        """Return the project `theirs` and its departments, up to the level at which the lineage differs from `ours`."""
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
