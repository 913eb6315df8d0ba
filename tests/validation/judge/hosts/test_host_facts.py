"""The verdicts on hosts: each fault is named with its host and GPU, and missing output is never a PASS."""

import msgspec
import pytest

from hostfacts.log import KernelLog, Xid
from validation.catalogue.thresholds import load_thresholds
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.gpu_readings import judge_memory_errors, judge_pcie, judge_throttles
from validation.judge.hosts.host_clock import judge_clock_sources
from validation.judge.hosts.host_facts import (
    BurnIn,
    FioJob,
    HostGpu,
    HostGpus,
    Interface,
    NcclRow,
    NcclRun,
    judge_equality,
    judge_fio,
    judge_inventory,
    judge_mtu,
    judge_nccl,
)
from validation.judge.hosts.host_load import judge_load
from validation.judge.hosts.host_log import judge_logs
from validation.judge.hosts.host_storage import judge_burn_in
from validation.judge.verdict import Verdict

THRESHOLDS = load_thresholds().hosts
GIB8 = 8 << 30


def gpu(host: str, number: int, **changed: object) -> HostGpu:
    whole = HostGpu(
        bus_id=f"0000:{number:02x}:00.0",
        model="Tesla V100-SXM2-32GB",
        uuid=f"GPU-{host}-{number}",
        vbios="88.00.43.00.03",
        inforom="G503.0204.00.02",
        memory_mib=32510,
        ecc_enabled=True,
        uncorrected_errors=0,
        pages_pending=False,
        pcie_generation=3,
        pcie_width=16,
        elements=[
            ("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Not Active"),
            ("ecc_errors/volatile/sram_uncorrectable", "0"),
            ("ecc_errors/volatile/dram_uncorrectable", "0"),
        ],
    )
    return msgspec.structs.replace(whole, **changed)


def hosts(**changed: object) -> dict[str, HostGpus]:
    """Return two hosts with eight GPUs each; the changes apply to the sixth GPU of the second host."""
    return {
        name: HostGpus(
            "450.51.05",
            8,
            [
                gpu(name, number, **(changed if (name, number) == ("dgx1-2", 5) else {}))
                for number in range(8)
            ],
        )
        for name in ("dgx1-1", "dgx1-2")
    }


def check(judgement: Judgement, verdict: Verdict, *words: str) -> None:
    assert judgement.verdict == verdict
    assert all(word in judgement.reason for word in words), judgement.reason


def test_sixteen_gpus_are_eight_on_every_host() -> None:
    site = hosts()
    check(judge_inventory(site, gpus_per_host=8), Verdict.PASS)
    seven, nine = site["dgx1-1"].gpus[:7], [*site["dgx1-2"].gpus, gpu("dgx1-2", 8)]
    uneven = {"dgx1-1": HostGpus("d", 7, seven), "dgx1-2": HostGpus("d", 9, nine)}
    reason = "dgx1-1 has 7 of 8 GPUs; dgx1-2 has 9 of 8 GPUs"
    check(judge_inventory(uneven, gpus_per_host=8), Verdict.FAIL, reason)


def test_a_host_that_counts_more_gpus_than_it_describes_fails() -> None:
    site = hosts()
    lost = {"dgx1-1": HostGpus("d", 8, site["dgx1-1"].gpus[:7])}
    check(
        judge_inventory(lost, gpus_per_host=7),
        Verdict.FAIL,
        "counts 8 GPUs and describes 7",
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vbios": "88.00.43.00.04"}, "dgx1-2 0000:05:00.0: vBIOS is 88.00.43.00.04, not 88.00.43.00.03"),
        ({"model": "Tesla V100-SXM2-16GB"}, "model is Tesla V100-SXM2-16GB"),
        ({"memory_mib": 16160}, "memory is 16160 MiB, not 32510 MiB"),
        ({"inforom": "N/A"}, "InfoROM is N/A"),
    ],
)
def test_the_one_gpu_that_differs_is_named(changed: dict[str, object], words: str) -> None:
    check(judge_equality(hosts(**changed)), Verdict.FAIL, words)


def test_all_equal_may_still_differ_from_the_golden_host() -> None:
    site = hosts()
    golden = HostGpus("470.82.01", 8, site["dgx1-1"].gpus)
    check(judge_equality(site), Verdict.PASS)
    check(
        judge_equality(site, golden),
        Verdict.FAIL,
        "dgx1-1: driver is 450.51.05, not 470.82.01",
        "dgx1-2: driver",
    )
    check(judge_equality(site, HostGpus("450.51.05", 8, site["dgx1-1"].gpus)), Verdict.PASS)


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({}, Verdict.PASS, ""),
        ({"uncorrected_errors": 1}, Verdict.FAIL, "dgx1-2 0000:05:00.0 has 1 uncorrected errors"),
        (
            {"pages_pending": True},
            Verdict.FAIL,
            "dgx1-2 0000:05:00.0: pages wait to be retired -> reset the GPU",
        ),
        ({"rows_pending": True}, Verdict.FAIL, "a row waits to be remapped -> reset the GPU"),
        ({"rows_failed": True}, Verdict.FAIL, "a row could not be remapped -> replace the GPU"),
        ({"ecc_enabled": False, "uncorrected_errors": None}, Verdict.INCONCLUSIVE, "ECC is off"),
        ({"ecc_enabled": None}, Verdict.INCONCLUSIVE, "dgx1-2 0000:05:00.0"),
        (
            {"elements": []},
            Verdict.INCONCLUSIVE,
            "not all counters of errors can be read: dgx1-2 0000:05:00.0",
        ),
        ({"ecc_enabled": False, "rows_failed": True}, Verdict.FAIL, "could not be remapped"),
    ],
)
def test_errors_of_memory(changed: dict[str, object], verdict: Verdict, words: str) -> None:
    check(judge_memory_errors(hosts(**changed)), verdict, words)


def test_a_throttled_gpu_fails() -> None:
    check(judge_throttles(hosts()), Verdict.PASS)
    check(judge_throttles(hosts(elements=[])), Verdict.INCONCLUSIVE, "nothing says whether clocks")
    hot = hosts(throttles=["hw_thermal_slowdown"])
    check(judge_throttles(hot), Verdict.FAIL, "dgx1-2 0000:05:00.0 is throttled", "check cooling and power")


def test_a_log_with_a_fault_fails_and_one_that_is_not_understood_is_no_proof() -> None:
    whole = {"dgx1-1": KernelLog([])}
    assert judge_logs(whole) == [Judgement(Verdict.PASS)]
    sick, *_ = judge_logs(whole | {"dgx1-2": KernelLog([Xid(95, "0000:05:00", "")] * 3)})
    check(sick, Verdict.FAIL, "dgx1-2: Xid 95 on 0000:05:00 (3 times) -> reset the GPU")
    _, unknown = judge_logs(whole | {"dgx1-2": KernelLog([], ["NVRM: new"])})
    check(unknown, Verdict.INCONCLUSIVE, "dgx1-2: NVRM: new")
    _, cut = judge_logs(whole | {"dgx1-2": KernelLog([], is_whole=False)})
    check(cut, Verdict.INCONCLUSIVE, "no longer begins with the boot: dgx1-2")
    _, note = judge_logs(whole | {"dgx1-2": KernelLog([], [], ["AER: Corrected error"])})
    check(note, Verdict.PASS, "dgx1-2: AER: Corrected error")


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({}, Verdict.PASS, ""),
        ({"pcie_width": 8}, Verdict.FAIL, "dgx1-2 0000:05:00.0 has 8 of 16 lanes"),
        ({"pcie_generation": 1}, Verdict.FAIL, "runs at generation 1 of 3"),
        (
            {"pcie_generation": 1, "is_idle": True},
            Verdict.INCONCLUSIVE,
            "its link may rest: dgx1-2 0000:05:00.0",
        ),
        ({"pcie_width": 8, "is_idle": True}, Verdict.FAIL, "8 of 16 lanes"),
        ({"pcie_width": None}, Verdict.FAIL, "has None of 16 lanes"),
    ],
)
def test_pcie(changed: dict[str, object], verdict: Verdict, words: str) -> None:
    check(judge_pcie(hosts(**changed), generation=3, width=16), verdict, words)


def run(bandwidth: float = 128.0, **changed: object) -> NcclRun:
    rows = [NcclRow(1 << 30, 140.0, 0), NcclRow(GIB8, bandwidth, 0)]
    whole = NcclRun("2.18.0", "all_reduce_perf", ["Tesla V100-SXM2-32GB"] * 8, 1, rows, is_whole=True)
    return msgspec.structs.replace(whole, **changed)


@pytest.mark.parametrize(
    ("measured", "fabric", "verdict", "words"),
    [
        (run(), "nvlink-cube-mesh", Verdict.PASS, "128 GB/s, at least 110 by azurehpc-health-checks"),
        (run(110.0), "nvlink-cube-mesh", Verdict.PASS, ""),
        (run(109.9), "nvlink-cube-mesh", Verdict.FAIL, "109.9 GB/s"),
        (run(), "nvswitch", Verdict.INCONCLUSIVE, "no threshold of nccl-all-reduce for 8 of Tesla V100-SXM2-32GB on"),
        (run(devices=["Tesla V100-SXM2-32GB"] * 7), "nvlink-cube-mesh", Verdict.INCONCLUSIVE, "for 7 of"),
        (run(devices=["Tesla V100-SXM2-32GB"] * 7 + ["Tesla P100"]), "nvlink-cube-mesh", Verdict.INCONCLUSIVE, "P100"),
        (run(rows=[NcclRow(1 << 30, 140.0, 0)]), "nvlink-cube-mesh", Verdict.ERROR, "no row of 8589934592 bytes"),
        (run(rows=[NcclRow(GIB8, 140.0, None)]), "nvlink-cube-mesh", Verdict.ERROR, "-c 1"),
        (run(rows=[NcclRow(1024, 1.0, 2), NcclRow(GIB8, 140.0, 0)]), "nvlink-cube-mesh", Verdict.FAIL, "wrong values"),
        (run(is_whole=False), "nvlink-cube-mesh", Verdict.ERROR, "did not come to its end"),
    ],
)  # fmt: skip
def test_nccl(measured: NcclRun, fabric: str, verdict: Verdict, words: str) -> None:
    check(judge_nccl(measured, THRESHOLDS, metric="nccl-all-reduce", fabric=fabric), verdict, words)


def test_mtu() -> None:
    storage = Interface(9000, ["192.168.11.21", "fe80::1"])
    both = {"a": {"vlan7": storage}, "b": {"vlan7": storage, "eth0": Interface(1500, ["10.0.0.1"])}}
    check(judge_mtu(both, ["192.168.11.0/24"], 9000), Verdict.PASS)
    small = both | {"b": {"vlan7": Interface(1500, ["192.168.11.22"])}}
    check(judge_mtu(small, ["192.168.11.0/24"], 9000), Verdict.FAIL, "b vlan7: MTU 1500 of 9000")
    check(judge_mtu(both, ["10.0.0.0/8"], 1500), Verdict.FAIL, "a has no address in 10.0.0.0/8")
    check(judge_mtu({}, ["192.168.11.0/24"], 9000), Verdict.ERROR)
    check(judge_mtu(both, [], 9000), Verdict.INCONCLUSIVE, "the site file has no network.mtu")


@pytest.mark.parametrize(
    ("source", "verdict", "words"),
    [
        ("tsc", Verdict.PASS, ""),
        ("arch_sys_counter", Verdict.PASS, ""),
        ("hpet", Verdict.FAIL, "dgx1-2: clock source is hpet, neither tsc nor arch_sys_counter -> correct the setting"),
        ("acpi_pm", Verdict.FAIL, "dgx1-2: clock source is acpi_pm"),
        ("refined-jiffies", Verdict.FAIL, "dgx1-2: clock source is refined-jiffies"),
        ("kvm-clock", Verdict.INCONCLUSIVE, "muster does not know this clock source: dgx1-2: kvm-clock"),
        ("tsc-early", Verdict.INCONCLUSIVE, "dgx1-2: tsc-early"),
        ("TSC", Verdict.INCONCLUSIVE, "dgx1-2: TSC"),
    ],
)  # fmt: skip
def test_the_clock_source_of_one_host(source: str, verdict: Verdict, words: str) -> None:
    judgements = judge_clock_sources({"dgx1-1": "tsc", "dgx1-2": source})
    check(judgements[-1], verdict, words)
    assert {one.verdict for one in judgements} <= {Verdict.PASS, verdict}


def test_no_host_with_a_clock_source_is_no_pass_and_an_unknown_one_hides_no_fault() -> None:
    check(judge_clock_sources({})[0], Verdict.ERROR, "no host answered")
    fault, unknown = judge_clock_sources({"a": "hpet", "b": "kvm-clock"})
    check(fault, Verdict.FAIL, "a: clock source is hpet")
    check(unknown, Verdict.INCONCLUSIVE, "b: kvm-clock")


def test_fio() -> None:
    two = {"a": [FioJob("seq", 0, 1_600_000_000, 0)], "b": [FioJob("seq", 0, 1_400_000_000, 0)]}
    check(judge_fio(two, read_bytes_per_second=3_000_000_000), Verdict.PASS)
    check(judge_fio(two, read_bytes_per_second=3_000_000_001), Verdict.FAIL, "3.00 GB/s in all")
    check(judge_fio({"a": [FioJob("seq", 5, 9**10, 0)]}, read_bytes_per_second=1), Verdict.FAIL, "errno 5")
    check(judge_fio({"a": []}, read_bytes_per_second=0), Verdict.ERROR)


def test_one_slow_gpu_among_eight_is_named_beside_the_median_of_its_model() -> None:
    rates = {"a": [14000] * 8, "b": [*[14000] * 7, 12500]}
    loads = {name: BurnIn([], 8, each) for name, each in rates.items()}
    counts = dict.fromkeys(loads, 8)
    check(judge_burn_in(loads, counts), Verdict.FAIL, "b GPU 7 reached 12500 Gflop/s, the median is 14000")
    other = {"a": BurnIn([], 8, [128_000] * 8), "b": BurnIn([], 8, [390_000] * 8)}
    cards = {"a": "A100", "b": "H100"}
    check(judge_burn_in(other, counts, cards, THRESHOLDS), Verdict.PASS)
    check(
        judge_burn_in({"a": BurnIn([], 8, [12_800] * 8)}, counts, cards, THRESHOLDS),
        Verdict.FAIL,
        "8 GPUs below",
    )
    check(judge_burn_in({"a": BurnIn([], 8, [14000] * 7)}, counts), Verdict.ERROR, "how fast each GPU was")


def test_a_gpu_that_is_slowed_or_far_below_the_clock_of_its_model_under_load_is_named() -> None:
    def reading(**changed: object) -> dict[str, list[HostGpus]]:
        return {name: [host] for name, host in hosts(**changed).items()}

    clock = [("clocks/sm_clock", "1530 MHz")]
    whole = {
        name: [
            msgspec.structs.replace(
                host, gpus=[msgspec.structs.replace(one, elements=clock) for one in host.gpus]
            )
        ]
        for name, host in hosts().items()
    }
    check(judge_load(whole, {})[0], Verdict.PASS)
    hot = judge_load(reading(throttles=["hw_slowdown"]), {})[0]
    check(hot, Verdict.FAIL, "dgx1-2 0000:05:00.0 was throttled under load")
    whole["dgx1-2"][0].gpus[5] = gpu("dgx1-2", 5, elements=[("clocks/sm_clock", "900 MHz")])
    check(
        judge_load(whole, {})[0],
        Verdict.FAIL,
        "dgx1-2 0000:05:00.0: SM clock 900 under load, the median is 1530",
    )


def test_nothing_is_never_green() -> None:
    for judgement in (
        judge_inventory({}, gpus_per_host=8),
        judge_equality({}),
        judge_memory_errors({"a": HostGpus("d", 0, [])}),
        judge_pcie({}, generation=3, width=16),
        judge_fio({}, read_bytes_per_second=0),
    ):
        assert judgement.verdict in {Verdict.ERROR, Verdict.FAIL}


def test_many_faults_are_named_in_part_and_counted() -> None:
    site = {"a": HostGpus("d", 8, [gpu("a", number, pcie_width=8) for number in range(8)])}
    check(judge_pcie(site, generation=3, width=16), Verdict.FAIL, "0000:03:00.0", "4 more")
