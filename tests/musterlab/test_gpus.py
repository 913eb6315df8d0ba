"""GPUs of real nodes, as far as no node is needed: sources, corrections, profiles, the chart, `muster lab gpu`."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab import build, profiles, sources
from musterlab.errors import BinariesError, StartError
from musterlab.gpus import chart, mock, models
from musterlab.gpus.models import Gpus
from musterlab.gpus.recipe import GPU_PROGRAMS, SourcePart
from orchestrator.errors import UsageError
from tests.musterlab.conftest import World

MusterLab = Callable[..., subprocess.CompletedProcess[str]]
NOWHERE = Path("/nowhere")


@pytest.mark.parametrize("written", ["v100", "v100x0", "v100x9", "k80x8", "v100x8x", ""])
def test_gpus_that_the_mock_does_not_have_are_refused(written: str) -> None:
    with pytest.raises(UsageError, match="1 to 8, such as v100x8"):
        models.parse(written, "dra", "memory")


@pytest.mark.parametrize("shares", ["half", "0", "-1", ""])
def test_shares_that_the_dra_driver_does_not_know_are_refused(shares: str) -> None:
    with pytest.raises(UsageError, match="give memory, unlimited, disabled, or a number above 0"):
        models.parse("v100x8", "dra", shares)


def test_no_two_nodes_of_a_lab_have_a_uuid_in_common() -> None:
    gpus = models.parse("v100x8", "dra", "memory")
    uuids = [device["uuid"] for node in range(1, 9) for device in gpus.mock_profile(node, NOWHERE)["devices"]]
    assert len(set(uuids)) == 64
    assert uuids[0] == "GPU-00000100-0000-0000-0000-000000000000"


def peers(profile: dict[str, Any]) -> dict[int, list[int]]:
    return {
        each["index"]: sorted(link["remote_index"] for link in each["links"])
        for each in profile["nvlink"]["device_links"]
    }


def test_the_links_of_a_dgx_1_join_each_gpu_to_four_others() -> None:
    profile = Gpus("v100", 8, "device-plugin").mock_profile(1, NOWHERE)
    linked = peers(profile)
    assert {len(ends) for ends in linked.values()} == {profile["nvlink"]["links_per_gpu"]} == {6}
    assert all(linked[far].count(near) == linked[near].count(far) for near in linked for far in linked[near])
    assert {len(set(ends)) for ends in linked.values()} == {4}


def test_a_part_of_a_dgx_1_has_only_the_links_between_its_gpus() -> None:
    profile = Gpus("v100", 2, "device-plugin").mock_profile(1, NOWHERE)
    assert profile["system"]["num_devices"] == len(profile["devices"]) == 2
    assert peers(profile) == {0: [1], 1: [0]}


def test_the_model_of_the_mock_becomes_labels_and_no_gpu_is_written_on_the_node() -> None:
    gpus = Gpus("v100", 4, "dra")
    profile = gpus.equip(profiles.load(gpus.node_profile), NOWHERE)
    assert "nvidia.com/gpu" not in profile.capacity
    assert profile.capacity["cpu"] == "80"
    assert profile.labels["nvidia.com/gpu.product"] == "Tesla-V100-SXM2-32GB"
    assert profile.labels["nvidia.com/gpu.count"] == "4"
    assert profile.labels["nvidia.com/gpu.memory"] == "32768"
    assert profile.labels["nvidia.com/cuda.driver.major"] == "550"


def sources_with(directory: Path, corrections: tuple[mock.Correction, ...]) -> Path:
    for correction in corrections:
        path = directory / "pkg" / "gpu" / "mocknvml" / correction.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("package it\n" + correction.before * correction.times)
    return directory


def test_corrections_are_made_in_copies_that_take_the_place_of_the_sources(tmp_path: Path) -> None:
    tree = sources_with(tmp_path / "tree", mock.CORRECTIONS)
    (tmp_path / "corrected").mkdir()
    replaced = json.loads(mock.write_overlay(tree, tmp_path / "corrected").read_text())["Replace"]
    assert len(replaced) == len(mock.CORRECTIONS)
    for correction, (original, copied) in zip(mock.CORRECTIONS, replaced.items(), strict=True):
        assert original.endswith(correction.file)
        assert Path(original).read_text().count(correction.before) == correction.times
        assert Path(copied).read_text().count(correction.after) == correction.times


def test_a_correction_that_no_longer_fits_ends_the_build(tmp_path: Path) -> None:
    tree = sources_with(tmp_path, tuple(replace(each, before="other\n") for each in mock.CORRECTIONS))
    with pytest.raises(BinariesError, match=r"engine\.go is not as expected"):
        mock.write_overlay(tree, tmp_path)


def test_the_cache_key_changes_with_commits_corrections_and_files() -> None:
    parts = [part for part in GPU_PROGRAMS.parts if isinstance(part, SourcePart)]
    assert len({part.source for part in parts}) == 3
    keys = {build.cache_key(GPU_PROGRAMS)}
    for part in parts:
        for other in (
            replace(part, source=replace(part.source, commit="0" * 40)),
            replace(part, files={"more": ("LICENSE",)}),
        ):
            exchanged = tuple(other if each is part else each for each in GPU_PROGRAMS.parts)
            keys.add(build.cache_key(replace(GPU_PROGRAMS, parts=exchanged)))
    assert len(keys) == 7
    assert all(key.startswith("gpus-") for key in keys)


@pytest.fixture
def a_source(tmp_path: Path) -> sources.Source:
    return sources.Source("mock", str(tmp_path / "no-repository"), "0123456789" * 4)


def test_an_archive_is_unpacked_where_there_is_one(
    a_source: sources.Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.go").write_text("package main\n")
    command = ["tar", "--zstd", "-cf", str(tmp_path / "mock-0123456.tar.zst"), "-C", str(tmp_path), "main.go"]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("tar has no zstd here")
    monkeypatch.setenv("MUSTER_UPSTREAM", str(tmp_path))
    (tmp_path / "tree").mkdir()
    a_source.unpack(tmp_path / "tree")
    assert (tmp_path / "tree" / "main.go").read_text() == "package main\n"


def test_a_commit_is_fetched_where_there_is_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_UPSTREAM", raising=False)
    repository = tmp_path / "repository"
    inside = ("git", "-C", str(repository), "-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "main.go").write_text("package main\n")
    subprocess.run([*inside, "add", "main.go"], check=True)
    subprocess.run([*inside, "commit", "--quiet", "-m", "It"], check=True)
    head = subprocess.run([*inside, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    (tmp_path / "tree").mkdir()
    sources.Source("mock", str(repository), head.strip()).unpack(tmp_path / "tree")
    assert (tmp_path / "tree" / "main.go").read_text() == "package main\n"


def test_a_folder_without_the_archive_is_told_so(
    a_source: sources.Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_UPSTREAM", str(tmp_path))
    with pytest.raises(
        BinariesError, match=rf"MUSTER_UPSTREAM is {tmp_path}, where mock-0123456\.tar\.zst is not"
    ):
        a_source.unpack(tmp_path)


def test_without_archives_and_network_both_ways_are_named_in_one_line(
    a_source: sources.Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_UPSTREAM", raising=False)
    (tmp_path / "tree").mkdir()
    with pytest.raises(BinariesError) as caught:
        a_source.unpack(tmp_path / "tree")
    (line,) = str(caught.value).splitlines()
    assert "no-repository at 0123456 cannot be fetched (" in line
    assert line.endswith("set MUSTER_UPSTREAM to a folder that has mock-0123456.tar.zst")


def test_the_objects_of_a_chart_are_read_from_its_templates(tmp_path: Path) -> None:
    (tmp_path / "account.yaml").write_text(
        "{{- if .Values.serviceAccount.create -}}\n"
        "kind: ServiceAccount\n"
        "metadata:\n"
        '  name: {{ include "dra-driver-nvidia-gpu.serviceAccountName" $ }}-kubeletplugin\n'
        "  namespace: {{ $namespace }}\n"
        "  labels:\n"
        '    {{- include "dra-driver-nvidia-gpu.labels" $ | nindent 4 }}\n'
        "---\n"
        "kind: ClusterRole\n"
        'metadata: {name: {{ include "dra-driver-nvidia-gpu.name" . }}-openshift}\n'
        "{{- end }}\n"
    )
    name, namespace = "dra-driver-nvidia-gpu-service-account-kubeletplugin", "dra-driver-nvidia-gpu"
    assert list(chart.objects(tmp_path)) == [
        {"kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    ]


def test_a_template_that_asks_for_more_is_refused(tmp_path: Path) -> None:
    (tmp_path / "class.yaml").write_text("metadata: {name: {{ .Values.name | quote }}}\n")
    with pytest.raises(StartError, match=r"class\.yaml asks for something"):
        list(chart.objects(tmp_path))


def test_gpus_need_real_nodes(tmp_path: Path, muster_lab: MusterLab) -> None:
    result = muster_lab("up", "--gpus", "v100x8", "--state-dir", str(tmp_path))
    assert result.returncode == 2
    assert "GPUs are for real nodes" in result.stderr
    assert list(tmp_path.iterdir()) == []


class LabOnDisk:
    """The state directory of a lab with GPUs on two nodes, in which nothing runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.folder = world.state / "muster" / "labs" / "default"
        self.calls = world.root / "calls"
        control = world.tools / "nvml-mock-ctl"
        control.write_text(
            f'#!/bin/sh\necho "$MOCK_NVML_OVERRIDES $@" >>{self.calls}\n'
            '[ "$3" != 7 ] || { echo no such GPU >&2; exit 1; }\n'
        )
        control.chmod(0o755)
        specification = {
            "programs": {"nvml-mock-ctl": str(control)},
            "gpus": {"plugin": {"command": ["/lab/bin/no-plugin"]}},
            "cgroups": [],
        }
        for number in (1, 2):
            node = self.folder / "realnodes" / f"dgx1-real-{number}"
            (node / "gpus").mkdir(parents=True)
            profile = Gpus("v100", 2, "dra").mock_profile(number, NOWHERE)
            (node / "gpus" / "config.yaml").write_text(json.dumps(profile))
            (node / "specification.json").write_text(json.dumps(specification))
        record = {
            "name": "default", "nodes": [], "port": 1, "programs": "", "kubectl_directory": "", "starter_pid": 1,
            "starter_start_ticks": 1, "real_nodes": 2,
        }  # fmt: skip
        (self.folder / "lab.json").write_text(json.dumps(record))

    def gpu(self, *arguments: str, node: str = "dgx1-real-2") -> subprocess.CompletedProcess[str]:
        return self._world.lab("gpu", *arguments, "--node", node)

    def called(self) -> list[str]:
        return [line.partition(" ")[2] for line in self.calls.read_text().splitlines()]


@pytest.fixture
def lab_on_disk(world: World) -> LabOnDisk:
    return LabOnDisk(world)


def test_each_command_becomes_one_of_the_mocks_own(lab_on_disk: LabOnDisk) -> None:
    for arguments in (
        ("xid", "1", "48"),
        ("lose", "0"),
        ("ecc", "0", "3"),
        ("set", "0", "a.b=1"),
        ("restore", "all"),
    ):
        done = lab_on_disk.gpu(*arguments)
        assert done.returncode == 0, done.stderr
    assert lab_on_disk.called() == [
        "fail --gpu 1 --mode ecc_uncorrectable --xid 48",
        "fail --gpu 0 --mode fallen_off_bus --xid 79",
        "set --gpu 0 ecc.errors.volatile.double_bit.total=3 ecc.errors.aggregate.double_bit.total=3",
        "set --gpu 0 a.b=1",
        "reset --gpu all",
    ]
    assert (
        str(lab_on_disk.folder / "realnodes" / "dgx1-real-2" / "gpus" / "overrides.yaml")
        in lab_on_disk.calls.read_text()
    )


def test_memory_is_what_the_processes_hold(lab_on_disk: LabOnDisk) -> None:
    done = lab_on_disk.gpu(
        "use", "1", "--utilization", "90", "--process", "42:python:1024", "--process", "7:a:b:8"
    )
    assert done.returncode == 0, done.stderr
    busy, held = lab_on_disk.called()
    assert busy == "util --gpu 1 90"
    assert f"memory.used_bytes={1032 << 20} memory.free_bytes={(32768 - 270 - 1032) << 20}" in held
    assert '"pid": 42' in held
    assert '"name": "a:b"' in held


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("use", "0", "--process", "python"), "give PID:NAME:MIB"),
        (("use", "0", "--process", "1:python:999999"), "more than the GPU has"),
        (("restart-plugin",), "/lab/bin/no-plugin does not run on dgx1-real-2"),
        (("lose", "7"), "GPU 7 of dgx1-real-2 cannot be changed: no such GPU"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: tuple[str, ...], says: str, lab_on_disk: LabOnDisk
) -> None:
    done = lab_on_disk.gpu(*arguments)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert says in line


def test_the_status_tells_each_gpu_and_what_was_changed(lab_on_disk: LabOnDisk) -> None:
    overrides = {"version": 1, "devices": {"1": {"utilization": {"gpu": 93}}, "all": {"processes": []}}}
    (lab_on_disk.folder / "realnodes" / "dgx1-real-2" / "gpus" / "overrides.yaml").write_text(
        yaml.safe_dump(overrides)
    )
    first, second = json.loads(lab_on_disk.gpu("status", "--json").stdout)
    assert first == {
        "index": 0,
        "uuid": "GPU-00000100-0000-0000-0001-000000000000",
        "changes": {"processes": []},
    }
    assert second["changes"] == {"processes": [], "utilization": {"gpu": 93}}
    assert "{'gpu': 93}" not in lab_on_disk.gpu("status").stdout


def test_with_several_nodes_one_has_to_be_named(lab_on_disk: LabOnDisk, world: World) -> None:
    done = world.lab("gpu", "status")
    assert done.returncode == 2
    assert "give --node, one of dgx1-real-1, dgx1-real-2" in done.stderr
    assert "no node 'dgx1-real-3'" in lab_on_disk.gpu("status", node="dgx1-real-3").stderr
