"""Victims for one pod: the least harmful set of candidates on each node, then the least harmful node.

The harm is compared in this order. Of two sets, the one with the smaller value is chosen.

- whether a project falls below its quota
- the number of candidates that the policy protects most, for example those within quota
- whether a container has started
- the freed GPUs that the pod does not request
- the highest priority of a victim inside its project
- lost GPU time
- the number of evicted pods
- the entitlement of the victims, by the key of `EvictionPolicy.order`
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.accounting.neighbours import Neighbours
from orchestrator.planner.gangs import Chunk
from orchestrator.planner.model import Amounts, Constraints, Pod, Request, Scalars, Workload
from orchestrator.planner.node_sets import NodeSet, node_types_for, positions_in
from orchestrator.planner.preemption.candidates import Candidate, Candidates
from orchestrator.planner.preemption.node_options import Harm, Option, includes_all, minimal_options
from orchestrator.planner.preemption.node_ranking import NodeRanking
from orchestrator.planner.preemption.victims import EvictionReason
from orchestrator.planner.session import Session

Losses = list[tuple[Victim, EvictionReason]]
"""The victims that a search found for one chunk, each with the rule by which it is evicted."""
MAX_NODES = 24
"""Maximum number of nodes that a search with migrations examines for pods of one shape."""
_FEW_NODES = 64
"""With more nodes than this, CPU and memory are rounded up so that similar pods share one ranking."""
_WORK_OF_CHECK = 3
Order = Callable[[Candidate], tuple[object, ...]]


class EvictionPolicy(Protocol):
    """The rules by which workloads may preempt other workloads. `moves`: victims may also be migrated."""

    moves: bool

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Prepare a search for the chunk. No pod of the chunk is on the ledger."""
        ...

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Return a key of the workload's properties on which `may_go` depends."""
        ...

    def may_go(self, workload: Workload, candidate: Candidate) -> bool:
        """Return whether the candidate is a possible victim for the workload."""
        ...

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Return whether the project may lose no pod now. `requested` has the amounts that are not yet on the ledger.

        `frees_gpus` says whether the victims would hold GPUs.
        """
        ...

    def harm(self, option: Option) -> Harm:
        """Return the harm of evicting a set of candidates."""
        ...

    def order(self, workload: Workload) -> Order:
        """Return the sort key of candidates: the least entitled candidate is first."""
        ...

    def falls_below_quota(self, workload: Workload, candidates: Sequence[Candidate]) -> bool:
        """Return whether a project would hold less than its quota without these candidates."""
        ...

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Return whether no quota protects the victim from this workload."""
        ...

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """Return the rule by which the victim may be evicted now, or None. `requested` is not on the ledger yet."""
        ...

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Return whether the search may continue with these victims. All pods placed so far are on the ledger."""
        ...

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Return whether the whole outcome on the ledger is allowed. A policy with `moves` first adds migrated pods."""
        ...


class VictimSelector:
    """Selects victims among the candidates of one decision under one policy, and caches the rankings of nodes.

    `max_nodes` is the maximum number of nodes that are examined for pods of one shape: the nodes with the most free
    GPUs.
    """

    def __init__(
        self,
        session: Session,
        candidates: Candidates,
        policy: EvictionPolicy,
        *,
        max_nodes: int | None = None,
    ) -> None:
        self._max_nodes = max_nodes
        self._session = session
        self._ledger = session.ledger
        self.candidates = candidates
        self.policy = policy
        self._rankings: dict[tuple[object, ...], NodeRanking] = {}
        self._accepting: dict[tuple[Constraints, tuple[str, ...], Scalars, NodeSet], list[int]] = {}
        self._counted: dict[tuple[Request, bool], Request] = {}
        self._cpu_is_ample = self._is_cpu_ample()

    def under(self, policy: EvictionPolicy) -> "VictimSelector":
        """Return a selector of the same candidates under another policy."""
        return VictimSelector(self._session, self.candidates, policy, max_nodes=self._max_nodes)

    def options(
        self, workload: Workload, pod: Pod, requested: Amounts, scope: Collection[int] | None = None
    ) -> Iterator[tuple[NodeAccount, Option]]:
        """Yield nodes, each with candidates whose eviction should make the pod fit there, least harm first.

        Options after which a project would fall below its quota come last. `scope` limits the positions of nodes.
        """
        closed = _Closed(self.policy, workload, requested)
        order = self.policy.order(workload)
        below: list[tuple[NodeAccount, Option]] = []
        nodes = self._ledger.nodes
        exact = len(nodes) <= _FEW_NODES
        for position, option in self._ranking(workload, pod, exact=exact).in_order(closed, order, scope):
            if not self._are_borrowed(workload, option):
                continue
            if self.policy.falls_below_quota(workload, option.candidates):
                below.append((nodes[position], option))
            else:
                yield nodes[position], option
        yield from below

    def harm_by_node(self, workload: Workload, pod: Pod, requested: Amounts) -> dict[int, Harm]:
        """Return, by position of the node, the least harm that makes one such pod fit on it."""
        closed = _Closed(self.policy, workload, requested)
        harms: dict[int, Harm] = {}
        for position, option in self._ranking(workload, pod).options():
            if any(map(closed, option.projects, option.freed_milli)):
                continue
            harm = self.policy.harm(option)
            if harm < harms.get(position, (*harm, 0)) and self._are_borrowed(workload, option):
                harms[position] = harm
        return harms

    def _are_borrowed(self, workload: Workload, option: Option) -> bool:
        return all(self.policy.is_borrowed(workload, candidate) for candidate in option.candidates)

    def retry(self, account: NodeAccount, workload: Workload, pod: Pod, requested: Amounts) -> Option | None:
        """Return the least harmful set of candidates on the node that may all be evicted, or None.

        The rankings check each candidate alone. This search checks each set as a whole, which costs more.
        """
        closed = _Closed(self.policy, workload, requested)
        eligible = [
            candidate
            for candidate in self.candidates.on(account.position, moves=self.policy.moves)
            if not closed(candidate.project, candidate.gpu_milli)
            and self.policy.may_go(workload, candidate)
            and not candidate.is_evicted(self._ledger.evicted)
        ]
        blockers = self._blockers(pod, account.position)
        options, looked = minimal_options(
            account,
            pod.request,
            [] if blockers is None else eligible,
            lambda candidates: (
                (not blockers or includes_all(candidates, blockers))
                and self._all_may_go(workload, requested, candidates)
            ),
        )
        self._session.work.spend(8 * looked)
        order = self.policy.order(workload)
        return min(
            options,
            key=lambda option: (
                self.policy.harm(option),
                sorted(map(order, option.candidates), reverse=True),
            ),
            default=None,
        )

    def in_order(self, workload: Workload) -> Iterator[Candidate]:
        """Yield every candidate that may be evicted and is not evicted yet, the least entitled first."""
        candidates = [
            candidate
            for name in self.candidates.projects
            for candidate in self.candidates.of(name, moves=self.policy.moves)
            if self.policy.may_go(workload, candidate)
        ]
        candidates.sort(key=self.policy.order(workload))
        for candidate in candidates:
            if not candidate.is_evicted(self._ledger.evicted):
                self._session.work.spend(2)
                yield candidate

    def evict(self, workload: Workload, requested: Amounts, candidates: Sequence[Candidate]) -> Losses | None:
        """Evict the candidates on the ledger. Return None if one may not be evicted; the earlier evictions remain."""
        return evict_allowed(self._session, candidates, self.policy, workload, requested)

    def _all_may_go(self, workload: Workload, requested: Amounts, candidates: Sequence[Candidate]) -> bool:
        checkpoint = self._ledger.checkpoint()
        evicted = self.evict(workload, requested, candidates)
        self._ledger.rollback(checkpoint)
        return evicted is not None

    def _blockers(self, pod: Pod, position: int) -> frozenset[str] | None:
        """Return the pods (ids) that exclude the pod from the node by constraints; None if one cannot be evicted."""
        neighbours = self._ledger.neighbours
        return frozenset() if neighbours is None else neighbours.blockers(pod, position)

    def _ranking(self, workload: Workload, pod: Pod, *, exact: bool = False) -> NodeRanking:
        neighbours = self._ledger.neighbours
        if neighbours is not None and neighbours.concerns(pod):
            return self._ranking_beside_others(workload, pod, neighbours)
        types = node_types_for(self._session.tree.projects[workload.project], workload)
        request = self._counted_request(pod.request, exact=exact)
        avoided = self._session.placer.avoided(workload)
        key = (self.policy.key(workload), request, pod.constraints, types, avoided)
        ranking = self._rankings.get(key)
        if ranking is None:
            accepting = (pod.constraints, types, request.scalars, avoided)
            positions = self._accepting.get(accepting)
            if positions is None:
                # Intersect sets of nodes. If each job selects its own hosts, a check of every node would cost
                # jobs times nodes.
                admitting = self._session.placer.admitting(workload, pod) & self.candidates.nodes
                if request.scalars:
                    admitting &= self._session.node_sets.having(request.scalars)
                positions = self._accepting[accepting] = list(positions_in(admitting))
            if self._max_nodes is not None and len(positions) > self._max_nodes:
                nodes = self._ledger.nodes
                emptiest = sorted(positions, key=lambda position: (-nodes[position].later_milli, position))
                positions = sorted(emptiest[: self._max_nodes])
            ranking = self._rankings[key] = NodeRanking(
                self._session,
                self.candidates,
                request,
                positions,
                partial(self.policy.may_go, workload),
                harm=self.policy.harm,
                moves=self.policy.moves,
            )
        ranking.refresh()
        return ranking

    def _ranking_beside_others(self, workload: Workload, pod: Pod, neighbours: Neighbours) -> NodeRanking:
        """Return a ranking for this pod alone, because pods on other nodes change the set of nodes that it can use."""
        admitting = self._session.placer.admitting(workload, pod) & self.candidates.nodes
        admitting &= neighbours.reachable(pod) & self._session.node_sets.having(pod.request.scalars)
        return NodeRanking(
            self._session,
            self.candidates,
            pod.request,
            list(islice(positions_in(admitting), self._max_nodes)),
            partial(self.policy.may_go, workload),
            harm=self.policy.harm,
            moves=self.policy.moves,
            blockers=partial(self._blockers, pod),
        )

    def _counted_request(self, request: Request, *, exact: bool) -> Request:
        """Return the rounded request for which nodes are ranked, so that pods with similar requests share a ranking."""
        known = self._counted.get((request, exact))
        if known is None:
            known = request
            if self._cpu_is_ample:
                known = replace(request, cpu_milli=0, memory_bytes=0)
            elif not exact:
                # Amounts are rounded up, so the real request fits wherever the rounded request fits. A
                # suitable node is missed occasionally, but thousands of different CPU requests need few
                # rankings.
                known = replace(
                    request,
                    cpu_milli=_rounded_up(request.cpu_milli),
                    memory_bytes=_rounded_up(request.memory_bytes),
                )
            self._counted[request, exact] = known
        return known

    def _is_cpu_ample(self) -> bool:
        """Return whether every node has enough CPU, memory and pod slots for every pending pod: only GPUs decide."""
        cpu = memory = 0
        for workload in self._session.pending():
            for pod in self._session.next_chunk(workload):
                cpu, memory = max(cpu, pod.request.cpu_milli), max(memory, pod.request.memory_bytes)
        largest = Request(cpu_milli=cpu, memory_bytes=memory)
        self._session.work.spend(_WORK_OF_CHECK * len(self._ledger.nodes))
        return all(account.has_capacity(largest, later=True) for account in self._ledger.nodes)


def _rounded_up(amount: int) -> int:
    """Return the amount, rounded up by at most an eighth, so that pods with similar requests share a ranking.

    Example: `_rounded_up(17)` returns `18`.
    """
    step = max(1, 1 << max(0, amount.bit_length() - 4))
    return -(-amount // step) * step


class _Closed:
    """The results of `is_closed`, computed once for each project."""

    def __init__(self, policy: EvictionPolicy, workload: Workload, requested: Amounts) -> None:
        self._policy, self._workload, self._requested = policy, workload, requested
        self._known: dict[tuple[str, bool], bool] = {}

    def __call__(self, project: str, gpu_milli: int) -> bool:
        key = (project, gpu_milli > 0)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._policy.is_closed(
                self._workload, self._requested, project, frees_gpus=gpu_milli > 0
            )
        return known


def evict_allowed(
    session: Session,
    victims: Sequence[Victim],
    policy: EvictionPolicy,
    workload: Workload,
    requested: Amounts,
) -> Losses | None:
    """Evict the victims on the ledger one by one. Return None if one may not be evicted.

    In this case the evictions so far stay on the ledger. Pods that only this decision nominated are evicted first.
    If their side is then within its share, its running pods stay.
    """
    losses: Losses = []
    if len(victims) > 1:
        victims = sorted(victims, key=lambda victim: not all(map(session.is_newly_nominated, victim.pods)))
    for victim in victims:
        reason = policy.eviction_reason(workload, requested, victim)
        is_protected = not (
            policy.is_borrowed(workload, victim) and session.limits.budgets_allow(victim.pods)
        )
        if reason is None or is_protected:
            return None
        for pod in victim.pods:
            session.ledger.evict(victim.workload, pod)
        losses.append((victim, reason))
    return losses
