"""How NVIDIA's programs are built: one set, from three source trees and one Go module."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from musterlab import sources
from musterlab.build import Go, Part, Recipe
from musterlab.gpus import mock
from musterlab.sources import Source
from orchestrator.progress import Reporter

DRIVER_VERSION = "550.163.01"
"""The driver that the mock's library is one of, as its Makefile has it."""

LIBRARY = f"libnvidia-ml.so.{DRIVER_VERSION}"
MOCK_CONTROL = "nvml-mock-ctl"
MOCK_PCI = "render-pci-sysfs"
DEVICE_PLUGIN = "nvidia-device-plugin"
DRA_DRIVER = "gpu-kubelet-plugin"
CDI_HOOK = "nvidia-cdi-hook"
MOCK_PROFILES = "profiles"
CHART = "chart"

_STRIPPED = ("-trimpath", "-ldflags", "-s -w")
# a library that is only there at run time must not be looked for when the program starts
_LAZY = ("-trimpath", "-ldflags", "-s -w -extldflags=-Wl,-z,lazy")
_ENVIRONMENT = {
    "CGO_ENABLED": "1",
    "CGO_CFLAGS": "-O2 -Wno-deprecated-declarations",
    "GOFLAGS": "-mod=vendor -buildvcs=false",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
}


@dataclass(frozen=True)
class SourcePart:
    """Programs of one source tree, by their package, and files that are taken from it as they are.

    `library` is set for the mock, whose bridge becomes a shared library.
    """

    source: Source
    programs: Mapping[str, str]
    flags: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Folder in the set of programs -> paths in the sources."""
    library: str = ""

    def identity(self) -> bytes:
        """Return the commit, the corrections and how it is built."""
        content = (self.source, sorted(self.programs.items()), self.flags, sorted(self.files.items()))
        corrections = mock.CORRECTIONS if self.library else ()
        return repr((content, self.library, corrections, sorted(_ENVIRONMENT.items()))).encode()

    def build(self, workspace: Path, output: Path, go: Go, reporter: Reporter) -> int:
        """Unpack the sources, and build from them."""
        reporter(f"unpacking {self.source.name} at {self.source.commit[:7]}")
        self.source.unpack(workspace)
        inside = Go(go.program, workspace, _ENVIRONMENT)
        compiled = 0
        for name, package in self.programs.items():
            compiled += inside.build((package,), self.flags, output / name, reporter)
        if self.library:
            compiled += _build_library(workspace, output / self.library, go.program, reporter)
        for folder, paths in self.files.items():
            (output / folder).mkdir()
            for path in paths:
                shutil.copyfile(workspace / path, output / folder / Path(path).name)
        shutil.rmtree(workspace)
        return compiled


def _build_library(tree: Path, library: Path, program: str, reporter: Reporter) -> int:
    """Build the mock's library with the linker's flags of its Makefile: names that stand for others, its own name."""
    folder = tree / "pkg" / "gpu" / "mocknvml"
    aliases = re.findall(r"-Wl,--defsym,\w+=\w+", (folder / "Makefile").read_text())
    linked = [*aliases, "-Wl,-soname,libnvidia-ml.so.1"]
    environment = {
        **_ENVIRONMENT,
        "CGO_LDFLAGS": " ".join(linked),
        "CGO_LDFLAGS_ALLOW": "--defsym|-soname",
    }
    corrected = tree / "corrected"
    corrected.mkdir()
    overlay = mock.write_overlay(tree, corrected)
    flags = ("-trimpath", "-tags", "nopadding", "-buildmode=c-shared", "-overlay", str(overlay))
    compiled = Go(program, folder, environment).build(("./bridge",), flags, library, reporter)
    library.chmod(0o755)
    library.with_suffix(".h").unlink(missing_ok=True)
    return compiled


_CHART_TEMPLATES = "deployments/helm/dra-driver-nvidia-gpu/templates"
_PROFILES = "pkg/gpu/mocknvml/configs/mock-nvml-config"

GPU_PROGRAMS = Recipe(
    what="NVIDIA's device plugin, DRA driver and mock driver library",
    prefix="gpus-",
    programs=(LIBRARY, MOCK_CONTROL, MOCK_PCI, DEVICE_PLUGIN, DRA_DRIVER, CDI_HOOK),
    parts=(
        Part(Path(__file__).parent / "toolkit", ("tool",), _STRIPPED, {"CGO_ENABLED": "1"}),
        SourcePart(
            sources.MOCK,
            {MOCK_CONTROL: "./cmd/nvml-mock-ctl", MOCK_PCI: "./cmd/render-pci-sysfs"},
            _STRIPPED,
            files={MOCK_PROFILES: (f"{_PROFILES}-a100.yaml", f"{_PROFILES}-h100.yaml")},
            library=LIBRARY,
        ),
        SourcePart(sources.DEVICE_PLUGIN, {DEVICE_PLUGIN: "./cmd/nvidia-device-plugin"}, _LAZY),
        SourcePart(
            sources.DRA_DRIVER,
            {DRA_DRIVER: "./cmd/gpu-kubelet-plugin"},
            _LAZY,
            files={
                CHART: (
                    f"{_CHART_TEMPLATES}/deviceclass-gpu.yaml",
                    f"{_CHART_TEMPLATES}/rbac-kubeletplugin.yaml",
                )
            },
        ),
    ),
    minutes="3 to 7 minutes",
)
