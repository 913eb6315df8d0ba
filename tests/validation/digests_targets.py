"""Doubles of clusters whose pods compute digests on GPUs, honest ones and such with defects."""

import json
from typing import Any, Final

from tests.validation.host_doubles import FakeHosts
from tests.validation.training_targets import Trains
from tests.validation.workloads.flips import TINY, FlipsABit
from validation.judge.events import PodSeen
from validation.judge.training.digests import KNOWN
from validation.scenario.images import ImageMap, whole_name
from validation.scenario.loaded import SHIPPED
from validation.targets.hosts import SiteHosts
from validation.workloads.digests import Plain, measure

DIGESTS: Final = SHIPPED / "muster" / "digests.scenario.yaml"
IMAGE: Final = "registry.example.com/ai/pytorch:25.01"
REPEATS: Final = 3
Json = dict[str, Any]


def with_image() -> SiteHosts:
    """Return the hosts of a site that names an image with PyTorch."""
    hosts = FakeHosts()
    hosts.images = ImageMap({whole_name("site/pytorch"): IMAGE})
    return hosts


_EXACT: Final = measure(Plain(), TINY, 1)
"""The digests of the exact results in the sizes of the tests."""


def as_on_gpu(measured: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return digests of the sizes of the tests as a GPU would have them: the exact result has the known digest."""
    return {
        computation: {
            KNOWN["gpu"][computation] if digest in _EXACT[computation] else digest: number
            for digest, number in counts.items()
        }
        for computation, counts in measured.items()
    }


def clean() -> dict[str, dict[str, int]]:
    """Return the right digests."""
    return {computation: {digest: REPEATS} for computation, digest in KNOWN["gpu"].items()}


def once_wrong(product: int = 0) -> dict[str, dict[str, int]]:
    """Return the digests of a GPU that flips one bit in one product."""
    return as_on_gpu(measure(FlipsABit(product, 3, 22), TINY, REPEATS))


def always_wrong(element: int = 3) -> dict[str, dict[str, int]]:
    """Return the digests of a GPU that flips the same bit in every product."""
    return as_on_gpu(measure(FlipsABit(0, element, 22, always=True), TINY, REPEATS))


def device(node: str, index: int, **changes: Any) -> Json:
    """Return the entry of a healthy GPU, with these changes."""
    entry = {
        "index": index,
        "uuid": uuid(node, index),
        "model": "Tesla V100-SXM2-32GB",
        "library": "PyTorch 2.9.1, CUDA 12.8",
        "digests": clean(),
        "problem": "",
    }
    return entry | changes


def document(devices: list[Json]) -> Json:
    """Return the document of a pod."""
    head = {"apiVersion": "muster.dev/v1alpha1", "kind": "DigestsResult", "deviceKind": "gpu"}
    return {**head, "repeats": REPEATS, "devices": devices}


def uuid(node: str, index: int) -> str:
    """Return the UUID of a GPU."""
    return f"GPU-{node}-0000-{index}"


class Computes(Trains):
    """Its pods compute the right digests. Subclasses change some entries, by node and index, or the document."""

    pulls_images = True
    changed: dict[tuple[str, int], Json] = {}
    document: Json = {}

    def uuid(self, node: str, index: int) -> str:
        return uuid(node, index)

    def lines_of(self, pod: PodSeen) -> list[str]:
        devices = [
            device(pod.node, index, **self.changed.get((pod.node, index), {})) for index in pod.devices
        ]
        return [json.dumps(document(devices) | self.document)]


def computing(changed: dict[tuple[str, int], Json], **changes: Any) -> type[Computes]:
    """Return a double with these entries, and with these changes of the document."""
    return type("ComputesOtherwise", (Computes,), {"changed": changed, "document": changes})


CorruptsSilently: Final = computing({("n2", 5): {"digests": always_wrong()}})
CorruptsEverywhere: Final = computing(
    {(node, index): {"digests": always_wrong()} for node in ("n1", "n2") for index in range(8)}
)
CorruptsBesideAnUnreadNode: Final = computing(
    {("n1", 2): {"digests": always_wrong()}}
    | {("n2", index): {"digests": {}, "problem": "no library"} for index in range(8)}
)
