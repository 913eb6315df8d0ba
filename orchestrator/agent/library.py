"""Puts the library that limits GPU memory into a directory of the node, which the containers of jobs mount read-only.

The directory has the library and the `ld.so.preload` of the containers; see docs/explanation/fractions.md.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from orchestrator.errors import ConfigurationError

LIBRARY: Final = Path("/usr/lib/muster/libmuster-gpu-memory.so")
"""Path of the library in the agent's image. Containers of jobs see the library at the same path."""
PRELOAD: Final = "ld.so.preload"
_UNFINISHED: Final = ".unfinished-"


def put(directory: Path, library: Path = LIBRARY) -> None:
    """Put the library into `directory`, and then the `ld.so.preload` that names it; each file is replaced as a whole.

    An unchanged file is not replaced, because running containers use it. Raises ConfigurationError.
    """
    try:
        content = library.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{library} cannot be read: the operator's image has it, 'make -C gpumemory' builds it ({error})"
        ) from error
    try:
        for left in directory.glob(f"{_UNFINISHED}*"):
            left.unlink(missing_ok=True)
        _replace(directory / library.name, content, 0o755)
        _replace(directory / PRELOAD, f"{LIBRARY.parent / library.name}\n".encode(), 0o644)
    except OSError as error:
        raise ConfigurationError(f"the library cannot be put into {directory}: {error}") from error


def _replace(path: Path, content: bytes, mode: int) -> None:
    if path.is_file() and path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
        return
    descriptor, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, mode)
        file.flush()
        os.fsync(descriptor)
    Path(name).replace(path)
