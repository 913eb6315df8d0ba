"""Fetches what the tests of this folder stand on, at the same commits, where there is a network.

    python -m tests.upstream.fetch DIRECTORY      # make upstream-trees UPSTREAM=DIRECTORY

What is in the directory already stays; the same command goes on.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deployment.matrix import deepops_row
from musterlab.errors import BinariesError
from musterlab.sources import DEVICE_PLUGIN, DRA_DRIVER, HOST_PATH, MOCK, Source
from tests.upstream.trees import DEEPOPS, TRIDENT_DEPLOY, TRIDENT_SOURCES

KUBESPRAY_COMMITS = {"26.07": "1c9add48975060f45396b34d8e022c30d7f80dab"}
"""What a release of DeepOps pins as its submodule."""

TRIDENT = "https://github.com/NetApp/trident"
TRIDENT_COMMITS = {"26.06.0": "fe88a3aca038ee7434cd6075bb20099b5ad79555"}
TRIDENT_DEPLOYS = {
    "25.10.0": "d50df403918c27d25aa2ce0a66ebc6115022bec74e135d19ab1005dd67c6d3f8",
    "26.02.0": "6f47b41ee85fdc96d2041e5c1e081e7bb396f908899068245793a006c1eb0416",
    "26.02.1": "6fc70430c8cb1fbeb9bfa67e750296b44a6a8150f86a6983b8f00dd8e148d8a1",
    "26.06.0": "98836c7bfdb3e1a11d9a5ac3bf4f7b9805658e186966ebfc14f5dc90cc7e6e92",
}
"""For each release of the matrix the digest of its folder `deploy`, for a tag can be moved."""


def sources() -> dict[str, Source]:
    """Return the commit of each archive but that of Trident's `deploy` folders, by its name."""
    found = {source.archive: source for source in (MOCK, DEVICE_PLUGIN, DRA_DRIVER, HOST_PATH)}
    for release, (outer, inner) in DEEPOPS.items():
        row = deepops_row(release)
        assert row
        found[outer] = Source("deepops", "https://github.com/NVIDIA/deepops", row["commit"])
        commit = KUBESPRAY_COMMITS[release]
        found[inner] = Source("kubespray", "https://github.com/kubernetes-sigs/kubespray", commit)
    for release, name in TRIDENT_SOURCES.items():
        found[name] = Source("trident", TRIDENT, TRIDENT_COMMITS[release])
    return found


def digest(folder: Path) -> str:
    """Return a digest of the paths and contents of a folder."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            whole.update(f"{path.relative_to(folder)} {content}\n".encode())
    return whole.hexdigest()


def fetch(archive: Path, source: Source) -> None:
    """Write the archive of a commit. Raises BinariesError."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        source.fetch(tree)
        shutil.rmtree(tree / ".git")
        _pack(tree, archive)


def fetch_deploys(archive: Path, repository: str, releases: Mapping[str, str]) -> None:
    """Write the archive of Trident's `deploy` folders. Raises BinariesError, also where a tag is not what it was."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        for release, expected in releases.items():
            clone = Path(temporary) / release
            Source("trident", repository, f"refs/tags/v{release}").fetch(clone)
            if digest(clone / "deploy") != expected:
                raise BinariesError(f"{repository}: the tag v{release} is not what it was")
            shutil.copytree(clone / "deploy", tree / "trident" / f"v{release}" / "deploy")
        _pack(tree, archive)


def _pack(tree: Path, archive: Path) -> None:
    unfinished = archive.with_name(f".{archive.name}")
    command = ["tar", "--zstd", "-cf", str(unfinished), "-C", str(tree), "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BinariesError(f"{archive} cannot be written: {done.stderr.strip()}")
    unfinished.rename(archive)


def main(directory: Path) -> None:
    """Fetch what is not in the directory. Raises BinariesError."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, source in sources().items():
        if not (directory / name).exists():
            print(f"{name}: {source.repository} at {source.commit}", flush=True)
            fetch(directory / name, source)
    if not (directory / TRIDENT_DEPLOY).exists():
        print(f"{TRIDENT_DEPLOY}: {TRIDENT}, tags v{', v'.join(TRIDENT_DEPLOYS)}", flush=True)
        fetch_deploys(directory / TRIDENT_DEPLOY, TRIDENT, TRIDENT_DEPLOYS)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit("name one directory: make upstream-trees UPSTREAM=DIRECTORY")
    try:
        main(Path(sys.argv[1]))
    except BinariesError as error:
        sys.exit(str(error))
