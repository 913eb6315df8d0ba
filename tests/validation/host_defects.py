"""The defects of hosts of the kill matrix, each as two DGX-1 of which the second has it."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import FakeHosts, Output

NAMES: Final = ("n1", "n2")
"""As the nodes of the double of a cluster are called."""
SICK: Final = "n2"
XID: Final = "[   12.3] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"


def without_a_gpu() -> str:
    """A host on which a GPU fell off the bus."""
    text = doubles.nvidia_smi(SICK)
    start, end = text.rindex("    <gpu id"), text.rindex("    </gpu>") + len("    </gpu>\n")
    return (text[:start] + text[end:]).replace("<attached_gpus>8", "<attached_gpus>7")


def last(text: str, old: str, new: str) -> str:
    """The text with the last of these replaced."""
    before, middle, after = text.rpartition(old)
    assert middle
    return before + new + after


def hosts_with(tool: str, text: str, **more: object) -> Callable[[], FakeHosts]:
    """Hosts of which the sick one prints this."""
    changed = {(SICK, tool): Output(text)}
    return lambda: FakeHosts(changed, names=NAMES, **more)  # type: ignore[arg-type]


def flapping() -> FakeHosts:
    """Hosts of which one link was down while the run went on."""
    text = doubles.outputs(SICK)["counters"].text
    later = {(SICK, "counters"): Output(text.replace("carrier_down_count:1", "carrier_down_count:2"))}
    return FakeHosts({}, later, names=NAMES)


def booted_anew() -> FakeHosts:
    """Hosts of which one was down while the run went on; nothing else shows it."""
    text = doubles.outputs(SICK)["counters"].text
    return FakeHosts({}, {(SICK, "counters"): Output(text, boot_id="b00710")}, names=NAMES)


def of_another_model() -> FakeHosts:
    """Hosts whose GPUs are equal, and all not those of a DGX-1."""
    texts = {name: doubles.nvidia_smi(name).replace("V100-SXM2-32GB", "P100-SXM2-16GB") for name in NAMES}
    return FakeHosts({(name, "nvidia-smi"): Output(text) for name, text in texts.items()}, names=NAMES)


def ended_early(tool: str, ran_ms: int, text: str) -> Callable[[], FakeHosts]:
    """Hosts on one of which a load did not take its time, and says that all is well."""
    return lambda: FakeHosts({(SICK, tool): Output(text, ran_ms=ran_ms)}, names=NAMES)


SWITCHED: Final = {(name, "nvlink"): Output(doubles.nvlinks(12)) for name in NAMES} | {
    ("n1", "fabric-manager"): Output("active\n")
}
"""Hosts with twelve links a GPU, of which one has its fabric manager."""
SMI: Final = doubles.nvidia_smi(SICK)
HOST_DEFECTS: Final[Mapping[str, Callable[[], FakeHosts]]] = {
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
    "slow-storage": hosts_with("fio", doubles.fio(0.9)),
    "wrong-results": hosts_with("burn-in", last(doubles.burn_in(), ": OK", ": FAULTY")),
    "flapping-link": flapping,
    "booted-anew": booted_anew,
    "gpus-of-another-model": of_another_model,
    "short-burn-in": ended_early("burn-in", 12_000, doubles.burn_in()),
    "short-fio": ended_early("fio", 12_000, doubles.fio()),
    "fio-that-read-for-a-moment": ended_early("fio", 301_000, doubles.fio(read_ms=5_000)),
}
