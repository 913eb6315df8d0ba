"""The digest of a file, one way for the journal and for bundles."""

import hashlib
import os
from pathlib import Path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hex; of a symbolic link, of where it leads, because a bundle holds none."""
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
