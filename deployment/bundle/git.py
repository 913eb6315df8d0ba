"""Repositories of git, each at one commit with its submodules, as bundle files that `git clone` reads."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from deployment.bundle.manifest import WORK, Item, described
from deployment.bundle.mirrors import Mirrors
from deployment.errors import BundleError, DiskFull, FetchFailed

DIRECTORY: Final = "git"
_BRANCH: Final = "refs/heads/bundle"
_SECONDS: Final = 3600


@dataclass(frozen=True)
class Checkout:
    """A repository at a release: `commit` where it is known, else what the tag or branch `release` is now."""

    name: str
    url: str
    release: str
    commit: str = ""
    variable: str = ""


def fetch(root: Path, mirrors: Mirrors, wanted: Checkout, known: dict[str, Item]) -> list[Item]:
    """Fetch it and its submodules; a run that was cut goes on with what git has. Raises FetchFailed or DiskFull."""
    store = root / WORK / DIRECTORY / f"{wanted.name}.git"
    path = root / DIRECTORY / f"{wanted.name}.bundle"
    before = known.get(wanted.name)
    held = before and wanted.commit and before.digest == wanted.commit and path.is_file()
    if held and not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        _git(["clone", "--quiet", "--bare", str(path), str(store)], wanted)
    elif not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        _git(["init", "--quiet", "--bare", str(store)], wanted)
    commit = wanted.commit if held else _commit(store, mirrors, wanted)
    if not held:
        _bundle(store, path, wanted, commit)
    items = [
        Item("git", wanted.name, wanted.release or commit[:12], (described(root, path, wanted.url),),
             digest=commit, variable=wanted.variable)
    ]  # fmt: skip
    for name, url, pinned in _submodules(store, wanted, commit):
        items += fetch(root, mirrors, Checkout(f"{wanted.name}.{name}", url, "", pinned), known)
    shutil.rmtree(store)
    return items


def _commit(store: Path, mirrors: Mirrors, wanted: Checkout) -> str:
    url = mirrors.map(wanted.url)
    if wanted.commit:
        try:
            _git(["-C", str(store), "fetch", "--quiet", url, wanted.commit], wanted)
        except FetchFailed:
            # A server need not give out a commit by its name: then everything that has one is fetched.
            _git(
                ["-C", str(store), "fetch", "--quiet", "--tags", url, "+refs/heads/*:refs/remotes/origin/*"],
                wanted,
            )
    else:
        _git(["-C", str(store), "fetch", "--quiet", url, wanted.release], wanted)
    commit = _git(
        ["-C", str(store), "rev-parse", "--verify", f"{wanted.commit or 'FETCH_HEAD'}^{{commit}}"], wanted
    ).strip()
    if wanted.release:
        _git(["-C", str(store), "fetch", "--quiet", "--no-tags", url, wanted.release], wanted)
        named = _git(["-C", str(store), "rev-parse", "FETCH_HEAD^{commit}"], wanted).strip()
        if named != commit:
            raise FetchFailed(f"{wanted.url}: {wanted.release} is commit {named}, it should be {commit}")
    return commit


def _bundle(store: Path, path: Path, wanted: Checkout, commit: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _git(["-C", str(store), "update-ref", _BRANCH, commit], wanted)
    _git(["-C", str(store), "symbolic-ref", "HEAD", _BRANCH], wanted)
    references = ["HEAD", _BRANCH]
    if wanted.release:
        tag = f"refs/tags/{wanted.release}"
        _git(["-C", str(store), "update-ref", tag, commit], wanted)
        references.append(tag)
    draft = path.with_name(path.name + ".part")
    words = [
        "-c",
        "pack.threads=1",
        "-C",
        str(store),
        "bundle",
        "create",
        "--quiet",
        str(draft.absolute()),
        *references,
    ]
    _git(words, wanted)
    draft.replace(path)


def _submodules(store: Path, wanted: Checkout, commit: str) -> list[tuple[str, str, str]]:
    tree = _git(["-C", str(store), "ls-tree", "-r", commit], wanted).splitlines()
    pinned = {
        path: about.split()[2]
        for about, _, path in (line.partition("\t") for line in tree)
        if about.startswith("160000")
    }
    if not pinned:
        return []
    listed = _git(["-C", str(store), "config", "--blob", f"{commit}:.gitmodules", "--list"], wanted)
    values = dict(line.partition("=")[::2] for line in listed.splitlines())
    found = []
    for key, path in values.items():
        if key.startswith("submodule.") and key.endswith(".path") and path in pinned:
            url = values[key.removesuffix("path") + "url"]
            if url.startswith(("./", "../")):
                url = urljoin(wanted.url.rstrip("/") + "/", url)
            found.append((path.rpartition("/")[2], url, pinned[path]))
    return found


def _git(words: list[str], wanted: Checkout) -> str:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise BundleError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(f"{wanted.url}: git did not end in {_SECONDS} s") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"git {words[0]} failed"
        if "No space left" in said:
            raise DiskFull(f"{wanted.url}: {said}: make room and run the same command again")
        raise FetchFailed(f"{wanted.url} {wanted.release or wanted.commit}: {said}")
    return done.stdout
