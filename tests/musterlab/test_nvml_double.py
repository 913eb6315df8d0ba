"""The lab's double of NVML compared with facts: recordings of NVIDIA's own mock, and the called functions.

The facts are in the folder that MUSTER_FACTS names, by default `../shared/facts` beside the repository.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from musterlab import profiles
from musterlab.gpus import built, chart, shown
from musterlab.gpus.models import Gpus
from tests.musterlab.nvml_double import Asker, asker
from tests.musterlab.nvml_facts import facts_folder

pytestmark = pytest.mark.lab

V100: Final = Gpus("v100", 8, "device-plugin")
SYMBOL_PREFIXES: Final = (
    "nvml", "nvmlDevice", "nvmlEventSet", "nvmlGpuInstance", "nvmlComputeInstance", "nvmlSystem",
)  # fmt: skip
NOT_OF_THE_LIBRARY: Final = {"Get"}
"""Functions of the Go binding that call no library function with their name."""

OTHERWISE: Final = {
    "MIG mode": "NVMLError Not Supported",  # the mock is a V100, which has no MIG
    "utilization 4x": [0, 0, 0, 0],  # the mock's utilization changes by itself
    "memory": [
        32768,
        10240,
        22258,
    ],  # the mock has a fixed free memory; here the driver's reserved memory is not free
    "ECC gpu2": [0, 0, 0],  # the mock's error increases ECC counters
    "event": ["0x8", 79, 3],  # the recorded event was left from another GPU, which was not registered
}
"""Answers that differ from the mock's on purpose."""


@pytest.fixture(scope="module")
def facts() -> Path:
    return facts_folder()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = sorted((Path(built.__file__).parent / "nvml").glob("*.c"))
    target = tmp_path_factory.mktemp("library") / built.LIBRARY
    built.compile_library(sources, target)
    return target


@pytest.fixture
def node(library: Path, tmp_path: Path) -> Iterator[Asker]:
    with asker(library, tmp_path / "gpus", V100) as process:
        yield process


def recorded(facts: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """Return the lines of the GPUs, and the answers by question. Of two answers to one question, the first counts."""
    lines = (facts / "observed" / name).read_text().splitlines()
    answers: dict[str, str] = {}
    for line in lines[9:]:
        question, separator, answer = line.strip().rpartition(": ")
        if separator and not question.startswith("$"):
            answers.setdefault(question, answer)
    return lines[:9], answers


def test_each_gpu_is_the_recorded_one_of_the_mock(facts: Path, node: Asker) -> None:
    driver = node.query(
        "(n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion(), n.nvmlDeviceGetCount())"
    )
    lines = ["driver {} cuda {} count {}".format(*driver)]
    for index in range(8):
        name, uuid, bus_id, minor = node.query(
            f"(n.nvmlDeviceGetName(gpu({index})), n.nvmlDeviceGetUUID(gpu({index})), "
            f"n.nvmlDeviceGetPciInfo(gpu({index})).busId, n.nvmlDeviceGetMinorNumber(gpu({index})))"
        )
        total, used, free = node.query(
            f"[getattr(n.nvmlDeviceGetMemoryInfo(gpu({index})), key) >> 20 for key in ('total', 'used', 'free')]"
        )
        capability = tuple(node.query(f"n.nvmlDeviceGetCudaComputeCapability(gpu({index}))"))
        lines.append(
            f"{index} {name} {uuid} {bus_id} minor {minor} {total} MiB total {used} used {free} free cc {capability}"
        )
    assert lines == recorded(facts, "mock-nvml-corrected.txt")[0]


READS: Final = {
    "architecture (6=volta is 5)": "n.nvmlDeviceGetArchitecture(gpu(0))",
    "memory v2": "(lambda m: [m.total >> 20, m.reserved >> 20, m.used >> 20, m.free >> 20])"
    "(n.nvmlDeviceGetMemoryInfo(gpu(0), n.nvmlMemory_v2))",
    "utilization 4x": "[n.nvmlDeviceGetUtilizationRates(gpu(0)).gpu for _ in range(4)]",
    "temperature/power/clock": "[n.nvmlDeviceGetTemperature(gpu(0), 0), n.nvmlDeviceGetPowerUsage(gpu(0)), "
    "n.nvmlDeviceGetClockInfo(gpu(0), n.NVML_CLOCK_SM)]",
    "nvlink 0 state, remote": "[n.nvmlDeviceGetNvLinkState(gpu(0), 0), "
    "n.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), 0).busId]",
    "p2p/topology 0-1,0-7": "[n.nvmlDeviceGetTopologyCommonAncestor(gpu(0), gpu(other)) for other in (1, 7)]",
    "MIG mode": "n.nvmlDeviceGetMigMode(gpu(0))",
    "ECC mode": "n.nvmlDeviceGetEccMode(gpu(0))",
    "ECC total uncorrected": "n.nvmlDeviceGetTotalEccErrors(gpu(0), 1, 0)",
    "compute processes": "[[p.pid, p.usedGpuMemory >> 20] for p in n.nvmlDeviceGetComputeRunningProcesses(gpu(0))]",
    "compute mode set/get": "n.nvmlDeviceSetComputeMode(gpu(0), 0)",
}


def same(answer: object, written: str) -> bool:
    """Return whether an answer equals the recorded one; tuples and lists are equal."""
    if isinstance(answer, str):
        return answer == written
    return json.dumps(answer) == written.replace("(", "[").replace(")", "]").replace("'", '"')


@pytest.mark.parametrize("question", READS)
def test_an_answer_is_the_recorded_one_of_the_mock(question: str, facts: Path, node: Asker) -> None:
    answer = node.query(READS[question])
    written = recorded(facts, "mock-nvml-corrected.txt")[1][question]
    if question in OTHERWISE:
        assert answer == OTHERWISE[question]
        assert not same(answer, written)
    else:
        assert same(answer, written), (answer, written)


def test_changes_show_in_a_process_that_had_opened_the_library_before(facts: Path, node: Asker) -> None:
    answers = recorded(facts, "mock-nvml-corrected.txt")[1]
    node.set(
        0, utilization=93, memory_utilization=93, processes=["4242 10240 python"], memory_used=10240 << 20
    )
    node.set(1, ecc_uncorrected=7)
    seen = {
        "utilization": node.query("(lambda r: [r.gpu, r.memory])(n.nvmlDeviceGetUtilizationRates(gpu(0)))"),
        "process name 4242": node.query("n.nvmlSystemGetProcessName(4242)"),
        "ECC uncorrected gpu1": node.query(
            "[n.nvmlDeviceGetTotalEccErrors(gpu(1), 1, kind) for kind in (0, 1)]"
        ),
    }
    assert all(same(answer, answers[question]) for question, answer in seen.items()), seen
    # recorded before and after the change with the same question
    assert node.query(READS["compute processes"]) == [[4242, 10240]]
    text = (facts / "observed" / "mock-nvml-corrected.txt").read_text()
    assert "compute processes: [(4242, 10240)]" in text
    assert (
        node.query("[getattr(n.nvmlDeviceGetMemoryInfo(gpu(0)), k) >> 20 for k in ('total', 'used', 'free')]")
        == (OTHERWISE["memory"])
    )
    node.restore()
    assert node.query(READS["compute processes"]) == []


REGISTERED: Final = (
    "globals().__setitem__('events', n.nvmlEventSetCreate())",
    "[n.nvmlDeviceRegisterEvents(gpu(index), 8, events) for index in (3, 4)]",
)
NEXT: Final = (
    "(lambda e: [hex(e.eventType), e.eventData, index(e.device)])(n.nvmlEventSetWait_v2(events, {}))"
)


def test_an_error_is_told_once_of_a_gpu_that_was_registered_and_not_of_others(
    facts: Path, node: Asker
) -> None:
    node.send_xid(3, 13)  # not reported before
    for line in REGISTERED:
        node.query(line)
    answers = recorded(facts, "mock-nvml-corrected.txt")[1]
    assert hex(node.query("n.nvmlDeviceGetSupportedEventTypes(gpu(3))")) == answers["supported event types"]
    node.send_xid(2, 48)
    assert node.query(NEXT.format(0)) == "NVMLError Timeout"
    node.send_xid(3, 79)
    node.set(3, lost=1)
    assert node.query(NEXT.format(1000)) == OTHERWISE["event"]
    assert node.query(NEXT.format(0)) == "NVMLError Timeout"
    node.restore()
    node.send_xid(3, 79)
    assert node.query(NEXT.format(0)) == OTHERWISE["event"], "the same error again is told again"
    assert node.query("n.nvmlEventSetFree(events)") is None


def test_a_lost_gpu_answers_to_its_uuid_alone(facts: Path, node: Asker) -> None:
    answers = recorded(facts, "mock-nvml-corrected.txt")[1]
    node.query("globals().__setitem__('third', gpu(3))")
    node.set(3, lost=1)
    assert node.query("n.nvmlDeviceGetTemperature(third, 0)") == answers["lost gpu3 temperature"]
    assert node.query("gpu(3)") == answers["lost gpu3 handle by index"]
    assert str(node.query("n.nvmlDeviceGetCount()")) == answers["count with a lost GPU"]
    assert node.query("n.nvmlDeviceGetUUID(third)") == "GPU-00000100-0000-0000-0000-000000000003"
    node.restore()
    assert str(node.query("n.nvmlDeviceGetTemperature(third, 0)")) == answers["healed gpu3"]


def exported(library: Path) -> set[str]:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    return set(re.findall(r" T (\w+)", listed.stdout))


@pytest.mark.parametrize(("project", "list_of"), [("device_plugin", "device plugin"), ("dra_driver", "")])
def test_every_function_that_nvidias_programs_call_is_exported(
    project: str, list_of: str, facts: Path, library: Path
) -> None:
    called = json.loads((facts / "nvidia.json").read_text())[project]["nvml"]
    names = set(called[list_of] if list_of else called)
    there = {re.sub(r"_v\d+$", "", symbol) for symbol in exported(library)}
    missing = {
        name for name in names if not {f"{prefix}{name}" for prefix in SYMBOL_PREFIXES} & there
    } - NOT_OF_THE_LIBRARY
    renamed = {  # in the binding: the library's name is longer, or the device is the receiver
        "CreateComputeInstance": "nvmlGpuInstanceCreateComputeInstance",
        "Free": "nvmlEventSetFree",
        "Wait": "nvmlEventSetWait",
        "GetInfo": "nvmlGpuInstanceGetInfo",
        "Destroy": "nvmlGpuInstanceDestroy",
        "GetDevices": "nvmlDeviceGetHandleByIndex",
    }
    assert {name for name in missing if renamed.get(name) not in there} == set()


def test_the_library_exports_functions_of_nvml_and_nothing_else(library: Path) -> None:
    assert all(symbol.startswith("nvml") for symbol in exported(library))


def test_the_labels_are_those_of_nvidias_feature_discovery(facts: Path) -> None:
    lines = (facts / "observed" / "gfd-labels.txt").read_text().splitlines()
    discovered = dict(line.split("=", 1) for line in lines)
    labels = V100.equip(profiles.load(V100.node_profile)).labels
    ours = {
        name: labels[name]
        for name in discovered
        if re.fullmatch(
            r"nvidia\.com/(gpu\.(product|memory|count|family|compute\.\w+|replicas)|cuda\.driver\.\w+)", name
        )
    }
    assert len(ours) == 10
    assert ours == {name: discovered[name] for name in ours}


def test_the_objects_for_nvidias_dra_driver_are_those_of_its_chart(facts: Path) -> None:
    of_chart = json.loads((facts / "nvidia.json").read_text())["dra_driver"]["objects"]
    (device_class,) = of_chart["deviceclass-gpu.yaml"]
    ours = {resource.kind: item for resource, item in chart.objects(nvidias_driver=True)}
    assert ours["DeviceClass"] == {"metadata": {"name": device_class["name"]}, "spec": device_class["spec"]}
    for item in of_chart["rbac-kubeletplugin.yaml"]:
        if "rules" in item:
            rules = [
                f"{rule['apiGroups'][0]}/{rule['resources'][0]}: {' '.join(rule['verbs'])}"
                for rule in ours[item["kind"]]["rules"]
            ]
            assert rules == item["rules"], item["kind"]
            assert ours[item["kind"]]["metadata"]["name"].endswith(item["name"].rpartition(")")[2])


@pytest.mark.parametrize(
    "line",
    [
        "temperatur 5", "temperature", "temperature -5", "temperature 5x", "link 99", "process 5 python", "gpu 7",
        "uuid " + "x" * 200,
    ],
)  # fmt: skip
def test_a_state_with_a_line_that_is_not_understood_is_no_driver(line: str, node: Asker) -> None:
    path = node.folder / shown.FILE
    good = path.read_text()
    path.write_text(good + line + "\n")
    assert node.query("n.nvmlDeviceGetCount()") == "NVMLError Driver Not Loaded"
    path.write_text(good)
    assert node.query("n.nvmlDeviceGetCount()") == 8


def test_a_folder_that_vanished_is_no_driver(node: Asker) -> None:
    (node.folder / shown.FILE).unlink()
    assert node.query("n.nvmlDeviceGetCount()") == "NVMLError Driver Not Loaded"


@pytest.mark.parametrize("model", ["a100", "h100"])
def test_gpus_behind_switches_have_links_and_no_gpu_at_their_end(
    model: str, library: Path, tmp_path: Path
) -> None:
    with asker(library, tmp_path / "gpus", Gpus(model, 8, "dra")) as node:
        links = node.query("[n.nvmlDeviceGetNvLinkState(gpu(0), link) for link in range(12)]")
        assert links == [1] * 12
        assert node.query("n.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), 0)") == "NVMLError Not Supported"
        assert node.query("n.nvmlDeviceGetName(gpu(7))").startswith("NVIDIA ")
