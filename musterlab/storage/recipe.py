"""How the sidecars of CSI drivers are built: from the Go module proxy."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from musterlab.build import Go, Part, Recipe
from orchestrator.progress import Reporter

PROVISIONER: Final = "csi-provisioner"
SNAPSHOTTER: Final = "csi-snapshotter"
SNAPSHOT_CONTROLLER: Final = "snapshot-controller"
DEFINITIONS: Final = "definitions"
"""Folder beside the programs with the definitions of external-snapshotter's objects."""

_MODULE = Path(__file__).parent


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
    subject="external-provisioner and external-snapshotter",
    prefix="storage-",
    programs=(PROVISIONER, SNAPSHOTTER, SNAPSHOT_CONTROLLER),
    parts=(SidecarsPart(_MODULE, ("tool",), ("-trimpath", "-ldflags", "-s -w")),),
    minutes="2 to 8 minutes",
)
