"""Finds programs of other projects that a user provides in a folder, and describes their origin and tested versions."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from musterlab.errors import BinariesError

FOLDER_VARIABLE: Final = "MUSTER_PROGRAMS"


@dataclass(frozen=True)
class Program:
    """A program that the lab starts and does not build."""

    file: str
    """File name that the folder must contain."""
    origin: str
    """Published image or package, and the path of the program in it."""
    tried: tuple[str, ...]
    """Versions that the lab was run with."""


DRA_DRIVER: Final = Program(
    "gpu-kubelet-plugin",
    "image registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu, /usr/bin",
    ("0.5.0-dev (9593204)",),
)
NVML_MOCK: Final = Program(
    "libnvidia-ml.so.550.163.01", "image ghcr.io/nvidia/nvml-mock, /usr/local/lib", ("0.3.0 (3b2b865)",)
)
TRIDENT: Final = Program(
    "trident_orchestrator",
    "image docker.io/netapp/trident, /",
    ("26.06.0 (without the drivers for Google and Azure)",),
)
PROGRAMS: Final = (DRA_DRIVER, NVML_MOCK, TRIDENT)


def folder(named: Path | None = None) -> Path | None:
    """Return the folder of programs: `named`, or the value of MUSTER_PROGRAMS, or None if neither is set."""
    value = os.environ.get(FOLDER_VARIABLE, "")
    return named or (Path(value).absolute() if value else None)


def missing(programs: Iterable[Program], named: Path | None = None) -> str:
    """Return one line that names the programs which the folder lacks and their origin; empty if it has all."""
    place = folder(named)
    absent = [program for program in programs if place is None or not (place / program.file).is_file()]
    if not absent:
        return ""
    reason = f"{FOLDER_VARIABLE} names no folder" if place is None else f"{place} lacks a program"
    wanted = ", ".join(f"{program.file} ({program.origin})" for program in absent)
    return f"{reason}; put into it: {wanted}"


def find(program: Program, named: Path | None = None) -> Path:
    """Return the path of a program. Raises BinariesError with the file name and the origin if it is not there."""
    place = folder(named)
    why = missing((program,), named)
    if why or place is None:
        raise BinariesError(why)
    return place / program.file
