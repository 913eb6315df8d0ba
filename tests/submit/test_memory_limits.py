"""Memory limits of pods with a GPU fraction: the mounts, and the annotation with exact bytes of each GPU."""

from typing import Any

import pytest

from orchestrator import names
from orchestrator.cluster.objects import Metadata, Pod
from orchestrator.observe.request import gpu_request
from orchestrator.submit import protection
from orchestrator.submit.manifest import Placement, workload_manifest
from orchestrator.submit.memory_limits import Device, is_limited, limits_of, limits_text
from orchestrator.submit.protection import PolicyMode
from orchestrator.submit.submission import Submission
from tests.observe.objects import decoded, pod
from tests.submit.test_protection import ENFORCE, LEVEL, SETS, spec

MIB = 1 << 20
V100 = 32_510 * MIB
FRACTION, MEMORY = "muster.dev/gpu-fraction", "muster.dev/gpu-memory"
LIMITS = "muster.dev/gpu-memory-limits"


def text(requested: dict[str, str], *devices: Device) -> str:
    asker = pod("job", annotations=requested)
    return limits_text(asker, gpu_request(asker), devices)


@pytest.mark.parametrize(
    ("requested", "devices", "expected"),
    [
        ({FRACTION: "0.5"}, [Device("GPU-a", V100)], f"GPU-a {16_255 * MIB}\n"),
        ({FRACTION: "0.125"}, [Device("GPU-a", V100)], f"GPU-a {V100 // 8}\n"),
        ({FRACTION: "0.333"}, [Device("GPU-a", 1001)], "GPU-a 333\n"),
        ({MEMORY: "8Gi"}, [Device("GPU-a", V100)], f"GPU-a {8 << 30}\n"),
        ({MEMORY: "8G"}, [Device("GPU-a", V100)], "GPU-a 8000000000\n"),
        ({MEMORY: "8Gi"}, [Device("GPU-a", 4 << 30)], f"GPU-a {4 << 30}\n"),
        ({MEMORY: "8Gi"}, [Device()], f"* {8 << 30}\n"),
        ({FRACTION: "0.5"}, [Device(memory_bytes=V100)], f"* {V100 // 2}\n"),
        ({FRACTION: "0.5"}, [Device(memory_bytes=V100), Device(memory_bytes=100)], "* 50\n"),
        (
            {FRACTION: "0.5"},
            [Device("GPU-a", V100), Device("GPU-b", 100)],
            f"GPU-a {V100 // 2}\nGPU-b 50\n",
        ),
        ({FRACTION: "0.5"}, [Device("GPU-a", V100), Device("GPU-b")], ""),
        ({FRACTION: "0.5"}, [Device("GPU-a")], ""),
        ({FRACTION: "0.5"}, [], ""),
    ],
)
def test_the_limit_is_the_fraction_of_the_device_to_the_byte(
    requested: dict[str, str], devices: list[Device], expected: str
) -> None:
    assert text(requested, *devices) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("GPU-a 5\nGPU-b 6\n", {"GPU-a": 5, "GPU-b": 6}),
        ("* 7\n", {"*": 7}),
        ("", {}),
        ("GPU-a", {}),
        ("GPU-a many\n", {}),
        ("GPU-a 5\nGPU-b -1\n", {}),
    ],
)
def test_written_limits_are_read_again_and_others_are_nothing(written: str, expected: dict[str, int]) -> None:
    assert limits_of(Pod(metadata=Metadata(annotations={LIMITS: written}))) == expected


def made(*, limits: bool = True, **values: Any) -> dict[str, Any]:
    submission = Submission(name="job", image="image", user="ann", **values)
    placement = Placement("team-a", "muster-team-a", "2026-01-01T00:00:00.000001Z", limits_gpu_memory=limits)
    found: dict[str, Any] = workload_manifest(submission, placement)["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(
    "requested", [{"gpu_milli": 500}, {"gpu_memory_bytes": 8 << 30}, {"gpu_milli": 250, "interactive": True}]
)
def test_a_part_of_a_gpu_comes_with_the_mounts_of_the_contract(requested: dict[str, Any]) -> None:
    found = made(**requested)
    (container,) = found["containers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert set(mounts) == {
        "/usr/lib/muster", "/etc/ld.so.preload", "/etc/muster/gpu-memory", "/run/muster/gpu-memory"
    }  # fmt: skip
    assert mounts["/etc/ld.so.preload"]["subPath"] == "ld.so.preload"
    assert [path for path, mount in mounts.items() if not mount.get("readOnly")] == ["/run/muster/gpu-memory"]
    volumes = {volume["name"]: volume for volume in found["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == set(volumes)
    (library,) = [volume["hostPath"] for volume in found["volumes"] if "hostPath" in volume]
    assert library == {"path": "/var/lib/muster/gpu-memory", "type": "Directory"}
    (item,) = [item for volume in found["volumes"] for item in volume.get("downwardAPI", {}).get("items", ())]
    assert item == {"path": "limits", "fieldRef": {"fieldPath": f"metadata.annotations['{LIMITS}']"}}
    assert is_limited(decoded(Pod, spec=found))


@pytest.mark.parametrize(
    "requested", [{"gpu_milli": 500, "limits": False}, {"gpu_milli": 1000}, {"gpu_milli": 0}]
)
def test_other_pods_mount_nothing_of_it(requested: dict[str, Any]) -> None:
    found = made(**requested)
    assert "volumes" not in found
    assert not is_limited(decoded(Pod, spec=found))


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_where_limits_hold_projects_may_mount_the_library_and_the_policies_alone_hold_the_rest(
    level: str,
) -> None:
    project = spec(pod_security=level)
    assert protection.labels(project, PolicyMode.DENY, limits_gpu_memory=True) == {
        LEVEL: level, ENFORCE: "privileged"
    }  # fmt: skip
    written = protection.annotations(project, limits_gpu_memory=True)
    assert written == {"muster.dev/read-only-directories": names.GPU_MEMORY_DIRECTORY}
    assert protection.limits_gpu_memory(Metadata(annotations=written))
    assert not protection.limits_gpu_memory(Metadata(annotations=protection.annotations(project)))


def test_the_library_stands_beside_the_projects_own_directories() -> None:
    written = protection.annotations(spec(directories=[SETS]), limits_gpu_memory=True)
    assert written["muster.dev/read-only-directories"] == f"/raid/sets,{names.GPU_MEMORY_DIRECTORY}"
