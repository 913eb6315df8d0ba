"""The projects of a snapshot, read again when they change."""

from collections.abc import Callable, Iterator, Mapping

from orchestrator.cluster.gpu_fraction import gpu_milli
from orchestrator.cluster.objects import Project
from orchestrator.cluster.quantity import cpu_milli, memory_bytes, time_us
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError
from orchestrator.observe.dict_ops import put
from orchestrator.observe.unreadable import Boundary, SkippedObject, Unreadable
from orchestrator.planner import model

MAX_DEPARTMENTS = 64
"""Maximum number of departments above a project. Organisations have three or four levels."""


class ProjectReader:
    """The projects, sorted by name. Projects with too many departments above them are skipped."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._known: dict[str, Project] = {}
        self._made: dict[str, model.Project | Unreadable] = {}
        self._too_deep: dict[str, Unreadable] = {}
        self._tuple: tuple[model.Project, ...] | None = ()

    def note(self, project: Project, *, is_there: bool) -> None:
        """Apply a change of a project."""
        name = project.metadata.name
        put(self._known, name, project if is_there else None)
        planned = (
            self._boundary.read("Project", project.metadata, lambda: planner_project(project))
            if is_there
            else None
        )
        if planned != self._made.get(name):  # if it is equal, only the status has changed
            put(self._made, name, planned)
            self._tuple = None

    def read(self) -> tuple[model.Project, ...]:
        """Return the projects that can be read, sorted by name."""
        if self._tuple is None:
            readable = {
                name: project
                for name, project in sorted(self._made.items())
                if isinstance(project, model.Project)
            }
            self._too_deep = {name: why for name in readable if (why := too_deep(name, readable)) is not None}
            self._tuple = tuple(project for name, project in readable.items() if name not in self._too_deep)
        return self._tuple

    def unreadable(self) -> dict[str, str]:
        """Return, by name, the reasons of projects that are skipped."""
        problems = {**self._made, **self._too_deep}
        return {name: problem.why for name, problem in problems.items() if isinstance(problem, Unreadable)}

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield the skipped projects."""
        for name, why in self.unreadable().items():
            yield SkippedObject("Project", "", name, self._known[name].metadata.uid, why)


def planner_project(project: Project) -> model.Project:
    """Return the project in the planner's terms. Raises ValueError if a quantity is invalid."""
    spec, gpu = project.spec, project.spec.gpu
    cpu, memory = spec.cpu, spec.memory
    quota = gpu_milli(gpu.quota)
    return model.Project(
        name=project.metadata.name,
        quota_gpu_milli=quota,
        limit_gpu_milli=None if gpu.limit is None else gpu_milli(gpu.limit),
        over_quota_weight=quota if gpu.over_quota_weight is None else gpu_milli(gpu.over_quota_weight),
        priority=spec.priority,
        parent=spec.parent,
        created_at_us=time_us(project.metadata.creation_timestamp),
        train_node_types=tuple(spec.node_affinity.train),
        interactive_node_types=tuple(spec.node_affinity.interactive),
        quota_cpu_milli=_bound(cpu.quota, cpu_milli),
        limit_cpu_milli=_bound(cpu.limit, cpu_milli),
        cpu_over_quota_weight=1 if cpu.over_quota_weight is None else cpu.over_quota_weight,
        quota_memory_bytes=_bound(memory.quota, memory_bytes),
        limit_memory_bytes=_bound(memory.limit, memory_bytes),
        memory_over_quota_weight=1 if memory.over_quota_weight is None else memory.over_quota_weight,
        reclaim_min_runtime_seconds=_seconds("reclaimMinRuntime", spec.reclaim_min_runtime),
        preempt_min_runtime_seconds=_seconds("preemptMinRuntime", spec.preempt_min_runtime),
        moves_non_preemptible=spec.non_preemptible_on_unhealthy == "Move",
        gpu_models=tuple(
            model.GpuModelBounds(
                name,
                None if bounds.quota is None else gpu_milli(bounds.quota),
                None if bounds.limit is None else gpu_milli(bounds.limit),
            )
            for name, bounds in sorted(gpu.models.items())
        ),
    )


def too_deep(name: str, projects: Mapping[str, model.Project]) -> Unreadable | None:
    """Return why the project is skipped, or None if it is not.

    A project is skipped if more than MAX_DEPARTMENTS departments are above it, or if these contain each other.
    """
    above: list[str] = []
    parent = projects[name].parent
    while parent is not None and parent in projects:
        if parent == name or parent in above:
            circle = [name, *above, parent]
            return Unreadable(
                f"the departments above it form a circle ({' > '.join(circle[circle.index(parent) :])}): "
                "give one of them another parent, or none"
            )
        above.append(parent)
        if len(above) > MAX_DEPARTMENTS:
            return Unreadable(
                f"there are more than {MAX_DEPARTMENTS} departments above it: "
                f"give it a parent nearer the top than {above[0]}"
            )
        parent = projects[parent].parent
    return None


def _bound(quantity: str | int | None, parse: Callable[[str], int]) -> int | None:
    return None if quantity is None else parse(str(quantity))


def _seconds(name: str, duration: str | None) -> int | None:
    try:
        return parse_duration_seconds(name, duration)
    except UsageError as error:
        raise ValueError(str(error)) from error
