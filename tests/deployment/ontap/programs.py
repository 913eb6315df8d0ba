"""NetApp's Trident from the folder that MUSTER_PROGRAMS names, and Kubernetes' external-attacher beside it."""

from pathlib import Path

import pytest

from musterlab import binaries, programs
from musterlab.build import Part, Recipe
from musterlab.errors import BinariesError
from orchestrator.progress import Reporter
from tests.upstream import facts

RELEASE = "26.06.0"
_MANIFESTS = Path("cli/k8s_client/yaml_factory.go")
_ATTACHER = "csi-attacher"
_RECIPE = Recipe(
    subject="external-attacher",
    prefix="attacher-",
    programs=(_ATTACHER,),
    parts=(Part(Path(__file__).parent / "attacher", ("tool",), ("-trimpath", "-ldflags", "-s -w")),),
    minutes="1 to 4 minutes",
)


def trident() -> Path:
    """Return Trident's program; skip the test if the folder lacks it."""
    if why := programs.missing((programs.TRIDENT,)):
        pytest.skip(why)
    return programs.find(programs.TRIDENT)


def manifests() -> str:
    """Return the Go file with the objects that Trident's operator applies; skip the test
    without a checkout of Trident.
    """
    if absent := facts.missing("trees", ["trident"]):
        pytest.skip(f"no checkout of Trident: {', '.join(absent)}")
    return (facts.checkout("trident") / _MANIFESTS).read_text()


def attacher() -> Path:
    """Return external-attacher, which runs in Trident's Deployment; skip the test if it cannot be built."""
    try:
        return binaries.find(Reporter(lambda _line: None), _RECIPE).paths[_ATTACHER]
    except BinariesError as error:
        pytest.skip(str(error))
