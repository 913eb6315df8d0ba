"""DeepOps as a git repository of its real tree, with the kubespray that it pins as its submodule."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.upstream import trees

_GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "protocol.file.allow=always"]


@dataclass(frozen=True)
class Tree:
    """A release of DeepOps: its files, kubespray's below `submodules/kubespray`, and the commit of the test's own."""

    release: str
    path: Path
    commit: str

    @property
    def kubespray(self) -> Path:
        return self.path / "submodules" / "kubespray"

    @property
    def roles(self) -> list[Path]:
        """Where Ansible looks for roles, in the order of DeepOps' ansible.cfg."""
        return [self.path / "roles" / "galaxy", self.path / "roles", self.kubespray / "roles"]

    def find_role(self, name: str) -> Path | None:
        return next((path / name for path in self.roles if (path / name).is_dir()), None)


@pytest.fixture(scope="session", params=sorted(trees.DEEPOPS))
def deepops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A release of DeepOps as `git clone --recursive` brings it."""
    outer, inner = trees.DEEPOPS[request.param]
    base = tmp_path_factory.mktemp(f"deepops-{request.param}")
    kubespray = trees.unpack(inner, base / "kubespray")
    _commit(kubespray)
    path = trees.unpack(outer, base / "deepops")
    (path / ".gitmodules").unlink()
    _git(path, "init", "-q")
    (path / "submodules" / "kubespray").rmdir() if (path / "submodules" / "kubespray").is_dir() else None
    _git(path, "submodule", "--quiet", "add", str(kubespray), "submodules/kubespray")
    _commit(path)
    return Tree(request.param, path, _git(path, "rev-parse", "HEAD"))


def _commit(directory: Path) -> None:
    _git(directory, "init", "-q")
    _git(directory, "add", "--all", "--force")
    _git(directory, "commit", "-q", "-m", "as it was published")


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run([*_GIT, *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
