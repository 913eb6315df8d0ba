"""The programs of muster that scenarios pass to containers as text, so that any image with Python can run them."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from validation import workloads

PROGRAMS: Final[Mapping[str, Path]] = {"{digests.py}": Path(workloads.__path__[0]) / "digests.py"}
"""The file of each placeholder in a command line."""


def with_programs(line: str) -> str:
    """Return the command line with the text of a program in place of each word that is a placeholder."""
    words = shlex.split(line) if any(word in line for word in PROGRAMS) else []
    if not words:
        return line
    return shlex.join(PROGRAMS[word].read_text() if word in PROGRAMS else word for word in words)
