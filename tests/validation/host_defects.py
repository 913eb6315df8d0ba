"""The defects of hosts in the kill matrix, each as two DGX-1, of which the second has the defect."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import FakeHosts, Output
from tests.validation.host_judgements import NAMES, ROWS, SICK, last
from validation.catalogue.kill_matrix import load_mutants

SIGALRM: Final = 142
"""The exit code that a shell reports for a program ended by its own time limit."""
XID: Final = (
    "[    0.000000] Linux version 5.15.0\n"
    "[   12.300000] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"
)


def without_a_gpu() -> str:
    """Return the output of nvidia-smi on a host on which a GPU fell off the bus."""
    text = doubles.nvidia_smi(SICK)
    start, end = text.rindex("    <gpu id"), text.rindex("    </gpu>") + len("    </gpu>\n")
    return (text[:start] + text[end:]).replace("<attached_gpus>8", "<attached_gpus>7")


def hosts_with(tool: str, text: str, **more: object) -> Callable[[], FakeHosts]:
    """Return a factory of two hosts; on the second, the tool prints this text."""
    changed = {(SICK, tool): Output(text)}
    return lambda: FakeHosts(changed, names=NAMES, **more)  # type: ignore[arg-type]


def flapping() -> FakeHosts:
    """Return hosts; a link of the second was down between the first and the later readings."""
    text = doubles.outputs(SICK)["counters"].text
    later = {(SICK, "counters"): Output(text.replace("carrier_down_count:1", "carrier_down_count:2"))}
    return FakeHosts({}, later, names=NAMES)


def booted_anew() -> FakeHosts:
    """Return hosts; the second rebooted during the run, and only its boot id shows that."""
    text = doubles.outputs(SICK)["counters"].text
    return FakeHosts({}, {(SICK, "counters"): Output(text, boot_id="b00710")}, names=NAMES)


def of_another_model() -> FakeHosts:
    """Return hosts with equal GPUs that are not those of a DGX-1."""
    texts = {name: doubles.nvidia_smi(name).replace("V100-SXM2-32GB", "P100-SXM2-16GB") for name in NAMES}
    return FakeHosts({(name, "nvidia-smi"): Output(text) for name, text in texts.items()}, names=NAMES)


def ended_early(tool: str, ran_ms: int, text: str) -> Callable[[], FakeHosts]:
    """Return a factory of hosts; on the second, a load ends too early with a good output."""
    return lambda: FakeHosts({(SICK, tool): Output(text, ran_ms=ran_ms)}, names=NAMES)


def discarding() -> FakeHosts:
    """Return hosts; an RDMA port of the second discarded packets during the run."""
    path = "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_discards"
    first = {(name, "counters"): Output(f"{path}:0\n") for name in NAMES}
    return FakeHosts(first, {(SICK, "counters"): Output(f"{path}:20417\n")}, names=NAMES)


def everywhere(tool: str, text: str) -> Callable[[], FakeHosts]:
    """Return a factory of hosts on which the tool prints this text."""
    return lambda: FakeHosts({(name, tool): Output(text) for name in NAMES}, names=NAMES)


def without_a_joined_gpu() -> FakeHosts:
    """Return hosts with H100; one GPU of the second is not joined to the fabric."""
    fabric = "<fabric><state>Completed</state><status>Success</status></fabric></gpu>"
    texts = {name: doubles.nvidia_smi(name).replace("</gpu>", fabric) for name in NAMES}
    texts[SICK] = last(texts[SICK], "<state>Completed</state>", "<state>In Progress</state>")
    smi = {(name, "nvidia-smi"): Output(text) for name, text in texts.items()}
    managers = {(name, "fabric-manager"): Output("active\n") for name in NAMES}
    return FakeHosts(smi | managers, names=NAMES, model="dgx-h100")


SWITCHED: Final = {(name, "nvlink"): Output(doubles.nvlinks(12)) for name in NAMES} | {
    ("n1", "fabric-manager"): Output("active\n")
}
"""Outputs of two hosts with twelve links for each GPU; only the first runs its fabric manager."""


def beside_a_baseline(
    changed: Mapping[tuple[str, str], Output], earlier: Mapping[tuple[str, str], Output] = {}
) -> Callable[[], FakeHosts]:
    """Return a factory of hosts with these outputs, and a baseline of hosts with the earlier outputs."""
    return lambda: FakeHosts(changed, names=NAMES).compared_with(FakeHosts(earlier, names=NAMES))


def samples_at(degrees: int, sick: int) -> dict[tuple[str, str], Output]:
    """Return readings under load with this temperature of every GPU, and another one of the last GPU of SICK."""
    element = "<temperature><gpu_temp>{} C</gpu_temp></temperature></gpu>"
    texts = {name: doubles.nvidia_smi(name).replace("</gpu>", element.format(degrees)) for name in NAMES}
    texts[SICK] = last(texts[SICK], f"{degrees} C", f"{sick} C")
    return {(name, "samples"): Output(text) for name, text in texts.items()}


SMI: Final = doubles.nvidia_smi(SICK)
TOPOLOGY: Final = (doubles.RECORDED / "topology-dgx1.txt").read_text()
ETHTOOL: Final = (doubles.RECORDED / "ethtool-2x400.txt").read_text()
HOST_DEFECTS: Final[Mapping[str, Callable[[], FakeHosts]]] = {
    **{mutant.name: ROWS[mutant.name].hosts for mutant in load_mutants() if mutant.name in ROWS},
    "host-lacks-a-gpu": hosts_with("nvidia-smi", without_a_gpu()),
    "other-driver": hosts_with("nvidia-smi", SMI.replace("580.82.09", "580.65.06")),
    "uncorrected-errors": hosts_with(
        "nvidia-smi", last(SMI, "<dram_uncorrectable>0", "<dram_uncorrectable>1")
    ),
    "xid-in-the-log": hosts_with("kernel-log", XID),
    "dead-nvlink": hosts_with("nvlink", last(doubles.nvlinks(), "25.781 GB/s", "<inactive>")),
    "stopped-fabric-manager": lambda: FakeHosts(SWITCHED, names=NAMES, model="dgx-a100"),
    "lost-pcie-lanes": hosts_with(
        "nvidia-smi", last(SMI, "<current_link_width>16x", "<current_link_width>8x")
    ),
    "small-frames": hosts_with("interfaces", doubles.interfaces(SICK).replace("9000", "1500")),
    "lost-mount": hosts_with("mounts", doubles.mounts().replace("/mnt/mount_1", "/mnt/other")),
    "unread-byte": hosts_with("read", "/mnt/mount_0 n1\n/mnt/mount_0 n2\n/mnt/mount_1 n2\n"),
    "slow-nccl": hosts_with("nccl", doubles.nccl(88.0)),
    "no-path-between-two-hosts": lambda: FakeHosts(
        {(name, "nccl-nodes"): Output("", SIGALRM) for name in NAMES}, names=NAMES
    ),
    "slow-link-of-a-host": everywhere("nccl-nodes", doubles.all_reduce(2, 24_800)),
    "slow-storage": hosts_with("fio", doubles.fio(0.9)),
    "wrong-results": hosts_with("burn-in", last(doubles.burn_in(), ": OK", ": FAULTY")),
    "flapping-link": flapping,
    "booted-anew": booted_anew,
    "gpus-of-another-model": of_another_model,
    "repair-asked": hosts_with(
        "nvidia-smi", last(SMI, "</gpu>", "<gpu_recovery_action>Reset</gpu_recovery_action></gpu>")
    ),
    "two-gpus-at-one-address": hosts_with(
        "nvidia-smi", last(SMI, 'id="00000000:07:00.0"', 'id="00000000:06:00.0"')
    ),
    "slow-slot": hosts_with("nvidia-smi", last(SMI, "<max_link_gen>3", "<max_link_gen>2")),
    "slot-without-power": hosts_with(
        "kernel-log",
        "[    0.0] Linux version 5.15.0\n[ 9.0] pcieport 0000:15:01.0: pciehp: Slot(5): Power fault\n",
    ),
    "crash-after-a-good-table": hosts_with("nccl", f"{doubles.nccl()}Segmentation fault (core dumped)\n"),
    "wrong-results-that-are-counted": hosts_with(
        "burn-in", last(doubles.burn_in(), "errors: 0", "errors: 5")
    ),
    "power-limit": hosts_with(
        "nvidia-smi",
        SMI.replace(">300.00 W</enforced", ">200.00 W</enforced").replace(
            ">300.00 W</power_limit", ">200.00 W</power_limit"
        ),
    ),
    "errors-of-its-life": hosts_with(
        "nvidia-smi",
        last(
            SMI,
            "</volatile>",
            "</volatile><aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate>",
        ),
    ),
    "hardware-error-in-the-log": hosts_with(
        "kernel-log", "[ 100.0] EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0\n"
    ),
    "slow-nvlink": hosts_with("nvlink", last(doubles.nvlinks(), "25.781 GB/s", "12.891 GB/s")),
    "far-adapter": hosts_with(
        "topology", TOPOLOGY.replace("PIX\tSYS\tPHB\tSYS\t0-19", "SYS\tSYS\tPHB\tSYS\t0-19")
    ),
    "errors-of-an-nvlink": hosts_with(
        "nvlink-errors", last(doubles.nvlink_errors(), "Errors: 0", "Errors: 17")
    ),
    "gpu-not-joined": without_a_joined_gpu,
    "rail-down": hosts_with(
        "ibstat", last(last(doubles.ibstat(), "State: Active", "State: Down"), "LinkUp", "Polling")
    ),
    "slow-interface": hosts_with("ethtool", last(ETHTOOL, "400000Mb/s", "100000Mb/s")),
    "access-control-on": hosts_with("lspci", (doubles.RECORDED / "lspci-acs-on.txt").read_text()),
    "no-peer-memory": hosts_with("lsmod", (doubles.RECORDED / "lsmod-no-peermem.txt").read_text()),
    "slow-clock-source": hosts_with("clock-source", "hpet\n"),
    "wrong-values-in-millions": hosts_with("nccl", last(doubles.nccl(), "128.0  0", "128.0  2.68435e+08")),
    "slower-than-the-others": hosts_with("nccl", doubles.nccl(112.0)),
    "storage-slow-on-one-host": lambda: FakeHosts(
        {("n1", "fio"): Output(doubles.fio(3.0)), (SICK, "fio"): Output(doubles.fio(0.3))}, names=NAMES
    ),
    "slow-gpu": hosts_with("burn-in", last(doubles.burn_in(), "(6000 Gflop/s)", "(4300 Gflop/s)")),
    "all-gpus-slow": everywhere("burn-in", doubles.burn_in(600)),
    "throttled-under-load": hosts_with(
        "samples", last(SMI, "hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active")
    ),
    "slow-pcie-under-load": hosts_with("samples", last(SMI, "<current_link_gen>3", "<current_link_gen>1")),
    "discarded-packets": discarding,
    "slower-than-the-baseline": beside_a_baseline(
        {(SICK, "burn-in"): Output(last(doubles.burn_in(), "(6000 Gflop/s)", "(5690 Gflop/s)"))}
    ),
    "hotter-than-the-baseline": beside_a_baseline(samples_at(60, 72), samples_at(60, 60)),
    "short-burn-in": ended_early("burn-in", 12_000, doubles.burn_in()),
    "short-fio": ended_early("fio", 12_000, doubles.fio()),
    "fio-that-read-for-a-moment": ended_early("fio", 301_000, doubles.fio(read_ms=5_000)),
}
