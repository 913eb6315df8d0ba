"""The digest of a file, computed in the same way for the journal and for bundles."""

import hashlib
import os
from pathlib import Path


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex. For a symbolic link, return the SHA-256 of the target's path."""
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
