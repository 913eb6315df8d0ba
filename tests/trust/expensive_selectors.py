"""Claims whose selectors are as expensive as the API server accepts, of several shapes; 32 selectors in each claim."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from musterlab import nodes, profiles
from orchestrator.cluster.resources import DEVICE_CLASSES, NODES, RESOURCE_SLICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.cluster.transport import Transport

MAX_SELECTORS = 32
DRIVER = "gpu.nvidia.com"
OWN = f'device.attributes["{DRIVER}"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'


def _numbers(count: int, seed: int) -> str:
    return "[" + ",".join(str(seed * 100 + index) for index in range(count)) + "]"


def _loops(seed: int, count: int, levels: int, body: str) -> str:
    for level in range(levels):
        body = f"{_numbers(count, seed + level)}.all(n{level}, {body})"
    return body


def _bound(first: str, step: str, levels: int, body: str) -> str:
    text = f"cel.bind(b0, {first}, "
    for level in range(1, levels):
        text += f"cel.bind(b{level}, {step.replace('@', f'b{level - 1}')}, "
    return text + body.replace("@", f"b{levels - 1}") + ")" * levels


SHAPES: dict[str, Callable[[int], str]] = {
    "loops": lambda seed: _loops(seed, 20, 3, "n0 + n1 + n2 >= 0"),
    "loops-below-the-bound": lambda seed: _loops(seed, 14, 3, "n0 + n1 + n2 >= 0"),
    "long-texts": lambda seed: _loops(seed, 20, 3, f'("{"x" * 500}" + device.driver).size() > 0'),
    "texts-below-the-bound": lambda seed: _loops(
        seed, 8, 2, f'("{seed:03d}{"x" * 700}" + device.driver).size() > 0'
    ),
    "attributes": lambda seed: f"{OWN}.all(a, {OWN}.all(b, a + b != 'x{seed}'))",
    "quantities": lambda seed: _loops(
        seed, 25, 1, f'{MEMORY}.add({seed + 1}).isGreaterThan(quantity("1Ki"))'
    ),
    "many-quantities": lambda seed: " && ".join(
        f'quantity("{seed + index}Gi").sub(quantity("1")).sign() >= 0' for index in range(90)
    ),
    "versions": lambda seed: _loops(seed, 20, 1, f'semver("1.{seed}.3").isLessThan(semver("2.0.0"))'),
    "patterns": lambda seed: f'!{OWN}.productName.matches("(a|aa|{seed}|[a-z]+)*(x|y){{1,50}}$")',
    "wide-patterns": lambda seed: f'!{OWN}.productName.matches("[\\\\pL\\\\pN]{{500}}{seed}")',
    "built-patterns": lambda seed: _loops(
        seed, 20, 1, f'!{OWN}.productName.matches("[\\\\pL]{{9}}" + string(n0))'
    ),
    "doubled-texts": lambda seed: _bound(f'"{seed:030d}"', "@ + @", 8, "@.size() > 0"),
    "doubled-lists": lambda seed: _bound(f"[{seed}, 2]", "[@, @]", 12, "@ == @"),
    "doubled-maps": lambda seed: _bound(f"{{{seed}: 1}}", "{1: @, 2: @}", 9, "@ == @"),
    "maps-as-keys": lambda seed: _bound(f"{{{seed}: 1}}", "{@: @}", 6, "true"),
    "replacements": lambda seed: (
        f'{OWN}.productName.replace("A", "{"B" * 1500}").replace("B", "{seed}C").size() > 0'
    ),
    "joined": lambda seed: f'"{f"{seed}," * 400}".split(",").map(x, x + "b").join(",").size() > 0',
    "distinct": lambda seed: f'{OWN}.productName != "x{seed}" && {OWN}.uuid != "y{seed}"',
    "long-lists": lambda seed: (
        f"!({OWN}.uuid in [{','.join(f'{seed}{n:04d}' for n in range(1200))}].map(x, string(x)))"
    ),
    "long": lambda seed: " && ".join(f'{OWN}.uuid != "{seed:04d}{"z" * 40}{index}"' for index in range(100)),
    "ranges": lambda seed: f"lists.range({1000 + seed}).all(x, x >= 0)",
    "sets": lambda seed: f"!sets.contains({_numbers(300, seed)}, {_numbers(300, seed + 1)})",
    "nested": lambda seed: "(" * 20 + f"{seed} >= 0" + ")" * 20,
    "missing": lambda seed: f"{OWN}.missing{seed} == 1",
}
"""Each shape returns a different expression for each number. Most expressions are true for every device."""


def claims(shape: str, count: int, first: int = 0) -> Iterator[dict[str, Any]]:
    """Yield claims with 32 distinct selectors each. No device has all of them."""
    for number in range(first, first + count):
        seeds = range(number * MAX_SELECTORS, (number + 1) * MAX_SELECTORS)
        expressions = [SHAPES[shape](seed) for seed in seeds]
        expressions[-1] = f"({expressions[-1]}) && false"
        selectors = [{"cel": {"expression": expression}} for expression in expressions]
        exactly = {"deviceClassName": DRIVER, "selectors": selectors}
        yield claim(f"{shape}-{number}", {"name": "gpu", "exactly": exactly})


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    """Return a claim with these requests."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(requests)}},
    }


def prioritized(shape: str, name: str) -> dict[str, Any]:
    """Return a claim with eight alternatives of four expensive selectors each."""
    alternatives = [
        {
            "name": f"a{index}",
            "deviceClassName": DRIVER,
            "selectors": [
                {"cel": {"expression": f"{SHAPES[shape](9000 + 4 * index + part)} && {part} < 3"}}
                for part in range(4)
            ],
        }
        for index in range(8)
    ]
    return claim(name, {"name": "gpu", "firstAvailable": alternatives})


def _published(node: str) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": f"GPU-{node}-{index}"},
                "productName": {"string": "NVIDIA A100-SXM4-40GB"},
                "driverVersion": {"version": "550.163.1"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        }
        for index in range(8)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"gpus-{node}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


def device_class(name: str, *expressions: str) -> dict[str, Any]:
    """Return a class of devices for which all expressions are true."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }


async def publish_nodes(transport: Transport, count: int, *, tainted: bool = False) -> None:
    """Create nodes `dra-0`, `dra-1`, … with slices of eight GPUs each, and the device class of the GPUs."""
    profile = profiles.load(profiles.DEFAULT_PROFILE)
    capacity = {key: amount for key, amount in profile.capacity.items() if key != "nvidia.com/gpu"}
    labels = {key: text for key, text in profile.labels.items() if not key.startswith("nvidia.com/")}
    for number in range(count):
        name = f"dra-{number}"
        body = nodes.node(name, replace(profile, capacity=capacity, labels=labels), tainted=tainted)
        await transport.create(NODES.path(), body)
        await transport.create(RESOURCE_SLICES.path(), _published(name))
    selector = f'device.driver == "{DRIVER}" && {OWN}.type == "gpu"'
    await transport.create(DEVICE_CLASSES.path(), device_class(DRIVER, selector))
