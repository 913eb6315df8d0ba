"""musterlab.gpus.duty: which process stands for the load of which GPU."""

from pathlib import Path

import pytest

from musterlab.gpus import duty
from musterlab.gpus.live import Process

JOB = b"HOME=/\0RUNAI_NUM_OF_GPUS=2\0"
CONTAINER = "0f" * 32
IN_A_POD = f"0::/muster-lab-x/kubepods/pod8d9d9b5e-0000-4000-8000-000000000000/{CONTAINER}\n"


class Node:
    """A node of which these processes are."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def pids(self) -> tuple[int, ...]:
        return self._pids


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A folder like /proc."""
    return tmp_path / "proc"


def add(proc: Path, pid: int, *devices: str, environment: bytes = JOB, cgroup: str = IN_A_POD) -> None:
    folder = proc / str(pid)
    (folder / "root/dev").mkdir(parents=True)
    for name in devices:
        (folder / "root/dev" / name).touch()
    (folder / "environ").write_bytes(environment)
    (folder / "cgroup").write_text(cgroup)
    (folder / "status").write_text(f"Name:\tsh\nNSpid:\t{pid}\t{pid - 1000}\t1\n")


@pytest.mark.parametrize(
    ("devices", "environment", "cgroup", "indices"),
    [
        (("nvidia3", "nvidia5", "nvidiactl", "nvidia-uvm", "nvidia3x"), JOB, IN_A_POD, {3, 5}),
        (("nvidia12",), JOB, IN_A_POD, {12}),
        ((), JOB, IN_A_POD, set()),
        (("nvidia3",), b"RUNAI=1\0MY_RUNAI_NUM_OF_GPUS=1\0", IN_A_POD, set()),
        (("nvidia3",), JOB, "0::/muster-lab-x/kubelet\n", set()),
    ],
)
def test_a_job_is_on_the_gpus_whose_device_files_its_container_has(
    devices: tuple[str, ...], environment: bytes, cgroup: str, indices: set[int], proc: Path
) -> None:
    add(proc, 2001, *devices, environment=environment, cgroup=cgroup)
    found = duty.processes_of(Node(2001), proc)
    assert found == {index: Process(1001, "job", duty.MEMORY_MIB) for index in indices}


def test_the_first_process_of_a_container_counts_and_one_that_ended_does_not(proc: Path) -> None:
    add(proc, 2001, "nvidia0")
    add(proc, 2002, "nvidia0", "nvidia1")
    found = duty.processes_of(Node(2002, 2003, 2001), proc)
    assert {index: process.pid for index, process in found.items()} == {0: 1001, 1: 1002}
