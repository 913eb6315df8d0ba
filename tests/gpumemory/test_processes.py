"""gpumemory/usage.c: one limit for all processes of a container, however they end."""

import os
import signal
import struct
import subprocess
from typing import Final

import pytest

from tests.gpumemory.conftest import GIB, MIB, Container, Machine, uuid

pytestmark = pytest.mark.lab  # compiled code is tested once, not with every Python

HOLD: Final = """
import sys
from tests.gpumemory.cuda import Cuda
cuda = Cuda(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
cuda.allocate(int(sys.argv[1]))
print("has it", flush=True)
sys.stdin.read()
"""

RACE: Final = """
import random, sys
from ctypes import byref, c_uint64
from tests.gpumemory.cuda import MIB, OUT_OF_MEMORY, Cuda
cuda, chance, have, refused = Cuda(), random.Random(int(sys.argv[1])), [], 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    if have and chance.random() < 0.4:
        name, pointer = have.pop(chance.randrange(len(have)))
        cuda.must(*((name, pointer) if name == "cuMemFree_v2" else (name, pointer, None)))
        if name != "cuMemFree_v2":
            cuda.must("cuStreamSynchronize", None)
        continue
    pointer, in_stream, size = c_uint64(), chance.random() < 0.3, 2 * MIB * chance.randrange(1, 100)
    answer = cuda.call("cuMemAllocAsync" if in_stream else "cuMemAlloc_v2", byref(pointer), size, *[None] * in_stream)
    assert answer in (0, OUT_OF_MEMORY), answer
    refused += answer == OUT_OF_MEMORY
    if answer == 0:
        have.append(("cuMemFreeAsync" if in_stream else "cuMemFree_v2", pointer.value))
print(refused)
"""

FREE: Final = "from tests.gpumemory.cuda import Cuda; print(Cuda().free_bytes())"


def hold(container: Container, size: int, device: int = 0) -> subprocess.Popen[str]:
    """Start a process that holds this many bytes until it ends."""
    process = container.start(["-c", HOLD, str(size), str(device)])
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line == "has it", process.communicate()[1]
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def free_bytes(container: Container) -> int:
    return int(container.run("-c", FREE))


def highest_bytes(machine: Machine, device: int = 0) -> int:
    """Return the maximum memory that all processes of the machine have had, as the double counted it."""
    return int(struct.unpack_from("8Q", (machine.directory / "machine").read_bytes(), 64)[device])


def test_a_process_is_refused_the_memory_of_another_and_gets_it_when_that_was_killed(
    machine: Machine,
) -> None:
    container = machine.container("one", {uuid(0): GIB})
    first = hold(container, 800 * MIB)
    assert free_bytes(container) == GIB - 800 * MIB
    second = container.start(["-c", HOLD, str(300 * MIB)])
    assert "cuMemAlloc_v2: 2" in second.communicate()[1]
    kill(first)
    kill(hold(container, 800 * MIB))
    assert free_bytes(container) == GIB


def test_eight_processes_that_race_never_have_more_than_the_limit(machine: Machine) -> None:
    container = machine.container("one", {uuid(0): GIB})
    processes = [container.start(["-c", RACE, str(seed), "150"]) for seed in range(8)]
    for process in processes:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    refused = 0
    for process in processes:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        refused += int(output)
    assert refused > 0  # the processes did compete
    assert 0 < highest_bytes(machine) <= GIB
    assert free_bytes(container) == GIB


def test_processes_killed_at_any_moment_leave_nothing_behind(machine: Machine) -> None:
    container = machine.container("one", {uuid(0): GIB})
    for seed in range(12):
        process = container.start(["-c", RACE, str(seed), "1000000"])
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdin.close()
        before = free_bytes(container)  # while the process continues
        assert 0 <= before <= GIB
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()
    assert free_bytes(container) == GIB
    assert highest_bytes(machine) <= GIB


def test_the_double_forgets_the_memory_of_a_killed_process_between_two_counts(machine: Machine) -> None:
    container = machine.container("one", {uuid(0): 32 * GIB})
    kill(hold(container, GIB))
    state = machine.directory / "machine"
    content = bytearray(state.read_bytes())
    (used_bytes,) = struct.unpack_from("Q", content)
    struct.pack_into("Q", content, 0, used_bytes + 76 * MIB)
    state.write_bytes(content)
    kill(hold(container, 32 * GIB))
    assert highest_bytes(machine) == 32 * GIB


def test_eight_containers_with_an_eighth_each_fill_the_device(machine: Machine) -> None:
    eighth = 32 * GIB // 8
    containers = [machine.container(str(number), {uuid(0): eighth}) for number in range(8)]
    processes = [hold(container, eighth) for container in containers]
    for container in containers:
        assert free_bytes(container) == 0
        assert "cuMemAlloc_v2: 2" in container.start(["-c", HOLD, "1"]).communicate()[1]
    for process in processes:
        kill(process)
    assert highest_bytes(machine) == 32 * GIB


def test_a_neighbour_continues_when_a_container_is_refused(machine: Machine) -> None:
    one, other = (machine.container(name, {uuid(0): 16 * GIB}) for name in ("one", "other"))
    full = hold(one, 16 * GIB)
    assert "cuMemAlloc_v2: 2" in one.start(["-c", HOLD, "1"]).communicate()[1]
    neighbour = hold(other, 16 * GIB)
    assert free_bytes(other) == 0
    kill(neighbour)
    assert free_bytes(other) == 16 * GIB
    kill(full)


def test_each_device_has_its_own_limit(machine: Machine) -> None:
    container = machine.container("one", {uuid(0): GIB, uuid(1): 3 * GIB}, CUDA_DOUBLE_DEVICES="3")
    held = [hold(container, GIB, 0), hold(container, 3 * GIB, 1)]
    for device in range(3):  # the third device has no line, so it must not be used
        assert "cuMemAlloc_v2: 2" in container.start(["-c", HOLD, "1", str(device)]).communicate()[1]
    for process in held:
        kill(process)


FORK: Final = """
import os, sys
from tests.gpumemory.cuda import MIB, Cuda
cuda = Cuda()
pointer = cuda.allocate(600 * MIB)
child = os.fork()
if child == 0:  # what the parent has is not the child's, and is still counted once
    assert cuda.free_bytes() == 424 * MIB, cuda.free_bytes()
    cuda.allocate(100 * MIB)
    assert cuda.free_bytes() == 324 * MIB
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert cuda.free_bytes() == 424 * MIB
if os.fork() == 0:  # lives on after its parent, until the test closes the pipe's other end
    os.close(0), os.close(2)
    os.read(int(sys.argv[1]), 1)
    os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_child_has_none_of_its_parents_memory_and_holds_none_of_it_when_the_parent_dies(
    machine: Machine,
) -> None:
    container = machine.container("one", {uuid(0): GIB})
    reader, writer = os.pipe()
    process = container.start(["-c", FORK, str(reader)], pass_fds=[reader])
    os.close(reader)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == str(process.pid), process.communicate()[1]
    assert free_bytes(container) == 424 * MIB
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert free_bytes(container) == GIB
    os.close(writer)  # the child ends
    process.communicate()


THREADS: Final = """
import threading
from tests.gpumemory.cuda import MIB, Cuda
cuda, errors = Cuda(), []

def work(number):
    try:
        mine = Cuda()
        for _ in range(300):
            mine.must("cuMemFree_v2", mine.allocate(100 * MIB))
            mine.must("cuMemFreeAsync", mine.allocate_in_stream(20 * MIB), None)
    except AssertionError as error:
        errors.append(error)

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not errors, errors
cuda.must("cuCtxSynchronize")
assert cuda.free_bytes() == 1024 * MIB
"""


def test_threads_share_the_memory_of_a_process(machine: Machine) -> None:
    machine.container("one", {uuid(0): GIB}).run("-c", THREADS)


CLOSE_ALL: Final = """
import os
from tests.gpumemory.cuda import MIB, Cuda
cuda = Cuda()
cuda.allocate(600 * MIB)
os.closerange(3, 4096)  # as daemons do
assert cuda.free_bytes() == 424 * MIB, cuda.free_bytes() / MIB
other = os.dup2(os.open("/dev/null", os.O_RDONLY), 600)
cuda.allocate(100 * MIB)
assert cuda.free_bytes() == 324 * MIB
os.fstat(other)  # nobody closed the program's own
if os.fork() == 0:
    os.fstat(other)
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_a_program_that_closes_every_descriptor_is_still_counted(machine: Machine) -> None:
    machine.container("one", {uuid(0): GIB}).run("-c", CLOSE_ALL)


@pytest.mark.parametrize("size", [0, 8])
def test_a_second_container_in_the_same_directory_begins_anew(machine: Machine, size: int) -> None:
    container = machine.container("one", {uuid(0): GIB})
    kill(hold(container, 700 * MIB))
    if size:  # a file that is cut off is filled up again
        with (container.state / "usage.1").open("r+b") as file:
            file.truncate(size)
    assert free_bytes(container) == GIB
