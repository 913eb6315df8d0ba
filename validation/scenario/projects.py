"""The projects of a scenario, parsed and checked, and the options with which the command line creates them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from validation.judge.scheduling import oracle
from validation.scenario.document import Document
from validation.scenario.schema import Project, duration_ms, milli


@dataclass(frozen=True, slots=True)
class LoadedProject:
    """The quota and the weight of a project, in thousandths of a GPU, and the limits of its jobs.

    The default weight is the quota.

    A limit of 0 or an empty tuple means no limit.
    """

    quota_milli: int
    weight_milli: int | None = None
    interactive_limit_ms: int = 0
    train_node_types: tuple[str, ...] = ()
    interactive_node_types: tuple[str, ...] = ()

    def claim(self, name: str) -> oracle.Project:
        """Return the quota and the weight for the oracle."""
        weight = None if self.weight_milli is None else Fraction(self.weight_milli)
        return oracle.Project(name, self.quota_milli, weight)

    @property
    def limits_nodes(self) -> bool:
        """Whether some of its jobs may not be on every node."""
        return bool(self.train_node_types or self.interactive_node_types)

    @property
    def options(self) -> str:
        """Return the options after the name in `muster project create`."""
        words = ["-g", f"{self.quota_milli / 1000:g}"]
        if self.weight_milli is not None:
            words += ["--over-quota-weight", f"{self.weight_milli / 1000:g}"]
        if self.interactive_limit_ms:
            words += ["--interactive-time-limit", f"{self.interactive_limit_ms // 1000}s"]
        for kind, types in (("train", self.train_node_types), ("interactive", self.interactive_node_types)):
            words += [word for name in types for word in (f"--{kind}-node-type", name)]
        return shlex.join(words)


def load_projects(
    document: Document,
    printed: Mapping[str, Project],
    node_types: Sequence[str],
    before: Mapping[str, LoadedProject],
    jobs: Mapping[str, str],
) -> dict[str, LoadedProject]:
    """Return the projects of a scenario: the projects of the scenario `before`, with the changes that the file
    (`printed`) makes.

    `printed` creates, changes and deletes projects. `jobs` has the name of one job of each project with jobs. Raises
    ScenarioError.
    """
    projects = dict(before)
    for name, project in printed.items():
        place = ("projects", name)
        if project.quota is None:
            if name not in projects:
                raise document.error(place, f"there is no project `{name}` to delete in the scenario before")
            if name in jobs:
                raise document.error(
                    place, f"project `{name}` has jobs, `{jobs[name]}` first: delete them before"
                )
            del projects[name]
            continue
        try:
            loaded = _load(project, node_types)
        except ValueError as error:
            raise document.error(place, str(error)) from error
        if name in projects:
            if projects[name].quota_milli == loaded.quota_milli:
                raise document.error(place, f"project `{name}` has that quota already in the scenario before")
            if project != Project(project.quota):
                raise document.error(place, f"project `{name}` is there already: only its quota can change")
            loaded = replace(projects[name], quota_milli=loaded.quota_milli)
        projects[name] = loaded
    if not projects:
        raise document.error((), "a scenario that continues no other needs `projects`")
    return projects


def _load(project: Project, node_types: Sequence[str]) -> LoadedProject:
    """Return the parsed project. Raises ValueError."""
    limit = project.interactive_time_limit
    limit_ms = duration_ms(limit) if limit else 0
    if limit and (not limit_ms or limit_ms % 1000):
        raise ValueError(f"interactiveTimeLimit: `{limit}` is no time in whole seconds")
    unknown = {*project.train_node_types, *project.interactive_node_types} - {*node_types}
    if unknown:
        raise ValueError(
            f"unknown group `{min(unknown)}`: `nodeTypes` of the scenario has those that there are"
        )
    return LoadedProject(
        milli(project.quota or Decimal(0)),
        None if project.weight is None else milli(project.weight),
        limit_ms,
        tuple(project.train_node_types),
        tuple(project.interactive_node_types),
    )


def weights_of(projects: Mapping[str, LoadedProject]) -> dict[str, int]:
    """Return the weights of the projects whose weight is not their quota."""
    return {
        name: project.weight_milli for name, project in projects.items() if project.weight_milli is not None
    }
