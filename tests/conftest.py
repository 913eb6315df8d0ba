"""Fixtures for all tests: a real control plane, started once for the session."""

import functools
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

import musterlab.cluster
from musterlab.errors import RealNodesUnavailable
from musterlab.realnodes import requirements
from orchestrator.cluster.kubeconfig import Access, load_access

# no deadline for an example: a busy machine can be slow
settings.register_profile("local", deadline=None)
# CI uses fixed examples, so that a commit does not fail by an unrelated random example
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure() -> None:
    """Let programs started by tests receive SIGINT, even if a shell started the tests in the background.

    Such a shell ignores SIGINT, and every program started from it inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def _required_marks(expression: str) -> tuple[str, ...]:
    """Return the marks that each test selected by this expression of `-m` has: of "lab and not rare" it is lab."""
    if re.search(r"\bor\b|[()]", expression):
        return ()
    return tuple(term for term in expression.split(" and ") if term.isidentifier())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out test files without a required mark: each worker would otherwise import 490 files, in 9 to 22 s."""
    marks = _required_marks(config.getoption("markexpr"))
    if marks and collection_path.name.startswith("test_"):
        text = collection_path.read_text("utf-8")
        if not all(re.search(rf"\bmark\.{mark}\b", text) for mark in marks):
            return True
    return None


FIRST = (
    "cli_table/test_table.py",
    "musterlab/test_storage_in_a_lab.py",
    "validation/test_in_service.py",
)
"""Files that take minutes. They begin first, so that no worker has one of them at the end, when the others are idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    items.sort(key=lambda item: not str(item.path).endswith(FIRST))


class OneWorkerForEachLab(LoadFileScheduling):  # type: ignore[misc]
    """Gives all tests of a file to one worker, and those of the files that share a lab: each worker would start it."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _lab_of(self.config.rootpath / file) or file


@functools.cache
def _lab_of(path: Path) -> str:
    """Return the name of the lab that the tests of the file share with other files; empty if they do not."""
    text = path.read_text("utf-8")
    if re.search(r"\b(shared_lab|lab_access)\b", text):
        return "shared_lab"
    return "trust" if path.parent.name == "trust" and "start(" not in text else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Return the scheduler of the lanes with labs; None for the others."""
    return OneWorkerForEachLab(config, log) if config.getvalue("dist") == "loadfile" else None


@functools.cache
def _missing_for_real_nodes() -> str:
    try:
        requirements.find()
    except RealNodesUnavailable as error:
        return str(error)
    return ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of real nodes on a machine that cannot have them; the reason names the missing requirement."""
    if item.get_closest_marker("real_nodes") and (missing := _missing_for_real_nodes()):
        pytest.skip(missing)


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[musterlab.cluster.Lab]:
    """Yield a lab for tests that use only namespaces and projects of their own."""
    running = musterlab.cluster.start(f"tests-{os.getpid()}", nodes=2, detach=False)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def lab_access(shared_lab: musterlab.cluster.Lab) -> Access:
    """An administrator's access to the shared lab."""
    return load_access(shared_lab.kubeconfig)
