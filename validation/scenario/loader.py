"""Finds scenario files and loads them, each after the scenario that it continues. Errors name file and line."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import filter as filter_names
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from validation.errors import ScenarioError
from validation.scenario.builder import Builder
from validation.scenario.commands import Action
from validation.scenario.document import Document, content_of
from validation.scenario.loaded import SHIPPED, LoadedScenario
from validation.scenario.scaling import Size, scale, size_of, with_titles
from validation.scenario.schema import Scenario

SUFFIX = ".scenario.yaml"
SUITES = tuple(SHIPPED / name for name in ("hosts", "cluster", "tr4858", "muster", "hosts-after"))
"""The suites in their order: the hosts, the cluster, the reference, behaviour beyond the reference, the hosts again."""


def find(paths: list[Path] | None = None) -> list[Path]:
    """Return all scenario files below `paths` (default: those that ship with muster).

    The files of one path are sorted.
    """
    paths = paths or list(SUITES)
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files.update(dict.fromkeys(sorted(path.rglob(f"*{SUFFIX}"))))
        elif path.exists():
            files[path] = None
        else:
            raise ScenarioError(f"{path}: no such file or directory")
    if not files:
        raise ScenarioError(f"no {SUFFIX} file below {', '.join(str(path) for path in paths)}")
    return list(files)


def load(paths: list[Path], size: Size | None = None) -> list[LoadedScenario]:
    """Return the scenarios of `paths`, each after the scenario that it continues, scaled to `size` (None: not scaled).

    Raises ScenarioError.
    """
    documents: dict[str, tuple[Document, Scenario]] = {}
    for path in paths:
        document, scenario = _read(path, content_of(path))
        first = documents.get(scenario.metadata.id)
        if first is not None:
            message = f"duplicate scenario id `{scenario.metadata.id}`, also in {first[0].path}"
            raise document.error(("metadata", "id"), message)
        documents[scenario.metadata.id] = (document, scenario)
    loaded: dict[str, LoadedScenario] = {}
    for name in documents:
        _resolve(name, documents, loaded, (), size)
    return list(loaded.values())


def select(scenarios: list[LoadedScenario], patterns: Sequence[str]) -> list[LoadedScenario]:
    """Return the scenarios whose ids match one of the shell patterns, and the scenarios that they continue.

    Without patterns, return all. Raises ScenarioError if a pattern matches none.
    """
    if not patterns:
        return scenarios
    names = [scenario.id for scenario in scenarios]
    for pattern in patterns:
        if not filter_names(names, pattern):
            raise ScenarioError(f"no scenario matches `{pattern}`; there are: {', '.join(names)}")
    return with_predecessors(scenarios, {name for each in patterns for name in filter_names(names, each)})


def with_predecessors(scenarios: list[LoadedScenario], names: set[str]) -> list[LoadedScenario]:
    """Return the named scenarios and all scenarios that they continue, in the order of `scenarios`."""
    by_id = {scenario.id: scenario for scenario in scenarios}
    selected: set[str] = set()
    for name in names:
        while name and name not in selected:
            selected.add(name)
            name = by_id[name].scenario.continues  # noqa: PLW2901 - walks back to the first
    return [scenario for scenario in scenarios if scenario.id in selected]


def chains(scenarios: list[LoadedScenario]) -> list[list[LoadedScenario]]:
    """Return the scenarios in groups. Each scenario of a group continues the previous one; groups share no state."""
    groups: dict[str, list[LoadedScenario]] = {}
    for scenario in scenarios:
        before = scenario.scenario.continues
        key = next((root for root, group in groups.items() if before and group[-1].id == before), scenario.id)
        groups.setdefault(key, []).append(scenario)
    return list(groups.values())


@lru_cache(maxsize=256)
def _read(path: Path, _content: bytes) -> tuple[Document, Scenario]:
    """Return the scenario in a file with this content. A run reads each file for the plan, and again in pytest."""
    document = Document(path)
    return document, document.convert(Scenario)


def _resolve(
    name: str,
    documents: dict[str, tuple[Document, Scenario]],
    loaded: dict[str, LoadedScenario],
    waiting: tuple[str, ...],
    size: Size | None,
) -> LoadedScenario:
    if name in loaded:
        return loaded[name]
    document, scenario = documents[name]
    before: LoadedScenario | None = None
    if scenario.continues:
        if scenario.continues not in documents or scenario.continues in (*waiting, name):
            raise document.error(
                ("continues",), f"cannot continue `{scenario.continues}`: unknown, or a circle"
            )
        other = next((s.id for s in loaded.values() if s.scenario.continues == scenario.continues), None)
        if other:
            raise document.error(("continues",), f"`{other}` continues `{scenario.continues}` already")
        before = _resolve(scenario.continues, documents, loaded, (*waiting, name), size)
    scenario, is_scaled = _scaled(name, documents, size)
    history, ended = _history(before, loaded)
    result = Builder(document, scenario, before, history, ended).build()
    if is_scaled:
        result = replace(result, size=str(size))
    loaded[name] = result
    return result


def _scaled(
    name: str, documents: dict[str, tuple[Document, Scenario]], size: Size | None
) -> tuple[Scenario, bool]:
    """Return the scenario for a site of this size, and whether it was scaled. Raises ScenarioError."""
    document, scenario = documents[name]
    first = scenario
    earlier: list[Scenario] = []
    while first.continues:
        first = documents[first.continues][1]
        earlier.insert(0, first)
    if size is None or first.cluster is None or size_of(first.cluster) == size:
        return with_titles(scenario, Fraction(1)), False
    printed = size_of(first.cluster)
    try:
        scaled = scale(scenario, earlier, printed, size)
    except ValueError as error:
        raise document.error((), f"cannot be scaled to {size} GPUs: {error}") from error
    return with_titles(scaled, Fraction(size.gpus, printed.gpus)), True


def _history(
    last: LoadedScenario | None, loaded: dict[str, LoadedScenario]
) -> tuple[list[Action], frozenset[str]]:
    """Return the actions up to the end of the scenario `last`, and the jobs that have reached their time limit by
    then.
    """
    actions: list[Action] = []
    ended: set[str] = set()
    while last is not None:
        actions = [command.action for step in last.steps for command in step.commands] + actions
        ended |= {name for step in last.steps for name in step.expectation.ended_jobs}
        last = loaded.get(last.scenario.continues)
    return actions, frozenset(ended)
