"""Victims for one pod: on every node the least harmful set of pieces, then the least harmful node.

Harm, in this order: a project falls below what its quota covers; GPUs are freed that no pod asked for; priority inside
the victim's project; lost work; evicted pods; the side that holds most beyond its claim, and the youngest of it.
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
from orchestrator.planner.preemption.candidates import Candidates, Piece
from orchestrator.planner.preemption.node_options import Harm, Option, includes_all, minimal_options
from orchestrator.planner.preemption.node_ranking import NodeRanking
from orchestrator.planner.preemption.victims import EvictionReason
from orchestrator.planner.session import Session

Losses = list[tuple[Victim, EvictionReason]]
"""What a search takes for one chunk: the victims, and the rule by which each may go."""
MAX_NODES = 24
"""Nodes that a search for moves or reclaims looks at for one shape of pods."""
_FEW_NODES = 64
"""With more nodes than this, CPU and memory are rounded up so that similar pods share what is counted."""
_WORK_OF_CHECK = 3
Order = Callable[[Piece], tuple[object, ...]]


class EvictionPolicy(Protocol):
    """Whom workloads may make give way. `moves`: whether pods may be moved as well."""

    moves: bool

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Prepare for a search for the chunk, nothing of which is on the ledger."""
        ...

    def key(self, workload: Workload) -> tuple[object, ...]:
        """What `may_go` depends on, apart from the piece."""
        ...

    def may_go(self, workload: Workload, piece: Piece) -> bool:
        """Whether the piece is a candidate for the workload at all."""
        ...

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Whether the project may not lose anything now; `requested` is what is not on the ledger yet.

        `frees_gpus`: whether what it would lose holds GPUs.
        """
        ...

    def harm(self, option: Option) -> Harm:
        """The harm of a set of pieces."""
        ...

    def order(self, workload: Workload) -> Order:
        """Sort key of pieces: who has least to lose is first."""
        ...

    def falls_below_quota(self, workload: Workload, pieces: Sequence[Piece]) -> bool:
        """Whether somebody would hold less than the quota promises without these pieces."""
        ...

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Whether the victim may go as far as quotas are concerned: none of another project covers it."""
        ...

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """The rule by which the victim may go now; `requested` is what is not on the ledger yet."""
        ...

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Whether it is worth going on with these victims; the pod for which the last ones went is placed."""
        ...

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Whether the outcome on the ledger is allowed as a whole; may add to the ledger."""
        ...


class VictimSelector:
    """Selects victims among the candidates of one decision under one policy. What was counted once is kept.

    `max_nodes`: only so many nodes, those where most is free, are looked at for one shape of pods.
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
        """A selector of the same candidates under another policy."""
        return VictimSelector(self._session, self.candidates, policy, max_nodes=self._max_nodes)

    def options(
        self, workload: Workload, pod: Pod, requested: Amounts, scope: Collection[int] | None = None
    ) -> Iterator[tuple[NodeAccount, Option]]:
        """Nodes, of `scope` if given, with the pieces after which the pod should fit there, least harm first."""
        closed = _Closed(self.policy, workload, requested)
        order = self.policy.order(workload)
        below: list[tuple[NodeAccount, Option]] = []
        nodes = self._ledger.nodes
        exact = len(nodes) <= _FEW_NODES
        for position, option in self._ranking(workload, pod, exact=exact).in_order(closed, order, scope):
            if not all(self.policy.is_borrowed(workload, piece) for piece in option.pieces):
                continue
            if self.policy.falls_below_quota(workload, option.pieces):
                below.append((nodes[position], option))
            else:
                yield nodes[position], option
        yield from below

    def harm_by_node(self, workload: Workload, pod: Pod, requested: Amounts) -> dict[int, Harm]:
        """Return the least harm with which one such pod fits on a node, by position."""
        closed = _Closed(self.policy, workload, requested)
        harms: dict[int, Harm] = {}
        for position, option in self._ranking(workload, pod).options():
            harm = self.policy.harm(option)
            is_closed = any(map(closed, option.projects, option.freed_milli))
            if not is_closed and harm <= harms.get(position, harm):
                harms[position] = harm
        return harms

    def retry(self, account: NodeAccount, workload: Workload, pod: Pod, requested: Amounts) -> Option | None:
        """The best set on the node of which each piece may really go after the others; asks the policy about all."""
        closed = _Closed(self.policy, workload, requested)
        eligible = [
            piece
            for piece in self.candidates.on(account.position, moves=self.policy.moves)
            if not closed(piece.project, piece.gpu_milli)
            and self.policy.may_go(workload, piece)
            and not piece.is_gone(self._ledger.evicted)
        ]
        blockers = self._blockers(pod, account.position)
        options, looked = minimal_options(
            account,
            pod.request,
            [] if blockers is None else eligible,
            lambda pieces: (
                (not blockers or includes_all(pieces, blockers))
                and self._all_may_go(workload, requested, pieces)
            ),
        )
        self._session.work.spend(8 * looked)
        order = self.policy.order(workload)
        return min(
            options,
            key=lambda option: (
                self.policy.harm(option),
                sorted(map(order, option.pieces), reverse=True),
            ),
            default=None,
        )

    def in_order(self, workload: Workload) -> Iterator[Piece]:
        """Every piece that may go and is left, who has least to lose first."""
        pieces = [
            piece
            for name in self.candidates.projects
            for piece in self.candidates.of(name, moves=self.policy.moves)
            if self.policy.may_go(workload, piece)
        ]
        pieces.sort(key=self.policy.order(workload))
        for piece in pieces:
            if not piece.is_gone(self._ledger.evicted):
                self._session.work.spend(2)
                yield piece

    def evict(self, workload: Workload, requested: Amounts, pieces: Sequence[Piece]) -> Losses | None:
        """Evict the pieces on the ledger; None, with the ledger as far as it came, when one may not go."""
        return evict_allowed(self._session, pieces, self.policy, workload, requested)

    def _all_may_go(self, workload: Workload, requested: Amounts, pieces: Sequence[Piece]) -> bool:
        checkpoint = self._ledger.checkpoint()
        evicted = self.evict(workload, requested, pieces)
        self._ledger.rollback(checkpoint)
        return evicted is not None

    def _blockers(self, pod: Pod, position: int) -> frozenset[str] | None:
        """The pods on the node that keep the pod away by constraints; None: one of them cannot be evicted."""
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
                # Where each job names hosts of its own, asking every node about it would cost jobs times nodes.
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
        """A ranking for this pod alone: pods on other nodes change its set of nodes."""
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
        """What rankings of this request count, so that pods which differ little share them."""
        known = self._counted.get((request, exact))
        if known is None:
            known = request
            if self._cpu_is_ample:
                known = replace(request, cpu_milli=0, memory_bytes=0)
            elif not exact:
                # Up, never down: where the larger request fits, the real one does. That a node is missed now and then
                # costs less than a ranking for each of thousands of CPU requests.
                known = replace(
                    request,
                    cpu_milli=_rounded_up(request.cpu_milli),
                    memory_bytes=_rounded_up(request.memory_bytes),
                )
            self._counted[request, exact] = known
        return known

    def _is_cpu_ample(self) -> bool:
        """Whether every node has CPU, memory and slots for any pod that waits, whatever it evicts."""
        cpu = memory = 0
        for workload in self._session.pending():
            for pod in self._session.next_chunk(workload):
                cpu, memory = max(cpu, pod.request.cpu_milli), max(memory, pod.request.memory_bytes)
        largest = Request(cpu_milli=cpu, memory_bytes=memory)
        self._session.work.spend(_WORK_OF_CHECK * len(self._ledger.nodes))
        return all(account.has_capacity(largest, later=True) for account in self._ledger.nodes)


def _rounded_up(amount: int) -> int:
    """The amount, at most an eighth larger, so that pods of similar requests share what was counted."""
    step = max(1, 1 << max(0, amount.bit_length() - 4))
    return -(-amount // step) * step


class _Closed:
    """Which projects may not lose anything, found out once for each."""

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
    """Evict the victims on the ledger one by one; None, with the ledger as far as it came, when one may not go.

    Who was promised a room only now goes first: with it nobody holds too much, at the cost of who was there before.
    """
    losses: Losses = []
    if len(victims) > 1:
        victims = sorted(victims, key=lambda victim: not all(map(session.is_promised_now, victim.pods)))
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
