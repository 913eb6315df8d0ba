"""Doubles of DGX-1 hosts that are not reached over SSH: the output of their tools, made of recorded output.

The XML elements are as in the recordings (layers/recorded/README.md). No recording has eight V100 as XML, so the one
GPU of a recording stands there eight times, with other names.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from orchestrator.distribution import installed_version
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.judge.events import ToolRan
from validation.judge.hosts.drift import Baseline
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.layers.checks import TESTS
from validation.layers.figures import measure
from validation.layers.tools import SAMPLES, TOOLS, Tool
from validation.targets.hosts import SiteHosts
from validation.targets.ssh_connection import Access

RECORDED = Path(__file__).parent / "layers" / "recorded"
MOUNTS = ["/mnt/mount_0", "/mnt/mount_1"]
SERVERS = ["192.168.11.11", "192.168.11.12"]
GPUS = 8
NAMES = ("dgx1-1", "dgx1-2")
POWER = """        <gpu_recovery_action>None</gpu_recovery_action>
        <power_readings>
            <power_state>P0</power_state>
            <power_draw>281.33 W</power_draw>
            <power_limit>300.00 W</power_limit>
            <default_power_limit>300.00 W</default_power_limit>
            <enforced_power_limit>300.00 W</enforced_power_limit>
        </power_readings>
        <clocks>
            <graphics_clock>1530 MHz</graphics_clock>
            <sm_clock>1530 MHz</sm_clock>
            <mem_clock>877 MHz</mem_clock>
        </clocks>
"""
"""Elements as in schema v11, with the limit of a V100."""


class Output(NamedTuple):
    """The output and the end of a tool's run."""

    text: str
    code: int = 0
    boot_id: str = "5a2e3f04"
    ran_ms: int = 3_601_000


def nvidia_smi(host: str) -> str:
    """Return the XML of nvidia-smi with the eight V100 of a host."""
    text = (RECORDED / "nvidia-smi-v11-t4.xml").read_text()
    start, end = text.index("    <gpu id"), text.index("    </gpu>") + len("    </gpu>\n")
    one = text[start:end].replace("Tesla T4", "Tesla V100-SXM2-32GB").replace("15360 MiB", "32510 MiB")
    one = one.replace("<current_link_width>8x", "<current_link_width>16x")
    one = one.replace("<persistence_mode>Disabled", "<persistence_mode>Enabled")
    one = one.replace("        <ecc_mode>\n", f"{POWER}        <ecc_mode>\n")
    gpus = [
        re.sub(
            r"<uuid>.*</uuid>",
            f"<uuid>GPU-{host.encode().hex()}-{number}</uuid>",
            one.replace("00:1E.0", f"{number:02X}:00.0"),
        )
        for number in range(GPUS)
    ]
    whole = text[:start] + "".join(gpus) + text[end:]
    return whole.replace("<attached_gpus>1", f"<attached_gpus>{GPUS}").replace("515.105.01", "580.82.09")


def nvlinks(links: int = 6) -> str:
    """Return the output of nvlink with the links of eight GPUs."""
    one, *_ = re.split(r"(?=^GPU)", (RECORDED / "nvlink-418-4xv100.txt").read_text(), flags=re.MULTILINE)[1:]
    one += "".join(f"\t Link {number}: 25.781 GB/s\n" for number in range(6, links))
    return "".join(one.replace("GPU 0:", f"GPU {number}:") for number in range(GPUS))


def nvlink_errors(links: int = 6) -> str:
    """Return the output with the error counters of the links of eight GPUs, all zero."""
    one = "".join(
        f"\t Link {link}: {what} Errors: 0\n"
        for link in range(links)
        for what in ("Replay", "Recovery", "CRC")
    )
    return "".join(
        f"GPU {number}: Tesla V100-SXM2-32GB (UUID: GPU-{number})\n{one}" for number in range(GPUS)
    )


def ibstat(adapters: int = 4) -> str:
    """Return the output of ibstat with RDMA adapters of one port each."""
    one = (RECORDED / "ibstat-roce.txt").read_text()
    return "".join(one.replace("rdma0", f"mlx5_{number}") for number in range(adapters))


def modules() -> str:
    """Return the loaded modules, with the one of GPUDirect RDMA."""
    return (RECORDED / "lsmod-no-peermem.txt").read_text() + "nvidia_peermem         16384  0\n"


def bridges() -> str:
    """Return the PCIe bridges, all without access control."""
    before, control, after = (RECORDED / "lspci-acs-on.txt").read_text().partition("ACSCtl:")
    return before + control + after.replace("+", "-")


def nccl(gbytes_per_second: float = 128.0) -> str:
    """Return the output of NCCL's test on eight V100, with the rows of `-b 1G -e 8G -f 2`."""
    text = (RECORDED / "nccl-8xh100.log").read_text()
    devices = text.replace("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB")
    rows = "".join(
        f"  {size}  {size // 4}  float  sum  -1  " + f"100.0  73.0  {gbytes_per_second}  0  " * 2 + "\n"
        for size in (1 << 30, 2 << 30, 4 << 30, 8 << 30)
    )
    lines = devices.splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if re.match(r"\d+\s+\d+\s+float", line))
    last = max(number for number, line in enumerate(lines) if re.match(r"\d+\s+\d+\s+float", line))
    return "".join([*lines[:first], rows, *lines[last + 1 :]])


def all_reduce(hosts: int, mbytes_per_second: int = 41_300) -> str:
    """Return the output of all_reduce on a host in a group that works."""
    return f"all-reduce: {hosts} hosts, {hosts * GPUS} GPUs, {1 << 30} bytes, {mbytes_per_second} MB/s, 0 wrong\n"


def fio(gbytes_per_second: float = 2.0, read_ms: int = 300_000) -> str:
    """Return the output of fio with this read rate."""
    output = json.loads((RECORDED / "fio-3.33.json").read_text())
    output["jobs"] = output["jobs"][:1]
    output["jobs"][0]["read"] |= {"bw_bytes": int(gbytes_per_second * 10**9), "runtime": read_ms}
    return json.dumps(output)


def burn_in(gflops: int = 6000) -> str:
    """Return the output of one hour of burn-in on eight GPUs."""
    text = (RECORDED / "gpu-burn-v100.txt").read_text()
    rates = "- ".join([f"3604 ({gflops} Gflop/s) "] * GPUS)
    text = text.replace("proc'd: 3604 (6108 Gflop/s)", f"proc'd: {rates}")
    verdicts = "".join(f"        GPU {number}: OK\n" for number in range(GPUS))
    return text.replace("Tested 1 GPUs:\n        GPU 0: OK\n", f"Tested {GPUS} GPUs:\n{verdicts}")


def interfaces(host: str) -> str:
    """Return one interface, in the network of the storage."""
    faces = json.loads((RECORDED / "ip-address-6.1.json").read_text())
    faces[-1]["mtu"] = 9000
    faces[-1]["addr_info"][0]["local"] = f"192.168.11.2{host[-1]}"
    return json.dumps(faces)


def pings() -> str:
    """Return the output of ping, with an answer to every frame."""
    text = (RECORDED / "ping-20221126.txt").read_text().split("PING 192.0.2.8")[0]
    return "".join(text.replace("127.0.0.1", server) for server in SERVERS)


def mounts() -> str:
    """Return two mounts of one volume over two servers."""
    return json.dumps(
        {
            "filesystems": [
                {
                    "source": f"{server}:/data",
                    "target": mount,
                    "fstype": "nfs",
                    "options": f"rw,relatime,vers=3,rsize=65536,wsize=65536,hard,proto=tcp,addr={server}",
                }
                for server, mount in zip(SERVERS, MOUNTS, strict=True)
            ]
        }
    )


def outputs(host: str, names: tuple[str, ...] = NAMES) -> dict[str, Output]:
    """Return the output of each tool on a healthy host."""
    written = "".join(f"{mount} {host}\n" for mount in MOUNTS)
    read = "".join(f"{mount} {name}\n" for mount in MOUNTS for name in names)
    texts = {
        "nvidia-smi": nvidia_smi(host),
        "nvlink": nvlinks(),
        "topology": (RECORDED / "topology-dgx1.txt").read_text(),
        "kernel-log": "[    0.000000] Linux version 5.15.0\n",
        "fabric-manager": "inactive\n",
        "nvlink-errors": nvlink_errors(),
        "ibstat": ibstat(),
        "ethtool": (RECORDED / "ethtool-2x400.txt").read_text(),
        "lsmod": modules(),
        "clock-source": (RECORDED / "clocksource-6.18.txt").read_text(),
        "lspci": bridges(),
        "samples": nvidia_smi(host),
        "interfaces": interfaces(host),
        "frames": pings(),
        "counters": (RECORDED / "counters-6.1.txt").read_text(),
        "mounts": mounts(),
        "write": written,
        "read": read,
        "remove": "",
        "nccl": nccl(),
        "nccl-nodes": all_reduce(len(names)),
        "fio": fio(),
        "burn-in": burn_in(),
    }
    return {tool: Output(text) for tool, text in texts.items()}


class FakeHosts(SiteHosts):
    """Two healthy DGX-1. `changed` replaces outputs by host and tool; `again` replaces those of later readings."""

    def __init__(
        self,
        changed: Mapping[tuple[str, str], Output | str] = {},
        again: Mapping[tuple[str, str], Output | str] = {},
        names: tuple[str, ...] = NAMES,
        model: str = "dgx-1",
    ) -> None:
        hosts = [DeclaredHost(name, model, GPUS) for name in names]
        site = HostSite(
            hosts, {}, "580", 9000, ["192.168.11.0/24"], SERVERS, [], MOUNTS, ["vers=3"], "", list(TESTS)
        )
        figures = load_thresholds()
        super().__init__(
            HostScope(site, figures.systems, figures.hosts, figures_sha256()),
            {host.name: Access("192.0.2.1") for host in hosts},
        )
        self.outputs = {
            (host.name, tool): out for host in hosts for tool, out in outputs(host.name, names).items()
        }
        self.changed = changed
        self.later = again
        self.runs: list[tuple[str, str]] = []

    def _sample(self, host: str, line: str, ended: threading.Event) -> ToolRan:
        return self.ran(TOOLS[SAMPLES], host, line)

    def _run(self, host: str, lines: Sequence[tuple[Tool, str]], record: Callable[[ToolRan], object]) -> None:
        for tool, line in lines:
            record(self.ran(tool, host, line))

    def ran(self, tool: Tool, host: str, line: str) -> ToolRan:
        """Return the event of the next run of a tool on a host."""
        key = (host, tool.name)
        output = self.changed.get(key, self.outputs[key])
        if key in self.runs:
            output = self.later.get(key, output)
        self.runs.append(key)
        if isinstance(output, str):
            return ToolRan(0, host, tool.name, line, -1, problem=output)
        return ToolRan(
            0, host, tool.name, line, output.code, output.text, boot_id=output.boot_id, ran_ms=output.ran_ms
        )

    def compared_with(self, earlier: "FakeHosts", **changed: str) -> "FakeHosts":
        """Return the same hosts. Their baseline has the figures of the earlier hosts."""
        runs = [
            earlier.ran(TOOLS[tool], host.name, "")
            for host in earlier.scope.site.hosts
            for tool in ("nvidia-smi", "nccl", "fio", "burn-in", SAMPLES)
        ]
        values = {
            "run": "20261101-020000-cluster-1a2b",
            "started": "2026-11-01T02:00:00Z",
            "version": installed_version(),
            "verdict": "PASS",
            "site": "",
            "manifest_sha256": "ab" * 32,
            "identity_sha256": "cd" * 32,
            "kube_system_uid": "",
        }
        measured, limits = measure(earlier.scope, runs), load_thresholds().drift
        baseline = Baseline(**(values | changed), hosts=measured, limits=limits)
        self.scope = msgspec.structs.replace(self.scope, baseline=baseline)
        return self
