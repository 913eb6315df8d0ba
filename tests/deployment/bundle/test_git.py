"""The submodules that a repository names are data: no text in it becomes an option of git, a
command or a local file.
"""

import subprocess
from pathlib import Path

import pytest

from deployment.bundle import git
from deployment.bundle.git import Checkout
from deployment.bundle.mirrors import Mirrors
from deployment.errors import FetchFailed
from tests.deployment.bundle import servers


def _run(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.com"]
    done = subprocess.run(
        ["git", "-C", directory, *identity, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _with_submodule(root: Path, url: str, path: str = "sub") -> Checkout:
    """Make a repository whose .gitmodules names the URL, and which pins a commit that does not exist."""
    repository = root / "origin"
    repository.mkdir()
    _run(repository, "init", "-q", "-b", "main")
    (repository / ".gitmodules").write_text(f'[submodule "{path}"]\n\tpath = {path}\n\turl = "{url}"\n')
    _run(repository, "add", ".gitmodules")
    _run(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},{path}")
    _run(repository, "commit", "-q", "-m", "first")
    return Checkout("top", "https://git.example.com/top", "", _run(repository, "rev-parse", "HEAD"))


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch {mark};",
        "-utouch {mark}",
        "ext::sh -c touch% {mark}",
        "ssh://-oProxyCommand=touch%20{mark}/x",
        "file:///etc",
        "/etc",
        "http://git.example.com/x",
        "git@git.example.com:x",
        "https://git.example.com/\x1b[2J",
        "https:///x",
    ],
)
def test_a_submodule_url_runs_nothing_and_reads_nothing_here(tmp_path: Path, url: str) -> None:
    mark = tmp_path / "ran"
    checkout = _with_submodule(tmp_path, url.format(mark=mark))
    mirrors = Mirrors({"https://git.example.com/top": f"file://{tmp_path}/origin"})
    with pytest.raises(FetchFailed, match="no URL that a git repository may have here") as refused:
        git.fetch(tmp_path / "bundle", mirrors, checkout, {})
    assert str(refused.value).isprintable()
    assert not mark.exists()


def test_git_itself_may_use_no_other_protocol_than_that_of_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a setting of the user's git rewrites a URL, git refuses the new URL."""
    mark = tmp_path / "ran"
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.ext::sh -c touch% {mark}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.example.com/top")
    checkout = Checkout("top", "https://git.example.com/top", "main")
    with pytest.raises(FetchFailed, match="transport 'ext' not allowed"):
        git.fetch(tmp_path / "bundle", Mirrors(), checkout, {})
    assert not mark.exists()


def test_a_submodule_cannot_lie_outside_of_the_bundle_by_its_name(tmp_path: Path) -> None:
    checkout = _with_submodule(tmp_path, "../x", "a/-x")
    mirrors = Mirrors({"https://git.example.com/top": f"file://{tmp_path}/origin"})
    with pytest.raises(FetchFailed, match="cannot be the name of a file"):
        git.fetch(tmp_path / "bundle", mirrors, checkout, {})


@pytest.mark.parametrize("url", ["--upload-pack=x", "/srv/git/deepops", "ext::x", "https://-x/y"])
def test_a_site_names_its_repository_by_a_url(tmp_path: Path, url: str) -> None:
    with pytest.raises(FetchFailed, match="file:///path"):
        git.fetch(tmp_path / "bundle", Mirrors(), Checkout("top", url, "main"), {})


def test_a_relative_submodule_lies_beside_its_repository(tmp_path: Path) -> None:
    top, commit, pinned = servers.deepops(tmp_path / "git")
    origin = f"file://{top.parent}"
    items = git.fetch(
        tmp_path / "bundle", Mirrors(), Checkout("top", f"{origin}/deepops", "26.07", commit), {}
    )
    assert [(item.name, item.digest, item.files[0].url) for item in items] == [
        ("top", commit, f"{origin}/deepops"), ("top.kubespray", pinned, f"{origin}/kubespray"),
    ]  # fmt: skip
    items = git.fetch(
        tmp_path / "again",
        Mirrors({"ssh://git@git.example.com": origin}),
        Checkout("top", "ssh://git@git.example.com/deepops", "26.07", commit),
        {},
    )
    assert items[1].files[0].url == "ssh://git@git.example.com/kubespray"
