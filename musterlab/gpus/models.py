"""Which GPUs a real node has, and what the mock of the driver's library shows of them."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from musterlab.profiles import Profile
from orchestrator.errors import UsageError

Stack = Literal["device-plugin", "dra"]
STACKS: tuple[Stack, ...] = get_args(Stack)

RESOURCE = "nvidia.com/gpu"
MAXIMUM_COUNT = 8
"""What the mock has room for."""

_NODE_PROFILES = {"v100": "dgx1-v100-32g", "a100": "dgx-a100-80g", "h100": "dgx-h100"}
_WRITTEN = re.compile(rf"({'|'.join(_NODE_PROFILES)})x([1-{MAXIMUM_COUNT}])")
_SHARES = re.compile("memory|unlimited|disabled|[1-9][0-9]*")
_OF_OURS = Path(__file__).parent / "v100.yaml"
_DRIVER_PARTS = ("major", "minor", "rev")
_MIB = 1 << 20


@dataclass(frozen=True)
class Gpus:
    """So many GPUs of one model on each real node, and by which of NVIDIA's two ways the kubelet learns of them.

    `consumable_shares` is the DRA driver's flag of that name: what of a GPU can be shared out by claims. `cuda_library`
    gets into containers as the driver's libcuda would: NVIDIA's mock of that has none of the driver's calls.
    """

    model: str
    count: int
    stack: Stack
    consumable_shares: str = "memory"
    cuda_library: Path | None = None

    def __str__(self) -> str:
        shares = f", shares: {self.consumable_shares}" if self.stack == "dra" else ""
        return f"{self.model}x{self.count} by {self.stack}{shares}"

    @property
    def node_profile(self) -> str:
        """Name of the profile of the nodes that have these GPUs."""
        return _NODE_PROFILES[self.model]

    def mock_profile(self, node_number: int, shipped: Path) -> dict[str, Any]:
        """Return what the mock is to show on a node; no two nodes of a lab have a UUID in common.

        `shipped` has the profiles that come with the mock.
        """
        path = _OF_OURS if self.model == "v100" else shipped / f"mock-nvml-config-{self.model}.yaml"
        profile: dict[str, Any] = yaml.safe_load(path.read_text())
        profile["system"]["num_devices"] = self.count
        profile["devices"] = profile["devices"][: self.count]
        for device in profile["devices"]:
            groups = device["uuid"].split("-")
            groups[4] = f"{node_number - 1:04x}"
            device["uuid"] = "-".join(groups)
        addresses = [device["pci"]["bus_id"] for device in profile["devices"]]
        for socket in profile["pcie_topology"]["root_complexes"]:
            socket["devices"] = [address for address in socket["devices"] if address in addresses]
        mesh = profile.pop("mesh", None)
        if mesh:
            profile["nvlink"]["device_links"] = _links(profile["devices"], mesh)
        return profile

    def equip(self, profile: Profile, shipped: Path) -> Profile:
        """Return a node's profile with the labels that follow from what the mock shows, and no GPUs of its own.

        GPUs that an administrator wrote on a node would hide those that NVIDIA's programs give it by claims.
        """
        mock = self.mock_profile(1, shipped)
        device, driver = mock["device_defaults"], mock["system"]["driver_version"].split(".")
        labels = {
            "nvidia.com/gpu.product": device["name"].replace(" ", "-"),
            "nvidia.com/gpu.memory": str(device["memory"]["total_bytes"] // _MIB),
            "nvidia.com/gpu.count": str(self.count),
            **{
                f"nvidia.com/cuda.driver.{part}": value
                for part, value in zip(_DRIVER_PARTS, driver, strict=True)
            },
        }
        capacity = {name: amount for name, amount in profile.capacity.items() if name != RESOURCE}
        return replace(profile, capacity=capacity, labels={**profile.labels, **labels})


def parse(written: str, stack: Stack, consumable_shares: str) -> Gpus:
    """Read `v100x8`.

    Raises:
        UsageError: it is not a known model and a number, or the DRA driver does not know such shares.
    """
    if not _SHARES.fullmatch(consumable_shares):
        raise UsageError(
            f"shares {consumable_shares!r}: give memory, unlimited, disabled, or a number above 0"
        )
    match = _WRITTEN.fullmatch(written)
    if match is None:
        models = ", ".join(_NODE_PROFILES)
        raise UsageError(
            f"GPUs {written!r}: give a model of {models} and 1 to {MAXIMUM_COUNT}, such as v100x8"
        )
    return Gpus(match[1], int(match[2]), stack, consumable_shares)


def _links(devices: list[dict[str, Any]], mesh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the links of a mesh out: both ends of each one, by the PCI bus id of the other."""
    links: list[list[dict[str, Any]]] = [[] for _ in devices]
    for pair in mesh:
        one, other = pair["gpus"]
        if max(one, other) >= len(devices):
            continue
        for _ in range(pair["links"]):
            for near, far in ((one, other), (other, one)):
                links[near].append(
                    {
                        "link": len(links[near]),
                        "state": "active",
                        "remote_device_type": "GPU",
                        "remote_pci_bus_id": devices[far]["pci"]["bus_id"],
                        "remote_index": far,
                    }
                )
    return [{"index": index, "links": ends} for index, ends in enumerate(links)]
