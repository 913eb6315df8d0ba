"""The tree of projects with quotas and limits, and checks whether all quotas can be guaranteed at the same time."""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.planner.accounting.amounts import gpus
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts, Node, Project


def quota_excess(
    projects: Mapping[str, tuple[str | None, int | None]], capacity_gpu_milli: int
) -> str | None:
    """Return a message about quotas that cannot be guaranteed together; None if all can.

    `projects` maps a name to (parent, quota_gpu_milli). The sum of the quotas in a department may not exceed the
    department's quota. The sum of the top level may not exceed `capacity_gpu_milli`. A quota of None (unlimited) does
    not count in a sum.
    """
    return _excess(projects, capacity_gpu_milli, gpus, "GPUs")


def cpu_excess(projects: Mapping[str, tuple[str | None, int | None]], capacity_cpu_milli: int) -> str | None:
    """Return the message of `quota_excess` for CPU; amounts are `cpu_milli`."""
    return _excess(projects, capacity_cpu_milli, gpus, "CPUs")


def memory_excess(
    projects: Mapping[str, tuple[str | None, int | None]], capacity_memory_bytes: int
) -> str | None:
    """Return the message of `quota_excess` for memory; amounts are `memory_bytes`."""
    return _excess(projects, capacity_memory_bytes, _gibibytes, "of memory")


def _excess(
    projects: Mapping[str, tuple[str | None, int | None]],
    capacity: int,
    written: Callable[[int], str],
    subject: str,
) -> str | None:
    totals: dict[str | None, int] = {}
    for name in sorted(projects):
        parent, quota = projects[name]
        if quota is None:
            continue
        parent = parent if parent in projects else None
        totals[parent] = totals.get(parent, 0) + quota
    for parent in sorted(name for name in totals if name is not None):
        quota = projects[parent][1]
        if quota is not None and totals[parent] > quota:
            return (
                f"the quotas of the projects in {parent} add up to {written(totals[parent])} {subject}, "
                f"{parent} itself has {written(quota)}"
            )
    top = totals.get(None, 0)
    if top > capacity:
        return f"the quotas add up to {written(top)} {subject}, the cluster has {written(capacity)}"
    return None


def _gibibytes(memory_bytes: int) -> str:
    """Return an amount of memory as text, up to thousandths: `512Gi`, `0.5Gi`.

    Example: `_gibibytes(1610612736)` returns `'1.5Gi'`.
    """
    return f"{gpus(memory_bytes * DEVICE_MILLI // (1 << 30))}Gi"


def installed(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the GPUs of all nodes by model, in `gpu_milli`."""
    capacity: dict[str, int] = {}
    for node in nodes:
        if node.gpu_model:
            capacity[node.gpu_model] = capacity.get(node.gpu_model, 0) + node.gpu_count * DEVICE_MILLI
    return capacity


def gpu_model_excess(
    projects: Mapping[str, tuple[str | None, int | None, Mapping[str, int]]],
    capacity_gpu_milli: Mapping[str, int],
) -> str | None:
    """Return the message of `quota_excess` for the quotas of GPU models. Each project, each department and the whole
    cluster is checked.

    `projects` maps a name to (parent, total quota, quota by model). `capacity_gpu_milli` maps a model to the GPUs of
    the cluster.
    """
    totals: dict[tuple[str, str | None], int] = {}
    for name in sorted(projects):
        parent, total, quotas = projects[name]
        if total is not None and sum(quotas.values()) > total:
            return (
                f"the quotas of {name} for GPU models add up to {gpus(sum(quotas.values()))} GPUs, "
                f"its quota is {gpus(total)}"
            )
        for model, quota in quotas.items():
            key = (model, parent if parent in projects else None)
            totals[key] = totals.get(key, 0) + quota
    for (model, parent), total in sorted(totals.items(), key=str):
        if parent is not None:
            own = projects[parent][2].get(model)
            if own is not None and total > own:
                return (
                    f"the quotas for {model} of the projects in {parent} add up to {gpus(total)} GPUs, "
                    f"{parent} itself has {gpus(own)}"
                )
        elif total > capacity_gpu_milli.get(model, 0):
            known = ", ".join(
                f"{gpus(capacity_gpu_milli[model])} of {model}" for model in sorted(capacity_gpu_milli)
            )
            return f"the quotas for {model} add up to {gpus(total)} GPUs, the cluster has {known or 'none'}"
    return None


class ProjectTree:
    """The projects with their parents and children. An unknown or circular parent counts as no parent.

    `quota` and `limit` are by project and resource, UNLIMITED if not set. `resources` has the indices of bounded
    resources: GPUs always, CPU and memory if a project bounds them. `limited` has, by project, the entries of its
    `lineage` that have a limit.

    `model_quota` and `model_limit` are by project and GPU model, for bounded `models`. If no quota for a model is set,
    a project has the quota 0, and a department the sum of its projects.
    """

    def __init__(self, projects: Iterable[Project]) -> None:
        self.projects = {
            project.name: project for project in sorted(projects, key=lambda project: project.name)
        }
        self.lineage: dict[str, tuple[str, ...]] = {}
        self.children: dict[str | None, list[str]] = {None: []}
        for name in self.projects:
            lineage = self._climb(name)
            self.lineage[name] = lineage
            self.children.setdefault(lineage[1] if len(lineage) > 1 else None, []).append(name)
        self.quota: dict[str, Amounts] = {name: _quota(project) for name, project in self.projects.items()}
        self.limit: dict[str, Amounts] = {name: _limit(project) for name, project in self.projects.items()}
        bounds = [*self.quota.values(), *self.limit.values()]
        self.models = frozenset(bound.model for one in self.projects.values() for bound in one.gpu_models)
        self.model_quota: dict[tuple[str, str], int] = {}
        self.model_limit: dict[tuple[str, str], int] = {}
        for model in self.models:
            for name in self.children[None]:
                self._bound_model(name, model)
        self.limited: dict[str, tuple[str, ...]] = {
            name: tuple(filter(self._has_limit, lineage)) for name, lineage in self.lineage.items()
        }
        self.models_with_quota = frozenset(model for (_, model), quota in self.model_quota.items() if quota)
        self.resources = (
            0,
            *(resource for resource in (1, 2) if any(bound[resource] < UNLIMITED for bound in bounds)),
        )

    def nearest(self, name: str, seconds: Callable[[Project], int | None]) -> int:
        """Return the project's own value. If the project has none, return the value of the nearest department that
        has a value, else 0.
        """
        own_settings = (seconds(self.projects[ancestor]) for ancestor in self.lineage[name])
        return next((value for value in own_settings if value is not None), 0)

    def _has_limit(self, name: str) -> bool:
        own = (self.model_limit[name, model] for model in self.models)
        return any(limit < UNLIMITED for limit in (*self.limit[name], *own))

    def _bound_model(self, name: str, model: str) -> int:
        below = sum(self._bound_model(child, model) for child in self.children.get(name, ()))
        own = next((bound for bound in self.projects[name].gpu_models if bound.model == model), None)
        quota = below if own is None or own.quota_gpu_milli is None else own.quota_gpu_milli
        self.model_quota[name, model] = quota
        self.model_limit[name, model] = _or_unlimited(None if own is None else own.limit_gpu_milli)
        return quota

    def _climb(self, name: str) -> tuple[str, ...]:
        lineage = [name]
        parent = self.projects[name].parent
        while parent is not None and parent in self.projects:
            if parent in lineage:
                return (name,)
            lineage.append(parent)
            parent = self.projects[parent].parent
        return tuple(lineage)


def preempt_min_runtime(project: Project) -> int | None:
    """Return the project's own value, as `ProjectTree.nearest` needs it; None if it has none."""
    return project.preempt_min_runtime_seconds


def reclaim_min_runtime(project: Project) -> int | None:
    """Return the project's own value, as `ProjectTree.nearest` needs it; None if it has none."""
    return project.reclaim_min_runtime_seconds


def _quota(project: Project) -> Amounts:
    return (
        _or_unlimited(project.quota_gpu_milli),
        _or_unlimited(project.quota_cpu_milli),
        _or_unlimited(project.quota_memory_bytes),
    )


def _limit(project: Project) -> Amounts:
    return (
        _or_unlimited(project.limit_gpu_milli),
        _or_unlimited(project.limit_cpu_milli),
        _or_unlimited(project.limit_memory_bytes),
    )


def _or_unlimited(amount: int | None) -> int:
    return UNLIMITED if amount is None else amount
