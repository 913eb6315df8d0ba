"""The projects of a snapshot, read again when they change."""

from collections.abc import Iterator

from orchestrator.cluster.objects import Project
from orchestrator.observe.dict_ops import put
from orchestrator.observe.snapshot import planner_project, too_deep
from orchestrator.observe.unreadable import Boundary, SkippedObject, Unreadable
from orchestrator.planner import model


class ProjectReader:
    """The projects, sorted by name; those with too many departments above them are skipped."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._known: dict[str, Project] = {}
        self._made: dict[str, model.Project | Unreadable] = {}
        self._too_deep: dict[str, Unreadable] = {}
        self._tuple: tuple[model.Project, ...] | None = ()

    def note(self, project: Project, *, is_there: bool) -> None:
        """Take a change of a project."""
        name = project.metadata.name
        put(self._known, name, project if is_there else None)
        planned = (
            self._boundary.read(f"project {name}", lambda: planner_project(project)) if is_there else None
        )
        if planned != self._made.get(name):  # otherwise its status alone has changed
            put(self._made, name, planned)
            self._tuple = None

    def read(self) -> tuple[model.Project, ...]:
        """Return the projects that decisions count with, by name."""
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
        """By name, why projects are not counted with."""
        problems = {**self._made, **self._too_deep}
        return {name: problem.why for name, problem in problems.items() if isinstance(problem, Unreadable)}

    def skipped(self) -> Iterator[SkippedObject]:
        """Yield what decisions do not count with."""
        for name, why in self.unreadable().items():
            yield SkippedObject("Project", "", name, self._known[name].metadata.uid, why)
