"""Git repositories, each at one commit with its submodules, stored as files of `git bundle` that `git clone` reads."""

import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from deployment.bundle.manifest import WORK, Item, file_entry
from deployment.bundle.mirrors import Mirrors
from deployment.errors import BundleError, DiskFull, FetchFailed

DIRECTORY: Final = "git"
_BRANCH: Final = "refs/heads/bundle"
_SECONDS: Final = 3600
_SCHEMES: Final = frozenset({"https", "ssh", "http", "file"})
_SUBMODULE_SCHEMES: Final = frozenset({"https", "ssh"})
"""The schemes that the URL of a submodule may have, besides the scheme of its repository.

These schemes are encrypted, and do not read files of this machine.
"""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOST: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\[\]_-]*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Checkout:
    """A repository at a release: `commit` if it is known, else the present commit of the tag or branch `release`."""

    name: str
    url: str
    release: str
    commit: str = ""
    variable: str = ""


def fetch(root: Path, mirrors: Mirrors, checkout: Checkout, known: dict[str, Item]) -> list[Item]:
    """Fetch a checkout and its submodules.

    A later run continues an interrupted fetch. Raises FetchFailed or DiskFull.
    """
    url = mirrors.map(checkout.url)
    check_url(checkout.url, _SCHEMES)
    check_url(url, _SCHEMES)
    store = root / WORK / DIRECTORY / f"{checkout.name}.git"
    path = root / DIRECTORY / f"{checkout.name}.bundle"
    before = known.get(checkout.name)
    held = before and checkout.commit and before.digest == checkout.commit and path.is_file()
    if held and not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        _git(["clone", "--quiet", "--bare", "--", str(path.absolute()), str(store)], checkout, "file")
    elif not store.exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        _git(["init", "--quiet", "--bare", str(store)], checkout)
    commit = checkout.commit if held else _commit(store, url, checkout)
    if not held:
        _bundle(store, path, checkout, commit)
    items = [
        Item("git", checkout.name, checkout.release or commit[:12], (file_entry(root, path, checkout.url),),
             digest=commit, variable=checkout.variable)
    ]  # fmt: skip
    for name, submodule_url, pinned in _submodules(store, checkout, commit):
        items += fetch(root, mirrors, Checkout(f"{checkout.name}.{name}", submodule_url, "", pinned), known)
    shutil.rmtree(store)
    return items


def check_url(url: str, schemes: Collection[str]) -> None:
    """Refuse a URL that git would read as an option, a command or another kind of transport. Raises FetchFailed."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise FetchFailed(f"{url!r}: it is no URL of a git repository: {error}") from error
    host_is_good = (
        not parts.netloc if parts.scheme == "file" else _HOST.fullmatch(parts.netloc.split("@")[-1])
    )
    if "://" not in url or parts.scheme not in schemes or not host_is_good or not url.isprintable():
        names = ", ".join(f"{scheme}://" for scheme in sorted(schemes))
        raise FetchFailed(
            f"{url!r}: it is no URL that a git repository may have here: begin it with {names} and a host. "
            "Write user@host:path as ssh://user@host/path, and a directory as file:///path"
        )


def _commit(store: Path, url: str, checkout: Checkout) -> str:
    # Allow only the URL's own protocol, so a redirect cannot lead from https to another one.
    protocol = urlsplit(url).scheme
    fetched = ["-C", str(store), "fetch", "--quiet"]
    if checkout.commit:
        if not _COMMIT.fullmatch(checkout.commit):
            raise FetchFailed(
                f"{checkout.url}: `{checkout.commit}` is no commit: 40 or 64 hexadecimal digits"
            )
        try:
            _git([*fetched, "--", url, checkout.commit], checkout, protocol)
        except FetchFailed:
            # If the server refuses to send a single commit by its digest, fetch all branches and tags.
            _git([*fetched, "--tags", "--", url, "+refs/heads/*:refs/remotes/origin/*"], checkout, protocol)
    else:
        _git([*fetched, "--", url, checkout.release], checkout, protocol)
    commit = _git(
        ["-C", str(store), "rev-parse", "--verify", f"{checkout.commit or 'FETCH_HEAD'}^{{commit}}"], checkout
    ).strip()
    if checkout.release:
        _git([*fetched, "--no-tags", "--", url, checkout.release], checkout, protocol)
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
    """Return name, URL and commit of each submodule. Raises FetchFailed if a URL or a name is not allowed."""
    tree = _git(["-C", str(store), "ls-tree", "-r", "-z", commit], checkout).split("\0")
    pinned = {
        path: about.split()[2]
        for about, _, path in (line.partition("\t") for line in tree)
        if about.startswith("160000")
    }
    if not pinned:
        return []
    listed = _git(["-C", str(store), "config", "-z", "--blob", f"{commit}:.gitmodules", "--list"], checkout)
    values = dict(line.partition("\n")[::2] for line in listed.split("\0"))
    schemes = _SUBMODULE_SCHEMES | {urlsplit(checkout.url).scheme}
    submodules = []
    for key, path in values.items():
        if key.startswith("submodule.") and key.endswith(".path") and path in pinned:
            url, name = values.get(key.removesuffix("path") + "url", ""), path.rpartition("/")[2]
            if url.startswith(("./", "../")):
                base = urlsplit(checkout.url)
                url = base._replace(path=posixpath.normpath(f"{base.path}/{url}")).geturl()
            check_url(url, schemes)
            if not _NAME.fullmatch(name):
                raise FetchFailed(
                    f"{checkout.url}: a submodule at {path!r} cannot be the name of a file here"
                )
            submodules.append((name, url, pinned[path]))
    return submodules


def _git(words: list[str], checkout: Checkout, protocol: str = "") -> str:
    """Call git; it may use only this protocol for other repositories."""
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        "GIT_ALLOW_PROTOCOL": protocol,
    }
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
            raise DiskFull(f"{checkout.url}: {message}: free some space and run the same command again")
        raise FetchFailed(f"{checkout.url} {checkout.release or checkout.commit}: {message}")
    return done.stdout
