"""What tools of several versions printed, read; the recordings and who made them: recorded/README.md."""

from pathlib import Path

import pytest

from validation.errors import LayerError
from validation.judge.hosts.host_facts import BurnIn, HostGpu, Interface, Mount, Port, Xid
from validation.layers.burn_in import read_burn_in
from validation.layers.counters import read_counters, read_pings
from validation.layers.fio import read_fio
from validation.layers.kernel_log import read_xids
from validation.layers.links import read_ibstat, read_networks
from validation.layers.mounts import read_mounts, read_written
from validation.layers.nccl import read_nccl
from validation.layers.nvidia_smi import read_nvidia_smi
from validation.layers.nvlink import read_links, read_service, read_topology

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
    assert host.gpus == [
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
def test_what_is_not_the_xml_of_nvidia_smi_is_refused(text: str) -> None:
    with pytest.raises(LayerError, match="nvidia-smi: "):
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
        # as the guide of the fabric manager has it
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
def test_what_the_driver_says_without_an_xid(line: str, name: str, bus_id: str) -> None:
    (error,) = read_xids(f"[  6.0] {line}\n[  6.1] {line.replace('Fatal', 'Non-fatal')}\n")[:1]
    assert (error.name, error.bus_id) == (name, bus_id)
    assert len(read_xids(line.replace("Fatal", "Non-fatal"))) == (0 if "SXid" in line else 1)


def test_nccl_on_two_hosts() -> None:
    run = read_nccl(recorded("nccl-16xh100.log"))
    assert (run.version, len(run.devices), run.hosts, run.is_whole) == ("", 16, 2, True)
    assert set(run.devices) == {"NVIDIA H100 80GB HBM3"}
    assert [row.size_bytes for row in run.rows] == [2**exponent for exponent in (29, 30, 31, 32, 33)]
    assert run.rows[0].bus_gbytes_per_second == 187.19  # the lower of the two
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
    with pytest.raises(LayerError, match="no row of results"):
        read_nccl(
            "gpu-1-1: Test CUDA failure common.cu:1304 'CUDA-capable device(s) is/are busy or unavailable'"
        )


def test_ibstat() -> None:
    assert read_ibstat(recorded("ibstat-roce.txt")) == [
        Port("rdma0", 1, "Active", "LinkUp", 100.0, "Ethernet")
    ]
    assert read_ibstat(recorded("ibstat-initializing.txt"))[0].state == "Initializing"
    both = recorded("ibstat-roce.txt") + recorded("ibstat-initializing.txt")
    assert [port.adapter for port in read_ibstat(both)] == ["rdma0", "mlx5_0"]
    assert read_ibstat("") == []
    with pytest.raises(LayerError, match="ibstat: ibpanic"):
        read_ibstat("ibpanic: [2137592] main: stat of IB device 'mthca0' failed: No such file or directory")


def test_interfaces() -> None:
    faces = read_networks(recorded("ip-address-6.1.json"))
    assert faces["lo"] == Interface(65536, ["127.0.0.1", "::1"])
    assert faces["eth0"].mtu == 1400
    with pytest.raises(LayerError, match="ip -json"):
        read_networks('[{"ifname": "a", "mtu": 1, "addr_info": [{"local": "none"}]}]')
    with pytest.raises(LayerError, match="ip -json: "):
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
    with pytest.raises(LayerError, match="fio: "):
        read_fio("fio: failed to open /mnt/mount_0/t: Permission denied")


def test_nvlinks_of_four_v100() -> None:
    links = read_links(recorded("nvlink-418-4xv100.txt"))
    assert links == {gpu: dict.fromkeys(range(6), True) for gpu in range(4)}
    dead = read_links(recorded("nvlink-418-4xv100.txt").replace("25.781 GB/s", "<inactive>", 1))
    assert dead[0][0] is False
    assert read_links("GPU 0: T4 (UUID: GPU-1)\n\t Link 0: words that are new\n") == {0: {0: False}}
    with pytest.raises(LayerError, match="no GPU"):
        read_links("Failed to initialize NVML")


def test_the_topology_of_a_dgx1_is_that_of_its_gpus_alone() -> None:
    rows = read_topology(recorded("topology-dgx1.txt"))
    assert list(rows) == [f"GPU{number}" for number in range(8)]
    assert rows["GPU7"] == ["SYS", "SYS", "SYS", "NV1", "NV2", "NV1", "NV2", "X"]
    assert read_topology("\x1b[4m\tGPU0\x1b[0m\nGPU0\t X \n") == {"GPU0": ["X"]}
    with pytest.raises(LayerError, match="no matrix"):
        read_topology("")


def test_services() -> None:
    assert (read_service("active\n"), read_service("inactive\n")) == ("active", "inactive")
    with pytest.raises(LayerError, match="no state"):
        read_service("System has not been booted with systemd as init system (PID 1).")


def test_counters_of_links() -> None:
    assert read_counters(recorded("counters-6.1.txt")) == {
        "eth0 carrier_down_count": 1, "eth0 rx_errors": 0, "eth0 tx_errors": 0,
    }  # fmt: skip
    rdma = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:2\n"
    assert read_counters(rdma) == {"mlx5_0/1 link_downed": 2}
    for text in ("", "grep: /sys: Permission denied\n"):
        with pytest.raises(LayerError):
            read_counters(text)


def test_pings() -> None:
    assert read_pings(recorded("ping-20221126.txt")) == {"127.0.0.1": (3, 3), "192.0.2.1": (2, 0)}
    with pytest.raises(LayerError, match="no statistics"):
        read_pings("ping: a: Name or service not known")


def test_mounts_and_those_below_them() -> None:
    mounts = read_mounts(recorded("findmnt-2.38.json"))
    assert mounts["/dev/shm"] == Mount("tmpfs", "tmpfs", ["rw", "relatime", "size=24683656k"])  # noqa: S108
    assert "/sys/fs/cgroup" in mounts
    assert read_mounts("") == {}
    with pytest.raises(LayerError, match="findmnt"):
        read_mounts("findmnt: unknown option")


def test_what_hosts_wrote() -> None:
    assert read_written("/mnt/a b n1\n/mnt/a b n2\n") == {"/mnt/a b": ["n1", "n2"]}
    with pytest.raises(LayerError, match="no directory and host"):
        read_written("dd: failed to open")


def test_a_burn_in_and_one_that_was_cut() -> None:
    text = recorded("gpu-burn-v100.txt")
    assert read_burn_in(text) == BurnIn([], 1, [6108])
    assert read_burn_in(text.replace("GPU 0: OK", "GPU 0: FAULTY")).faulty == [0]
    assert read_burn_in(text.replace("GPU 0: OK", "GPU 0: FAULTY\n        GPU 0: OK")).faulty == [0]
    with pytest.raises(LayerError, match="did not come to its end"):
        read_burn_in(text[: text.index("Tested")])
