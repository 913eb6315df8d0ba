"""What the role `dra` sets exists in NVIDIA's chart and driver (kubernetes-sigs/dra-driver-nvidia-gpu at 9593204)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab.sources import DRA_DRIVER
from tests.upstream.trees import read_file

CHART = "deployments/helm/dra-driver-nvidia-gpu"
INSTALL = Path(__file__).parents[2] / "roles" / "dra" / "tasks" / "install.yml"


def values_of_the_role() -> dict[str, Any]:
    """All values that the role may give to the chart, gates of both kinds together."""
    (task,) = (task for task in yaml.safe_load(INSTALL.read_text()) if task["name"] == "Install the driver")
    always, sharing = task["vars"]["dra_all_values"], task["vars"]["dra_sharing_values"]
    return {**always, **sharing, "featureGates": {**always["featureGates"], **sharing["featureGates"]}}


def paths(values: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from paths(value, (*before, name))
        else:
            yield (*before, name)


@pytest.mark.parametrize("path", [*paths(values_of_the_role())], ids=".".join)
def test_a_value_of_the_role_is_one_of_the_chart(path: tuple[str, ...]) -> None:
    if path[0] == "featureGates":
        source = read_file(DRA_DRIVER.archive, "pkg/featuregates/featuregates.go")
        assert re.search(rf'featuregate\.Feature = "{path[1]}"', source)
        return
    values = yaml.safe_load(read_file(DRA_DRIVER.archive, f"{CHART}/values.yaml"))
    for name in path:
        assert name in values
        values = values[name]


def test_the_class_of_gpus_gives_whole_ones_by_their_resource() -> None:
    template = read_file(DRA_DRIVER.archive, f"{CHART}/templates/deviceclass-gpu.yaml")
    assert "name: gpu.nvidia.com" in template
    assert "extendedResourceName: nvidia.com/gpu" in template


def test_what_can_be_shared_out_is_what_the_driver_reads() -> None:
    template = read_file(DRA_DRIVER.archive, f"{CHART}/templates/kubeletplugin.yaml")
    assert re.search(r'name: CONSUMABLE_SHARES\s+value: "\{\{ \.Values\.consumableShares \}\}"', template)
    main = read_file(DRA_DRIVER.archive, "cmd/gpu-kubelet-plugin/main.go")
    assert "'disabled', 'memory', 'unlimited', or a positive integer" in main
    source = read_file(DRA_DRIVER.archive, "pkg/featuregates/featuregates.go")
    (since,) = re.findall(r"\tConsumableShares: \{.*?MajorMinor\((\d+, \d+)\)", source, re.DOTALL)
    assert since == "0, 5", "the role shares memory out from this release on"
