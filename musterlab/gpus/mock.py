"""What is corrected in NVIDIA's mock of the driver's library when it is built.

Its sources stay as they are: `go build -overlay` reads changed copies in the place of four files. A correction that no
longer fits the sources fails the build.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from musterlab.errors import BinariesError

_FOLDER = "pkg/gpu/mocknvml"


@dataclass(frozen=True)
class Correction:
    """One change of a file below `pkg/gpu/mocknvml`: what stands there so many times, and what takes its place."""

    why: str
    file: str
    before: str
    after: str
    times: int


CORRECTIONS = (
    Correction(
        "a failure shows in a process that only waits for events, as health checks do",
        "engine/engine.go",
        "\t\txid, ok := fi.ClaimXid()\n",
        "\t\tfi.Tick()\n\t\txid, ok := fi.ClaimXid()\n",
        times=1,
    ),
    Correction(
        "asked how many processes there are, it answers that the space for them is too small, as the library does",
        "bridge/device.go",
        "\tif infos == nil {\n\t\t// Caller is querying the count\n\t\t*infoCount = C.uint(len(procs))\n",
        "\tif infos == nil {\n\t\t// Caller is querying the count\n\t\t*infoCount = C.uint(len(procs))\n"
        "\t\tif len(procs) > 0 {\n\t\t\treturn C.NVML_ERROR_INSUFFICIENT_SIZE\n\t\t}\n",
        times=2,
    ),
    Correction(
        "an event of a whole GPU names no instance of it",
        "bridge/events.go",
        "InstanceId = 0\n",
        "InstanceId = 0xFFFFFFFF\n",
        times=2,
    ),
    Correction(
        "a GPU that fell off the bus still has its UUID, by which its error is told from those of others",
        "engine/device.go",
        "GetUUID() (string, nvml.Return) {\n\tif ret := d.handleLookupReturn(); ret != nvml.SUCCESS {\n"
        '\t\treturn "", ret\n\t}\n',
        "GetUUID() (string, nvml.Return) {\n",
        times=1,
    ),
)


def write_overlay(sources: Path, directory: Path) -> Path:
    """Write the corrected copies into `directory`; return the file that `go build -overlay` takes.

    Raises:
        BinariesError: a correction does not fit the sources.
    """
    replaced = {}
    for correction in CORRECTIONS:
        original = sources / _FOLDER / correction.file
        text = original.read_text()
        if text.count(correction.before) != correction.times:
            raise BinariesError(
                f"the mock's {correction.file} is not as expected, to correct that {correction.why}"
            )
        copied = directory / correction.file.replace("/", "-")
        copied.write_text(text.replace(correction.before, correction.after))
        replaced[str(original)] = str(copied)
    overlay = directory / "overlay.json"
    overlay.write_text(json.dumps({"Replace": replaced}))
    return overlay
