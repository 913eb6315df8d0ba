"""Budgets for disruption: how many of some pods one decision may evict."""

from collections.abc import Collection, Iterable

from orchestrator.planner.model import Budget, Pod


class Budgets:
    """Says which evictions the budgets allow, counting those that are on the ledger already.

    A pod that several budgets protect is never evicted: Kubernetes does not do it either.
    """

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets = sorted(budgets, key=lambda budget: budget.name)
        self._of_pod: dict[str, list[int]] = {}
        for index, budget in enumerate(self._budgets):
            for pod in budget.pods:
                self._of_pod.setdefault(pod, []).append(index)
        self.in_the_way: set[str] = set()

    def allow(self, pods: Iterable[Pod], evicted: Collection[str]) -> bool:
        """Whether these pods may go too, after those in `evicted`; names of budgets that say no are kept."""
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
            gone = sum(index in self._of_pod.get(pod_id, ()) for pod_id in evicted)
            if gone + count > self._budgets[index].allowed:
                self.in_the_way.add(self._budgets[index].name)
                return False
        return True
