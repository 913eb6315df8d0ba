"""The two limits on the evictions of one decision: the maximum number of pods, and disruption budgets."""

from collections.abc import Collection, Iterable, Sequence

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Budget, Pod, Snapshot, Workload
from orchestrator.planner.obstacles import Hindrances
from orchestrator.planner.seats import Seats


class EvictionLimits:
    """Decides about further evictions; `hindrances` has, by preemptor id, the limits that refused evictions."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, seats: Seats) -> None:
        self.hindrances: dict[str, Hindrances] = {}
        self._max_evictions = snapshot.settings.max_evictions
        self._budgets = Budgets(snapshot.budgets)
        self._ledger = ledger
        self._seats = seats
        self._pods_over_cap = 0

    def may_evict(self, victims: Iterable[Sequence[Pod]]) -> bool:
        """Return whether the decision stays within its maximum number of evictions if it also evicts these groups of
        pods.
        """
        if self._max_evictions is None:
            return True
        # Only running pods count. A nominated pod has not started.
        evicted = sum(not self._seats.is_nominated(pod) for pods in victims for pod in pods)
        if len(self._seats.evictions) + evicted <= self._max_evictions:
            return True
        self._pods_over_cap = min(evicted, self._pods_over_cap or evicted)
        return False

    def budgets_allow(self, pods: Iterable[Pod]) -> bool:
        """Return whether the disruption budgets allow these evictions in addition to those on the ledger."""
        return self._budgets.allow(pods, self._ledger.evicted)

    def forget(self) -> None:
        """Clear the limits that have refused evictions so far, before the search for another workload."""
        self._budgets.in_the_way.clear()
        self._pods_over_cap = 0

    def note(self, workload: Workload) -> None:
        """Add the limits that refused evictions since the last `forget` to the workload's hindrances."""
        budgets, pods = self._budgets.in_the_way, self._pods_over_cap
        if budgets or pods:
            before = self.hindrances.get(workload.id, Hindrances())
            self.hindrances[workload.id] = Hindrances(
                tuple(sorted(budgets.union(before.budgets))),
                self._max_evictions or 0,
                min(pods or before.pods_over_cap, before.pods_over_cap or pods),
                len(self._seats.evictions),
            )
        self.forget()


class Budgets:
    """The disruption budgets of one decision. `in_the_way` has the names of the budgets that refused evictions.

    A pod that several budgets protect is never evicted: the eviction API of Kubernetes refuses it too.
    """

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets = sorted(budgets, key=lambda budget: budget.name)
        self._of_pod: dict[str, list[int]] = {}
        for index, budget in enumerate(self._budgets):
            for pod in budget.pods:
                self._of_pod.setdefault(pod, []).append(index)
        self.in_the_way: set[str] = set()

    def allow(self, pods: Iterable[Pod], evicted: Collection[str]) -> bool:
        """Return whether these pods may be evicted in addition to the pods (ids) in `evicted`. Store the names of
        budgets that refuse.
        """
        if not self._of_pod:
            return True
        new = [pod.id for pod in pods if pod.id in self._of_pod and pod.id not in evicted]
        disruptions: dict[int, int] = {}
        for pod in new:
            indices = self._of_pod[pod]
            if len(indices) > 1:
                self.in_the_way.update(self._budgets[index].name for index in indices)
                return False
            disruptions[indices[0]] = disruptions.get(indices[0], 0) + 1
        for index, count in disruptions.items():
            evicted_count = sum(index in self._of_pod.get(pod_id, ()) for pod_id in evicted)
            if evicted_count + count > self._budgets[index].allowed:
                self.in_the_way.add(self._budgets[index].name)
                return False
        return True
