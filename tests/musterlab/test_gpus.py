"""GPUs of real nodes, without a node: models, programs, objects of the DRA driver, `muster lab gpu`."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from musterlab import build, profiles, programs
from musterlab.errors import BinariesError
from musterlab.gpus import built, models, shown, stack
from musterlab.gpus.built import CLibrary
from musterlab.gpus.models import Gpus
from orchestrator.errors import UsageError
from orchestrator.progress import Reporter
from tests.musterlab.conftest import World, write_programs

MusterLab = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _no_folder_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(programs.FOLDER_VARIABLE, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file that has the name of NVIDIA's DRA driver."""
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / programs.DRA_DRIVER.file).touch()
    return tmp_path / "programs"


@pytest.mark.parametrize("written", ["v100", "v100x0", "v100x9", "k80x8", "v100x8x", ""])
def test_gpus_of_an_unknown_model_or_count_are_refused(written: str) -> None:
    with pytest.raises(UsageError, match="1 to 8, such as v100x8"):
        models.parse(written, "dra", "memory")


@pytest.mark.parametrize("shares", ["half", "0", "-1", ""])
def test_shares_that_the_dra_driver_does_not_know_are_refused(shares: str) -> None:
    with pytest.raises(UsageError, match="give memory, unlimited, disabled, or a number above 0"):
        models.parse("v100x8", "dra", shares)


@pytest.mark.parametrize("model", ["v100", "a100", "h100"])
def test_no_two_nodes_of_a_lab_have_a_uuid_in_common(model: str) -> None:
    gpus = models.parse(f"{model}x8", "dra")
    uuids = [fields["uuid"] for node in range(1, 9) for fields in gpus.of_node(node)]
    assert len(set(uuids)) == 64
    assert all(len(uuid) == len("GPU-00000100-0000-0000-0000-000000000000") for uuid in uuids)


def test_the_links_of_a_dgx_1_join_each_gpu_to_four_others() -> None:
    links = [fields["links"] for fields in Gpus("v100", 8, "device-plugin").of_node(1)]
    assert {len(ends) for ends in links} == {6}
    assert {len(set(ends)) for ends in links} == {4}
    assert all(links[far].count(near) == links[near].count(far) for near in range(8) for far in links[near])


def test_two_gpus_of_a_dgx_1_have_only_the_links_between_them() -> None:
    assert [fields["links"] for fields in Gpus("v100", 2, "device-plugin").of_node(1)] == [[1], [0]]


def test_the_model_becomes_labels_and_no_gpu_is_written_on_the_node() -> None:
    gpus = Gpus("v100", 4, "dra")
    profile = gpus.equip(profiles.load(gpus.node_profile))
    assert "nvidia.com/gpu" not in profile.capacity
    assert profile.capacity["cpu"] == "80"
    assert profile.labels["nvidia.com/gpu.product"] == "Tesla-V100-SXM2-32GB"
    assert profile.labels["nvidia.com/gpu.count"] == "4"
    assert profile.labels["nvidia.com/gpu.memory"] == "32768"
    assert profile.labels["nvidia.com/cuda.driver.major"] == "550"


@pytest.mark.parametrize("model", ["v100", "a100", "h100"])
def test_a_node_has_the_model_that_its_profile_names(model: str) -> None:
    gpus = Gpus(model, 8, "device-plugin")
    profile = profiles.load(gpus.node_profile)
    product = "nvidia.com/gpu.product"
    assert gpus.equip(profile).labels[product] == profile.labels[product]


def test_a_nodes_pci_tree_leads_to_the_root_and_the_numa_node_of_each_gpu(tmp_path: Path) -> None:
    (tmp_path / "etc" / "containerd").mkdir(parents=True)
    paths = {built.LIBRARY: Path("/lab/libnvidia-ml.so")}
    stack.prepare(tmp_path, "node", 1, Gpus("v100", 8, "device-plugin"), paths)
    devices = tmp_path / "pci/sys/bus/pci/devices"
    device = (devices / "0000:8a:00.0").resolve()
    assert device.parent.name == "pci0000:80"
    assert (device / "numa_node").read_text() == "1\n"
    assert (device / "device").read_text() == "0x1db5\n"
    assert len(list(devices.iterdir())) == 8


def test_without_nvidias_dra_driver_the_example_driver_stands_for_it_and_is_named() -> None:
    gpus = Gpus("v100", 8, "dra")
    assert str(gpus) == "v100x8 by dra, shares: disabled"
    expected = "dra-example-kubeletplugin v0.3.0 stands for NVIDIA's gpu-kubelet-plugin"
    assert built.roles(gpus)["DRA driver"] == expected


def test_nvidias_dra_driver_is_taken_from_the_folder_that_the_user_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = models.parse("v100x8", "dra", program_folder=folder)
    assert built.roles(named)["DRA driver"] == "NVIDIA's gpu-kubelet-plugin, sha256 e3b0c44298fc"
    assert str(named) == "v100x8 by dra, shares: memory"
    monkeypatch.setenv(programs.FOLDER_VARIABLE, str(folder))
    assert Gpus("v100", 8, "dra").has_nvidias_dra_driver
    assert not Gpus("v100", 8, "device-plugin").has_nvidias_dra_driver


@pytest.mark.parametrize("shares", ["memory", "4"])
def test_claims_that_share_a_gpu_are_refused_without_nvidias_dra_driver(shares: str) -> None:
    with pytest.raises(BinariesError, match=r"put into it: gpu-kubelet-plugin \(image registry") as caught:
        models.parse("v100x8", "dra", shares).check_programs()
    assert len(str(caught.value).splitlines()) == 1


def test_the_example_driver_gets_no_flag_of_nvidias_driver(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "etc" / "containerd").mkdir(parents=True)
    paths = {built.LIBRARY: Path("/lab/libnvidia-ml.so")}
    plugins = {}
    for name, gpus in (
        ("example", Gpus("v100", 4, "dra")),
        ("nvidia", Gpus("v100", 4, "dra", "4", None, folder)),
    ):
        (tmp_path / name / "etc" / "containerd").mkdir(parents=True)
        plugins[name] = stack.prepare(tmp_path / name, "node", 1, gpus, paths)["plugin"]["command"]
    assert plugins["example"][0].endswith("/dra-example-kubeletplugin")
    assert {"--num-devices=4", "--driver-name=gpu.nvidia.com"} < set(plugins["example"])
    assert plugins["nvidia"][0].endswith("/gpu-kubelet-plugin")
    assert "--consumable-shares=4" in plugins["nvidia"]


def test_the_cache_key_changes_with_the_sources_of_the_double(tmp_path: Path) -> None:
    (part,) = (part for part in built.GPU_PROGRAMS.parts if isinstance(part, CLibrary))
    for path in part.folder.glob("*.[ch]"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    copied = replace(
        built.GPU_PROGRAMS, parts=(replace(part, folder=tmp_path), *built.GPU_PROGRAMS.parts[1:])
    )
    assert build.cache_key(copied) == build.cache_key(built.GPU_PROGRAMS)
    with (tmp_path / "state.c").open("a") as file:
        file.write("/* changed */\n")
    assert build.cache_key(copied) != build.cache_key(built.GPU_PROGRAMS)


@pytest.mark.lab
def test_c_that_does_not_compile_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "it.c").write_text("int f(void) { return unknown; }\n")
    with pytest.raises(BinariesError, match=r"it\.so cannot be compiled: .*unknown") as caught:
        built.compile_library([tmp_path / "it.c"], tmp_path / "it.so")
    assert len(str(caught.value).splitlines()) == 1


def test_a_machine_without_a_c_compiler_is_told_which_package_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BinariesError, match=r"there is no C compiler, .*Debian: gcc and libc6-dev"):
        built.compile_library([], tmp_path / "it.so")


def test_gpus_need_real_nodes(tmp_path: Path, muster_lab: MusterLab) -> None:
    result = muster_lab("up", "--gpus", "v100x8", "--state-dir", str(tmp_path))
    assert result.returncode == 2
    assert "GPUs are for real nodes" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_programs_needs_gpus(tmp_path: Path, muster_lab: MusterLab) -> None:
    result = muster_lab("up", "--gpu-programs", str(tmp_path), "--state-dir", str(tmp_path))
    assert result.returncode == 2
    assert "--gpu-programs is for labs with GPUs: give --gpus" in result.stderr


def test_a_dra_driver_that_cannot_be_run_is_refused_before_the_lab_starts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built_before = tmp_path / "muster" / "lab" / build.cache_key(built.GPU_PROGRAMS)
    write_programs(built_before, built.GPU_PROGRAMS.programs)
    named = models.parse("v100x8", "dra", program_folder=folder)
    with pytest.raises(BinariesError, match=r"gpu-kubelet-plugin is not executable; run: chmod \+x"):
        built.choose(named, Reporter(lambda _line: None))
    (folder / programs.DRA_DRIVER.file).chmod(0o755)
    assert programs.DRA_DRIVER.file in built.choose(named, Reporter(lambda _line: None))


class LabOnDisk:
    """The state directory of a lab with GPUs on two nodes. No process of it runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        folder = world.state / "muster" / "labs" / "default"
        specification = {"gpus": {"plugin": {"command": ["/lab/bin/no-plugin"]}}, "cgroups": []}
        for number in (1, 2):
            node = folder / "realnodes" / f"dgx1-real-{number}"
            node.mkdir(parents=True)
            shown.create(node / "gpus", Gpus("v100", 2, "dra"), number)
            (node / "specification.json").write_text(json.dumps(specification))
        self.gpus = folder / "realnodes" / "dgx1-real-2" / "gpus"
        record = {
            "name": "default", "nodes": [], "port": 1, "programs": "", "kubectl_directory": "", "starter_pid": 1,
            "starter_start_ticks": 1, "real_nodes": 2,
        }  # fmt: skip
        (folder / "lab.json").write_text(json.dumps(record))

    def gpu(self, *arguments: str, node: str = "dgx1-real-2") -> subprocess.CompletedProcess[str]:
        return self._world.lab("gpu", *arguments, "--node", node)

    def change(self, *arguments: str) -> None:
        done = self.gpu(*arguments)
        assert done.returncode == 0, done.stderr

    def shows(self, index: int) -> dict[str, list[str]]:
        """Return the fields of a GPU in the file that the double of NVML reads."""
        _, *parts = (self.gpus / shown.FILE).read_text().split("gpu ")
        fields: dict[str, list[str]] = {}
        for line in parts[index].splitlines()[1:]:
            key, _, value = line.partition(" ")
            fields.setdefault(key, []).append(value)
        return fields


@pytest.fixture
def lab_on_disk(world: World) -> LabOnDisk:
    return LabOnDisk(world)


def test_each_command_changes_the_values_that_the_double_reads(lab_on_disk: LabOnDisk) -> None:
    lab_on_disk.change("xid", "1", "48")
    lab_on_disk.change("lose", "0")
    lab_on_disk.change("ecc", "0", "3")
    lab_on_disk.change("set", "all", "temperature=85", "power=300000")
    first, second = lab_on_disk.shows(0), lab_on_disk.shows(1)
    assert (first["lost"], first["xid"], first["ecc_uncorrected"]) == (["1"], ["79"], ["3"])
    assert (second["xid"], second["xid_number"]) == (["48"], ["1"])
    assert first["temperature"] == second["temperature"] == ["85"]
    lab_on_disk.change("restore", "all")
    assert "lost" not in lab_on_disk.shows(0)
    assert lab_on_disk.shows(1)["temperature"] == ["34"]
    lab_on_disk.change("xid", "GPU-00000100-0000-0000-0001-000000000001", "48")
    assert lab_on_disk.shows(1)["xid_number"] == ["3"], "an error after restore is a new one"


def test_memory_is_that_of_the_processes(lab_on_disk: LabOnDisk) -> None:
    lab_on_disk.change(
        "use", "1", "--utilization", "90", "--process", "42:python:1024", "--process", "7:a:b:8"
    )
    fields = lab_on_disk.shows(1)
    assert fields["process"] == ["42 1024 python", "7 8 a:b"]
    assert fields["memory_used"] == [str(1032 << 20)]
    assert fields["utilization"] == ["90"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("use", "0", "--process", "python"), "give PID:NAME:MIB"),
        (("use", "0", "--process", "1:two\nlines:5"), "give PID:NAME:MIB"),
        (("use", "0", "--process", "²:python:5"), "give PID:NAME:MIB"),
        (("use", "0", "--process", "1:python:999999"), "more than the GPU has"),
        (("set", "0", "uuid=5"), "GPUs have no 'uuid' to change, but memory_total, "),
        (("set", "0", "temperature=hot"), "give FIELD=NUMBER, such as temperature=85"),
        (("restart-plugin",), "/lab/bin/no-plugin does not run on dgx1-real-2"),
        (("lose", "7"), "dgx1-real-2 has no GPU '7': give 0 to 1, a UUID, or all"),
    ],
)
def test_an_impossible_change_is_refused_in_one_line(
    arguments: tuple[str, ...], says: str, lab_on_disk: LabOnDisk
) -> None:
    before = (lab_on_disk.gpus / shown.FILE).read_text()
    done = lab_on_disk.gpu(*arguments)
    assert done.returncode != 0
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (lab_on_disk.gpus / shown.FILE).read_text() == before


def test_the_status_tells_each_gpu_and_its_changes(lab_on_disk: LabOnDisk) -> None:
    lab_on_disk.change("set", "1", "utilization=93")
    first, second = json.loads(lab_on_disk.gpu("status", "--json").stdout)
    assert first == {"index": 0, "uuid": "GPU-00000100-0000-0000-0001-000000000000", "changes": {}}
    assert second["changes"] == {"utilization": 93}
    assert '{"utilization": 93}' in lab_on_disk.gpu("status").stdout


def test_with_several_nodes_one_has_to_be_named(lab_on_disk: LabOnDisk, world: World) -> None:
    done = world.lab("gpu", "status")
    assert done.returncode == 2
    assert "give --node, one of dgx1-real-1, dgx1-real-2" in done.stderr
    assert "no node 'dgx1-real-3'" in lab_on_disk.gpu("status", node="dgx1-real-3").stderr
