"""The judgements on hosts: for each, hosts of which the second has the defect, the verdict, and words of its reason.

A row whose name is in the kill matrix is a defect of the whole run, too (host_defects.py).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import FakeHosts, Output

NAMES: Final = ("n1", "n2")
"""The names of the nodes in the double of a cluster."""
SICK: Final = "n2"
NODES: Final[Mapping[str, int]] = dict.fromkeys(NAMES, doubles.GPUS)
"""The numbers of GPUs of the nodes in Kubernetes."""


class Row(NamedTuple):
    """A defect: the check that notices it, its verdict, words of its reason, and a factory of the hosts.

    `nodes` has the number of GPUs of each node in Kubernetes.
    """

    check: str
    verdict: str
    says: str
    hosts: Callable[[], FakeHosts]
    nodes: Mapping[str, int] = NODES


def last(text: str, old: str, new: str) -> str:
    """Return the text with the last occurrence of `old` replaced."""
    before, middle, after = text.rpartition(old)
    assert middle
    return before + new + after


def row(
    check: str,
    verdict: str,
    says: str,
    texts: Mapping[str, str],
    *,
    of_all: Mapping[str, str] = {},
    again: Mapping[str, str] = {},
    model: str = "dgx-1",
    **site: Any,
) -> Row:
    """Return a row: the tools of the second host print these texts, and `again` later; `of_all` are of both hosts."""

    def hosts() -> FakeHosts:
        first = {(name, tool): Output(text) for name in NAMES for tool, text in of_all.items()}
        first |= {(SICK, tool): Output(text) for tool, text in texts.items()}
        later = {(SICK, tool): Output(text) for tool, text in again.items()}
        made = FakeHosts(first, later, names=NAMES, model=model)
        made.scope = msgspec.structs.replace(
            made.scope, site=msgspec.structs.replace(made.scope.site, **site)
        )
        return made

    return Row(check, verdict, says, hosts)


def logged(verdict: str, says: str, *lines: str, beginning: bool = True) -> Row:
    """Return a row with these lines in the kernel's log."""
    begin = "[    0.000000] Linux version 5.15.0\n" if beginning else ""
    return row("faults", verdict, says, {"kernel-log": begin + "".join(f"[ 9.1] {line}\n" for line in lines)})


def smi(check: str, verdict: str, says: str, old: str, new: str) -> Row:
    """Return a row with another word in the nvidia-smi of the last GPU."""
    return row(check, verdict, says, {"nvidia-smi": last(SMI, old, new)})


def sampled(verdict: str, says: str, old: str, new: str) -> Row:
    """Return a row with another word in a reading of the last GPU under load."""
    return row("load", verdict, says, {"samples": last(SMI, old, new)})


def added(check: str, verdict: str, says: str, element: str) -> Row:
    """Return a row with one more element at the last GPU."""
    return smi(check, verdict, says, "</gpu>", f"{element}</gpu>")


def of_h100(gpus: int = 8) -> str:
    """Return the nvidia-smi of a host with H100."""
    one = (doubles.RECORDED / "nvidia-smi-v13-h100.xml").read_text()
    start, end = one.index("\t<gpu id"), one.index("</gpu>") + len("</gpu>\n")
    cards = [
        one[start:end].replace("</uuid>", f"{number}</uuid>").replace('id="0', f'id="{number}', 1)
        for number in range(gpus)
    ]
    return one[:start] + "".join(cards) + one[end:]


SMI: Final = doubles.nvidia_smi(SICK)
LINKS: Final = doubles.nvlinks()
TOPOLOGY: Final = (doubles.RECORDED / "topology-dgx1.txt").read_text()
ETHTOOL: Final = (doubles.RECORDED / "ethtool-2x400.txt").read_text()
LSPCI: Final = doubles.bridges()
COUNTERS: Final = doubles.outputs(SICK)["counters"].text
PORT: Final = "/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
MATRIX: Final = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\t X \tSYS\tPXB\t0\nGPU1\tSYS\t X \tPXB\t0\n"


def without_driver(text: str) -> str:
    return text.replace("<driver_version>580.82.09", "<driver_version>N/A")


ANSWER: Final = doubles.pings().splitlines()[-5]


def short_reads() -> str:
    output = json.loads(doubles.fio())
    output["jobs"][0]["read"]["short_ios"] = 3
    return json.dumps(output)


def written(missing: str) -> str:
    return "".join(f"{mount} n2\n" for mount in doubles.MOUNTS if mount != missing)


def faces(**changed: Any) -> str:
    """Return the interfaces with other values of the last one."""
    every = json.loads(doubles.interfaces(SICK))
    every[-1] |= changed
    return json.dumps(every)


def bonded() -> str:
    """Return the interfaces, with the last one as a VLAN of a bond, of which a port is down."""
    every = json.loads(doubles.interfaces(SICK))
    every[-1]["link"] = "ifb0"
    every[-3]["operstate"] = "UP"
    every[-2]["master"] = "ifb0"
    return json.dumps(every)


def of_three() -> FakeHosts:
    """Return three hosts; an interface of the second is slow."""
    slow = Output(last(ETHTOOL, "400000Mb/s", "100000Mb/s"))
    return FakeHosts({(SICK, "ethtool"): slow}, names=(*NAMES, "n3"))


def errno() -> str:
    output = json.loads(doubles.fio())
    output["jobs"][0]["error"] = 5
    return json.dumps(output)


FAIL, DOUBT, ERROR = "FAIL", "INCONCLUSIVE", "ERROR"
ROWS: Final[Mapping[str, Row]] = {
    # the kernel's log
    "fallen-off-the-bus": logged(
        FAIL,
        "off the bus on 0000:0b:00.0 (1 times) -> switch",
        "NVRM: The NVIDIA GPU 0000:0b:00.0 has",
        "NVRM: fallen off the bus and is not responding",
    ),
    "switch-error": logged(
        FAIL, "SXid 20034 on 0000:05:00", "nvidia-nvswitch0: SXid (PCI:0000:05:00): 20034, Fatal, Link 30"
    ),
    "driver-does-not-start": logged(
        FAIL,
        "RmInitAdapter failed on 0000:06:00.0",
        "NVRM: GPU 0000:06:00.0: RmInitAdapter failed! (0x26:0xffff:1265)",
    ),
    "no-gpu-came-up": logged(
        FAIL, "no GPU came up", "NVRM: The NVIDIA probe routine failed for 1 device(s)."
    ),
    "machine-check": logged(
        FAIL, "machine check", "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400"
    ),
    "host-too-hot": logged(
        FAIL,
        "host too hot (1 times) -> check cooling",
        "CPU7: Core temperature is above threshold, cpu clock is throttled (total events = 219)",
    ),
    "adapter-too-hot": logged(
        FAIL,
        "adapter too hot",
        "mlx5_core 0000:18:00.0: temp_warn:147:(pid 0): High temperature on sensors with bit set 0 1",
    ),
    "adapter-in-a-slow-slot": logged(
        FAIL,
        "slow PCIe link",
        "mlx5_core 0000:18:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link",
    ),
    "adapter-error": logged(
        FAIL,
        "adapter error",
        "mlx5_core 0000:18:00.0: poll_health:800:(pid 0): device's health compromised - reached miss count",
    ),
    "silent-server": logged(
        FAIL,
        "NFS error on 10.0.0.5 (1 times) -> check network",
        "nfs: server 10.0.0.5 not responding, still trying",
    ),
    "disk-error": logged(
        FAIL, "storage error on sdc", "I/O error, dev sdc, sector 1098288304 op 0x0:(READ) flags 0x0"
    ),
    "memory-access-refused": logged(FAIL, "IOMMU fault", "DMAR: DRHD: handling fault status reg 3"),
    "kernel-hangs": logged(
        FAIL, "kernel error", "watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python:123]"
    ),
    "unknown-line": logged(
        DOUBT, "lines that muster does not know: n2: [ 9.1] NVRM: something", "NVRM: something new"
    ),
    "log-without-its-beginning": logged(
        DOUBT, "no longer begins with the boot: n2", "eth0: link up", beginning=False
    ),
    "corrected-errors": logged(DOUBT, "10 CE", "EDAC MC0: 10 CE memory read error on CPU_SrcID#0"),
    "bond-without-a-port": logged(
        DOUBT,
        "bond0: now running without any",
        "bond0: active interface up!",
        "bond0: now running without any active interface!",
    ),
    "link-down": logged(
        DOUBT,
        "Link down",
        "mlx5_core 0000:18:00.0 ens1f0np0: Link up",
        "mlx5_core 0000:18:00.0 ens1f0np0: Link down",
    ),
    "throttled-at-rest": smi(
        "faults", FAIL, "is throttled: hw_slowdown", "hw_slowdown>Not Active", "hw_slowdown>Active"
    ),
    "no-word-of-throttling": smi(
        "faults", DOUBT, "whether clocks are held down", "hw_slowdown>Not Active", "hw_slowdown>N/A"
    ),
    # words of nvidia-smi
    "lost-gpu": smi(
        "state",
        FAIL,
        "vbios_version is [GPU requires reset]",
        "<vbios_version>",
        "<vbios_version>[GPU requires reset]",
    ),
    "prohibited-gpu": added(
        "state", FAIL, "compute_mode is Prohibited", "<compute_mode>Prohibited</compute_mode>"
    ),
    "instances-on": added(
        "equality", FAIL, "MIG is Enabled, not ", "<mig_mode><current_mig>Enabled</current_mig></mig_mode>"
    ),
    "unknown-element": added("state", DOUBT, "hbm_state is 'Hot'", "<hbm_state>Hot</hbm_state>"),
    "count-that-is-no-number": added(
        "pcie", DOUBT, "replay_counter is 'many'", "<replay_counter>many</replay_counter>"
    ),
    "replays": added("pcie", DOUBT, "replay_counter is 123456", "<replay_counter>123456</replay_counter>"),
    "silent-element": smi(
        "state",
        DOUBT,
        "clocks/mem_clock is absent or N/A, and not on other GPUs",
        "<mem_clock>877 MHz",
        "<mem_clock>N/A",
    ),
    "other-setting": smi(
        "state",
        DOUBT,
        "default_power_limit is 250.00 W, not 300.00 W",
        "<default_power_limit>300",
        "<default_power_limit>250",
    ),
    "no-recovery-action": smi(
        "state",
        DOUBT,
        "nothing says gpu_recovery_action",
        "<gpu_recovery_action>None</gpu_recovery_action>",
        "",
    ),
    "page-waits": smi(
        "memory", FAIL, "pages wait to be retired", "<pending_retirement>No", "<pending_retirement>Yes"
    ),
    "row-waits": added(
        "memory",
        FAIL,
        "a row waits to be remapped",
        "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>",
    ),
    "row-not-remapped": added(
        "memory",
        FAIL,
        "a row could not be remapped -> replace",
        "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>",
    ),
    "ecc-off": smi(
        "memory",
        DOUBT,
        "ECC is off, so nothing counts errors: n2",
        "<current_ecc>Enabled",
        "<current_ecc>Disabled",
    ),
    "errors-not-counted": row(
        "memory",
        DOUBT,
        "not all counters of errors can be read: n2",
        {"nvidia-smi": SMI.replace("<dram_uncorrectable>0", "<dram_uncorrectable>N/A")},
    ),
    "no-word-of-repairs": row(
        "memory",
        DOUBT,
        "whether memory waits for a repair",
        {"nvidia-smi": SMI.replace("<pending_retirement>No", "<pending_retirement>N/A")},
    ),
    # number and kind of GPUs
    "gpus-not-counted": smi(
        "gpus", FAIL, "counts 9 GPUs and describes 8", "<attached_gpus>8", "<attached_gpus>9"
    ),
    "same-machine-twice": row(
        "gpus", FAIL, "n2 and n1 show the same GPU", {"nvidia-smi": doubles.nvidia_smi("n1")}
    ),
    "gpu-without-a-name": smi(
        "gpus", DOUBT, "its UUID is ''", f"<uuid>GPU-{SICK.encode().hex()}-7", "<uuid>"
    ),
    "number-not-declared": row(
        "gpus",
        DOUBT,
        "does not say how many GPUs",
        {},
        hosts=[msgspec.structs.replace(FakeHosts(names=NAMES).scope.site.hosts[1], gpus=0)],
    ),
    "driver-of-another-branch": row(
        "equality", FAIL, "the driver of n2 is 580.82.09, not of 570", {}, driver="570"
    ),
    "branch-not-declared": row("equality", DOUBT, "no versions.driver", {}, driver=""),
    "driver-not-named": row(
        "equality", FAIL, "n2: nothing says its driver", {"nvidia-smi": without_driver(SMI)}
    ),
    "product-not-named": smi(
        "equality",
        FAIL,
        "nothing says its product",
        "<product_name>Tesla V100-SXM2-32GB",
        "<product_name>N/A",
    ),
    "small-memory": row(
        "equality", FAIL, "has 16160 of 32", {"nvidia-smi": last(SMI, "<total>32510 MiB", "<total>16160 MiB")}
    ),
    "limit-not-read": row(
        "equality",
        DOUBT,
        "its power limit is 'N/A'",
        {
            "nvidia-smi": SMI.replace(">300.00 W</enforced", ">N/A</enforced").replace(
                ">300.00 W</power_limit", ">N/A</power_limit"
            )
        },
    ),
    "model-without-figures": row("equality", DOUBT, "which GPUs it has: n1, a other; n2", {}, model="other"),
    # NVLink and topology
    "gpu-without-links": row(
        "nvlink", FAIL, "n2 shows the links of 7 of 8 GPUs", {"nvlink": LINKS[: LINKS.rindex("GPU 7")]}
    ),
    "words-of-links": row(
        "nvlink",
        DOUBT,
        "these words about NVLinks: n2: Link 5: Recovering",
        {"nvlink": LINKS + "\t Link 9: Recovering\n".replace("9", "5")},
    ),
    "links-without-figures": row("nvlink", DOUBT, "how many NVLinks it has", {}, model="other"),
    "few-adapters": row("nvlink", FAIL, "n2 shows 1 of 4 adapters", {"topology": MATRIX}),
    "gpus-joined-otherwise": row(
        "nvlink",
        FAIL,
        "joined otherwise than on the other hosts",
        {"topology": TOPOLOGY.replace("GPU0\t X \tNV1\tNV1", "GPU0\t X \tNV1\tSYS")},
    ),
    "gpus-far-from-each-other": row(
        "nvlink",
        FAIL,
        "GPU0 is joined by SYS, not NV18",
        {},
        of_all={
            "topology": "\t"
            + "\t".join(f"GPU{n}" for n in range(8))
            + "\tCPU Affinity\n"
            + "".join(
                f"GPU{n}\t" + "\t".join("X" if m == n else "SYS" for m in range(8)) + "\t0\n"
                for n in range(8)
            )
        },
        model="dgx-h100",
    ),
    "gpus-not-in-the-matrix": row(
        "nvlink", FAIL, "n1 connects 2 of 8 GPUs", {}, of_all={"topology": MATRIX}, model="dgx-h100"
    ),
    "unknown-error-of-a-link": row(
        "nvlink-errors",
        DOUBT,
        "muster does not know this of NVLinks: n2 GPU 0 Link 0 Lane",
        {
            "nvlink-errors": last(
                doubles.nvlink_errors(), "GPU 1:", "\t Link 0: Lane Faults: 7\nGPU 1:"
            ).replace("GPU 0:", "GPU 0:", 1)
        },
    ),
    "errors-of-few-links": row(
        "nvlink-errors",
        DOUBT,
        "n2 counts errors of 42 of 48 NVLinks",
        {"nvlink-errors": doubles.nvlink_errors()[: doubles.nvlink_errors().rindex("GPU 7")]},
    ),
    "fabric-not-told": row(
        "fabric",
        DOUBT,
        "whether it is joined with the others: n2",
        {"nvidia-smi": last(of_h100(), "<status>Success", "<status>N/A")},
        of_all={"fabric-manager": "active\n", "nvidia-smi": of_h100()},
        model="dgx-h100",
    ),
    # PCIe and adapters
    "generation-lost": row(
        "pcie",
        FAIL,
        "runs at generation 1 of 3",
        {"nvidia-smi": last(SMI, "<current_link_gen>3", "<current_link_gen>1")},
    ),
    "idle-link": row(
        "pcie",
        DOUBT,
        "idle, so its link may rest: n2",
        {
            "nvidia-smi": last(
                last(SMI, "<current_link_gen>3", "<current_link_gen>1"),
                "gpu_idle>Not Active",
                "gpu_idle>Active",
            ),
            "samples": last(SMI, "gpu_idle>Not Active", "gpu_idle>Active"),
        },
    ),
    "link-without-figures": row("pcie", DOUBT, "no figure says which PCIe links n2 has", {}, model="other"),
    "other-firmware": row(
        "rails",
        FAIL,
        "mlx5_3/1 differs: n1 Active",
        {"ibstat": last(doubles.ibstat(), "16.35.3006", "16.35.1012")},
    ),
    "port-in-between": row(
        "rails",
        FAIL,
        "neither up nor down: n2 mlx5_3/1 is Armed",
        {"ibstat": last(doubles.ibstat(), "State: Active", "State: Armed")},
    ),
    "rate-not-read": row(
        "rails",
        FAIL,
        "muster does not know this: n2 mlx5_3/1: Rate: fast",
        {"ibstat": last(doubles.ibstat(), "Rate: 100", "Rate: fast")},
    ),
    "port-twice": row("rails", DOUBT, "is there 2 times", {"ibstat": doubles.ibstat() + doubles.ibstat(1)}),
    "rails-without-figures": row("rails", DOUBT, "how many adapters it has", {}, model="other"),
    "half-duplex": row(
        "interfaces",
        FAIL,
        "n2 ens1f1np1 runs at half duplex",
        {"ethtool": last(ETHTOOL, "Duplex: Full", "Duplex: Half")},
    ),
    "below-its-modes": row(
        "interfaces",
        DOUBT,
        "ens1f1np1 runs at 400000 of 800000 Mb/s",
        {"ethtool": last(ETHTOOL, "\tSpeed", "\tSupported link modes:   800000baseDR8/Full\n\tSpeed")},
    ),
    "ports-of-an-adapter-differ": row(
        "interfaces",
        DOUBT,
        "the ports of ens1 run at 200000 and 400000 Mb/s",
        {},
        of_all={"ethtool": last(ETHTOOL, "400000", "200000")},
    ),
    "speed-unknown": row(
        "interfaces",
        DOUBT,
        "n1 ens1f1np1: speed None",
        {},
        of_all={"ethtool": last(ETHTOOL, "400000Mb/s", "Unknown!")},
    ),
    "silent-device": row(
        "access-control",
        FAIL,
        "81:00.0 does not answer (rev ff)",
        {"lspci": LSPCI + "81:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ff)\n"},
    ),
    "no-word-of-access-control": row(
        "access-control",
        DOUBT,
        "nothing says whether ACS is on: n2",
        {"lspci": "81:00.0 3D controller: NVIDIA Corporation GH100 (rev a1)\n"},
    ),
    "no-peer-memory-anywhere": row(
        "peer-memory",
        DOUBT,
        "nvidia_peermem is not loaded",
        {},
        of_all={"lsmod": (doubles.RECORDED / "lsmod-no-peermem.txt").read_text()},
    ),
    "unknown-clock": row(
        "clock-source", DOUBT, "this clock source: n2: kvm-clock", {"clock-source": "kvm-clock\n"}
    ),
    # network and storage
    "no-address": row(
        "mtu", FAIL, "n2 has no address in 192.168.11.0/24", {"interfaces": faces(addr_info=[])}
    ),
    "storage-link-down": row(
        "mtu", FAIL, "n2 eth0 is DOWN -> reseat", {"interfaces": faces(operstate="DOWN")}
    ),
    "port-of-the-bond-down": row("mtu", FAIL, "n2 ifb1 is DOWN", {"interfaces": bonded()}),
    "lost-frames": row(
        "mtu",
        FAIL,
        "n2: 2 of 3 frames of 9000 bytes came back",
        {"frames": last(doubles.pings(), "3 received", "2 received")},
    ),
    "frame-cut-on-its-way": row(
        "mtu",
        FAIL,
        "n2: 2 of 3 frames of 9000 bytes came back",
        {
            "frames": last(
                doubles.pings(), ANSWER, "1480 bytes from 192.168.11.12: icmp_seq=3 ttl=64 (truncated)"
            )
        },
    ),
    "frame-changed-on-its-way": row(
        "mtu",
        FAIL,
        "n2: 2 of 3 frames of 9000 bytes came back",
        {
            "frames": last(
                doubles.pings(), ANSWER, f"{ANSWER}\nwrong data byte #92 should be 0x5c but was 0x9"
            )
        },
    ),
    "address-on-two-hosts": row(
        "mtu",
        FAIL,
        "n1 eth0 and n2 eth0 have the same address 192.168.11.21",
        {"interfaces": doubles.interfaces("n1")},
    ),
    "networks-not-declared": row("mtu", DOUBT, "no network.mtu", {}, networks=[]),
    "servers-not-declared": row("mtu", DOUBT, "no storage.ontap.data_lifs", {}, servers=[]),
    "other-networks": row("mtu", DOUBT, "no frame was sent on the VLANs roce", {}, other_vlans=["roce"]),
    "foreign-server": row(
        "mounts",
        FAIL,
        "comes from 10.9.9.9, none of",
        {"mounts": doubles.mounts().replace("192.168.11.12:/", "10.9.9.9:/")},
    ),
    "read-only-mount": row(
        "mounts",
        FAIL,
        "n2: /mnt/mount_0 is read-only",
        {"mounts": doubles.mounts().replace('"rw,', '"ro,', 1)},
    ),
    "soft-mount": row(
        "mounts",
        FAIL,
        "n2: /mnt/mount_0 is mounted soft",
        {"mounts": doubles.mounts().replace(",hard,", ",soft,", 1)},
    ),
    "option-missing": row(
        "mounts", FAIL, "is mounted without vers=3", {"mounts": doubles.mounts().replace("vers=3,", "")}
    ),
    "not-written": row(
        "written", FAIL, "n2 did not write into /mnt/mount_1", {"write": written("/mnt/mount_1")}
    ),
    "two-hosts-of-one-name": row(
        "written",
        FAIL,
        "two hosts call themselves by the same name",
        {"write": doubles.outputs("n1", NAMES)["write"].text},
    ),
    "no-mount-declared": row("written", DOUBT, "no mount was declared", {}, mounts=[]),
    "disk-error-under-load": row("fio", FAIL, "ended with errno 5", {"fio": errno()}),
    "short-reads": row("fio", DOUBT, "n2: seq had 3 short or dropped reads", {"fio": short_reads()}),
    "no-job": row("fio", ERROR, "a host has no job of fio", {"fio": '{"jobs": []}'}),
    # loads
    "wrong-values-in-all": row(
        "nccl",
        FAIL,
        "3 wrong values in all",
        {"nccl": doubles.nccl().replace("values : 0 OK", "values : 3 OK")},
    ),
    "cut-run": row(
        "nccl", ERROR, "did not come to its end", {"nccl": doubles.nccl().replace("# Avg", "# NCCL INFO")}
    ),
    "values-not-checked": row(
        "nccl", ERROR, "the values were not checked", {"nccl": last(doubles.nccl(), "128.0  0", "128.0  N/A")}
    ),
    "size-not-run": row(
        "nccl", ERROR, "no row of", {"nccl": doubles.nccl().replace(str(8 << 30), str(6 << 30))}
    ),
    "nccl-without-figures": row("nccl", DOUBT, "no threshold of nccl-all-reduce", {}, model="other"),
    "fewer-gpus-loaded": row(
        "burn-in",
        FAIL,
        "n2: 7 of 8 GPUs were loaded",
        {"burn-in": doubles.burn_in().replace("Tested 8", "Tested 7").replace("        GPU 7: OK\n", "")},
    ),
    "host-slower": row(
        "burn-in", FAIL, "n2 reached 45120 Gflop/s, over 5 % below", {"burn-in": doubles.burn_in(5640)}
    ),
    "rates-not-told": row(
        "burn-in",
        ERROR,
        "n2 did not say how fast each GPU was",
        {"burn-in": doubles.burn_in().replace("(6000 Gflop/s)", "(0 Gflop/s)")},
    ),
    "other-gpu-under-load": sampled(
        FAIL, "n2: only under load it shows the GPU GPU-6e39-7", "GPU-6e32-7", "GPU-6e39-7"
    ),
    "other-driver-under-load": row(
        "load",
        FAIL,
        "n2: its driver under load is 580.65.06, at rest 580.82.09",
        {"samples": SMI.replace("580.82.09", "580.65.06")},
    ),
    "gpu-lost-under-load": row(
        "load",
        FAIL,
        "n2 showed 7 of 8 GPUs under load",
        {"samples": SMI[: SMI.rindex("    <gpu id")] + SMI[SMI.rindex("</gpu>") + 6 :]},
    ),
    "hot-under-load": sampled(
        FAIL,
        "was too hot under load",
        "</gpu>",
        "<temperature><gpu_temp>91 C</gpu_temp><gpu_temp_slow_threshold>90 C</gpu_temp_slow_threshold>"
        "</temperature></gpu>",
    ),
    "errors-under-load": sampled(
        FAIL, "had uncorrected errors under load", "<dram_uncorrectable>0", "<dram_uncorrectable>1"
    ),
    "slow-clock-under-load": sampled(
        FAIL, "SM clock 345 under load, the median is 1530", "<sm_clock>1530", "<sm_clock>345"
    ),
    "limit-lowered-under-load": sampled(
        FAIL,
        "under load: n2 00000000:07:00.0: power limit 200 of 300 W",
        "<enforced_power_limit>300",
        "<enforced_power_limit>200",
    ),
    "unknown-clock-under-load": sampled(DOUBT, "SM clock is 'fast'", "<sm_clock>1530 MHz", "<sm_clock>fast"),
    "idle-under-load": sampled(
        DOUBT, "00000000:07:00.0 was idle in each reading", "gpu_idle>Not Active", "gpu_idle>Active"
    ),
    # counters of links
    "link-gone": row(
        "links",
        FAIL,
        "n2 eth0 went away",
        {},
        again={
            "counters": COUNTERS.replace("/eth0/", "/eth1/").replace("/net/eth1/device", "/net/eth0/device")
        },
    ),
    "not-counted": row(
        "links",
        DOUBT,
        "the adapter does not count this: n1 mlx5_0/1 symbol_error; n2",
        {},
        of_all={"counters": f"{PORT}:N/A (no PMA)\n"},
    ),
    "counter-refused": row(
        "links",
        DOUBT,
        "the adapter does not count this: n2 mlx5_0/1 symbol_error",
        {"counters": f"grep: {PORT}: Invalid argument\n"},
        of_all={"counters": f"{PORT}:0\n"},
    ),
    "full-counter": row(
        "links",
        DOUBT,
        "so it counts no more: n2 mlx5_0/1 symbol_error",
        {"counters": f"{PORT}:65535\n"},
        of_all={"counters": f"{PORT}:0\n"},
    ),
    "counter-missing": row(
        "links",
        DOUBT,
        "n2 eth0 has no rx_errors",
        {"counters": COUNTERS.replace(COUNTERS.splitlines()[1] + "\n", "")},
    ),
    "port-missing": row(
        "links",
        DOUBT,
        "n2 has no mlx5_1/1",
        {"counters": f"{PORT}:0\n"},
        of_all={"counters": f"{PORT}:0\n{PORT.replace('mlx5_0', 'mlx5_1')}:0\n"},
    ),
    # the site, the cluster, and readings that are missing
    "one-of-three-is-slow": Row(
        "interfaces", FAIL, "n2 ens1f1np1 is 100000 Mb/s, link True, Full, not 400000", of_three
    ),
    "no-rdma": row(
        "peer-memory", DOUBT, "no host with RDMA adapters", {}, of_all={"lsmod": "nvidia 11554816 220\n"}
    ),
    "no-switches": row("fabric", DOUBT, "no host whose GPUs are joined by switches", {}),
    "nodes-not-known": Row("kubelets", DOUBT, "its nodes are not known", lambda: FakeHosts(names=NAMES), {}),
    "fewer-gpus-in-kubernetes": Row(
        "kubelets",
        FAIL,
        "the driver of n2 shows 8 GPUs, Kubernetes has 7",
        lambda: FakeHosts(names=NAMES),
        {**NODES, SICK: 7},
    ),
    "foreign-node": Row(
        "kubelets",
        FAIL,
        "n3 has 8 GPUs in Kubernetes, and is no host",
        lambda: FakeHosts(names=NAMES),
        {**NODES, "n3": 8},
    ),
    "no-host": row("gpus", ERROR, "no host with the role gpu", {}, hosts=[]),
    "host-in-maintenance": row("gpus", DOUBT, "n3 is in maintenance: a fan", {}, away={"n3": "a fan"}),
    "golden-host-unknown": row("gpus", ERROR, "the golden host n9 is none", {}, golden="n9"),
    "counters-read-once": row(
        "links",
        ERROR,
        "the counters of n2 were read once",
        {"counters": "nothing\n"},
        again={"counters": COUNTERS},
    ),
    "no-boot-id": Row(
        "links",
        DOUBT,
        "since when it is up: n2",
        lambda: FakeHosts({(SICK, "counters"): Output(COUNTERS, boot_id="")}, names=NAMES),
    ),
}
"""Each judgement on hosts by the name of its defect."""
