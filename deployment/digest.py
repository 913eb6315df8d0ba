"""The digest of a file, one way for the journal and for bundles."""

import hashlib
import os
from pathlib import Path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hex. Of a symbolic link, SHA-256 of its target's path, because a bundle has no links."""
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
