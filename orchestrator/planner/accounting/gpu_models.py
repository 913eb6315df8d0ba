"""Quotas and limits for GPUs of one model, beside those for all GPUs.

A pod counts for the model of the node that it runs on. Work that can only run on one model is *bound* to it: its
project's quota for the model is a claim on that very model, which others give back even where their total quota covers
what they run there. A total quota alone promises no particular model.
"""

from collections.abc import Mapping

from orchestrator.planner.accounting.demand import Demand
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.accounting.model_bounds import keeps_promises, over_limit, within_quota
from orchestrator.planner.accounting.shares import Claim, divide, total_model_demand
from orchestrator.planner.gangs import Chunk, chunk_gpu_milli
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Workload
from orchestrator.planner.node_sets import NodeSets, node_types_for
from orchestrator.planner.obstacles import LimitReached, ModelPromised

ModelAmounts = dict[tuple[str, str], int]
"""By project and model, in `gpu_milli`."""


class GpuModels:
    """What the projects claim of single models, in one decision."""

    def __init__(self, ledger: Ledger, nodes: NodeSets, demand: Demand) -> None:
        self._ledger = ledger
        self._tree = ledger.tree
        self._nodes = nodes
        self.demand = demand.by_model(ledger.model_held) if self._tree.models else {}
        self.shares = model_shares(ledger, self.demand) if self._tree.models else {}

    def bound(self, workload: Workload, chunk: Chunk) -> str | None:
        """The only model on which the chunk's GPUs can be, if somebody bounds it."""
        if not self._tree.models:
            return None
        models: set[str] = set()
        for pod in chunk:
            if pod.request.gpu_milli:
                types = node_types_for(self._tree.projects[workload.project], workload)
                models |= set(self._nodes.models_in(self._nodes.admitting(pod.constraints, types)))
        model = models.pop() if len(models) == 1 else None
        return model if model in self._tree.models else None

    def claim(self, workload: Workload, chunk: Chunk) -> str | None:
        """The model to which the chunk is bound, if the quotas for it have room for the chunk."""
        model = self.bound(workload, chunk)
        if model is None or not within_quota(self._ledger, workload, chunk_gpu_milli(chunk), model):
            return None
        return model

    def violation(self, workload: Workload, chunk: Chunk) -> LimitReached | ModelPromised | None:
        """Why the project may not hold the chunk of the only model that it can run on."""
        model = self.bound(workload, chunk)
        requested = chunk_gpu_milli(chunk)
        if model is None:
            return None
        full = over_limit(self._ledger, workload, requested, model)
        if full is not None:
            held, limit = self._ledger.model_held.get((full, model), 0), self._tree.model_limit[full, model]
            return LimitReached(full, 0, requested=requested, held=held, limit=limit, model=model)
        if keeps_promises(self._ledger, workload, requested, model):
            return None
        quota = self._tree.model_quota[workload.project, model]
        return ModelPromised(workload.project, model, requested=requested, quota=quota)


def model_shares(ledger: Ledger, demand: Mapping[tuple[str, str], int]) -> ModelAmounts:
    """The fair share of every project and department of each model, divided as all GPUs are."""
    tree = ledger.tree
    requested = total_model_demand(tree, demand)
    shares: ModelAmounts = {}
    for model in sorted(tree.models):
        levels: list[tuple[str | None, int]] = [(None, ledger.model_capacity.get(model, 0))]
        while levels:
            parent, total = levels.pop()
            claims = [_claim(ledger, name, model, requested) for name in tree.children.get(parent, ())]
            for name, share in divide(total, claims, DEVICE_MILLI).items():
                shares[name, model] = share
                if name in tree.children:
                    levels.append((name, share))
    return shares


def _claim(ledger: Ledger, name: str, model: str, requested: Mapping[tuple[str, str], int]) -> Claim:
    project, limit = ledger.tree.projects[name], ledger.tree.model_limit[name, model]
    return Claim(
        name=name,
        quota=ledger.tree.model_quota[name, model],
        demand=requested.get((name, model), 0),
        limit=None if limit >= UNLIMITED else limit,
        weight=max(0, project.over_quota_weight),
        priority=project.priority,
        created_at_us=project.created_at_us,
    )
