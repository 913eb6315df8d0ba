"""The two limits on the evictions of one decision: the maximum number of pods, and disruption budgets."""

from collections.abc import Iterable, Sequence

from orchestrator.planner.accounting.budgets import Budgets
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Pod, Snapshot, Workload
from orchestrator.planner.obstacles import Hindrances
from orchestrator.planner.seats import Seats


class EvictionLimits:
    """Says which pods may be evicted too, and notes in `hindrances`, by workload id, the limits that refused them."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, seats: Seats) -> None:
        self.hindrances: dict[str, Hindrances] = {}
        self._max_evictions = snapshot.settings.max_evictions
        self._budgets = Budgets(snapshot.budgets)
        self._ledger = ledger
        self._seats = seats
        self._pods_over_cap = 0

    def may_evict(self, victims: Iterable[Sequence[Pod]]) -> bool:
        """Whether the decision stays within its maximum number of evictions with these groups of pods."""
        if self._max_evictions is None:
            return True
        # A nominated pod has started nothing: only running pods count.
        evicted = sum(not self._seats.is_nominated(pod) for pods in victims for pod in pods)
        if len(self._seats.evictions) + evicted <= self._max_evictions:
            return True
        self._pods_over_cap = min(evicted, self._pods_over_cap or evicted)
        return False

    def budgets_allow(self, pods: Iterable[Pod]) -> bool:
        """Whether the disruption budgets allow to evict these pods besides the evicted ones."""
        return self._budgets.allow(pods, self._ledger.evicted)

    def forget(self) -> None:
        """Begin to note the limits that refuse evictions."""
        self._budgets.in_the_way.clear()
        self._pods_over_cap = 0

    def note(self, workload: Workload) -> None:
        """Add the limits that refused evictions since then to the hindrances of the workload."""
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
