from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.cli.main import main
from tests.cli.memory_api_server import MemoryApiServer, namespace_of, node, project_of, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def server() -> Iterator[MemoryApiServer]:
    """Yield a server with two nodes of eight GPUs, and the projects team-a (of the context) and team-b."""
    with serving() as server:
        server.add(node("dgx1-1", 8), node("dgx1-2", 8))
        server.add(project_of("team-a", 4), namespace_of("team-a"))
        server.add(
            project_of("team-b", 2, namespace="people-of-b"), namespace_of("team-b", name="people-of-b")
        )
        yield server


@pytest.fixture
def kubeconfig(server: MemoryApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a kubeconfig whose context has the namespace of team-a."""
    path = tmp_path / "config"
    write_kubeconfig(path, server.url)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def muster(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Return a function that runs the command line in this process."""

    def run(*arguments: str) -> Outcome:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run


def write_kubeconfig(path: Path, server_url: str) -> None:
    named = {"name": "lab"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [named | {"cluster": {"server": server_url}}],
        "users": [named | {"user": {}}],
        "contexts": [named | {"context": {"cluster": "lab", "user": "lab", "namespace": "muster-team-a"}}],
    }
    path.write_text(yaml.safe_dump(document))
