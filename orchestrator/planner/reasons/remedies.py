"""Tries remedies on the ledger at the end of the decision. A reason names only remedies that work.

A trial costs a placement, so a decision makes trials for sixteen kinds of workloads; other reasons name no remedy.
"""

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.planner.accounting.quota_checks import quota_violation
from orchestrator.planner.gangs import Chunk, chunk_amounts, shape_of
from orchestrator.planner.model import CAPACITY_REASONS, PodState, Workload
from orchestrator.planner.obstacles import LimitReached, ModelReserved, QuotaReached
from orchestrator.planner.placement.reservations import Reservation
from orchestrator.planner.session import Session

_MAX_TRIES = 16
_MINUTE_US = 60_000_000


class Remedies:
    """Tries remedies in one decision; after each trial, the ledger is unchanged."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[object, ...], bool] = {}

    def note_limits(self, waiting: Iterable[Workload]) -> None:
        """Mark workloads for which one limit is the only obstacle: without this limit, all of them would start now.

        If any workload lacks capacity, none is marked. A higher limit changes the fair shares, so that workload could
        reclaim the GPUs.
        """
        limited: dict[str, list[Workload]] = {}
        for workload in waiting:
            reason = self._session.reasons[workload.id]
            if isinstance(reason, LimitReached):
                limited.setdefault(reason.project, []).append(workload)
            elif reason.code in CAPACITY_REASONS:
                return
        for name in sorted(limited, key=lambda name: (len(limited[name]), name))[:_MAX_TRIES]:
            if len(limited[name]) <= _MAX_TRIES and self._start_together(limited[name], name):
                for workload in limited[name]:
                    reason = self._session.reasons[workload.id]
                    if isinstance(reason, LimitReached) and not reason.model:
                        self._session.refuse(workload, replace(reason, is_alone=True))

    def _start_together(self, workloads: Iterable[Workload], name: str) -> bool:
        """Return whether all pending pods of these workloads could start now if project `name` had no limits."""
        session, tree = self._session, self._session.tree
        checkpoint = session.ledger.checkpoint()
        parts = [(workload, chunk) for workload in workloads for chunk in session.queues.chunks(workload.id)]
        starts = len(parts) <= _MAX_TRIES and all(
            not any(self._is_full(above, chunk) for above in tree.lineage[workload.project] if above != name)
            and quota_violation(session.ledger, workload, chunk_amounts(chunk)) is None
            and session.models.violation(workload, chunk) is None
            and session.reservations.limit(workload, chunk) is None
            and session.place_all(workload, chunk, only_now=True) is not None
            for workload, chunk in parts
        )
        session.ledger.rollback(checkpoint)
        return starts

    def _is_full(self, name: str, chunk: Chunk) -> bool:
        """Return whether the chunk would exceed a limit of this project or department."""
        requested = chunk_amounts(chunk)
        held, limit = self._session.ledger.allocated[name], self._session.tree.limit[name]
        return any(
            requested[resource] and held[resource] + requested[resource] > limit[resource]
            for resource in self._session.tree.resources
        )

    def note_preemptible(self, waiting: Iterable[Workload]) -> None:
        """Mark workloads that could start in this decision if they were preemptible."""
        for workload in waiting:
            reason = self._session.reasons[workload.id]
            if isinstance(reason, QuotaReached | ModelReserved) and self._starts_preemptible(workload):
                self._session.refuse(workload, replace(reason, starts_preemptible=True))

    def fitting_minutes(self, workload: Workload, chunk: Chunk, reservation: Reservation) -> int:
        """Return the maximum runtime, in minutes, that the pods would have to declare to use reserved GPUs now. 0 if
        none helps.
        """
        left_us = reservation.starts_us - self._session.snapshot.now_us
        minutes = left_us // _MINUTE_US if reservation.starts_us else 0
        if minutes < 1:
            return 0
        short = tuple(replace(pod, max_runtime_seconds=minutes * 60) for pod in chunk)
        return minutes if self._starts(replace(workload, pods=short), short, "ends in time") else 0

    def _starts_preemptible(self, workload: Workload) -> bool:
        if any(pod.state is not PodState.PENDING for pod in workload.pods):
            return False  # if the workload became preemptible, its running pods could be evicted
        return self._starts(
            replace(workload, preemptible=True), self._session.next_chunk(workload), "preemptible"
        )

    def _starts(self, variant: Workload, chunk: Chunk, remedy: str) -> bool:
        """Return whether the chunk could start now if its workload were like `variant`."""
        kind = (
            remedy,
            variant.id
            if self._session.reservations
            else "",  # if there are reservations, the result also depends on the position in the queue
            variant.project,
            *self._session.shape_beside_others(chunk),
            *shape_of(variant, chunk),
        )
        known = self._known.get(kind)
        if known is None and len(self._known) < _MAX_TRIES:
            session = self._session
            known = self._known[kind] = (
                session.violation(variant, chunk) is None
                and session.models.violation(variant, chunk) is None
                and self._has_place(variant, chunk)
            )
        return bool(known)

    def _has_place(self, workload: Workload, chunk: Chunk) -> bool:
        checkpoint = self._session.ledger.checkpoint()
        has_place = self._session.place_all(workload, chunk, only_now=True) is not None
        self._session.ledger.rollback(checkpoint)
        return has_place
