"""The known state of the GPUs from second to second, with any failures in between."""

import pytest

from orchestrator.agent.collector import IDLE_SECONDS, MEAN_SAMPLES, REOPEN_TICKS, Collector
from orchestrator.agent.model import Gpu, Holder, NodeReading, Owner, Process, Upkeep, XidErrors
from orchestrator.agent.pod_resources import HeldDevice
from tests.agent.doubles import MIB, FakeDriver, uuid
from tests.cluster.waiting import ManualClock

HOLDER = Holder("team-a", "train-0", "main")
OWNERS = {10: Owner("uid-a", "c1"), 11: Owner("uid-b", "c2")}


class World:
    def __init__(self, count: int = 2, known: dict[int, tuple[Gpu, str]] | None = None) -> None:
        self.driver = FakeDriver(count)
        self.clock = ManualClock()
        self.held: list[HeldDevice] = []
        self.pids: list[int] = []
        self.collector = Collector(
            self.driver, clock=self.clock, wall_clock=self.clock, find_owner=self._owner, known=known
        )

    def _owner(self, pid: int) -> Owner:
        self.pids.append(pid)
        return OWNERS.get(pid, Owner())

    def after(self, seconds: int) -> NodeReading:
        """Return the reading of the last of these seconds."""
        for _ in range(seconds):
            self.clock.now += 1
            reading = self.collector.read(self.held)
        return reading


@pytest.fixture
def world() -> World:
    return World()


def failures(reading: NodeReading) -> list[str]:
    return [gpu.failure for gpu in reading.gpus]


def test_without_the_library_there_is_a_reason_and_it_is_tried_again(world: World) -> None:
    world.driver.is_missing = True
    assert world.after(1) == NodeReading(nvml_problem="NVML: NVML Shared Library Not Found")
    world.driver.is_missing = False
    assert world.after(REOPEN_TICKS - 1).gpus == ()
    assert len(world.after(1).gpus) == 2


def test_a_lost_driver_is_opened_again_when_it_is_back(world: World) -> None:
    world.after(1)
    world.driver.is_missing = True
    assert world.after(1).nvml_problem == "NVML: Driver Not Loaded"
    world.driver.is_missing = False
    assert len(world.after(REOPEN_TICKS).gpus) == 2
    assert world.driver.opened == 2


def test_one_gpu_that_falls_off_the_bus_is_named_and_the_others_are_read(world: World) -> None:
    world.after(1)
    world.driver.problems[0] = "lost"
    world.driver.events.append((0, 79))
    reading = world.after(1)
    assert failures(reading) == ["xid-79", ""]
    assert reading.gpus[0].sample is None
    assert reading.gpus[0].gpu.uuid == uuid(0)
    assert reading.gpus[1].sample is not None
    assert reading.gpus[0].xids == (XidErrors(79, 1, int(world.clock.now)),)


def test_a_gpu_that_was_lost_before_the_agent_started_is_known_by_the_last_report() -> None:
    world = World(
        known={0: (Gpu(0, uuid(0), "Tesla V100", "b", memory_bytes=MIB), ""), 1: (Gpu(1), "xid-48")}
    )
    world.driver.problems[0] = "lost"
    reading = world.after(1)
    assert failures(reading) == ["lost", "xid-48"]
    assert reading.gpus[0].gpu.uuid == uuid(0)
    del world.driver.problems[0]
    reading = world.after(80)
    assert failures(reading) == ["", "xid-48"]


def test_an_event_of_a_gpu_that_does_not_say_which_strikes_none(world: World) -> None:
    world.driver.events.append((None, 79))
    assert failures(world.after(1)) == ["", ""]


def test_holders_are_found_by_uuid_by_replica_and_by_the_name_of_a_claims_device(world: World) -> None:
    other = Holder("team-b", "x", "c")
    world.held = [
        HeldDevice(HOLDER, uuid(0)),
        HeldDevice(HOLDER, f"{uuid(0)}::1"),
        HeldDevice(other, "gpu-6", "gpu.nvidia.com"),
        HeldDevice(other, "gpu-6", "nic.example.com"),
        HeldDevice(other, "GPU-of-nobody"),
        HeldDevice(other, "0"),
    ]
    assert [gpu.holders for gpu in world.after(1).gpus] == [(HOLDER,), (other,)]


def test_processes_are_asked_for_every_five_seconds_and_their_owners_once(world: World) -> None:
    world.driver.running[0] = (Process(10, 512 * MIB), Process(11, None))
    reading = world.after(30)
    assert [process.owner for process in reading.gpus[0].processes] == [OWNERS[10], OWNERS[11]]
    assert world.pids == [10, 11]
    world.driver.running[0] = ()
    assert world.after(5).gpus[0].processes == ()
    world.driver.running[0] = (Process(10, MIB),)
    world.after(5)
    assert world.pids == [10, 11, 10]


def test_a_held_gpu_is_idle_once_nothing_ran_for_a_minute(world: World) -> None:
    world.held = [HeldDevice(HOLDER, uuid(0))]
    start = int(world.clock.now) + 1
    assert world.after(IDLE_SECONDS).gpus[0].idle_since is None
    reading = world.after(1)
    assert [gpu.idle_since for gpu in reading.gpus] == [start, None]
    assert world.after(100).gpus[0].idle_since == start
    world.driver.utilization[0] = 1
    assert world.after(1).gpus[0].idle_since is None
    world.driver.utilization[0] = 0
    assert world.after(IDLE_SECONDS).gpus[0].idle_since is None
    assert world.after(1).gpus[0].idle_since == start + IDLE_SECONDS + 102
    world.held = []
    assert world.after(1).gpus[0].idle_since is None


def test_the_use_is_that_of_the_last_half_minute_and_never_nothing_for_something(world: World) -> None:
    world.driver.utilization = [90, 0]
    assert [gpu.mean_utilization_percent for gpu in world.after(MEAN_SAMPLES).gpus] == [90, 0]
    world.driver.utilization = [0, 1]
    assert [gpu.mean_utilization_percent for gpu in world.after(10).gpus] == [60, 1]


def test_rows_that_could_not_be_replaced_are_a_failure(world: World) -> None:
    world.driver.upkeeps[1] = Upkeep(row_remap_failed=True)
    assert failures(world.after(1)) == ["", "row-remap-failed"]
