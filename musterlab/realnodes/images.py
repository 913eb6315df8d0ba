"""The images of a lab with real nodes, built from the static busybox of this machine and the scripts in `programs/`.

They have the names and entry points of the images in TR-4858, a shell with its tools, and no framework. The page
docs/how-to/lab.md lists them.
"""

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from musterlab import oci

PAUSE = "localhost/pause:1"
SHELL = "localhost/shell:1"

_PROGRAMS = Path(__file__).parent / "programs"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """One image: its names, and its additions to the shell. `files` maps paths to names of files in `programs/`."""

    names: tuple[str, ...]
    command: tuple[str, ...] = ("sh",)
    files: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"


IMAGES = (
    Image((PAUSE,), ("sleep", "infinity")),
    Image((SHELL, "docker.io/library/busybox:latest", "docker.io/library/ubuntu:latest")),
    Image(
        ("gcr.io/run-ai-demo/quickstart:latest", "runai.jfrog.io/demo/quickstart:latest"),
        ("quickstart",),
        {"usr/local/bin/quickstart": "quickstart.sh"},
        "/workload",
    ),
    Image(
        ("docker.io/library/python:latest", "docker.io/netapp/tensorflow-tf1-py3:20.01.0"),
        ("python",),
        {"usr/local/bin/python": "python.sh", "netapp/scripts/run.py": "resnet.sh"},
    ),
    Image(
        ("docker.io/jupyter/base-notebook:latest", "docker.io/jupyter/scipy-notebook:latest"),
        ("start-notebook.sh",),
        {"usr/local/bin/start-notebook.sh": "start-notebook.sh"},
        "/home/jovyan",
    ),
    Image(
        ("nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0",),
        ("cuda-sample", "Test PASSED"),
        {"usr/local/bin/cuda-sample": "cuda-sample.sh"},
    ),
    Image(
        ("nvcr.io/nvidia/k8s/cuda-sample:devicequery",),
        ("cuda-sample", "Result = PASS"),
        {"usr/local/bin/cuda-sample": "cuda-sample.sh"},
    ),
)


def build(directory: Path, busybox: Path, applets: Iterable[str], archives: Iterable[Path] = ()) -> None:
    """Write all images, and those of OCI archives, into `directory` as an OCI layout.

    `applets` are the commands that `busybox` stands for. Raises ValueError for a file that is no OCI archive.
    """
    layout = oci.Layout(directory)
    base = _shell_layer(busybox, applets)
    described = {}
    for image in IMAGES:
        layers = [base, *([_program_layer(image)] if image.files else [])]
        config = {"Env": [_PATH], "Cmd": list(image.command), "WorkingDir": image.working_directory}
        descriptor = layout.add_image({"config": config}, [(oci.sha256(layer), layer) for layer in layers])
        described.update(dict.fromkeys(image.names, descriptor))
    for archive in archives:
        described.update(layout.add_archive(archive))
    layout.write_index(described)


def _shell_layer(busybox: Path, applets: Iterable[str]) -> bytes:
    with _Archive() as archive:
        for name in ("bin", "dev", "etc", "home", "proc", "root", "sys", "usr/bin", "usr/local/bin", "var"):
            archive.add_directory(name)
        archive.add_directory("tmp", 0o1777)
        archive.add_file("bin/busybox", busybox.read_bytes(), 0o755)
        for name in sorted({*applets} - {"busybox"}):
            archive.add_link(f"bin/{name}", "busybox")
        archive.add_file("bin/bash", b'#!/bin/sh\nexec /bin/sh "$@"\n', 0o755)
        archive.add_file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        archive.add_file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    return archive.content


def _program_layer(image: Image) -> bytes:
    with _Archive() as archive:
        if image.working_directory != "/":
            archive.add_directory(image.working_directory.lstrip("/"), 0o1777)
        for path, program in image.files.items():
            archive.add_file(path, (_PROGRAMS / program).read_bytes(), 0o755)
    return archive.content


class _Archive:
    """A tar archive in memory. The same files give the same bytes."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115

    def __enter__(self) -> "_Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    @property
    def content(self) -> bytes:
        return self._buffer.getvalue()

    def add_directory(self, name: str, mode: int = 0o755) -> None:
        self._add(name, tarfile.DIRTYPE, mode)

    def add_link(self, name: str, target: str) -> None:
        self._add(name, tarfile.SYMTYPE, 0o777, target=target)

    def add_file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._add(name, tarfile.REGTYPE, mode, content)

    def _add(self, name: str, kind: bytes, mode: int, content: bytes = b"", target: str = "") -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(content)
        self._tar.addfile(entry, io.BytesIO(content))
