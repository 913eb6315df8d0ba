"""Cancel evictions that are not needed: a victim that fits beside all placements of the decision keeps running.

A search handles one preemptor at a time. The evictions for a later preemptor can free more GPUs than it needs, so that
an earlier eviction is no longer needed. A victim also keeps running if the pods that this decision nominated to its
devices fit elsewhere.

Example: a pod of 1 GPU is evicted for a job. Then a gang of 4 GPUs is evicted for a job of 3 GPUs. The first job fits
on the remaining GPU of the gang, so the eviction of the pod is canceled.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk
from orchestrator.planner.model import Pod, PodState, Workload
from orchestrator.planner.obstacles import GangEvicted
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.rescheduling import as_it_ran, by_claim, parts_of_victim
from orchestrator.planner.preemption.victims import keep_on_ledger
from orchestrator.planner.reasons.explainer import Explainer
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

_MAX_FAILURES = 32

Device = tuple[str, int]
"""The name of a node, and the index of one of its devices."""


def cancel_needless_evictions(session: Session) -> None:
    """Cancel the evictions and migrations of this decision that no binding or nomination needs, most entitled victims
    first.
    """
    _cancel_where_capacity_is_free(session)
    victims = _victims_of_others(session)
    renomination = Renomination(session)
    pods = {pod for evicted in victims.values() for pod in evicted}
    if (
        pods
        and renomination.could_help(pods)
        and _cancel_most_entitled_first(session, victims, renomination.keep_running_if_possible)
    ):
        _cancel_where_capacity_is_free(session)


def _victims_of_others(session: Session) -> dict[str, set[str]]:
    """Return the ids of the pods that are evicted or migrated for other workloads, by id of the victim's workload."""
    victims: dict[str, set[str]] = {}
    for eviction in session.seats.evictions.values():
        if eviction.beneficiary != eviction.workload:
            victims.setdefault(eviction.workload, set()).add(eviction.pod)
    return victims


def _cancel_where_capacity_is_free(session: Session) -> None:
    victims = _victims_of_others(session)
    if not any(_could_keep_running(session, session.workload(name), pods) for name, pods in victims.items()):
        return  # the usual case
    _cancel_most_entitled_first(
        session, victims, lambda workload, chunk: _cancel_evictions(session, workload, chunk)
    )


def _cancel_most_entitled_first(
    session: Session,
    victims: Mapping[str, Collection[str]],
    keep_running_if_possible: Callable[[Workload, Chunk], bool],
) -> bool:
    """Cancel evictions chunk by chunk, most entitled workloads first. Return whether an eviction was canceled.

    `keep_running_if_possible` cancels the evictions of one chunk, and returns whether that was possible.
    """
    parts = {
        name: parts_of_victim(as_it_ran(session.workload(name), evicted), evicted)
        for name, evicted in victims.items()
    }
    explainer = Explainer(session)
    is_any_canceled = False
    for workload, chunk in by_claim(session, parts):
        if keep_running_if_possible(workload, chunk):
            is_any_canceled = True
            current = session.workload(workload.id)
            if isinstance(session.reasons.get(workload.id), GangEvicted) and session.next_chunk(current):
                session.refuse(current, explainer.no_capacity(current, session.next_chunk(current)))
        elif len(chunk) > 1 or not _runs(session.workload(workload.id)):
            parts[workload.id].clear()  # elastic pods cannot run without their gang
    return is_any_canceled


def _could_keep_running(session: Session, workload: Workload, evicted: Collection[str]) -> bool:
    """Return whether an evicted pod could keep running on its node, or has a new seat, which it could give up."""
    return any(
        session.seats.of(pod) is not None or session.placer.can_keep_running(pod)
        for pod in workload.pods
        if pod.id in evicted
    )


def _runs(workload: Workload) -> bool:
    return any(pod.state is PodState.ALLOCATED for pod in workload.pods)


def _cancel_evictions(session: Session, workload: Workload, chunk: Chunk) -> bool:
    """Cancel the evictions of the whole chunk. If that is impossible, change nothing."""
    ledger = session.ledger
    # Other pods can be nominated beside the new seats of these pods by affinity.
    checkpoint, nominees = ledger.checkpoint(), session.steady_nominees()
    for pod in chunk:
        if (seat := session.seats.of(pod)) is not None:
            ledger.unplace(workload, [(pod, seat.where)])
    if not (keep_on_ledger(session, workload, chunk) and session.keeps_nominees(nominees)):
        ledger.rollback(checkpoint)
        return False
    session.cancel_evictions(workload, chunk)
    return True


class Renomination:
    """Nominates pods of this decision to other GPUs, so that the victims there keep running.

    After 32 failed attempts, it makes no more in this decision.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._failures = 0
        self._nominees: dict[Device, dict[str, tuple[str, Pod]]] = {}
        for workload in session.nominated_now():
            self._note(workload.id, session.seats.placed(workload, SeatState.NOMINATED))
        self._later_milli = self._largest_later_milli()

    def could_help(self, victims: Collection[str]) -> bool:
        """Return whether one of the victims has a nomination, or one nominated pod could fit on a node."""
        if not self._nominees:
            return False
        if any(seat.pod.id in victims for seat in self._session.seats.nominated()):
            return True
        pods = (pod for pods in self._nominees.values() for _, pod in pods.values())
        return any(pod.request.gpu_milli <= self._later_milli for pod in pods)

    def keep_running_if_possible(self, workload: Workload, chunk: Chunk) -> bool:
        """Nominate the pods on the chunk's devices elsewhere and cancel its evictions, or change nothing."""
        if self._failures >= _MAX_FAILURES:
            return False
        in_the_way = self._in_the_way(chunk)
        if not in_the_way or self._lost_a_nomination(workload) or not self._could_fit(chunk, in_the_way):
            return False
        session, ledger = self._session, self._session.ledger
        checkpoint, nominees = ledger.checkpoint(), session.steady_nominees()
        for pod in chunk:
            if (seat := session.seats.of(pod)) is not None:
                ledger.unplace(workload, [(pod, seat.where)])
        placements = [self._take_off(name, pods) for name, pods in in_the_way.items()]
        tiers = {name: self._tier(name, pods) for name, pods in in_the_way.items()}
        others = None
        if keep_on_ledger(session, workload, chunk):
            others = self._other_placements(in_the_way, placements, tiers)
        if others is None or not session.keeps_nominees(nominees):
            ledger.rollback(checkpoint)
            self._failures += 1
            return False
        session.cancel_evictions(workload, chunk)
        for (name, placed), before in zip(others.items(), placements, strict=True):
            for pod, where in before:
                for device in where.devices:
                    del self._nominees[where.node, device][pod.id]
            session.renominate(session.workload(name), placed)
            self._note(name, placed)
        self._later_milli = self._largest_later_milli()
        return True

    def _note(self, name: str, placed: Placed) -> None:
        """Record the new nominations of the workload's pods."""
        for pod, where in placed:
            for device in where.devices:
                self._nominees.setdefault((where.node, device), {})[pod.id] = (name, pod)

    def _largest_later_milli(self) -> int:
        """Return the largest amount of GPUs on one node that is free after all terminating pods have ended, in
        thousandths.
        """
        return max((account.later_milli for account in self._session.ledger.nodes), default=0)

    def _in_the_way(self, chunk: Chunk) -> dict[str, dict[str, Pod]]:
        """Return the nominated pods on the devices of the chunk, by workload and pod id."""
        pods: dict[str, dict[str, Pod]] = {}
        for pod_to_keep in chunk:
            for device in pod_to_keep.devices:
                for name, pod in self._nominees.get((pod_to_keep.node or "", device), {}).values():
                    pods.setdefault(name, {})[pod.id] = pod
        return pods

    def _could_fit(self, chunk: Chunk, in_the_way: Mapping[str, Mapping[str, Pod]]) -> bool:
        """Return whether the largest nominated pod could fit into free GPUs plus the chunk's own nominated GPUs."""
        nominated_milli = (pod.request.gpu_milli for pod in chunk if self._session.seats.is_nominated(pod))
        largest = max(pod.request.gpu_milli for pods in in_the_way.values() for pod in pods.values())
        return largest <= self._later_milli + sum(nominated_milli)

    def _lost_a_nomination(self, workload: Workload) -> bool:
        """Return whether a migrated pod of the workload lost its nomination, so that its gang would be incomplete."""
        session = self._session
        return any(pod.nominated_node is not None and session.seats.of(pod) is None for pod in workload.pods)

    def _take_off(self, name: str, pods: Mapping[str, Pod]) -> Placed:
        """Take these nominated pods of the workload off the ledger. Return their former placements."""
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

    def _other_placements(
        self,
        in_the_way: Mapping[str, Mapping[str, Pod]],
        before: list[Placed],
        tiers: Mapping[str, EntitlementTier],
    ) -> dict[str, Placed] | None:
        """Place the nominated pods elsewhere on the ledger. Return the placements by workload; None if a pod does not
        fit.

        Also return None if the victims, which run again, put a nominee beyond a limit or in a worse tier than in
        `tiers`.
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
        """Return the number of pods by GPU model. Quotas for models were checked for the first nomination, so they must
        not change.
        """
        if not self._session.tree.models_with_quota:
            return Counter()
        return Counter(self._session.ledger.by_name[where.node].model for _, where in placed)
