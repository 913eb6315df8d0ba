"""Quotas and limits for GPUs of one model, beside those for all GPUs.

A pod counts for the model of the node that it runs on. Work that can only run on one model is *bound* to it: its
project's quota for the model is a claim on that very model, which others give back even where their total quota covers
what they run there. A total quota alone promises no particular model.
"""

from collections.abc import Collection, Mapping

from orchestrator.planner.gangs import Chunk, chunk_gpu_milli
from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Constraints, PendingReason, Waiting, Workload
from orchestrator.planner.model_bounds import keeps_promises, over_limit, within_quota
from orchestrator.planner.placement import Placer, node_types_for
from orchestrator.planner.quota import gpus
from orchestrator.planner.shares import Claim, divide

ModelAmounts = dict[tuple[str, str], int]
"""By project and model, in `gpu_milli`."""


class GpuModels:
    """What the projects claim of single models, in one decision."""

    def __init__(self, ledger: Ledger, placer: Placer, waiting: Mapping[str, Workload]) -> None:
        self._ledger = ledger
        self._tree = ledger.tree
        self._placer = placer
        self._known: dict[tuple[Constraints, tuple[str, ...]], Collection[str]] = {}
        self.demand = self._demand(waiting) if self._tree.models else {}
        self.shares = model_shares(ledger, self.demand) if self._tree.models else {}

    def bound(self, workload: Workload, chunk: Chunk) -> str | None:
        """The only model on which the chunk's GPUs can be, if somebody bounds it."""
        if not self._tree.models:
            return None
        found: set[str] = set()
        for pod in chunk:
            if pod.request.gpu_milli:
                found |= set(self._models_for(workload, pod.constraints))
        model = found.pop() if len(found) == 1 else None
        return model if model in self._tree.models else None

    def claim(self, workload: Workload, chunk: Chunk) -> str | None:
        """The model to which the chunk is bound, if the quotas for it have room for the chunk."""
        model = self.bound(workload, chunk)
        if model is None or not within_quota(self._ledger, workload, chunk_gpu_milli(chunk), model):
            return None
        return model

    def beyond_limits(self, project: str) -> int:
        """What the project's workloads ask for of single models above its limits for them."""
        return sum(
            max(0, self.demand.get((project, model), 0) - self._tree.model_limit[project, model])
            for model in self._tree.models
        )

    def refusal(self, workload: Workload, chunk: Chunk) -> PendingReason | None:
        """Why the project may not hold the chunk of the only model that it can run on."""
        model = self.bound(workload, chunk)
        asked = chunk_gpu_milli(chunk)
        if model is None:
            return None
        wants = f"asks for {gpus(asked)} GPUs of {model}"
        full = over_limit(self._ledger, workload, asked, model)
        if full is not None:
            held, limit = self._ledger.model_held.get((full, model), 0), self._tree.model_limit[full, model]
            return PendingReason(
                Waiting.PROJECT_LIMIT,
                f"{wants}; {full} holds {gpus(held)} of its limit of {gpus(limit)} for that model: fits when "
                f"{full} returns {gpus(held + asked - limit)}, or with a higher limit",
            )
        if keeps_promises(self._ledger, workload, asked, model):
            return None
        return PendingReason(
            Waiting.OVER_QUOTA,
            f"{wants} that cannot be taken back; the others of that model are promised to other projects and "
            f"{workload.project} has a quota of {gpus(self._tree.model_quota[workload.project, model])} of them: "
            "submit it as preemptible, or raise the quota",
        )

    def _models_for(self, workload: Workload, constraints: Constraints) -> Collection[str]:
        types = node_types_for(self._tree.projects[workload.project], workload)
        known = self._known.get((constraints, types))
        if known is None:
            known = self._known[constraints, types] = {
                each.model
                for each in self._ledger.nodes
                if each.node.gpu_count and self._placer.admits(each, constraints, types)
            }
        return known

    def _demand(self, waiting: Mapping[str, Workload]) -> ModelAmounts:
        """By leaf project and model, what is held and what waits for that very model."""
        demand: ModelAmounts = {
            (name, model): self._ledger.model_held.get((name, model), 0)
            for name in self._tree.projects
            if name not in self._tree.children
            for model in self._tree.models
        }
        for workload in waiting.values():
            for pod in workload.pods:
                model = None if pod.node is not None else self.bound(workload, (pod,))
                key = (workload.project, model or "")
                if key in demand:
                    demand[key] += pod.request.gpu_milli
        return demand


def model_shares(ledger: Ledger, demand: Mapping[tuple[str, str], int]) -> ModelAmounts:
    """The fair share of every project and department of each model, divided as all GPUs are."""
    tree = ledger.tree
    asked: ModelAmounts = {}
    for (name, model), amount in demand.items():
        for each in tree.lineage[name]:
            asked[each, model] = asked.get((each, model), 0) + amount
    shares: ModelAmounts = {}
    for model in sorted(tree.models):
        levels: list[tuple[str | None, int]] = [(None, ledger.model_capacity.get(model, 0))]
        while levels:
            parent, total = levels.pop()
            claims = [_claim(ledger, name, model, asked) for name in tree.children.get(parent, ())]
            for name, share in divide(total, claims, DEVICE_MILLI).items():
                shares[name, model] = share
                if name in tree.children:
                    levels.append((name, share))
    return shares


def _claim(ledger: Ledger, name: str, model: str, asked: Mapping[tuple[str, str], int]) -> Claim:
    project, limit = ledger.tree.projects[name], ledger.tree.model_limit[name, model]
    return Claim(
        name=name,
        quota=ledger.tree.model_quota[name, model],
        demand=asked.get((name, model), 0),
        limit=None if limit >= UNLIMITED else limit,
        weight=max(0, project.over_quota_weight),
        priority=project.priority,
        created_at_us=project.created_at_us,
    )
