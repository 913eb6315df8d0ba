"""Tests validation/layers/figures.py: the figures of a host and its GPUs from several readings of each tool."""

import json

from tests.validation.host_doubles import FakeHosts, burn_in, fio, nccl, nvidia_smi
from validation.judge.events import Event, ToolRan
from validation.judge.hosts.drift import MeasuredHost
from validation.layers.figures import measure

HOST = "dgx1-1"
PRINTED = ("nvidia-smi", nvidia_smi(HOST))
IDLE = "<clocks_throttle_reason_gpu_idle>"


def measured(*runs: tuple[str, str]) -> MeasuredHost:
    """Return the figures of the host after these runs of tools, in their order."""
    events: list[Event] = [ToolRan(0, HOST, tool, "", 0, text) for tool, text in runs]
    (host,) = measure(FakeHosts(names=(HOST,)).scope, events)
    return host


def reading(clock: int, power: int, temperature: int, *, idle: bool = False) -> str:
    """Return a reading of nvidia-smi under load with these values of each GPU."""
    text = nvidia_smi(HOST).replace("<sm_clock>1530 ", f"<sm_clock>{clock} ")
    text = text.replace("<power_draw>281.33 ", f"<power_draw>{power}.9 ")
    heat = f"<temperature><gpu_temp>{temperature} C</gpu_temp></temperature>"
    text = text.replace("        <ecc_mode>\n", f"{heat}        <ecc_mode>\n")
    return text.replace(f"{IDLE}Not Active", f"{IDLE}Active") if idle else text


def test_nccl_is_the_lower_rate_of_the_largest_size_and_fio_the_sum_of_the_jobs() -> None:
    before, largest, row = nccl(100.0).partition("8589934592  2147483648  ")
    rows = before + largest + row.replace("73.0  100.0", "73.0  90.5", 1)
    jobs = json.loads(fio(2.0))
    jobs["jobs"] += json.loads(fio(1.5))["jobs"]
    host = measured(PRINTED, ("nccl", rows), ("fio", json.dumps(jobs)))
    assert host.figures == {"nccl-all-reduce": 90_500, "fio-read": 3500}


def test_a_gpu_has_median_clock_and_power_and_its_highest_temperature_beside_the_last_burn_in() -> None:
    readings = [reading(1500, 300, 60), reading(1300, 200, 75), reading(1400, 250, 70)]
    idle = reading(100, 30, 99, idle=True)
    samples = ("samples", "".join([*readings, idle, idle]))
    other = ("samples", reading(1, 1, 1))
    host = measured(
        PRINTED, ("burn-in", burn_in(1)), other, ("burn-in", burn_in()), samples, ("nccl", nccl()), other
    )
    for gpu in host.gpus:
        assert {name: value for name, value in gpu.figures.items() if name.startswith("burn-in")} == {
            "burn-in": 6000, "burn-in-clock": 1400, "burn-in-power": 250, "burn-in-temperature": 75,
        }  # fmt: skip


def test_rates_of_another_number_of_gpus_belong_to_no_gpu() -> None:
    more = burn_in().replace("proc'd: 3604 (6000 Gflop/s)", "proc'd: 3604 (1 Gflop/s) - 3604 (6000 Gflop/s)")
    assert more != burn_in()
    assert not any("burn-in" in gpu.figures for gpu in measured(PRINTED, ("burn-in", more)).gpus)
    assert all("burn-in" in gpu.figures for gpu in measured(PRINTED, ("burn-in", burn_in())).gpus)
