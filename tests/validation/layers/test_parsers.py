"""The parsers on output of several versions of each tool. recorded/README.md names the sources of the recordings."""

from pathlib import Path

import msgspec
import pytest

from hostfacts.clock import read_clock_source
from hostfacts.counters import read_counters
from hostfacts.errors import UnreadableOutput
from hostfacts.kernel_log import read_log, read_xids
from hostfacts.log import KernelLog, Xid
from validation.judge.hosts.host_facts import (
    BurnIn,
    Ethernet,
    HostGpu,
    Interface,
    Mount,
    NvLinks,
    Port,
    Topology,
)
from validation.layers.burn_in import read_burn_in
from validation.layers.fio import read_fio
from validation.layers.frames import read_pings
from validation.layers.gpudirect import read_access_control, read_modules
from validation.layers.links import read_ethtool, read_ibstat, read_networks
from validation.layers.mounts import read_mounts, read_written
from validation.layers.nccl import read_nccl
from validation.layers.nvidia_smi import read_nvidia_smi, read_samples
from validation.layers.nvlink import read_link_errors, read_links, read_service, read_topology

TOTAL = "<total>N/A</total>\n\t\t\t\t</double_bit>"
RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def gpu(name: str) -> HostGpu:
    (one,) = read_nvidia_smi(recorded(name)).gpus
    return one


def test_every_recording_has_its_source() -> None:
    listed = (RECORDED / "README.md").read_text()
    assert [path.name for path in RECORDED.iterdir() if f"`{path.name}`" not in listed] == ["README.md"]


def test_nvidia_smi_v11_has_throttle_reasons_and_retired_pages() -> None:
    host = read_nvidia_smi(recorded("nvidia-smi-v11-t4.xml"))
    assert (host.driver, host.attached) == ("515.105.01", 1)
    assert [msgspec.structs.replace(one, elements=[]) for one in host.gpus] == [
        HostGpu(
            bus_id="00000000:00:1E.0",
            model="Tesla T4",
            uuid="GPU-d37e67a5-91dd-3774-a5cb-99096249601a",
            vbios="90.04.84.00.06",
            inforom="G183.0200.00.02",
            memory_mib=15360,
            ecc_enabled=True,
            uncorrected_errors=0,
            pages_pending=False,
            rows_pending=None,
            rows_failed=None,
            pcie_generation=3,
            pcie_width=8,
        )
    ]


def test_nvidia_smi_v12_counts_the_gpu_and_not_its_mig_devices() -> None:
    host = read_nvidia_smi(recorded("nvidia-smi-v12-a100.xml"))
    (one,) = host.gpus
    assert (host.attached, one.memory_mib, one.uncorrected_errors) == (4, 81920, 0)
    assert (one.pcie_generation, one.pcie_width, one.is_idle) == (4, 16, False)


def test_nvidia_smi_v13_without_ecc_knows_no_errors_and_is_idle() -> None:
    one = gpu("nvidia-smi-v13-a5000.xml")
    assert (one.ecc_enabled, one.uncorrected_errors) == (False, None)
    assert (one.rows_pending, one.rows_failed, one.pages_pending) == (False, False, None)
    assert (one.is_idle, one.pcie_generation, one.throttles) == (True, 1, [])


def test_nvidia_smi_of_a_virtual_gpu_says_next_to_nothing() -> None:
    one = gpu("nvidia-smi-v11-vgpu.xml")
    assert (one.ecc_enabled, one.uncorrected_errors, one.pcie_width, one.is_idle) == (None, None, None, False)


@pytest.mark.parametrize(
    ("name", "old", "new", "field", "value"),
    [
        ("v13-a5000", "<sram_uncorrectable_secded>N/A", "<sram_uncorrectable_secded>3", "uncorrected_errors", 3),
        ("v12-a100", "<dram_uncorrectable>0", "<dram_uncorrectable>2", "uncorrected_errors", 2),
        ("v11-vgpu", TOTAL, TOTAL.replace("N/A", "7"), "uncorrected_errors", 7),
        ("v13-a5000", "<remapped_row_pending>No", "<remapped_row_pending>Yes", "rows_pending", True),
        ("v13-a5000", "<remapped_row_failure>No", "<remapped_row_failure>Yes", "rows_failed", True),
        ("v11-t4", "<pending_retirement>No", "<pending_retirement>Yes", "pages_pending", True),
        ("v11-t4", "hw_slowdown>Not Active", "hw_slowdown>Active", "throttles", ["hw_slowdown"]),
        ("v12-a100", "hw_slowdown>Not Active", "hw_slowdown>Active", "throttles", ["hw_slowdown"]),
        ("v12-a100", "power_cap>Not Active", "power_cap>Active", "throttles", []),
    ],
)  # fmt: skip
def test_a_fault_in_any_version_is_seen(name: str, old: str, new: str, field: str, value: object) -> None:
    text = recorded(f"nvidia-smi-{name}.xml")
    assert text.count(old) >= 1
    (one,) = read_nvidia_smi(text.replace(old, new)).gpus
    assert getattr(one, field) == value


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "",
        "<other/>",
        '<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>',
        "<nvidia_smi_log><gpu></nvidia_smi_log>",
    ],
)
def test_a_text_that_is_not_the_xml_of_nvidia_smi_is_refused(text: str) -> None:
    with pytest.raises(UnreadableOutput, match="nvidia-smi: "):
        read_nvidia_smi(text)


def test_xids_and_nothing_else_of_the_kernels_log() -> None:
    xids = read_xids(recorded("dmesg-xid.log"))
    assert [xid.code for xid in xids] == [48, 63, 94, 94, 94]
    assert xids[3] == Xid(94, "0000:19:00", "pid=1248209, name=python3.10, Ch 00000008")
    assert read_xids("[ 12.3] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")[0].code == 79
    assert read_xids("nothing of it\n") == []


@pytest.mark.parametrize(
    ("line", "name", "bus_id"),
    [
        # as in the guide of the fabric manager
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "SXid 20034",
            "0000:c1:00.0",
        ),
        (
            "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0xffff:1863)",
            "RmInitAdapter failed",
            "0000:01:00.0",
        ),
        ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "off the bus", "0000:01:00.0"),
    ],
)
def test_messages_of_the_driver_without_an_xid(line: str, name: str, bus_id: str) -> None:
    (error,) = read_xids(f"[  6.0] {line}\n[  6.1] {line.replace('Fatal', 'Non-fatal')}\n")[:1]
    assert (error.name, error.bus_id) == (name, bus_id)
    assert len(read_xids(line.replace("Fatal", "Non-fatal"))) == (0 if "SXid" in line else 1)


def test_nccl_on_two_hosts() -> None:
    run = read_nccl(recorded("nccl-16xh100.log"))
    assert (run.version, len(run.devices), run.hosts, run.is_whole) == ("", 16, 2, True)
    assert set(run.devices) == {"NVIDIA H100 80GB HBM3"}
    assert [row.size_bytes for row in run.rows] == [2**exponent for exponent in (29, 30, 31, 32, 33)]
    assert run.rows[0].bus_gbytes_per_second == 187.19  # the lower of the two rates
    assert (run.rows[-1].bus_gbytes_per_second, run.rows[-1].wrong) == (196.51, 0)


def test_nccl_on_one_host() -> None:
    run = read_nccl(recorded("nccl-8xh100.log"))
    assert (len(run.devices), run.hosts, run.rows[-1].bus_gbytes_per_second) == (8, 1, 470.63)


def test_nccl_of_a_version_that_says_so_through_mpirun() -> None:
    run = read_nccl(recorded("nccl-2.18-mpirun.log"))
    assert (run.version, run.test, len(run.rows)) == ("2.18.0", "all_reduce_perf_mpi", 6)
    assert run.devices == ["NVIDIA GeForce RTX 5090"] * 2


def test_nccl_that_was_cut_or_did_not_check() -> None:
    text = recorded("nccl-8xh100.log")
    assert not read_nccl(text.partition("# Out of bounds")[0]).is_whole
    unchecked = read_nccl(
        text.replace("470.73      0", "470.73    N/A").replace("470.63      0", "470.63    N/A")
    )
    assert [row.wrong for row in unchecked.rows] == [0, 0, 0, None]
    wrong = read_nccl(text.replace("466.37      0", "466.37      3"))
    assert [row.wrong for row in wrong.rows] == [0, 0, 3, 0]
    many = read_nccl(text.replace("466.37      0", "466.37  2.68435e+08"))
    assert [row.wrong for row in many.rows] == [0, 0, 268_435_000, 0]
    errors = text.replace("#wrong", "error").replace("470.73      0", "470.73  5e-07")
    assert [row.wrong for row in read_nccl(errors).rows] == [0, 0, 0, 0]
    assert read_nccl(errors.replace("0 OK", "8 FAILED")).rows[0].wrong is None
    for other in (
        text.replace("(GB/s)", "(MB/s)"),
        text.replace("466.37      0", "466.37"),
        text.replace("466.37", "inf"),
    ):
        with pytest.raises(UnreadableOutput, match="nccl-tests: "):
            read_nccl(other)
    with pytest.raises(UnreadableOutput, match="no row of results"):
        read_nccl(
            "gpu-1-1: Test CUDA failure common.cu:1304 'CUDA-capable device(s) is/are busy or unavailable'"
        )


def test_ibstat() -> None:
    assert read_ibstat(recorded("ibstat-roce.txt")) == [
        Port("rdma0", 1, "Active", "LinkUp", 100.0, "Ethernet", "16.35.3006")
    ]
    assert read_ibstat(recorded("ibstat-initializing.txt"))[0].state == "Initializing"
    both = recorded("ibstat-roce.txt") + recorded("ibstat-initializing.txt")
    assert [port.adapter for port in read_ibstat(both)] == ["rdma0", "mlx5_0"]
    assert read_ibstat("") == []
    with pytest.raises(UnreadableOutput, match="ibstat: ibpanic"):
        read_ibstat("ibpanic: [2137592] main: stat of IB device 'mthca0' failed: No such file or directory")


def test_interfaces() -> None:
    faces = read_networks(recorded("ip-address-6.1.json"))
    assert faces["lo"] == Interface(65536, ["127.0.0.1", "::1"], "UNKNOWN")
    assert faces["eth0"].mtu == 1400
    with pytest.raises(UnreadableOutput, match="ip -json"):
        read_networks('[{"ifname": "a", "mtu": 1, "addr_info": [{"local": "none"}]}]')
    with pytest.raises(UnreadableOutput, match="ip -json: "):
        read_networks("Object \"lnik\" is unknown, try \"ip help\".")  # fmt: skip


def test_fio() -> None:
    (job,) = read_fio(recorded("fio-3.33.json"))
    assert (job.name, job.error, job.read_bytes_per_second, job.write_bytes_per_second) == (
        "seq",
        0,
        93_206_755,
        0,
    )
    warned = read_fio(
        "fio: this platform does not support process shared mutexes\n" + recorded("fio-3.33.json")
    )
    assert warned == [job]
    with pytest.raises(UnreadableOutput, match="fio: "):
        read_fio("fio: failed to open /mnt/mount_0/t: Permission denied")


def test_nvlinks_of_four_v100() -> None:
    text = recorded("nvlink-418-4xv100.txt")
    assert read_links(text) == NvLinks({gpu: dict.fromkeys(range(6), 25781) for gpu in range(4)})
    assert read_links(text.replace("25.781 GB/s", "<inactive>", 1)).mbytes_per_second[0][0] == 0
    assert read_links(text.replace("25.781 GB/s", "25781 MB/s", 1)).mbytes_per_second[0][0] == 25781
    head = "GPU 0: T4 (UUID: GPU-1)\n"
    assert read_links(f"{head}\t Link 0: words that are new\n").unknown == ["Link 0: words that are new"]
    assert read_links(f"{head}\t Link 0: 26,562 GB/s\n").unknown == ["Link 0: 26,562 GB/s"]
    assert read_links(f"{head}{head}all links are inActive\n").unknown == [
        "GPU 0 twice",
        "all links are inActive",
    ]
    with pytest.raises(UnreadableOutput, match="no GPU"):
        read_links("Failed to initialize NVML")


def test_the_topology_of_a_dgx1_has_its_adapters_and_affinities() -> None:
    topology = read_topology(recorded("topology-dgx1.txt"))
    assert list(topology.rows) == [f"GPU{number}" for number in range(8)]
    assert topology.columns[8:] == ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]
    joined = ["SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", "X", "SYS", "PHB", "SYS", "PIX", "20-39,60-79"]
    assert topology.rows["GPU7"] == joined
    assert read_topology("\x1b[4m\tGPU0\x1b[0m\nGPU0\t X \n") == Topology(["GPU0"], {"GPU0": ["X"]})
    with pytest.raises(UnreadableOutput, match="the row of GPU7 has fewer cells"):
        read_topology(recorded("topology-dgx1.txt").replace("GPU7\tSYS\tSYS\tSYS", "GPU7\tSYS\nGPU"))
    with pytest.raises(UnreadableOutput, match="no matrix"):
        read_topology("")


def test_errors_of_nvlinks() -> None:
    text = "GPU 0: H100 (UUID: GPU-1)\n\t Link 0: Replay Errors: 0\n\t Link 0: CRC Errors: 3\nNVML: no\n"
    counts = {"GPU 0 Link 0 Replay Errors": "0", "GPU 0 Link 0 CRC Errors": "3", "NVML: no": "?"}
    assert read_link_errors(text) == counts
    with pytest.raises(UnreadableOutput, match="no GPU"):
        read_link_errors("")


def test_ethtool() -> None:
    text = recorded("ethtool-2x400.txt")
    assert read_ethtool(text)[1] == Ethernet("ens1f1np1", 400_000, True, "Full", 0)
    down = text.replace("400000Mb/s", "Unknown!").replace("detected: yes", "detected: no")
    assert (read_ethtool(down)[0].speed_mbits, read_ethtool(down)[0].has_link) == (None, False)
    modes = "Settings for a:\n\tSupported link modes: 25000baseCR/Full\n\t   100000baseCR4/Full\n\tSpeed: 25Gb/s\n"
    assert read_ethtool(modes) == [Ethernet("a", 25_000, None, "", 100_000)]
    with pytest.raises(UnreadableOutput, match="no interface"):
        read_ethtool("netlink error: No such device\n")


def test_modules_and_bridges_for_gpudirect() -> None:
    assert "mlx5_ib" in read_modules(recorded("lsmod-no-peermem.txt"))
    on = read_access_control(recorded("lspci-acs-on.txt"))
    assert on["17:01.0"][:3] == ["SrcValid+", "TransBlk-", "ReqRedir+"]
    endpoint = recorded("lspci-acs-on.txt").replace("PCI bridge", "Ethernet controller")
    assert read_access_control(endpoint) == {}
    for parse in (read_modules, read_access_control):
        with pytest.raises(UnreadableOutput):
            parse("")


def test_the_clock_source_is_one_word() -> None:
    assert read_clock_source(recorded("clocksource-6.18.txt")) == "tsc"
    assert read_clock_source("kvm-clock\n") == "kvm-clock"
    for text in ("", "\n", "tsc hpet acpi_pm\n"):
        with pytest.raises(UnreadableOutput, match="clock source: not read"):
            read_clock_source(text)


def test_readings_beside_a_load_of_which_the_last_may_be_cut() -> None:
    text = recorded("nvidia-smi-v12-a100.xml")
    assert len(read_samples(text + text + text[:900])) == 2
    for cut in ("", text[:900], text[:900] + text):
        with pytest.raises(UnreadableOutput, match="nvidia-smi: "):
            read_samples(cut)


PLUGGED = "mlx5_core 0000:a1:00.0: Port module event: module 0, Cable plugged"


@pytest.mark.parametrize(
    ("lines", "name", "bus_id"),
    [
        (
            "NVRM: The NVIDIA GPU 0000:5d:00.0\nNVRM: (PCI ID: 10de:2330) in this system has\nNVRM: fallen off the bus",
            "off the bus", "0000:5d:00.0",
        ),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, Contained", "Xid 94", "0000:01:00"),
        ("NVRM: Xid (0000:03:00): 14, Channel 1", "Xid 14", "0000:03:00"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "memory error", "CPU_SrcID#0"),
        (f"{PLUGGED}\nEDAC MC0: 1 UE Cannot decode on mc#0csrow#1 (csrow:1)", "memory error", "mc#0csrow#1"),
        ("{1}[Hardware Error]: event severity: fatal", "machine check", ""),
        ("pcieport 0000:b0:02.0: AER: Uncorrected (Fatal) error received: 0000:b1:00.0", "PCIe error", "0000:b0:02.0"),
        ("pcieport 0000:b0:02.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal)", "PCIe error", "0000:b0:02.0"),
        ("mlx5_core 0000:a1:00.0: Port module event[error]: module 0, Cable error", "adapter error", "0000:a1:00.0"),
        ("mlx5_core 0000:a1:00.0: poll_health: device's health compromised", "adapter error", "0000:a1:00.0"),
        ("nfs: server 10.61.218.110 not responding, timed out", "NFS error", "10.61.218.110"),
        # the line before is a usual one of an adapter
        (f"{PLUGGED}\nnfs: server a not responding, still trying", "NFS error", "a"),
        (f"{PLUGGED}\nEXT4-fs error (device sda2): read", "storage error", "sda2"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s!", "kernel error", ""),
    ],
)  # fmt: skip
def test_faults_of_hardware_in_the_kernel_log(lines: str, name: str, bus_id: str) -> None:
    log = read_log(f"[ 1.0] Linux\n{lines}\n")
    assert [(fault.name, fault.bus_id) for fault in log.faults] == [(name, bus_id)]


@pytest.mark.parametrize("name", ["AER: fatal", "severity: fatal", "BUG: x"])
@pytest.mark.parametrize(
    "line",
    [
        "{}[7]: segfault at 0 ip 0000000000401136 sp 00007ffd1 error 4 in a[401000+1000]",
        "traps: {}[7] general protection fault ip:401136 sp:7ffd1 error:0 in a[401000+1000]",
        "traps: {}[7] trap invalid opcode ip:401136 sp:7ffd1 error:0 in a[401000+1000]",
        "{} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999",
        "Memory cgroup out of memory: Killed process 7 ({}) total-vm:1kB, anon-rss:1kB",
        "CPU: 3 PID: 7 Comm: {} Not tainted 6.8.0 #1",
    ],
)
def test_no_process_is_a_fault_of_hardware_by_its_name(line: str, name: str) -> None:
    assert read_log(f"[ 1.0] Linux\n{line.format(name)}\n").faults == []


def test_lines_that_are_usual_corrected_or_not_known() -> None:
    begin = "[    0.000000] Linux version 6.8.0\n"
    usual = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\nEDAC MC: Ver: 3.0.0\n"
    usual += "mce: CPU0 supports 32 MCE banks\nusb 1-1: device error\n"
    assert read_log(begin + usual) == KernelLog([])
    notes = (
        "AER: Corrected error received: 0000:b1:00.0\nEDAC MC0: 1 CE memory read error\nnfs: server a OK\n"
    )
    assert len(read_log(begin + notes).notes) == 3
    unknown = ["NVRM: a new word", "mlx5_core 0000:a1:00.0: it is degraded", "EDAC MC0: cannot read"]
    assert read_log(begin + "\n".join(unknown)) == KernelLog([], unknown)


def test_services() -> None:
    assert (read_service("active\n"), read_service("inactive\n")) == ("active", "inactive")
    with pytest.raises(UnreadableOutput, match="no state"):
        read_service("System has not been booted with systemd as init system (PID 1).")


def test_counters_of_links() -> None:
    assert read_counters(recorded("counters-6.1.txt")) == {
        "eth0 carrier_down_count": 1, "eth0 rx_errors": 0, "eth0 tx_errors": 0,
    }  # fmt: skip
    rdma = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:2\n"
    assert read_counters(rdma) == {"mlx5_0/1 link_downed": 2}
    assert read_counters(rdma.replace(":2", ":N/A (no PMA)")) == {"mlx5_0/1 link_downed": None}
    for text in ("", "grep: /sys: Permission denied\n"):
        with pytest.raises(UnreadableOutput):
            read_counters(text)


def test_pings() -> None:
    assert read_pings(recorded("ping-20221126.txt")) == {"127.0.0.1": (3, 3), "192.0.2.8": (3, 0)}
    odd = read_pings(recorded("ping-odd-answers-20221126.txt"))
    assert odd == {  # cut, changed, doubled, lost
        "192.0.2.9": (3, 2), "192.0.2.10": (3, 2), "192.0.2.11": (3, 3), "192.0.2.12": (3, 2),
    }  # fmt: skip
    quiet = "--- 192.0.2.1 ping statistics ---\n3 packets transmitted, 3 received, 0% packet loss\n"
    assert read_pings(quiet) == {"192.0.2.1": (3, 0)}
    with pytest.raises(UnreadableOutput, match="no statistics"):
        read_pings("ping: a: Name or service not known")


def test_mounts_and_those_below_them() -> None:
    mounts = read_mounts(recorded("findmnt-2.38.json"))
    assert mounts["/dev/shm"] == Mount("tmpfs", "tmpfs", ["rw", "relatime", "size=24683656k"])  # noqa: S108
    assert "/sys/fs/cgroup" in mounts
    assert read_mounts("") == {}
    with pytest.raises(UnreadableOutput, match="findmnt"):
        read_mounts("findmnt: unknown option")


def test_files_of_hosts() -> None:
    assert read_written("/mnt/a b n1\n/mnt/a b n2\n") == {"/mnt/a b": ["n1", "n2"]}
    with pytest.raises(UnreadableOutput, match="no directory and host"):
        read_written("dd: failed to open")


def test_a_burn_in_and_one_that_was_cut() -> None:
    text = recorded("gpu-burn-v100.txt")
    assert read_burn_in(text) == BurnIn([], 1, [6108])
    assert read_burn_in(text.replace("GPU 0: OK", "GPU 0: FAULTY")).faulty == [0]
    assert read_burn_in(text.replace("GPU 0: OK", "GPU 0: FAULTY\n        GPU 0: OK")).faulty == [0]
    with pytest.raises(UnreadableOutput, match="did not come to its end"):
        read_burn_in(text[: text.index("Tested")])
