"""Quotas and limits for GPUs of one model, and GPU memory sizes.

A pod counts for the model of its node. A workload that can run on only one model is *bound* to this model. A quota for
a model entitles its project to GPUs of this model. Other projects return such GPUs even if they are within their total
quota. A total quota guarantees no particular model.
"""

from collections.abc import Iterable, Mapping

from orchestrator.planner.accounting.demand import Demand
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.accounting.shares import Claim, divide, total_model_demand
from orchestrator.planner.gangs import Chunk, chunk_gpu_milli
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Node, Request, Workload
from orchestrator.planner.node_sets import NodeSets, node_types_for
from orchestrator.planner.obstacles import LimitReached, ModelReserved


def within_quota(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> bool:
    """Return whether `gpu_milli` more of the model stays within the quotas of project and departments for it."""
    return all(
        ledger.model_held.get((name, model), 0) + gpu_milli <= ledger.tree.model_quota[name, model]
        for name in ledger.tree.lineage[workload.project]
    )


def over_limit(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> str | None:
    """Return the project or department whose limit for the model would be exceeded, or None."""
    for name in ledger.tree.lineage[workload.project]:
        if ledger.model_held.get((name, model), 0) + gpu_milli > ledger.tree.model_limit[name, model]:
            return name
    return None


def keeps_model_quotas(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> bool:
    """Return whether all quotas for the model stay guaranteed if the workload gets `gpu_milli` more. Only a
    non-preemptible workload can violate them, because other projects cannot reclaim its GPUs.
    """
    if workload.preemptible:
        return True
    tree, lineage = ledger.tree, ledger.tree.lineage[workload.project]
    for depth, name in enumerate(lineage):
        non_preemptible = ledger.model_non_preemptible.get((name, model), 0) + gpu_milli
        if non_preemptible <= tree.model_quota[name, model]:
            continue
        parent = lineage[depth + 1] if depth + 1 < len(lineage) else None
        total = ledger.model_capacity.get(model, 0)
        if parent is not None:
            above = ledger.model_non_preemptible.get((parent, model), 0) + gpu_milli
            total = max(tree.model_quota[parent, model], above)
        guaranteed = sum(
            max(tree.model_quota[child, model], ledger.model_non_preemptible.get((child, model), 0))
            for child in tree.children[parent]
            if child != name
        )
        if guaranteed + non_preemptible > total:
            return False
    return True


def may_take(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> bool:
    """Return whether the limits and the quotas for the model allow the workload `gpu_milli` more of this model."""
    return over_limit(ledger, workload, gpu_milli, model) is None and keeps_model_quotas(
        ledger, workload, gpu_milli, model
    )


ModelAmounts = dict[tuple[str, str], int]
"""Amounts of GPUs by project and model, in `gpu_milli`."""


class GpuModels:
    """The quotas and shares of the projects for single GPU models, in one decision."""

    def __init__(self, ledger: Ledger, nodes: NodeSets, demand: Demand) -> None:
        self._ledger = ledger
        self._tree = ledger.tree
        self._nodes = nodes
        self.demand = demand.by_model(ledger.model_held) if self._tree.models else {}
        self.shares = model_shares(ledger, self.demand) if self._tree.models else {}

    def bound(self, workload: Workload, chunk: Chunk) -> str | None:
        """Return the only model on which the chunk can run, if the model has a quota or limit; otherwise None."""
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
        """Return the model to which the chunk is bound, if the chunk is within the quotas for it; otherwise None."""
        model = self.bound(workload, chunk)
        if model is None or not within_quota(self._ledger, workload, chunk_gpu_milli(chunk), model):
            return None
        return model

    def violation(self, workload: Workload, chunk: Chunk) -> LimitReached | ModelReserved | None:
        """Return the limit or quota for the chunk's model that excludes the chunk; None if none does."""
        model = self.bound(workload, chunk)
        requested = chunk_gpu_milli(chunk)
        if model is None:
            return None
        full = over_limit(self._ledger, workload, requested, model)
        if full is not None:
            held, limit = self._ledger.model_held.get((full, model), 0), self._tree.model_limit[full, model]
            return LimitReached(full, 0, requested=requested, held=held, limit=limit, model=model)
        if keeps_model_quotas(self._ledger, workload, requested, model):
            return None
        quota = self._tree.model_quota[workload.project, model]
        return ModelReserved(workload.project, model, requested=requested, quota=quota)


def model_shares(ledger: Ledger, demand: Mapping[tuple[str, str], int]) -> ModelAmounts:
    """Return the fair shares of each model by project and department, divided like the shares of all GPUs."""
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


class GpuSizes:
    """The memory of the GPUs by node name, in MiB; 0 if unknown."""

    def __init__(self, memory_mib: Mapping[str, int]) -> None:
        self._memory_mib = memory_mib
        self._sizes_mib = sorted({size for size in self._memory_mib.values() if size})

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> "GpuSizes":
        """Return the GPU memory sizes of these nodes."""
        return cls({node.name: node.gpu_memory_mib for node in nodes})

    def portion_milli(self, request: Request) -> int:
        """Return the thousandths of the smallest GPU with enough memory; a whole GPU if none has enough."""
        smallest = next((size for size in self._sizes_mib if size >= request.gpu_memory_mib), 0)
        return request.portion_milli(smallest)

    def counted_milli(self, request: Request) -> int:
        """Return the amount that quotas and shares count for a pending or running pod, in thousandths of a GPU."""
        if not request.gpu_memory_mib:
            return request.gpu_milli
        return request.shared_devices * self.portion_milli(request)

    def held_milli(self, request: Request, node: str | None) -> int:
        """Return the `gpu_milli` of the request on the node: the same memory is a smaller portion of a large GPU."""
        return request.gpu_milli_on(self._memory_mib.get(node or "", 0))
