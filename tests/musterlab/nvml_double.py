"""The lab's double of NVML in a separate process, called by NVIDIA's binding for Python."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from musterlab.gpus import shown
from musterlab.gpus.models import Gpus

_PROGRAM: Final = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
import pynvml as n
def gpu(index):
    return n.nvmlDeviceGetHandleByIndex(index)
def index(handle):
    return n.nvmlDeviceGetIndex(handle)
events = None
print("ready", flush=True)
for line in sys.stdin:
    try:
        answer = eval(line)
    except n.NVMLError as error:
        answer = f"NVMLError {error}"
    print(json.dumps(answer), flush=True)
"""


class Asker:
    """A process that loaded the double once, and the folder from which the double reads."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self.folder = folder

    def query(self, expression: str) -> Any:
        """Return the value of an expression, in which `n` is the binding and `gpu(0)` a device. An error is returned as
        text.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(expression + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, f"the process ended at {expression!r}"
        return json.loads(answer)

    def set(self, index: int, **fields: Any) -> None:
        """Change fields of a GPU."""
        with shown.changes(self.folder) as changes:
            changes.set(index, fields)

    def send_xid(self, index: int, code: int) -> None:
        """Let the driver report an error."""
        with shown.changes(self.folder) as changes:
            changes.send_xid(index, code)

    def restore(self) -> None:
        """Undo all changes."""
        with shown.changes(self.folder) as changes:
            changes.gpus.clear()


@contextmanager
def asker(library: Path, folder: Path, gpus: Gpus) -> Iterator[Asker]:
    """Start a process on a node with these GPUs."""
    shown.create(folder, gpus, 1)
    environment = {**os.environ, shown.VARIABLE: str(folder / shown.FILE)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, str(library)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            made = Asker(process, folder)
            assert made.query("n.nvmlInit()") is None
            yield made
        finally:
            process.kill()
