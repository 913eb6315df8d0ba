"""Fixtures for the sources of facts. A test whose source is missing is deselected, and one line per source says so.

For `tests.upstream.releases` each test has properties: its projects, its subject, and whether it compares versions. A
test whose source is missing is skipped then, with the reason.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployment.matrix import tables
from tests.upstream import environments, facts
from tests.upstream.facts import PROJECTS
from tests.upstream.kubernetes_sources import kubernetes_checkout, kubernetes_module
from tests.upstream.repository import Tree, copied, made_of_facts
from tests.upstream.stage import SITES, Done, run

(RELEASE,) = (str(row["release"]) for row in tables()["deepops"])
NAMES = {*PROJECTS, "kubernetes"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests whose facts, checkouts or environment are missing."""
    if facts.sources() == (facts.NEWEST,):
        for item in items:
            _describe(item)
        left_out = [item for item in items if not item.user_properties]
    else:
        left_out = [item for item in items if _absent(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def _used(item: pytest.Item) -> set[object]:
    return {*getattr(item, "fixturenames", ()), _parameters(item).get("project")}


def _absent(item: pytest.Item) -> list[str]:
    """Return the paths that a test needs and that are missing."""
    if "source" not in _parameters(item):
        return []
    absent = facts.missing(str(_parameters(item)["source"]), PROJECTS.keys() & _used(item))
    return absent + (_absent_environment() if "programs" in _used(item) else [])


def _describe(item: pytest.Item) -> None:
    """Set the properties of a test of other projects."""
    projects = sorted(NAMES & _used(item))
    if not projects:
        return
    subject = re.sub(r"(^|-)(newest|trees)(?=-|$)", "", item.nodeid.partition("[")[2].removesuffix("]"))
    item.user_properties += [
        *(("project", project) for project in projects),
        ("subject", subject.strip("-")),
        ("kind", "version" if item.get_closest_marker("versions") else "name"),
    ]


def _absent_environment() -> list[str]:
    path = environments.directory(RELEASE) / "bin"
    return [] if path.is_dir() else [str(path)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test for `tests.upstream.releases` whose source is missing."""
    if facts.sources() == (facts.NEWEST,) and (absent := _absent(item)):
        pytest.skip(f"not at hand: {', '.join(absent)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each source that names its missing paths."""
    absent = {f"checks against {source}": facts.missing(source, PROJECTS) for source in facts.sources()}
    absent["checks with DeepOps' own Ansible"] = _absent_environment()
    for what, paths in absent.items():
        if paths:
            terminalreporter.write_line(f"not run: {what}; not at hand: {', '.join(paths)}")


@pytest.fixture(scope="session", params=facts.sources())
def source(request: pytest.FixtureRequest) -> str:
    """Return the source of the facts."""
    return str(request.param)


def _facts_of(project: str) -> Callable[..., dict[str, Any]]:
    @pytest.fixture(scope="session", name=project)
    def read(source: str) -> dict[str, Any]:
        return facts.read(source, project)

    return read


deepops, kubespray, trident = (_facts_of(project) for project in ("deepops", "kubespray", "trident"))
dra_driver, device_plugin = (_facts_of(project) for project in ("dra_driver", "device_plugin"))
mock_nvml, jobset = (_facts_of(project) for project in ("mock_nvml", "jobset"))


@pytest.fixture(scope="session")
def kubernetes() -> Callable[[str], Path]:
    """Return a function that returns the folder of a Go module of Kubernetes: of the newest checkout, or of the lab. It
    skips the test if there is none.
    """
    return kubernetes_checkout if facts.sources() == (facts.NEWEST,) else kubernetes_module


@pytest.fixture(scope="session")
def tree(
    source: str,
    deepops: dict[str, Any],
    kubespray: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Tree:
    """Return DeepOps as `git clone --recursive` makes it: from the checkouts, or from paths
    and settings in the facts.
    """
    base = tmp_path_factory.mktemp(f"deepops-{source}")
    return copied(base, RELEASE) if source == "trees" else made_of_facts(base, RELEASE, deepops, kubespray)


@pytest.fixture(scope="session")
def programs() -> Path:
    """Return the folder with the programs of DeepOps' environment, which `python -m
    tests.upstream.environments` makes.
    """
    return environments.directory(RELEASE) / "bin"


@pytest.fixture(scope="session", params=SITES)
def done(request: pytest.FixtureRequest, tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Run the stage deepops of an inventory in the repository. Its ansible-playbook records how it was called."""
    return run(request.param, tree, tmp_path_factory.mktemp(request.param))
