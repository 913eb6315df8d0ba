"""Making room: the fewest victims after which pods fit, tried on the ledger before anything is decided.

For one pod, each node is estimated by counting devices: how many pods must go, and how dispensable they are. Nodes are
then tried in that order, and the first whose victims are lawful and after which the pod really fits is taken.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

from orchestrator.planner.cheapest import CheapestNodes, Sides
from orchestrator.planner.decision import Decision
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.ledger import NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Constraints, Pod, Request, Workload
from orchestrator.planner.placement import node_types_for
from orchestrator.planner.victims import ClaimKey, Judge, Ruling

Rank = tuple[int, int]
Cost = tuple[int, list[Rank]]
Candidate = tuple[Rank, Victim, int]
Taken = list[tuple[Victim, Ruling]]


class Pool:
    """Possible victims by the side that loses them, most dispensable first; `claim` orders the sides as they stand."""

    def __init__(
        self, sides: Mapping[str, Sequence[Victim]], claim: Callable[[str], ClaimKey] | None = None
    ) -> None:
        self.sides = {name: list(victims) for name, victims in sides.items()}
        self.claim = claim
        self.by_node: dict[str, list[tuple[str, int, Victim, int]]] = {}
        self.heads: dict[str, int] = {}
        for side, victims in self.sides.items():
            for index, victim in enumerate(victims):
                freed: dict[str, int] = {}
                for pod in victim.pods:
                    if pod.node is not None:
                        freed[pod.node] = freed.get(pod.node, 0) + pod.request.gpu_milli
                for node, amount in freed.items():
                    self.by_node.setdefault(node, []).append((side, index, victim, amount))

        self.sides_on = {
            node: tuple({each[0]: None for each in entries}) for node, entries in self.by_node.items()
        }

    def ranks(self) -> dict[str, int]:
        """The sides in order: the one with the weakest claim first."""
        ordered = sorted(self.sides, key=self.claim)
        return {side: rank for rank, side in enumerate(ordered)}

    def __bool__(self) -> bool:
        return any(self.sides.values())


class RoomFinder:
    """Finds victims in one pool for workloads of one kind."""

    def __init__(self, decision: Decision, pool: Pool) -> None:
        self._decision = decision
        self._ledger = decision.ledger
        self._pool = pool
        self._cheapest: dict[tuple[Request, Constraints, tuple[str, ...]], CheapestNodes] = {}

    def options(self, workload: Workload, pod: Pod, judge: Judge) -> Iterator[list[Victim]]:
        """Lawful sets of victims after which the pod fits on a node, cheapest first; the ledger is left as it was."""
        ranks = self._pool.ranks()
        first = self._most_dispensable(ranks)
        if first is not None and len(first.pods) == 1 and first.pods[0].node in self._ledger.by_name:
            account = self._ledger.by_name[first.pods[0].node]
            if self._suffices(account, workload, pod, judge, [first]):
                yield [first]
        for position in self._cheapest_nodes(workload, pod).in_order(ranks):
            account = self._ledger.nodes[position]
            chosen = self._smallest_set(account, workload, pod, judge, self._standing(account, ranks))
            if chosen is not None:
                yield chosen

    def _cheapest_nodes(self, workload: Workload, pod: Pod) -> CheapestNodes:
        types = node_types_for(self._decision.tree.projects[workload.project], workload)
        kind = (pod.request, pod.constraints, types)
        known = self._cheapest.get(kind)
        if known is None:
            accounts = (
                self._ledger.by_name[name] for name in self._pool.by_node if name in self._ledger.by_name
            )
            sides_on = {
                each.position: self._pool.sides_on[each.node.name]
                for each in accounts
                if self._decision.placer.accepts(each, workload, pod)
            }
            known = self._cheapest[kind] = CheapestNodes(
                self._ledger, sides_on, lambda position, sides: self._estimate(position, pod, sides)
            )
        return known

    def _standing(self, account: NodeAccount, ranks: Mapping[str, int]) -> list[Candidate]:
        """What could still go from this node, most dispensable first."""
        standing = [
            ((ranks[side], index), victim, freed)
            for side, index, victim, freed in self._pool.by_node[account.node.name]
            if not self._is_gone(victim)
        ]
        standing.sort(key=itemgetter(0))
        return standing

    def _estimate(self, position: int, pod: Pod, sides: Sides) -> Cost | None:
        """A cost that the node cannot beat, by counting alone; None when even all victims are not enough."""
        account = self._ledger.nodes[position]
        standing = self._standing(account, {side: place for place, side in enumerate(sides)})
        return _cheapest(standing, _needed(account, pod) - account.later_milli)

    def in_order(self) -> Iterator[Victim]:
        """Every victim that is left, most dispensable first; sides are compared again after each."""
        passed: dict[str, int] = dict.fromkeys(self._pool.sides, 0)
        while any(passed[side] < len(victims) for side, victims in self._pool.sides.items()):
            ranks = self._pool.ranks()
            side = min(
                (each for each in passed if passed[each] < len(self._pool.sides[each])),
                key=lambda each: ranks[each],
            )
            victim = self._pool.sides[side][passed[side]]
            passed[side] += 1
            if not self._is_gone(victim):
                yield victim

    def _most_dispensable(self, ranks: Mapping[str, int]) -> Victim | None:
        for side in sorted(self._pool.sides, key=lambda each: ranks[each]):
            victims = self._pool.sides[side]
            start = self._pool.heads.get(side, 0)
            while start and victims[start - 1].pods[0].id not in self._ledger.evicted:
                start -= 1
            while start < len(victims) and victims[start].pods[0].id in self._ledger.evicted:
                start += 1
            self._pool.heads[side] = start
            if start < len(victims):
                return victims[start]
        return None

    def _is_gone(self, victim: Victim) -> bool:
        evicted = self._ledger.evicted
        if len(victim.pods) == 1:
            return victim.pods[0].id in evicted
        return all(pod.id in evicted for pod in victim.pods)

    def _smallest_set(
        self,
        account: NodeAccount,
        workload: Workload,
        pod: Pod,
        judge: Judge,
        standing: Sequence[Candidate],
    ) -> list[Victim] | None:
        """The cheaper of the best single victim and the best yielding ones together, less those not needed."""
        single: tuple[Cost, list[Victim]] | None = None
        for rank, victim, _ in sorted(standing, key=lambda each: (len(each[1].pods), each[0])):
            if self._suffices(account, workload, pod, judge, [victim]):
                single = ((len(victim.pods), [rank]), [victim])
                break
        if single is not None and single[0][0] == 1:
            return single[1]
        several = self._several(account, workload, pod, judge, standing)
        found = [each for each in (single, several) if each is not None]
        return min(found, key=lambda each: each[0])[1] if found else None

    def _several(
        self,
        account: NodeAccount,
        workload: Workload,
        pod: Pod,
        judge: Judge,
        standing: Sequence[Candidate],
    ) -> tuple[Cost, list[Victim]] | None:
        chosen: list[tuple[Rank, Victim]] = []
        for rank, victim, _ in _by_yield(standing):
            fits = self._suffices(account, workload, pod, judge, [*(each for _, each in chosen), victim])
            if fits is None:
                continue
            chosen.append((rank, victim))
            if fits:
                break
        else:
            return None
        for item in sorted(chosen, key=lambda each: each[0], reverse=True):
            rest = [each for each in chosen if each is not item]
            if rest and self._suffices(account, workload, pod, judge, [victim for _, victim in rest]):
                chosen = rest
        chosen.sort(key=lambda each: each[0])
        evicted = {each.id for _, victim in chosen for each in victim.pods}
        return (len(evicted), [rank for rank, _ in chosen]), [victim for _, victim in chosen]

    def _suffices(
        self, account: NodeAccount, workload: Workload, pod: Pod, judge: Judge, victims: Sequence[Victim]
    ) -> bool | None:
        """Whether the pod fits on the node after these evictions; None when one of them is not lawful."""
        if len(victims) == 1:
            freed = sum(each.request.gpu_milli for each in victims[0].pods if each.node == account.node.name)
            if freed < _needed(account, pod) - account.later_milli:
                return False
        checkpoint = self._ledger.checkpoint()
        try:
            if evict_lawfully(self._decision, victims, judge) is None:
                return None
            return self._decision.placer.fits_on(account, workload, pod) is not None
        finally:
            self._ledger.rollback(checkpoint)


def evict_lawfully(decision: Decision, victims: Sequence[Victim], judge: Judge) -> Taken | None:
    """Evict the victims on the ledger one by one; None, with the ledger as far as it came, when one may not go."""
    taken: Taken = []
    for victim in victims:
        ruling = judge(victim)
        if ruling is None or not decision.budgets_allow(victim.pods):
            return None
        for pod in victim.pods:
            decision.ledger.evict(victim.workload, pod)
        taken.append((victim, ruling))
    return taken


def _cheapest(standing: Sequence[Candidate], missing: int) -> Cost | None:
    """The cheapest single victim that frees what is missing, or the best yielding ones together."""
    best: Cost | None = None
    for rank, victim, freed in standing:
        if freed >= missing and (best is None or (len(victim.pods), [rank]) < best):
            best = (len(victim.pods), [rank])
    if best is not None and best[0] == 1:
        return best
    chosen: list[Rank] = []
    pods = 0
    for rank, victim, freed in _by_yield(standing):
        if missing <= 0:
            break
        missing -= freed
        pods += len(victim.pods)
        chosen.append(rank)
    several = (pods, sorted(chosen)) if missing <= 0 and chosen else None
    found = [each for each in (best, several) if each is not None]
    return min(found) if found else None


def _by_yield(standing: Sequence[Candidate]) -> list[Candidate]:
    """Those that free most for each pod that goes, then the most dispensable."""
    return sorted(standing, key=lambda each: (-each[2] // len(each[1].pods), each[0]))


def _needed(account: NodeAccount, pod: Pod) -> int:
    """What the pod takes of the node's devices, in `gpu_milli`."""
    if pod.request.is_shared:
        return account.share_milli(pod.request) * pod.request.shared_devices
    return pod.request.gpu_count * DEVICE_MILLI
