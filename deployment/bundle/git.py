"""Repositories of git, each at one commit with its submodules, as bundle files that `git clone` reads."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from deployment.bundle.manifest import WORK, Item, file_entry
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


def fetch(root: Path, mirrors: Mirrors, checkout: Checkout, known: dict[str, Item]) -> list[Item]:
    """Fetch it and its submodules; a run that was cut goes on with what git has. Raises FetchFailed or DiskFull."""
    store = root / WORK / DIRECTORY / f"{checkout.name}.git"
    path = root / DIRECTORY / f"{checkout.name}.bundle"
    before = known.get(checkout.name)
    held = before and checkout.commit and before.digest == checkout.commit and path.is_file()
    if held and not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        _git(["clone", "--quiet", "--bare", str(path), str(store)], checkout)
    elif not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        _git(["init", "--quiet", "--bare", str(store)], checkout)
    commit = checkout.commit if held else _commit(store, mirrors, checkout)
    if not held:
        _bundle(store, path, checkout, commit)
    items = [
        Item("git", checkout.name, checkout.release or commit[:12], (file_entry(root, path, checkout.url),),
             digest=commit, variable=checkout.variable)
    ]  # fmt: skip
    for name, url, pinned in _submodules(store, checkout, commit):
        items += fetch(root, mirrors, Checkout(f"{checkout.name}.{name}", url, "", pinned), known)
    shutil.rmtree(store)
    return items


def _commit(store: Path, mirrors: Mirrors, checkout: Checkout) -> str:
    url = mirrors.map(checkout.url)
    if checkout.commit:
        try:
            _git(["-C", str(store), "fetch", "--quiet", url, checkout.commit], checkout)
        except FetchFailed:
            # A server need not give out a commit by its name: then everything that has one is fetched.
            _git(
                ["-C", str(store), "fetch", "--quiet", "--tags", url, "+refs/heads/*:refs/remotes/origin/*"],
                checkout,
            )
    else:
        _git(["-C", str(store), "fetch", "--quiet", url, checkout.release], checkout)
    commit = _git(
        ["-C", str(store), "rev-parse", "--verify", f"{checkout.commit or 'FETCH_HEAD'}^{{commit}}"], checkout
    ).strip()
    if checkout.release:
        _git(["-C", str(store), "fetch", "--quiet", "--no-tags", url, checkout.release], checkout)
        tag_commit = _git(["-C", str(store), "rev-parse", "FETCH_HEAD^{commit}"], checkout).strip()
        if tag_commit != commit:
            raise FetchFailed(
                f"{checkout.url}: {checkout.release} is commit {tag_commit}, it should be {commit}"
            )
    return commit


def _bundle(store: Path, path: Path, checkout: Checkout, commit: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _git(["-C", str(store), "update-ref", _BRANCH, commit], checkout)
    _git(["-C", str(store), "symbolic-ref", "HEAD", _BRANCH], checkout)
    references = ["HEAD", _BRANCH]
    if checkout.release:
        tag = f"refs/tags/{checkout.release}"
        _git(["-C", str(store), "update-ref", tag, commit], checkout)
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
    _git(words, checkout)
    draft.replace(path)


def _submodules(store: Path, checkout: Checkout, commit: str) -> list[tuple[str, str, str]]:
    tree = _git(["-C", str(store), "ls-tree", "-r", commit], checkout).splitlines()
    pinned = {
        path: about.split()[2]
        for about, _, path in (line.partition("\t") for line in tree)
        if about.startswith("160000")
    }
    if not pinned:
        return []
    listed = _git(["-C", str(store), "config", "--blob", f"{commit}:.gitmodules", "--list"], checkout)
    values = dict(line.partition("=")[::2] for line in listed.splitlines())
    submodules = []
    for key, path in values.items():
        if key.startswith("submodule.") and key.endswith(".path") and path in pinned:
            url = values[key.removesuffix("path") + "url"]
            if url.startswith(("./", "../")):
                url = urljoin(checkout.url.rstrip("/") + "/", url)
            submodules.append((path.rpartition("/")[2], url, pinned[path]))
    return submodules


def _git(words: list[str], checkout: Checkout) -> str:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise BundleError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise FetchFailed(f"{checkout.url}: git did not end in {_SECONDS} s") from error
    if done.returncode:
        message = " ".join(done.stderr.split()) or f"git {words[0]} failed"
        if "No space left" in message:
            raise DiskFull(f"{checkout.url}: {message}: make room and run the same command again")
        raise FetchFailed(f"{checkout.url} {checkout.release or checkout.commit}: {message}")
    return done.stdout
