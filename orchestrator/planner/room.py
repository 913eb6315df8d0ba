"""Making room: the fewest victims after which pods fit, tried on the ledger before anything is decided.

For one pod, each node is estimated by counting devices: how many pods must go, and how dispensable they are. Nodes are
then tried in that order, and the first whose victims are lawful and after which the pod really fits is taken.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from orchestrator.planner.decision import Decision, Placed, largest_first
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.gates import limiting
from orchestrator.planner.ledger import NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Pod, SubGroup, Workload
from orchestrator.planner.placement import Placement
from orchestrator.planner.rules import minus
from orchestrator.planner.victims import ClaimKey, Judge, Ruling

Rank = tuple[int, int]
Cost = tuple[int, list[Rank]]
Taken = list[tuple[Victim, Ruling]]

_PRUNED_SETS = 24
_WHOLE_SEARCH = 200
_OPTIONS = 64


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

    def options(self, workload: Workload, pod: Pod, judge: Judge) -> Iterator[list[Victim]]:
        """Lawful sets of victims after which the pod fits on a node, cheapest first; the ledger is left as it was."""
        ranks = self._pool.ranks()
        first = self._most_dispensable(ranks)
        if first is not None and len(first.pods) == 1 and first.pods[0].node in self._ledger.by_name:
            account = self._ledger.by_name[first.pods[0].node]
            if first.workload.id != workload.id and self._suffices(account, workload, pod, judge, [first]):
                yield [first]
        estimates: list[tuple[Cost, int, list[tuple[Rank, Victim, int]]]] = []
        for node, entries in self._pool.by_node.items():
            if node not in self._ledger.by_name:
                continue
            account = self._ledger.by_name[node]
            if not self._decision.placer.accepts(account, workload, pod):
                continue
            standing = [
                ((ranks[side], index), victim, freed)
                for side, index, victim, freed in entries
                if not self._is_gone(victim, workload)
            ]
            standing.sort(key=lambda each: each[0])
            cost = self._estimate(account, pod, standing)
            if cost is not None:
                estimates.append((cost, account.position, standing))
        estimates.sort(key=lambda each: each[:2])
        for _, position, standing in estimates:
            chosen = self._smallest_set(self._ledger.nodes[position], workload, pod, judge, standing)
            if chosen is not None:
                yield chosen

    def in_order(self, workload: Workload) -> Iterator[Victim]:
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
            if not self._is_gone(victim, workload):
                yield victim

    def _most_dispensable(self, ranks: Mapping[str, int]) -> Victim | None:
        for side in sorted(self._pool.sides, key=lambda each: ranks[each]):
            victims = self._pool.sides[side]
            start = self._pool.heads.get(side, 0)
            while start < len(victims) and victims[start].pods[0].id in self._ledger.evicted:
                start += 1
            if start < len(victims):
                return victims[start]
        return None

    def _is_gone(self, victim: Victim, workload: Workload) -> bool:
        return victim.workload.id == workload.id or all(pod.id in self._ledger.evicted for pod in victim.pods)

    def _estimate(
        self, account: NodeAccount, pod: Pod, standing: Sequence[tuple[Rank, Victim, int]]
    ) -> Cost | None:
        """A cost that the node cannot beat, by counting alone; None when even all victims are not enough."""
        missing = _needed(account, pod) - account.later_milli
        singles = [(len(victim.pods), [rank]) for rank, victim, freed in standing if freed >= missing]
        chosen: list[Rank] = []
        pods = 0
        for rank, victim, freed in _by_yield(standing):
            if missing <= 0:
                break
            missing -= freed
            pods += len(victim.pods)
            chosen.append(rank)
        several = [(pods, sorted(chosen))] if missing <= 0 and chosen else []
        return min([*singles, *several], default=None)

    def _smallest_set(
        self,
        account: NodeAccount,
        workload: Workload,
        pod: Pod,
        judge: Judge,
        standing: Sequence[tuple[Rank, Victim, int]],
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
        standing: Sequence[tuple[Rank, Victim, int]],
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


class Law(Protocol):
    """Whom a workload may make give way."""

    def ruling(self, workload: Workload, asked: Amounts, victim: Victim) -> Ruling | None:
        """The rule by which the victim may go now; `asked` is what is not on the ledger yet."""
        ...

    def tolerates(self, decision: Decision, taken: Taken) -> bool:
        """Whether it is worth going on with these victims; the pod for which the last ones went is placed."""
        ...

    def accepts(self, decision: Decision, workload: Workload, taken: Taken) -> bool:
        """Whether the outcome on the ledger is lawful as a whole; may add to the ledger."""
        ...


def evict_lawfully(decision: Decision, victims: Sequence[Victim], judge: Judge) -> Taken | None:
    """Evict the victims on the ledger one by one; None, with the ledger as far as it came, when one may not go."""
    taken: Taken = []
    for victim in victims:
        ruling = judge(victim)
        if ruling is None:
            return None
        for pod in victim.pods:
            decision.ledger.evict(victim.workload, pod)
        taken.append((victim, ruling))
    return taken


def make_room(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> tuple[Taken, Placed] | None:
    """Evict and place on the ledger so that the whole chunk fits; None, with the ledger as it was, if nothing does."""
    checkpoint = decision.ledger.checkpoint()
    search = _search_whole if _is_bound_together(workload) else _search_each
    relief = _relieve_limits(decision, workload, chunk, finder, law)
    found = None if relief is None else search(decision, workload, chunk, finder, law)
    if relief and found is not None:
        found = ([*relief, *found[0]], found[1])
    if found is None or not law.accepts(decision, workload, found[0]):
        decision.ledger.rollback(checkpoint)
        return None
    if 1 < len(found[0]) <= _PRUNED_SETS:
        found = _prune(decision, workload, chunk, law=law, found=found, checkpoint=checkpoint)
    return found


def _relieve_limits(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> Taken | None:
    """Victims under the same limit, most dispensable first, until it leaves room for the chunk."""
    asked = chunk_amounts(chunk)
    taken: Taken = []
    full = limiting(decision.ledger, workload, asked)
    for victim in finder.in_order(workload) if full else ():
        if full is None:
            break
        if full[0] not in decision.tree.lineage[victim.workload.project]:
            continue
        taken += evict_lawfully(decision, [victim], _judge(law, workload, asked)) or []
        full = limiting(decision.ledger, workload, asked)
    return taken if full is None else None


def _search_each(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> tuple[Taken, Placed] | None:
    """Pod by pod: what is free first, else the cheapest room on a node."""
    taken: Taken = []
    placed: Placed = []
    missing = chunk_amounts(chunk)
    for pod in largest_first(chunk):
        placement = decision.placer.find(workload, pod)
        if placement is None:
            judge = _judge(law, workload, missing)
            found = _room_for(decision, workload, pod, judge=judge, finder=finder, law=law, taken=taken)
            if found is None:
                return None
            taken, placement = found
        decision.ledger.place(workload, pod, placement.node, placement.devices)
        placed.append((pod, placement))
        missing = minus(missing, pod.request.amounts)
    return taken, placed


def _room_for(
    decision: Decision,
    workload: Workload,
    pod: Pod,
    *,
    judge: Judge,
    finder: RoomFinder,
    law: Law,
    taken: Taken,
) -> tuple[Taken, Placement] | None:
    """Evict on the ledger the cheapest victims that the law tolerates; all that were taken so far, and the place."""
    for option in islice(finder.options(workload, pod, judge), _OPTIONS):
        checkpoint = decision.ledger.checkpoint()
        evicted = evict_lawfully(decision, option, judge)
        placement = None if evicted is None else decision.placer.find(workload, pod)
        if evicted is not None and placement is not None:
            mark = decision.ledger.checkpoint()
            decision.ledger.place(workload, pod, placement.node, placement.devices)
            tolerated = law.tolerates(decision, [*taken, *evicted])
            decision.ledger.rollback(mark)
            if tolerated:
                return [*taken, *evicted], placement
        decision.ledger.rollback(checkpoint)
    return None


def _search_whole(
    decision: Decision, workload: Workload, chunk: Chunk, finder: RoomFinder, law: Law
) -> tuple[Taken, Placed] | None:
    """Victims one after the other, most dispensable first, until the chunk fits where its topology wants it."""
    judge = _judge(law, workload, chunk_amounts(chunk))
    taken: Taken = []
    for victim in finder.in_order(workload):
        evicted = evict_lawfully(decision, [victim], judge)
        if evicted is None:
            continue
        taken += evicted
        placed = decision.place_all(workload, chunk)
        if placed is not None:
            return taken, placed
        if len(taken) >= _WHOLE_SEARCH:
            break
    return None


def _prune(
    decision: Decision,
    workload: Workload,
    chunk: Chunk,
    *,
    law: Law,
    found: tuple[Taken, Placed],
    checkpoint: int,
) -> tuple[Taken, Placed]:
    """The same outcome with every victim spared that is not needed after all."""
    judge = _judge(law, workload, chunk_amounts(chunk))
    kept = [victim for victim, _ in found[0]]

    def attempt(victims: Sequence[Victim]) -> tuple[Taken, Placed] | None:
        decision.ledger.rollback(checkpoint)
        taken = evict_lawfully(decision, victims, judge)
        placed = None if taken is None else decision.place_all(workload, chunk)
        if taken is None or placed is None or not law.accepts(decision, workload, taken):
            return None
        return taken, placed

    best = found
    for victim in reversed(list(kept)):
        fewer = [each for each in kept if each is not victim]
        if fewer and (smaller := attempt(fewer)) is not None:
            kept, best = fewer, smaller
    again = attempt(kept)
    if again is not None:
        return again
    decision.ledger.rollback(checkpoint)
    evict_lawfully(decision, [victim for victim, _ in best[0]], judge)
    for pod, placement in best[1]:
        decision.ledger.place(workload, pod, placement.node, placement.devices)
    law.accepts(decision, workload, best[0])
    return best


def _judge(law: Law, workload: Workload, missing: Amounts) -> Judge:
    return lambda victim: law.ruling(workload, missing, victim)


def _is_bound_together(workload: Workload) -> bool:
    return workload.topology is not None or (workload.groups is not None and _has_topology(workload.groups))


def _has_topology(group: SubGroup) -> bool:
    return group.topology is not None or any(_has_topology(child) for child in group.children)


def _by_yield(standing: Sequence[tuple[Rank, Victim, int]]) -> list[tuple[Rank, Victim, int]]:
    """Those that free most for each pod that goes, then the most dispensable."""
    return sorted(standing, key=lambda each: (-each[2] // len(each[1].pods), each[0]))


def _needed(account: NodeAccount, pod: Pod) -> int:
    """What the pod takes of the node's devices, in `gpu_milli`."""
    if pod.request.is_shared:
        return account.share_milli(pod.request) * pod.request.shared_devices
    return pod.request.gpu_count * DEVICE_MILLI
