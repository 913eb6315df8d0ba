"""The GPUs of a real node: the model, the count, and the program that announces them to the kubelet."""

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

import yaml

from musterlab import programs
from musterlab.errors import BinariesError
from musterlab.profiles import Profile
from orchestrator.errors import UsageError

Stack = Literal["device-plugin", "dra"]
STACKS: tuple[Stack, ...] = get_args(Stack)

RESOURCE = "nvidia.com/gpu"
MAXIMUM_COUNT = 8

_FILE = Path(__file__).parent / "models.yaml"
_WRITTEN = re.compile(rf"([a-z0-9]+)x([1-{MAXIMUM_COUNT}])")
_SHARES = re.compile("memory|unlimited|disabled|[1-9][0-9]*")
_DRIVER_PARTS = ("major", "minor", "rev")
_MIB = 1 << 20
_NOT_SHARED: Final = "disabled"


@cache
def _known() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(_FILE.read_text())
    return content


def driver_version() -> str:
    """Return the version of the driver that the nodes show."""
    return str(_known()["driver"])


def cuda_version() -> int:
    """Return the CUDA version of the driver in NVML's form, 12040 for 12.4."""
    return int(_known()["cuda"])


@dataclass(frozen=True)
class Gpus:
    """The GPUs of each real node, and the program (`stack`) that announces them to the kubelet.

    `consumable_shares` is a flag of NVIDIA's DRA driver. None means `memory` with that driver, and `disabled` with the
    example driver. `cuda_library` becomes the driver's libcuda in containers. `program_folder` has the user's programs.
    """

    model: str
    count: int
    stack: Stack
    consumable_shares: str | None = None
    cuda_library: Path | None = None
    program_folder: Path | None = None

    def __str__(self) -> str:
        shares = f", shares: {self.shares}" if self.stack == "dra" else ""
        return f"{self.model}x{self.count} by {self.stack}{shares}"

    @property
    def has_nvidias_dra_driver(self) -> bool:
        """Whether NVIDIA's DRA driver, from the user's folder, serves ResourceClaims instead of the example driver."""
        return self.stack == "dra" and not programs.missing((programs.DRA_DRIVER,), self.program_folder)

    @property
    def shares(self) -> str:
        """The value of `consumable_shares` that applies: how ResourceClaims can share a GPU."""
        return self.consumable_shares or ("memory" if self.has_nvidias_dra_driver else _NOT_SHARED)

    def check_programs(self) -> None:
        """Raise BinariesError if ResourceClaims are to share GPUs and NVIDIA's DRA driver is missing."""
        if self.stack == "dra" and self.shares != _NOT_SHARED:
            why = programs.missing((programs.DRA_DRIVER,), self.program_folder)
            if why:
                raise BinariesError(f"claims that share a GPU need NVIDIA's DRA driver: {why}")

    @property
    def node_profile(self) -> str:
        """Name of the profile of the nodes that have these GPUs."""
        return str(self._model["node_profile"])

    def of_node(self, node_number: int) -> list[dict[str, Any]]:
        """Return the fields of each GPU of a node, as the double of NVML reads them; no two nodes share a UUID."""
        model = self._model
        fields: list[dict[str, Any]] = []
        for root, place in model["roots"].items():
            for bus_id in place["bus_ids"]:
                index = len(fields)
                fields.append(
                    {
                        **model["fields"],
                        "uuid": f"{model['uuid']}-0000-0000-{node_number - 1:04x}-{index:012x}",
                        "serial": str(model["serial"] + index).zfill(13),
                        "minor": index,
                        "bus_id": bus_id,
                        "root": root,
                        "numa": place["numa"],
                        "links": ["switch"] * model.get("switch_links", 0),
                    }
                )
        fields = fields[: self.count]
        for one, other, links in model.get("mesh", ()):
            if max(one, other) < len(fields):
                fields[one]["links"] += [other] * links
                fields[other]["links"] += [one] * links
        return fields

    def equip(self, profile: Profile) -> Profile:
        """Return a node's profile with the labels that follow from its GPUs, and without the capacity `nvidia.com/gpu`.

        With that capacity in the node's status, GPUs of ResourceClaims would be hidden.
        """
        fields = self._model["fields"]
        labels = {
            "nvidia.com/gpu.product": fields["name"].replace(" ", "-"),
            "nvidia.com/gpu.memory": str(fields["memory_total"] // _MIB),
            "nvidia.com/gpu.count": str(self.count),
            **{
                f"nvidia.com/cuda.driver.{part}": value
                for part, value in zip(_DRIVER_PARTS, driver_version().split("."), strict=True)
            },
        }
        capacity = {name: amount for name, amount in profile.capacity.items() if name != RESOURCE}
        return replace(profile, capacity=capacity, labels={**profile.labels, **labels})

    @property
    def _model(self) -> dict[str, Any]:
        model: dict[str, Any] = _known()["models"][self.model]
        return model


def parse(
    written: str, stack: Stack, consumable_shares: str | None = None, program_folder: Path | None = None
) -> Gpus:
    """Read `v100x8`.

    Raises:
        UsageError: `written` is not a known model and a number, or `consumable_shares` has an unknown value.
    """
    if consumable_shares is not None and not _SHARES.fullmatch(consumable_shares):
        raise UsageError(
            f"shares {consumable_shares!r}: give memory, unlimited, disabled, or a number above 0"
        )
    match = _WRITTEN.fullmatch(written)
    if match is None or match[1] not in _known()["models"]:
        models = ", ".join(_known()["models"])
        raise UsageError(
            f"GPUs {written!r}: give a model of {models} and 1 to {MAXIMUM_COUNT}, such as v100x8"
        )
    return Gpus(match[1], int(match[2]), stack, consumable_shares, program_folder=program_folder)
