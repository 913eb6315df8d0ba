"""Determines the pods within the quotas of projects and departments in one decision.

A pod that is within quota when the decision begins counts as within quota until the decision ends, even if other
workloads start. Pods that the decision nominates within the quota count too.
"""

from collections.abc import Callable, Sequence

from orchestrator.planner.accounting.amounts import entitled_amounts
from orchestrator.planner.accounting.coverage import (
    Coverage,
    Victim,
    coverage,
    filling_order,
    in_filling_order,
)
from orchestrator.planner.model import UNLIMITED, Pod, Workload
from orchestrator.planner.session import Session

_Running = Callable[[str], list[Workload]]


class WithinQuota:
    """The pods within quota by project and department, computed at the first use."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tree = session.tree
        self._models = self._tree.models_with_quota
        self._at_start: dict[tuple[str, str | None], frozenset[str]] = {}
        self._now: dict[tuple[str, str | None], tuple[int, frozenset[str]]] = {}

    def pods(self, side: str, model: str | None) -> frozenset[str]:
        """Return the ids of the pods within quota of `side`, which is a project or a department.

        If `model` is given, the pods on GPUs of this model that exceed the quota for it are left out. Those pods could
        also run on another model.
        """
        changes = self._changes(side)
        at_start = self._pods_at_start(side, model)
        known = self._now.get((side, model))
        # Cached: the eviction of a borrowed pod does not change the result.
        if known is None:
            known = self._now[side, model] = (0, at_start)
        evicted = self._session.seats.evictions.keys()
        # `isdisjoint` of a view reads the smaller set; that of a frozenset would read all evictions for each candidate
        if known[0] != changes or not evicted.isdisjoint(known[1]):
            covered = at_start | self._covered(side, model, self._session.running)
            known = self._now[side, model] = (changes, covered - evicted)
        return known[1]

    def is_firm(self, victim: Victim) -> bool:
        """Return whether all quotas above the victim cover it, so that no project can reclaim its GPUs in this
        decision.
        """
        if self._models or not victim.pods[0].request.gpu_milli:
            return False
        return all(
            pod.id in self._pods_at_start(side, None)
            for side in self._tree.lineage[victim.workload.project]
            for pod in victim.pods
        )

    def model_of(self, pod: Pod) -> str:
        """Return the GPU model of the pod's node; empty if unknown."""
        account = self._session.ledger.by_name.get(pod.node or "")
        return "" if account is None else account.model

    def _changes(self, side: str) -> int:
        """Return the number of changes of nominations in the project and the projects below it."""
        children = self._tree.children.get(side, ())
        own = self._session.seats.nomination_changes.get(side, 0)
        return own + sum(map(self._changes, children)) if children else own

    def _pods_at_start(self, side: str, model: str | None) -> frozenset[str]:
        covered = self._at_start.get((side, model))
        if covered is None:
            covered = self._covered(side, model, self._session.running_at_start)
            self._at_start[side, model] = covered
        return covered

    def _covered(self, side: str, model: str | None, running: _Running) -> frozenset[str]:
        whole = self._coverage(side, running)
        other_model = {pod.id for part in whole.other_model if part.model == model for pod in part.pods}
        return frozenset([pod.id for part in whole.covered for pod in part.pods]) - other_model

    def _coverage(self, side: str, running: _Running) -> Coverage:
        children = self._tree.children.get(side, ())
        own = filling_order(running(side))
        if children:
            parts = [(child, self._coverage(child, running)) for child in children]
            inside = in_filling_order(candidate for _, part in parts for candidate in part.covered)
            # Workloads within the fair share of their project come before other borrowed workloads, so they
            # are evicted later.
            fair = [candidate for child, part in parts for candidate in self._within_share(child, part)]
            known = set(map(id, fair))
            beyond = (
                candidate for _, part in parts for candidate in part.borrowed if id(candidate) not in known
            )
            candidates = [*inside, *in_filling_order(fair), *in_filling_order([*own, *beyond])]
        else:
            candidates = own
        models = {model: self._tree.model_quota[side, model] for model in self._models}
        return coverage(candidates, self._tree.quota[side], self._tree.resources, models, self.model_of)

    def _within_share(self, name: str, part: Coverage) -> Sequence[Victim]:
        """Return the pods of the project beyond its quota that are within its fair share of GPUs."""
        figures = self._session.ledger.figures(name, self._session.shares)
        entitled_milli = entitled_amounts(figures)[0]
        if not part.borrowed or entitled_milli <= figures.quota[0]:
            return ()
        bounds = (entitled_milli, UNLIMITED, UNLIMITED)
        within = coverage([*part.covered, *part.borrowed], bounds, resources=(0,)).covered
        borrowed = set(map(id, part.borrowed))
        return [candidate for candidate in within if id(candidate) in borrowed]
