"""Whether a project may hold more GPUs of one model: small rules on the ledger as it stands."""

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Workload


def within_quota(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> bool:
    """Whether the project and its departments have that much of the model promised, with what they hold."""
    return all(
        ledger.model_held.get((name, model), 0) + gpu_milli <= ledger.tree.model_quota[name, model]
        for name in ledger.tree.lineage[workload.project]
    )


def over_limit(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> str | None:
    """The first project of the lineage whose limit for the model would be passed."""
    for name in ledger.tree.lineage[workload.project]:
        if ledger.model_held.get((name, model), 0) + gpu_milli > ledger.tree.model_limit[name, model]:
            return name
    return None


def keeps_promises(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> bool:
    """Whether everybody's quota for the model can still be kept: what cannot be taken back is not lent."""
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
        promised = sum(
            max(tree.model_quota[child, model], ledger.model_non_preemptible.get((child, model), 0))
            for child in tree.children[parent]
            if child != name
        )
        if promised + non_preemptible > total:
            return False
    return True


def may_take(ledger: Ledger, workload: Workload, gpu_milli: int, model: str) -> bool:
    """Whether limits and promises for the model let the workload have that much more of it."""
    return over_limit(ledger, workload, gpu_milli, model) is None and keeps_promises(
        ledger, workload, gpu_milli, model
    )
