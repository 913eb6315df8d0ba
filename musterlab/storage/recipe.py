"""How the storage's programs are built: the driver from its sources, its sidecars from the Go module proxy."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from musterlab import sources
from musterlab.build import Go, Part, Recipe
from musterlab.errors import BinariesError
from orchestrator.progress import Reporter

DRIVER: Final = "hostpathplugin"
PROVISIONER: Final = "csi-provisioner"
SNAPSHOTTER: Final = "csi-snapshotter"
SNAPSHOT_CONTROLLER: Final = "snapshot-controller"
DEFINITIONS: Final = "definitions"
"""Folder beside the programs with the definitions of external-snapshotter's objects."""

_MODULE = Path(__file__).parent
_STRIPPED = ("-trimpath", "-ldflags", "-s -w")
_VERSIONED = ("-trimpath", "-ldflags", f"-s -w -X main.version={sources.HOST_PATH.commit[:7]}")
_VENDORED = {"GOFLAGS": "-mod=vendor -buildvcs=false", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
_LOCK = "shared_lock.go"
_PACKAGE = "pkg/hostpath"
CORRECTIONS: tuple[tuple[str, str], ...] = (
    ('\t"path/filepath"\n\t"sync"\n', '\t"path/filepath"\n'),
    ("\tmutex sync.Mutex\n", "\tmutex sharedLock\n"),
    (
        "\t\tstate:  s,\n\t}\n\treturn hp, nil\n",
        "\t\tstate:  s,\n\t}\n\thp.mutex.driver = hp\n\treturn hp, nil\n",
    ),
)
"""What stands in the driver's hostpath.go, once, and what takes its place: one folder of volumes for all nodes."""


def corrected(text: str) -> str:
    """Return the driver's hostpath.go with one lock for all nodes. Raises BinariesError where it is another one."""
    for before, after in CORRECTIONS:
        if text.count(before) != 1:
            raise BinariesError(
                f"{_PACKAGE}/hostpath.go is not as expected: {before.strip().splitlines()[0]}"
            )
        text = text.replace(before, after)
    return text


@dataclass(frozen=True)
class DriverPart:
    """The host path driver, whose calls read anew what the drivers of other nodes wrote."""

    def identity(self) -> bytes:
        """Return the commit, what is corrected, and how it is built."""
        lock = (_MODULE / _LOCK).read_bytes()
        return lock + repr((sources.HOST_PATH, CORRECTIONS, _VERSIONED, sorted(_VENDORED.items()))).encode()

    def build(self, workspace: Path, output: Path, go: Go, reporter: Reporter) -> int:
        """Unpack the sources, correct them, and build from them. Returns how many packages were compiled."""
        reporter(f"unpacking {sources.HOST_PATH.name} at {sources.HOST_PATH.commit[:7]}")
        sources.HOST_PATH.unpack(workspace)
        folder = workspace / _PACKAGE
        driver = folder / "hostpath.go"
        driver.write_text(corrected(driver.read_text()))
        shutil.copyfile(_MODULE / _LOCK, folder / _LOCK)
        inside = Go(go.program, workspace, _VENDORED)
        return inside.build(("./cmd/hostpathplugin",), _VERSIONED, output / DRIVER, reporter)


@dataclass(frozen=True)
class SidecarsPart(Part):
    """The sidecars and the snapshot controller, with the definitions of their objects."""

    definitions: str = "github.com/kubernetes-csi/external-snapshotter/client/v8"

    def build(self, workspace: Path, output: Path, go: Go, reporter: Reporter) -> int:
        """Build the programs, and copy the definitions. Returns how many packages were compiled."""
        compiled = super().build(workspace, output, go, reporter)
        folder = Go(go.program, workspace).module_folder(self.definitions) / "config" / "crd"
        (output / DEFINITIONS).mkdir()
        for path in folder.glob("*snapshot.storage.k8s.io_*.yaml"):
            shutil.copyfile(path, output / DEFINITIONS / path.name)
        return compiled


STORAGE_PROGRAMS: Final = Recipe(
    what="Kubernetes' host path driver, external-provisioner and external-snapshotter",
    prefix="storage-",
    programs=(DRIVER, PROVISIONER, SNAPSHOTTER, SNAPSHOT_CONTROLLER),
    parts=(DriverPart(), SidecarsPart(_MODULE, ("tool",), _STRIPPED)),
    minutes="2 to 8 minutes",
)
