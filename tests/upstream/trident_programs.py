"""NetApp's Trident and Kubernetes' external-attacher for tests, built once into the cache of the lab's programs.

Trident comes from the archive of its sources. Two of its storage drivers, for Google's and for Azure's volumes, stand
on modules that the Go module proxy does not have. They are cut out of the unpacked copy; what muster uses, ONTAP, is
built as it is.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from musterlab import binaries
from musterlab.build import Go, Part, Recipe
from musterlab.errors import BinariesError
from orchestrator.progress import Reporter
from tests.upstream import trees

RELEASE = "26.06.0"
PROGRAM = "trident_orchestrator"
_FLAGS = ("-trimpath", "-ldflags", "-s -w")
_FACTORY = "storage/factory/factory.go"
_GOOGLE_LOGIN = "storage_drivers/ontap/gcpapi/gcp.go"
_CUTS: tuple[tuple[str, str, str, int], ...] = (
    (_FACTORY, '\t"github.com/netapp/trident/storage_drivers/azure"\n', "", 1),
    (_FACTORY, '\t"github.com/netapp/trident/storage_drivers/gcp"\n', "", 1),
    (
        _FACTORY,
        (
            "\tcase config.AzureNASStorageDriverName:\n\t\tstorageDriver = &azure.NASStorageDriver{}\n"
            "\tcase config.GCNVNASStorageDriverName:\n\t\tstorageDriver = &gcp.NASStorageDriver{}\n"
            "\tcase config.GCNVSANStorageDriverName:\n\t\tstorageDriver = &gcp.SANStorageDriver{}\n"
        ),
        "",
        1,
    ),
    (_GOOGLE_LOGIN, '\tnetapp "cloud.google.com/go/netapp/apiv1"\n', "", 1),
    (_GOOGLE_LOGIN, "netapp.DefaultAuthScopes()...", '"https://www.googleapis.com/auth/cloud-platform"', 3),
)
"""Path in the sources, what stands there, what takes its place, and how often."""


@dataclass(frozen=True)
class TridentPart:
    """The program of one release."""

    release: str

    def identity(self) -> bytes:
        """Return the release, what is left out, and how it is built."""
        return repr((trees.TRIDENT_SOURCES[self.release], _CUTS, _FLAGS)).encode()

    def build(self, workspace: Path, output: Path, go: Go, reporter: Reporter) -> int:
        """Unpack the sources, and build from them. Returns how many packages were compiled."""
        sources = trees.unpack(trees.TRIDENT_SOURCES[self.release], workspace / "sources")
        _cut(sources)
        return Go(go.program, sources).build((".",), _FLAGS, output / PROGRAM, reporter)


def _cut(sources: Path) -> None:
    """Take the two drivers out of the unpacked sources. Raises BinariesError where these are not as expected."""
    for path, before, after, times in _CUTS:
        text = (sources / path).read_text()
        if text.count(before) != times:
            raise BinariesError(f"Trident's {path} is not as expected: {before.strip().splitlines()[0]}")
        (sources / path).write_text(text.replace(before, after))


RECIPE = Recipe(
    what="NetApp's Trident",
    prefix="trident-",
    programs=(PROGRAM,),
    parts=(TridentPart(RELEASE),),
    minutes="4 to 8 minutes",
)


ATTACHER = "csi-attacher"
_ATTACHER_RECIPE = Recipe(
    what="external-attacher",
    prefix="attacher-",
    programs=(ATTACHER,),
    parts=(Part(Path(__file__).parent / "attacher", ("tool",), _FLAGS),),
    minutes="1 to 4 minutes",
)


def program() -> Path:
    """Return Trident's program; skips the test where its sources, or Go, are not at hand."""
    trees.archive(trees.TRIDENT_SOURCES[RELEASE])
    return _built(RECIPE, PROGRAM)


def attacher() -> Path:
    """Return external-attacher, which Trident's Deployment has beside it; skips the test where it is not at hand."""
    return _built(_ATTACHER_RECIPE, ATTACHER)


def _built(recipe: Recipe, name: str) -> Path:
    try:
        return binaries.find(Reporter(lambda _line: None), recipe).paths[name]
    except BinariesError as error:
        pytest.skip(f"{recipe.what} is not at hand: {error}")
