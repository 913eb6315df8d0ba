from pathlib import Path

import pytest

from musterlab import nodes, profiles
from musterlab.errors import ProfileError
from musterlab.nodes import NodeGroup
from tests.musterlab.conftest import World

MINIMAL = "prefix: n\ncapacity:\n  cpu: 8\n  memory: 16Gi\n  pods: 110\n"


def load(tmp_path: Path, text: str) -> profiles.Profile:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    return profiles.load(str(path))


@pytest.mark.parametrize("name", profiles.builtin_names())
def test_a_profile_of_ours_labels_its_hardware(name: str) -> None:
    profile = profiles.load(name)
    assert profile.capacity["nvidia.com/gpu"] == profile.labels["nvidia.com/gpu.count"] == "8"
    for label in ("product", "memory", "family", "machine", "compute.major", "compute.minor"):
        assert profile.labels[f"nvidia.com/gpu.{label}"]


def test_the_default_is_the_dgx1_of_tr4858() -> None:
    profile = profiles.load(profiles.DEFAULT_PROFILE)
    assert profile.labels["nvidia.com/gpu.product"] == "Tesla-V100-SXM2-32GB"
    assert profile.labels["nvidia.com/gpu.memory"] == "32510"
    assert profile.capacity["cpu"] == "80"
    assert profile.capacity["memory"] == "512Gi"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (MINIMAL + "gpus: 8\n", 6, "unknown key 'gpus'"),
        (MINIMAL + "node_info:\n  osimage: x\n", 7, "unknown key 'osimage'"),
        (MINIMAL.replace("8", "eight"), 3, "cpu: 'eight' is not a quantity"),
        (MINIMAL.replace("  pods: 110\n", ""), 3, "capacity lacks 'pods'"),
        (MINIMAL + "  cpu: 9\n", 6, "key 'cpu' is there twice"),
        (MINIMAL.replace("prefix: n\n", ""), 1, "key 'prefix' is missing"),
        (MINIMAL.replace("prefix: n", "prefix: N_1"), 1, "prefix 'N_1'"),
        (MINIMAL + "labels:\n  a: b c\n", 7, "a: 'b c' is not a label value"),
        (MINIMAL + "labels: [a]\n", 6, "labels must be a mapping"),
        ("prefix: {\n", 2, "not YAML"),
        ("", 1, "the profile is empty"),
    ],
)
def test_an_error_is_named_with_file_and_line(text: str, line: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'own.yaml'}:{line}: {message}")


def test_an_unknown_profile_is_refused_with_the_known_ones(world: World) -> None:
    result = world.lab("up", "--profile", "dgx-9")
    assert result.returncode == 2
    assert "no profile 'dgx-9'" in result.stderr
    assert "dgx1-v100-32g" in result.stderr
    assert world.labs() == []


def test_nodes_of_one_prefix_are_counted_over_all_groups(tmp_path: Path) -> None:
    dgx1, own = profiles.load("dgx1-v100-32g"), load(tmp_path, MINIMAL)
    groups = [NodeGroup(dgx1, 2), NodeGroup(own, 1), NodeGroup(dgx1, 1)]
    assert [name for name, _ in nodes.names(groups)] == ["dgx1-1", "dgx1-2", "n-1", "dgx1-3"]


def test_a_node_without_gpus_has_no_gpu_labels(tmp_path: Path) -> None:
    node = nodes.node("n-1", load(tmp_path, MINIMAL))
    assert not [label for label in node["metadata"]["labels"] if label.startswith("nvidia.com/")]
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n-1"
