"""New placements for victims, and the policy for migrations, alone or together with evictions.

The most entitled victim is placed first. Otherwise it would later evict a less entitled victim from its new placement.

A pod within quota is never evicted for another project, but it can be migrated to a nominated placement. So a project
gets its quota if evictions of borrowed pods and such migrations together free enough GPUs.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota_checks import violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk, chunk_amounts, held_parts
from orchestrator.planner.model import Amounts, PodState, Workload
from orchestrator.planner.ordering import PriorityQueue
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.candidates import Candidate
from orchestrator.planner.preemption.node_options import Harm, Option
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.victim_selection import Losses, Order
from orchestrator.planner.preemption.victims import EvictionReason
from orchestrator.planner.session import Session

MOVE_RULE = "consolidation"
_WORK_OF_MOVE = 100
_MAX_MOVES = 16


def move_elsewhere(session: Session, losses: Losses) -> dict[str, Placed]:
    """Place the victims that fit elsewhere on the ledger, most entitled first. Return the placements by workload id.

    In another order, a more entitled victim would later evict a less entitled one from its new placement.

    Example: one GPU is free, and two victims need one each. The victim within quota gets it, and the borrowed victim is
    evicted.
    """
    names = dict.fromkeys(victim.workload.id for victim, _ in losses)
    if len(names) > 1 and _is_full(session, losses):
        return {}
    evicted = {pod.id for victim, _ in losses for pod in victim.pods}
    victims: dict[str, Workload] = {}
    parts: dict[str, deque[Chunk]] = {}
    # without pods that already have another seat
    lost = {
        pod.id
        for name in names
        for pod in session.workload(name).pods
        if pod.id in evicted and session.seats.of(pod) is None
    }
    for name in names:
        victim = victims[name] = session.workload(name)
        if len(victim.pods) == 1:  # nearly always
            parts[name] = deque((victim.pods,) if victim.pods[0].id in lost else ())
        else:
            victims[name] = as_it_ran(victim, lost)
            parts[name] = parts_of_victim(victims[name], lost)
    moved: dict[str, Placed] = {}
    for workload, chunk in by_claim(session, parts):
        placed = None
        if violation(session.ledger, workload, chunk_amounts(chunk)) is None:
            placed = session.place_all(workload, chunk)
        if placed is not None:
            moved.setdefault(workload.id, []).extend(placed)
        elif len(chunk) > 1 or not _keeps_running(victims[workload.id], lost):
            parts[workload.id].clear()  # elastic pods cannot run without their gang
    return moved


def _is_full(session: Session, losses: Losses) -> bool:
    """Return whether all victims need GPUs and no node has a free GPU, also after all terminating pods have ended.

    For a gang that takes all 500 nodes, sorting its 4,000 victims would take 40 % of the decision.
    """
    # the ledger of claims counts their devices
    needs_gpus = all(
        pod.request.amounts[0] > 0 and not pod.claims and pod.extended_claim is None
        for victim, _ in losses
        for pod in victim.pods
    )
    return needs_gpus and not any(account.max_free_milli(later=True) for account in session.ledger.nodes)


def as_it_ran(workload: Workload, lost: Collection[str]) -> Workload:
    """Return the workload with these pods (ids) running, as before their eviction."""
    pods = (pod.in_state(PodState.ALLOCATED) if pod.id in lost else pod for pod in workload.pods)
    return workload.with_pods(tuple(pods))


def parts_of_victim(workload: Workload, evicted: Collection[str]) -> deque[Chunk]:
    """Return the evicted pods of the workload, divided in chunks. Each chunk can start on another node."""
    core, elastic = held_parts(workload)
    pods = [(pod,) for pod in (*core, *elastic) if pod.id in evicted]
    if _keeps_running(workload, evicted):
        return deque(pods)
    return deque([core, *((pod,) for pod in elastic)] if core else pods)


def _keeps_running(workload: Workload, evicted: Collection[str]) -> bool:
    """Return whether at least one pod of the workload keeps running."""
    return any(pod.state is PodState.ALLOCATED and pod.id not in evicted for pod in workload.pods)


def by_claim(session: Session, parts: Mapping[str, deque[Chunk]]) -> Iterator[tuple[Workload, Chunk]]:
    """Yield the chunks, most entitled workload first; the order follows changes of the ledger between two chunks."""
    waiting = [session.workload(name) for name, chunks in parts.items() if chunks]
    if len(waiting) == 1:  # nearly always
        chunks = parts[waiting[0].id]
        while chunks:
            yield waiting[0], chunks.popleft()
        return
    for level in EntitlementTier:
        queue = PriorityQueue(
            session.ledger, session.shares, waiting, lambda workload: parts[workload.id][0], lambda _: 0
        )
        waiting = []
        while (workload := queue.pop()) is not None:
            chunks = parts[workload.id]
            if session.tier(workload, chunks[0]) > level:
                waiting.append(workload)
                queue.settle(workload.project)
                continue
            yield workload, chunks.popleft()
            queue.settle(workload.project, workload if chunks else None)


class MovePolicy:
    """Every preemptible pod may be migrated. If `reclaim` is given, borrowed pods may also be evicted.

    `cap` is the maximum number of pods that are migrated for one workload. If `among` is given, only these pods (ids)
    are evicted. `moved` has the placements of the last accepted outcome.
    """

    moves = True

    def __init__(
        self, cap: int | None, reclaim: ReclaimPolicy | None = None, among: Collection[str] | None = None
    ) -> None:
        self._cap = cap
        self._reclaim = reclaim
        self._among = among
        self.max_moves = _MAX_MOVES if cap is None else min(cap, _MAX_MOVES)
        self._requested: Amounts = (0, 0, 0)
        self.moved: dict[str, Placed] = {}

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Return a key of the workload, because its own pods are not candidates.

        With `reclaim`, the key also contains this policy.
        """
        return (
            "move",
            workload.id,
            () if self._reclaim is None else (id(self), *self._reclaim.key(workload)),
        )

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Store the requested amounts, and prepare the rules of reclaim."""
        self._requested = chunk_amounts(chunk)
        if self._reclaim is not None:
            self._reclaim.start(workload, chunk)

    def may_go(self, workload: Workload, candidate: Candidate) -> bool:
        """Return whether the candidate may be evicted by reclaim. A migration may be chosen only for a pod that
        reclaim may not evict.
        """
        if candidate.is_move:
            return candidate.workload.id != workload.id and not self._is_evictable(workload, candidate)
        return self._is_evictable(workload, candidate)

    def _is_evictable(self, workload: Workload, candidate: Candidate) -> bool:
        reclaim = self._reclaim
        return (
            reclaim is not None
            and (self._among is None or all(pod.id in self._among for pod in candidate.pods))
            and reclaim.may_go(workload, candidate)
            and not reclaim.is_closed(
                workload, self._requested, candidate.project, frees_gpus=candidate.gpu_milli > 0
            )
            and reclaim.is_borrowed(workload, candidate)
        )

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Return false: pods of every project may be migrated."""
        del workload, requested, project, frees_gpus
        return False

    def harm(self, option: Option) -> Harm:
        """Return the harm, with the number of evicted pods compared first and the number of migrated pods last."""
        return option.harm(
            sum(candidate.pod_count for candidate in option.candidates if not candidate.is_move)
        )

    def order(self, workload: Workload) -> Order:
        """Return the sort key: evictions of borrowed pods, then migrations, each by `victim_order`."""
        del workload
        return lambda candidate: (not candidate.is_harmless, candidate.is_move, candidate.order)

    def falls_below_quota(self, workload: Workload, candidates: Sequence[Candidate]) -> bool:
        """Return the result of reclaim for the evicted candidates; migrated pods still count for the quota."""
        evicted = [candidate for candidate in candidates if not candidate.is_move]
        return (
            bool(evicted) and self._reclaim is not None and self._reclaim.falls_below_quota(workload, evicted)
        )

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Return whether the victim is migrated, or borrowed."""
        return victim.is_move or (self._reclaim is not None and self._reclaim.is_borrowed(workload, victim))

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """Return the rule `consolidation` for a migration, else the rule of reclaim."""
        if victim.is_move:
            return EvictionReason(MOVE_RULE, f"migrated so that {workload.name} fits")
        return None if self._reclaim is None else self._reclaim.eviction_reason(workload, requested, victim)

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Return whether all pods that are migrated so far fit elsewhere."""
        if not session.limits.may_evict(victim.pods for victim, _ in losses):
            return False
        checkpoint = session.ledger.checkpoint()
        # The check is made for each pod: after the whole gang is placed, the search cannot try another node.
        fits = self._place_moved(session, losses) is not None
        session.ledger.rollback(checkpoint)
        return fits

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Place all migrated pods on the ledger. Return whether they fit and their number is within the maximums."""
        if not self._is_within_caps(session, losses):
            return False
        moved = self._place_moved(session, losses)
        if moved is None or not self._accepts_evictions(session, workload, losses):
            return False
        self.moved = moved
        return True

    def accepts_placements(
        self, session: Session, workload: Workload, losses: Losses, moved: dict[str, Placed]
    ) -> bool:
        """Return the result of `accepts` for these placements of the migrated pods, and put them on the ledger."""
        if not self._is_within_caps(session, losses):
            return False
        for name, placed in moved.items():
            for pod, where in placed:
                session.ledger.place(session.workload(name), pod, where)
        self.moved = moved
        return self._accepts_evictions(session, workload, losses)

    def _is_within_caps(self, session: Session, losses: Losses) -> bool:
        moves = sum(victim.is_move for victim, _ in losses)
        return (self._cap is None or moves <= self._cap) and session.limits.may_evict(
            victim.pods for victim, _ in losses
        )

    def _accepts_evictions(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Return whether reclaim accepts the evictions, with all migrated pods on their new placements."""
        evicted = [(victim, reason) for victim, reason in losses if not victim.is_move]
        return not evicted or self._reclaim is None or self._reclaim.accepts(session, workload, evicted)

    @staticmethod
    def _place_moved(session: Session, losses: Losses) -> dict[str, Placed] | None:
        moves = [(victim, reason) for victim, reason in losses if victim.is_move]
        session.work.spend(_WORK_OF_MOVE * len(moves))
        moved = move_elsewhere(session, moves)
        complete = sum(map(len, moved.values())) == sum(len(victim.pods) for victim, _ in moves)
        return moved if complete else None
