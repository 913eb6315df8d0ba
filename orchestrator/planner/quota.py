"""Quotas as a tree: who is whose parent, and whether the guarantees can all be kept at once."""

from collections.abc import Iterable, Mapping

from orchestrator.planner.model import DEVICE_MILLI, Project


def quota_excess(projects: Mapping[str, tuple[str | None, int]], capacity_gpu_milli: int) -> str | None:
    """One line that says which guarantees cannot be kept together, or None.

    `projects` maps a name to (parent, quota_gpu_milli). The quotas of one department's projects may not exceed
    the department's, and those of the top level may not exceed `capacity_gpu_milli`.
    """
    totals: dict[str | None, int] = {}
    for name in sorted(projects):
        parent, quota = projects[name]
        parent = parent if parent in projects else None
        totals[parent] = totals.get(parent, 0) + quota
    for parent in sorted(name for name in totals if name is not None):
        if totals[parent] > projects[parent][1]:
            return (
                f"the quotas of the projects in {parent} add up to {gpus(totals[parent])} GPUs, "
                f"{parent} itself has {gpus(projects[parent][1])}"
            )
    top = totals.get(None, 0)
    if top > capacity_gpu_milli:
        return f"the quotas add up to {gpus(top)} GPUs, the cluster has {gpus(capacity_gpu_milli)}"
    return None


def gpus(gpu_milli: int) -> str:
    """Thousandths of a GPU as people write them: `2`, `0.5`, `0.125`."""
    whole, rest = divmod(gpu_milli, DEVICE_MILLI)
    return str(whole) if rest == 0 else f"{whole}.{rest:03d}".rstrip("0")


class ProjectTree:
    """The projects with their parents and children. An unknown or circular parent counts as none."""

    def __init__(self, projects: Iterable[Project]) -> None:
        self.projects = {project.name: project for project in sorted(projects, key=lambda each: each.name)}
        self.lineage: dict[str, tuple[str, ...]] = {}
        self.children: dict[str | None, list[str]] = {None: []}
        for name in self.projects:
            lineage = self._climb(name)
            self.lineage[name] = lineage
            self.children.setdefault(lineage[1] if len(lineage) > 1 else None, []).append(name)

    def _climb(self, name: str) -> tuple[str, ...]:
        lineage = [name]
        parent = self.projects[name].parent
        while parent is not None and parent in self.projects:
            if parent in lineage:
                return (name,)
            lineage.append(parent)
            parent = self.projects[parent].parent
        return tuple(lineage)
