"""The script of the init container that clones a repository, run with real Git and a real shell."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.submit.environment import escaped
from orchestrator.submit.git_sync import SCRIPT
from orchestrator.submit.manifest import Placement, dependent_manifests, workload_manifest
from orchestrator.submit.mount_parsing import parse_git_source, redacted
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import GitSource

if TYPE_CHECKING:
    from pathlib import Path

PLACEMENT = Placement("team-a", "muster-team-a", "2026-01-01T00:00:00.000001Z")
IDENTITY = {
    "GIT_AUTHOR_NAME": "ann",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_COMMITTER_NAME": "ann",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **IDENTITY},
    )
    return done.stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "file")
    git(folder, "commit", "-qm", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Make a repository with the default branch `trunk`, a tag, a branch, and a commit on no branch. Return it and its
    commits.
    """
    folder = tmp_path / "upstream"
    folder.mkdir()
    git(folder, "init", "-qb", "trunk")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    commits = {"first": commit(folder, "first")}
    git(folder, "tag", "v1")
    commits["last"] = commit(folder, "last")
    git(folder, "switch", "-qc", "feature/x")
    commits["feature"] = commit(folder, "feature")
    git(folder, "switch", "-q", "--detach")
    commits["orphan"] = commit(folder, "orphan")
    git(folder, "update-ref", "refs/changes/1", commits["orphan"])
    git(folder, "switch", "-q", "trunk")
    return folder, commits


def clone(source: Path, target: Path, *, branch: str = "", rev: str = "") -> subprocess.CompletedProcess[str]:
    target.mkdir(exist_ok=True)
    variables = {
        "GIT_SYNC_SOURCE": f"file://{source}",
        "GIT_SYNC_BRANCH": branch,
        "GIT_SYNC_REV": rev,
        "GIT_SYNC_FOLDER": str(target),
    }
    return subprocess.run(
        ["/bin/sh", "-c", SCRIPT],
        env={**os.environ, **IDENTITY, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("branch", "rev", "commit"),
    [
        ("", "", "last"),
        ("trunk", "", "last"),
        ("feature/x", "", "feature"),
        ("v1", "", "first"),
        ("", "v1", "first"),
        ("", "feature/x", "feature"),
        ("feature/x", "HEAD~1", "last"),
        ("", "first", "first"),
        ("", "orphan", "orphan"),
    ],
)
def test_branches_tags_and_revisions_have_the_meaning_of_git(
    branch: str, rev: str, commit: str, repository: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    source, commits = repository
    target = tmp_path / "volume"
    for _ in range(2):  # Kubernetes may run an init container again
        done = clone(source, target, branch=branch, rev=commits.get(rev, rev))
        assert done.returncode == 0, done.stderr
        assert git(target / "code", "rev-parse", "HEAD") == commits[commit]
        assert git(target / "code", "status", "--porcelain") == ""
        (target / "code" / "left-over").touch()


@pytest.mark.parametrize(("branch", "rev"), [("nothing", ""), ("", "nothing")])
def test_a_missing_revision_of_the_repository_fails(
    branch: str, rev: str, repository: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    done = clone(repository[0], tmp_path / "volume", branch=branch, rev=rev)
    assert done.returncode != 0
    assert "nothing" in done.stderr


def test_given_text_never_becomes_part_of_the_script(tmp_path: Path) -> None:
    done = clone(
        tmp_path / 'x"; touch "$GIT_SYNC_FOLDER/owned"; "', tmp_path / "volume", rev="$(touch owned)"
    )
    assert done.returncode != 0
    assert not (tmp_path / "volume" / "owned").exists()


def made(text: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the pod's specification, and the dependent objects of the job by kind."""
    request = Submission("x", "image", "ann", git=parse_git_source(text))
    beside = {body["kind"]: body for _, body in dependent_manifests(request, PLACEMENT, None)}
    spec: dict[str, Any] = workload_manifest(request, PLACEMENT)["spec"]["template"]["spec"]
    return spec, beside


def test_a_password_is_in_a_secret_that_belongs_to_the_job_and_nowhere_else() -> None:
    spec, beside = made("source=https://example.com/a.git,username=ann,password=hunter2,target=/src")
    assert beside["Secret"]["stringData"] == {"username": "ann", "password": "hunter2"}
    assert "hunter2" not in str(spec)
    (init,) = spec["initContainers"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in init["env"]
    references = [each["valueFrom"]["secretKeyRef"]["name"] for each in init["env"] if "valueFrom" in each]
    assert references == [beside["Secret"]["metadata"]["name"]] * 2
    assert init["command"] == ["/bin/sh", "-c", escaped(SCRIPT)]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert (mount["mountPath"], mount["subPath"]) == ("/src", "code")
    assert {each["name"] for each in spec["volumes"]} == {mount["name"]}


def test_an_existing_secret_is_used_as_it_is() -> None:
    spec, beside = made("source=https://example.com/a.git,secret=robot")
    assert beside == {}
    assert "robot" in str(spec["initContainers"])


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("source=https://example.com/a.git", GitSource("https://example.com/a.git")),
        (
            "source=git@example.com:a.git,branch=b,rev=v1,target=/x/,image=my/git:1",
            GitSource("git@example.com:a.git", "b", "v1", "/x", image="my/git:1"),
        ),
    ],
)
def test_a_source_is_read(text: str, source: GitSource) -> None:
    assert parse_git_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://example.com/a.git",
        "branch=b",
        "source=",
        "source=--upload-pack=x",
        "source=a,branch=-x",
        "source=a,rev=",
        "source=a,target=code",
        "source=a,username=ann",
        "source=a,secret=robot,password=hunter2",
        "source=a,source=b",
        "source=a,frob=hunter2,password=hunter2",
    ],
)
def test_impossible_sources_are_refused_without_the_password(text: str) -> None:
    with pytest.raises(UsageError, match="git") as refused:
        parse_git_source(text)
    assert "hunter2" not in str(refused.value)


def test_the_password_is_not_kept_with_the_command_line() -> None:
    assert redacted("--git-sync=source=a,password=p=q,rev=x") == "--git-sync=source=a,password=***,rev=x"
    assert redacted("MY_password=x") == "MY_password=x"
