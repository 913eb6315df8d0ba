"""The state of NVML's test double on one node: the GPUs, the changes of `muster lab gpu`, and the file that it reads.

The folder is mounted into the node and its containers as `/config`. A change replaces the file `nvml` atomically, so a
process never reads an incomplete file. Its format is in `nvml/state.h`.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from musterlab.gpus.models import Gpus, cuda_version, driver_version

FILE: Final = "nvml"
VARIABLE: Final = "MUSTER_NVML_STATE"
"""Environment variable that names the file for programs of the node."""

NUMBERS: Final = (
    "memory_total", "memory_reserved", "memory_used", "utilization", "memory_utilization", "temperature", "power",
    "sm_clock", "memory_clock", "ecc_corrected", "ecc_uncorrected",
)  # fmt: skip
"""Fields that `muster lab gpu set` changes: bytes, percent, degrees Celsius, milliwatts, MHz, errors."""

_GPUS: Final = "gpus.json"
_CHANGES: Final = "changes.json"
_LINES: Final = {"links": "link", "processes": "process"}


def create(folder: Path, gpus: Gpus, node_number: int) -> None:
    """Write the GPUs of a node into a new folder."""
    folder.mkdir()
    (folder / _GPUS).write_text(json.dumps(gpus.of_node(node_number)))
    (folder / _CHANGES).write_text(json.dumps({"errors": 0, "gpus": {}}))
    with changes(folder):
        pass


def read_gpus(folder: Path) -> list[dict[str, Any]]:
    """Return the fields of each GPU as they were at the start of the lab."""
    gpus: list[dict[str, Any]] = json.loads((folder / _GPUS).read_text())
    return gpus


def read_changes(folder: Path) -> dict[int, dict[str, Any]]:
    """Return by index the fields that were changed since the start of the lab."""
    written = json.loads((folder / _CHANGES).read_text())
    return {int(index): fields for index, fields in written["gpus"].items()}


class Changes:
    """The changed fields of each GPU, by index. `errors` counts the errors of the node; it never falls."""

    def __init__(self, errors: int, gpus: dict[int, dict[str, Any]]) -> None:
        self.errors = errors
        self.gpus = gpus

    def set(self, index: int, fields: Mapping[str, Any]) -> None:
        """Change fields of a GPU."""
        self.gpus.setdefault(index, {}).update(fields)

    def send_xid(self, index: int, code: int) -> None:
        """Let the driver report an Xid error of a GPU."""
        self.errors += 1
        self.set(index, {"xid": code, "xid_number": self.errors})


@contextmanager
def changes(folder: Path) -> Iterator[Changes]:
    """Read the changes, let the block change them, and write them. A lock serializes processes."""
    with (folder / _GPUS).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = json.loads((folder / _CHANGES).read_text())
        altered = Changes(
            written["errors"], {int(index): fields for index, fields in written["gpus"].items()}
        )
        yield altered
        text = json.dumps({"errors": altered.errors, "gpus": altered.gpus})
        _replace(folder / _CHANGES, text)
        gpus = [{**fields, **altered.gpus.get(index, {})} for index, fields in enumerate(read_gpus(folder))]
        _replace(folder / FILE, text_of(gpus))


def text_of(gpus: list[dict[str, Any]]) -> str:
    """Return the file for the double of NVML."""
    lines = [f"driver {driver_version()}", f"cuda {cuda_version()}"]
    for index, fields in enumerate(gpus):
        lines.append(f"gpu {index}")
        for key, value in fields.items():
            if key in _LINES:
                lines += [f"{_LINES[key]} {item}" for item in value]
            else:
                lines.append(f"{key} {value}")
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)
