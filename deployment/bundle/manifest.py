"""The manifest of a bundle: every file in it with origin, size and digest, and the check that the files still match
it.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from deployment.digest import sha256_of
from deployment.errors import BundleError
from orchestrator.progress import Reporter

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.json.sig"
"""The optional signature of the manifest. It and the manifest are the only files of a bundle that
the manifest omits.
"""

SBOM: Final = "sbom.cdx.json"
WORK: Final = ".partial"
"""The directory of unfinished files. A complete bundle has no such directory."""


class File(msgspec.Struct, frozen=True, order=True):
    """One file: `path` in the bundle, `url` where it is from (before any mirror), SHA-256 in hex."""

    path: str
    sha256: str
    size_bytes: int
    url: str = ""


class Item(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """An artifact that an installation needs.

    `kind` is package, apt-repository, wheel, git, chart, image or file. `digest` is the digest at its origin if it
    differs from the file's: a commit, or the digest of an image. `variable` is the role variable that names the
    artifact.
    """

    kind: str
    name: str
    version: str
    files: tuple[File, ...]
    digest: str = ""
    licence: str = ""
    variable: str = ""


class Missing(msgspec.Struct, frozen=True, order=True):
    """An artifact that could not be fetched, and the reason."""

    name: str
    why: str


class Manifest(msgspec.Struct, frozen=True):
    """All of a bundle. `gaps` are needs of the site that a bundle does not cover; each is a sentence."""

    site: str
    architecture: str
    items: tuple[Item, ...] = ()
    missing: tuple[Missing, ...] = ()
    gaps: tuple[str, ...] = ()
    sbom: File | None = None
    schema: int = 1

    @property
    def files(self) -> dict[str, File]:
        """Every file by its path; a layer that images share is one file."""
        by_path = {file.path: file for item in self.items for file in item.files}
        return by_path | ({self.sbom.path: self.sbom} if self.sbom else {})

    def write(self, root: Path) -> str:
        """Write the manifest into the bundle atomically, remove an earlier signature, and return the manifest's
        SHA-256.
        """
        content = msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"
        (root / SIGNATURE).unlink(missing_ok=True)
        replace(root / MANIFEST, content)
        return hashlib.sha256(content).hexdigest()


def read(root: Path) -> Manifest:
    """Return the manifest of the bundle at `root`.

    Raises BundleError if the manifest does not exist or cannot be read.
    """
    return decode(root / MANIFEST, content(root))


def content(root: Path) -> bytes:
    """Return the bytes of the manifest at `root`. Raises BundleError if the manifest does not exist."""
    path = root / MANIFEST
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path}: {error.strerror}: this is no bundle; `muster bundle build` makes one"
        ) from error


def decode(path: Path, text: bytes) -> Manifest:
    """Return the manifest in `text`, the content of the file at `path`. Raises BundleError if it is not valid."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BundleError(f"{path}: it was changed or cut, and cannot be read: {error}") from error
    if manifest.schema != 1:
        raise BundleError(f"{path}: schema {manifest.schema} is from another version of muster")
    return manifest


def verify(root: Path, manifest: Manifest, progress: Reporter) -> list[str]:
    """Return a sentence for every file that differs from the manifest. Empty if the bundle at `root` is intact."""
    expected = manifest.files
    present = set(_present(root)) - {MANIFEST, SIGNATURE}
    problems = [f"{missing.name}: it was not fetched: {missing.why}" for missing in manifest.missing]
    for number, (path, file) in enumerate(sorted(expected.items()), 1):
        progress.update(f"verify: {number} of {len(expected)} files")
        if path not in present:
            problems.append(f"{path}: missing: it should have sha256 {file.sha256}")
            continue
        digest = sha256_of(root / path)
        if digest != file.sha256:
            problems.append(f"{path}: changed: sha256 {digest}, the manifest says {file.sha256}")
    problems += [
        f"{path}: extra: it is not in the manifest, sha256 {sha256_of(root / path)}"
        for path in sorted(present - set(expected))
    ]
    return problems


def file_entry(root: Path, path: Path, url: str = "") -> File:
    """Return the manifest's entry of a file of the bundle."""
    return File(str(path.relative_to(root)), sha256_of(path), path.stat().st_size, url)


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)


def _present(root: Path) -> Iterator[str]:
    for directory, names, files in os.walk(root):
        links = [name for name in names if (Path(directory) / name).is_symlink()]
        for name in [*files, *links]:
            yield str((Path(directory) / name).relative_to(root))
