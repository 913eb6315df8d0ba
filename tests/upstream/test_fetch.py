"""The script that fetches the trees names the commits of those at hand, and writes archives that the tests read."""

import subprocess
from pathlib import Path

import pytest

from deployment.matrix import tables, within
from musterlab.errors import BinariesError
from musterlab.sources import Source
from tests.upstream import trees
from tests.upstream.fetch import TRIDENT_DEPLOYS, digest, fetch, fetch_deploys, sources

_GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a folder `deploy`, and a tag on its one commit."""
    path = tmp_path / "repository"
    (path / "deploy" / "crds").mkdir(parents=True)
    (path / "deploy" / "crds" / "one.yaml").write_text("kind: One\n")
    (path / "README.md").write_text("read me\n")
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "one"], ["tag", "v1.0.0"]):
        subprocess.run([*_GIT, *words], cwd=path, check=True)
    return path


def _commit(repository: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_every_archive_that_the_tests_name_has_a_commit() -> None:
    names = {name for pair in trees.DEEPOPS.values() for name in pair} | set(trees.TRIDENT_SOURCES.values())
    assert names <= sources().keys()
    assert all(len(source.commit) == 40 for source in sources().values())


def test_the_digests_of_the_deploy_folders_are_those_of_the_trees_at_hand(tmp_path: Path) -> None:
    folder = trees.unpack(trees.TRIDENT_DEPLOY, tmp_path) / "trident"
    rows = [row["release"] for row in tables()["trident"]]
    found = {path.name[1:]: path / "deploy" for path in folder.iterdir()}
    digests = {
        release: digest(path) for release, path in found.items() if any(within(release, row) for row in rows)
    }
    assert digests == TRIDENT_DEPLOYS


def test_an_archive_is_read_as_the_tests_read_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(tmp_path / "one.tar.zst", Source("one", str(repository), _commit(repository)))
    fetch_deploys(tmp_path / "deploys.tar.zst", str(repository), {"1.0.0": digest(repository / "deploy")})
    monkeypatch.setenv("MUSTER_UPSTREAM", str(tmp_path))
    assert trees.read_file("one.tar.zst", "README.md") == "read me\n"
    unpacked = trees.unpack("deploys.tar.zst", tmp_path / "unpacked")
    assert (unpacked / "trident" / "v1.0.0" / "deploy" / "crds" / "one.yaml").read_text() == "kind: One\n"
    assert not (trees.unpack("one.tar.zst", tmp_path / "whole") / ".git").exists()


def test_a_tag_that_was_moved_and_a_commit_that_is_gone_leave_no_archive(
    repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(BinariesError, match=r"the tag v1\.0\.0 is not what it was"):
        fetch_deploys(tmp_path / "deploys.tar.zst", str(repository), {"1.0.0": "0" * 64})
    with pytest.raises(BinariesError, match="cannot be fetched"):
        fetch(tmp_path / "one.tar.zst", Source("one", str(repository), "0" * 40))
    assert not list(tmp_path.glob("*.zst"))
