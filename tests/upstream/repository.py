"""DeepOps as a Git repository with kubespray as its submodule, made from checkouts or from facts."""

import configparser
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.upstream import facts

KUBESPRAY = "submodules/kubespray"
_GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "protocol.file.allow=always"]


@dataclass(frozen=True)
class Tree:
    """A repository of a release of DeepOps. If it was made from facts, all files but the
    settings of Ansible are empty.
    """

    release: str
    path: Path
    commit: str


def copied(base: Path, release: str) -> Tree:
    """Copy the checkouts of DeepOps and kubespray into repositories."""
    without = shutil.ignore_patterns(".git")
    for name in ("deepops", "kubespray"):
        shutil.copytree(facts.checkout(name), base / name, ignore=without, symlinks=True)
    return _repository(base, release)


def made_of_facts(base: Path, release: str, deepops: dict[str, Any], kubespray: dict[str, Any]) -> Tree:
    """Make repositories with the paths of DeepOps and kubespray and the settings of their Ansible."""
    for name, known in (("deepops", deepops), ("kubespray", kubespray)):
        root = base / name
        for path in (*known["paths"]["files"], *known["paths"]["programs"]):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        settings = configparser.ConfigParser(interpolation=None)
        settings.read_dict(known["ansible_cfg"])
        with (root / "ansible.cfg").open("w") as file:
            settings.write(file)
    return _repository(base, release)


def _repository(base: Path, release: str) -> Tree:
    path, kubespray = base / "deepops", base / "kubespray"
    _commit(kubespray)
    (path / ".gitmodules").unlink()
    if (path / KUBESPRAY).is_dir():
        (path / KUBESPRAY).rmdir()
    git(path, "init", "-q")
    git(path, "submodule", "--quiet", "add", str(kubespray), KUBESPRAY)
    _commit(path)
    return Tree(release, path, git(path, "rev-parse", "HEAD"))


def _commit(directory: Path) -> None:
    git(directory, "init", "-q")
    git(directory, "add", "--all", "--force")
    git(directory, "commit", "-q", "-m", "as it was published")


def git(directory: Path, *arguments: str) -> str:
    """Run Git in a directory, and return its output."""
    done = subprocess.run([*_GIT, *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
