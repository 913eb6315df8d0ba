"""`verify` counts the GPUs that each node has to give, by a device plugin or by the DRA driver."""

import runpy
from typing import Any

from deployment import site, variables
from tests.deployment.running import ROOT

count_gpus = runpy.run_path(str(ROOT / "roles" / "verify" / "filter_plugins" / "gpus.py"))["count_gpus"]


def node(name: str, **allocatable: str) -> dict[str, Any]:
    resources = {key.replace("_", "/"): value for key, value in allocatable.items()}
    return {"metadata": {"name": name}, "status": {"allocatable": resources}}


def devices(name: str, count: int, kind: str = "gpu", generation: int = 1, part: int = 0) -> dict[str, Any]:
    """A slice of a node, one of its pool."""
    listed = [
        {"name": f"{kind}-{part}-{number}", "attributes": {"type": {"string": kind}}}
        for number in range(count)
    ]
    pool = {"name": name, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": listed}}


def test_a_plugin_and_a_driver_are_counted_by_node() -> None:
    plugged = {"metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "96"}}}
    slices = [devices("b", 4), devices("b", 3, part=1), devices("b", 7, kind="mig", part=2)]
    other = {
        "spec": {
            "driver": "compute-domain.nvidia.com",
            "nodeName": "c",
            "pool": {"name": "c", "generation": 1},
        }
    }
    found = count_gpus([plugged, node("b"), node("c")], [*slices, other])
    assert found == {"a": 8, "b": 7, "c": 0}


def test_an_older_generation_of_a_pool_is_gone() -> None:
    assert count_gpus([node("a")], [devices("a", 8, generation=1), devices("a", 7, generation=2)]) == {"a": 7}


def test_devices_of_an_older_api_and_empty_slices_are_read() -> None:
    old = {"name": "gpu-0", "basic": {"attributes": {"type": {"string": "gpu"}}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": {"name": "a", "generation": 1}}
    assert count_gpus([node("a")], [{"spec": {**spec, "devices": [old]}}, {"spec": spec}]) == {"a": 1}


def test_a_site_says_how_many_each_host_has() -> None:
    values = variables.of_roles(site.load(ROOT / "inventories" / "tr4858"))
    assert values["verify_gpus_of_hosts"] == {"dgx1-1": 8, "dgx1-2": 8}
