"""A program in the network of the real nodes: `main(SPECIFICATION)`, with the standard library only."""

import json
import os
from pathlib import Path

from musterlab.realnodes import kernel


def main(specification: str) -> None:
    """Become the program. The specification has its `command`, its `environment`, and where the `network` is told."""
    content = json.loads(Path(specification).read_text())
    namespace = json.loads(Path(content["network"]).read_text())["namespace"]
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    kernel.enter(descriptor)
    os.execve(content["command"][0], content["command"], content["environment"])  # noqa: S606 - no shell
