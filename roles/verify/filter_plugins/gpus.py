"""How many GPUs each node has to give."""

from collections import Counter
from collections.abc import Callable
from typing import Any

DRIVER = "gpu.nvidia.com"
RESOURCE = "nvidia.com/gpu"


def count_gpus(nodes: list[dict[str, Any]], slices: list[dict[str, Any]]) -> dict[str, int]:
    """Return the GPUs that a device plugin or the DRA driver announces, by node; parts (MIG) are not counted."""
    plugged = {
        node["metadata"]["name"]: int(node.get("status", {}).get("allocatable", {}).get(RESOURCE, 0))
        for node in nodes
    }
    announced: Counter[str] = Counter()
    mine = [entry["spec"] for entry in slices if entry["spec"].get("driver") == DRIVER]
    newest: dict[str, int] = {}
    for spec in mine:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    for spec in mine:
        if spec["pool"]["generation"] < newest[spec["pool"]["name"]]:
            continue
        for device in spec.get("devices") or []:
            attributes = device.get("attributes") or device.get("basic", {}).get("attributes", {})
            announced[spec.get("nodeName", "")] += attributes.get("type", {}).get("string") == "gpu"
    return {name: max(count, announced[name]) for name, count in plugged.items()}


class FilterModule:
    """The filters, as Ansible looks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by their names."""
        return {"count_gpus": count_gpus}
