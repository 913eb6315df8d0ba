"""Evictions that proved needless: a victim that fits beside all that was decided stays where it runs.

A search looks at one preemptor at a time. A later preemptor may free more than it needs, so that an earlier victim need
not go. A victim also stays if the pods that this decision nominated to its devices have other placements as good.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk
from orchestrator.planner.model import Pod, PodState, Workload
from orchestrator.planner.obstacles import GangEvicted
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.rescheduling import as_it_ran, by_claim, parts_of_victim
from orchestrator.planner.preemption.victims import stay_on_ledger
from orchestrator.planner.reasons.explainer import Explainer
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

_MAX_FAILURES = 32

Device = tuple[str, int]
"""A node by its name, and a device of it."""


def spare_who_can_stay(session: Session) -> None:
    """Take back the evictions and moves of this decision that no binding or nomination needs, best claims first."""
    _spare_where_capacity_is_left(session)
    victims = _victims_of_others(session)
    renomination = Renomination(session)
    pods = [pod for evicted in victims.values() for pod in evicted]
    if (
        pods
        and renomination.could_help(pods)
        and _spare_best_claims_first(session, victims, renomination.let_stay)
    ):
        _spare_where_capacity_is_left(session)


def _victims_of_others(session: Session) -> dict[str, list[str]]:
    """By workload, ids of the pods that are evicted or moved for other workloads."""
    victims: dict[str, list[str]] = {}
    for eviction in session.seats.evictions.values():
        if eviction.beneficiary != eviction.workload:
            victims.setdefault(eviction.workload, []).append(eviction.pod)
    return victims


def _spare_where_capacity_is_left(session: Session) -> None:
    victims = _victims_of_others(session)
    if not any(_could_stay(session, session.workload(name), pods) for name, pods in victims.items()):
        return  # nearly always
    _spare_best_claims_first(session, victims, lambda workload, chunk: _stay(session, workload, chunk))


def _spare_best_claims_first(
    session: Session, victims: Mapping[str, Collection[str]], let_stay: Callable[[Workload, Chunk], bool]
) -> bool:
    """Let pods that were to make way, by workload, stay where it can be done; tell whether any do."""
    parts = {
        name: parts_of_victim(as_it_ran(session.workload(name), evicted), evicted)
        for name, evicted in victims.items()
    }
    explainer = Explainer(session)
    is_any_spared = False
    for workload, chunk in by_claim(session, parts):
        if let_stay(workload, chunk):
            is_any_spared = True
            current = session.workload(workload.id)
            if isinstance(session.reasons.get(workload.id), GangEvicted) and session.next_chunk(current):
                session.refuse(current, explainer.no_capacity(current, session.next_chunk(current)))
        elif len(chunk) > 1 or not _runs(session.workload(workload.id)):
            parts[workload.id].clear()  # the surplus is of no use without what its gang needs
    return is_any_spared


def _could_stay(session: Session, workload: Workload, evicted: Collection[str]) -> bool:
    """Whether one of the evicted pods could run on where it is, or has another place to give back for that."""
    return any(
        session.seats.of(pod) is not None or session.placer.can_stay(pod)
        for pod in workload.pods
        if pod.id in evicted
    )


def _runs(workload: Workload) -> bool:
    return any(pod.state is PodState.ALLOCATED for pod in workload.pods)


def _stay(session: Session, workload: Workload, chunk: Chunk) -> bool:
    """Spare all of the chunk, or leave everything as it was."""
    ledger = session.ledger
    checkpoint = ledger.checkpoint()
    for pod in chunk:
        if (seat := session.seats.of(pod)) is not None:
            ledger.unplace(workload, [(pod, seat.where)])
    if not stay_on_ledger(session, workload, chunk):
        ledger.rollback(checkpoint)
        return False
    session.spare(workload, chunk)
    return True


class Renomination:
    """Moves promises of this decision; after 32 victims whose nominees found no other place, no more are tried."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._failures = 0
        self._nominees: dict[Device, dict[str, tuple[str, Pod]]] = {}
        for workload in session.nominated_now():
            self._note(workload.id, session.seats.placed(workload, SeatState.NOMINATED))
        self._later_milli = self._largest_later_milli()

    def could_help(self, victims: Collection[str]) -> bool:
        """Whether one of the pods was promised another place, or the smallest nominated pod fits somewhere."""
        if not self._nominees:
            return False
        if any(seat.pod.id in victims for seat in self._session.seats.nominated()):
            return True
        pods = (pod for pods in self._nominees.values() for _, pod in pods.values())
        return any(pod.request.gpu_milli <= self._later_milli for pod in pods)

    def let_stay(self, workload: Workload, chunk: Chunk) -> bool:
        """Spare all of the chunk where nominees have other places, or leave everything as it was."""
        if self._failures >= _MAX_FAILURES:
            return False
        in_the_way = self._in_the_way(chunk)
        if not in_the_way or self._lost_a_promise(workload) or not self._could_fit(chunk, in_the_way):
            return False
        session, ledger = self._session, self._session.ledger
        checkpoint = ledger.checkpoint()
        for pod in chunk:
            if (seat := session.seats.of(pod)) is not None:
                ledger.unplace(workload, [(pod, seat.where)])
        places = [self._take_off(name, pods) for name, pods in in_the_way.items()]
        tiers = {name: self._tier(name, pods) for name, pods in in_the_way.items()}
        others = None
        if stay_on_ledger(session, workload, chunk):
            others = self._other_places(in_the_way, places, tiers)
        if others is None:
            ledger.rollback(checkpoint)
            self._failures += 1
            return False
        session.spare(workload, chunk)
        for (name, placed), before in zip(others.items(), places, strict=True):
            for pod, where in before:
                for device in where.devices:
                    del self._nominees[where.node, device][pod.id]
            session.renominate(session.workload(name), placed)
            self._note(name, placed)
        self._later_milli = self._largest_later_milli()
        return True

    def _note(self, name: str, placed: Placed) -> None:
        """Note that pods of the workload are nominated to these places."""
        for pod, where in placed:
            for device in where.devices:
                self._nominees.setdefault((where.node, device), {})[pod.id] = (name, pod)

    def _largest_later_milli(self) -> int:
        """The most GPUs that are free on one node, once all releases are through."""
        return max((account.later_milli for account in self._session.ledger.nodes), default=0)

    def _in_the_way(self, chunk: Chunk) -> dict[str, dict[str, Pod]]:
        """The nominated pods on devices of the chunk, by workload and id."""
        pods: dict[str, dict[str, Pod]] = {}
        for leaving in chunk:
            for device in leaving.devices:
                for name, pod in self._nominees.get((leaving.node or "", device), {}).values():
                    pods.setdefault(name, {})[pod.id] = pod
        return pods

    def _could_fit(self, chunk: Chunk, in_the_way: Mapping[str, Mapping[str, Pod]]) -> bool:
        """Whether the largest nominated pod fits into what is left, with what the chunk was promised instead."""
        promised = (pod.request.gpu_milli for pod in chunk if self._session.seats.is_nominated(pod))
        largest = max(pod.request.gpu_milli for pods in in_the_way.values() for pod in pods.values())
        return largest <= self._later_milli + sum(promised)

    def _lost_a_promise(self, workload: Workload) -> bool:
        """Whether pods of it that were moved before lost their places: what stays would be no gang."""
        session = self._session
        return any(pod.nominated_node is not None and session.seats.of(pod) is None for pod in workload.pods)

    def _take_off(self, name: str, pods: Mapping[str, Pod]) -> Placed:
        """Take nominated pods of the workload off the ledger; return where they were."""
        workload = self._session.workload(name)
        placed = [
            (pod, where)
            for pod, where in self._session.seats.placed(workload, SeatState.NOMINATED)
            if pod.id in pods
        ]
        self._session.ledger.unplace(workload, placed)
        return placed

    def _tier(self, name: str, pods: Mapping[str, Pod]) -> EntitlementTier:
        return self._session.tier(self._session.workload(name), tuple(pods.values()))

    def _other_places(
        self,
        in_the_way: Mapping[str, Mapping[str, Pod]],
        before: list[Placed],
        tiers: Mapping[str, EntitlementTier],
    ) -> dict[str, Placed] | None:
        """Other places of the nominees on the ledger, by workload; None where one has none as good.

        Beside who stays they may be beyond a limit, or have a claim that is not as good as `tiers`.
        """
        session = self._session
        others: dict[str, Placed] = {}
        for (name, pods), old in zip(in_the_way.items(), before, strict=True):
            workload, chunk = session.workload(name), tuple(pods.values())
            if session.violation(workload, chunk) is not None or self._tier(name, pods) > tiers[name]:
                return None
            placed = session.place_all(workload, chunk)
            if placed is None or self._models(placed) != self._models(old):
                return None
            others[name] = placed
        return others

    def _models(self, placed: Placed) -> Counter[str]:
        """The GPU models that the pods get: quotas for them were looked at when they were nominated."""
        if not self._session.tree.promised_models:
            return Counter()
        return Counter(self._session.ledger.by_name[where.node].model for _, where in placed)
