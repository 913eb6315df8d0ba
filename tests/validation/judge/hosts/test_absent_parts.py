"""Outputs that lack a part, name it twice, or have a counter that cannot count any more: none of them passes."""

import pytest

from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import ToolRan
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.layers.checks import judge_layer

FIGURES = load_thresholds()
GPUS, LINKS, PORTS = range(8), range(18), range(8)
RATES = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
    + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in LINKS)
    for gpu in GPUS
)
ERRORS = "".join(
    f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
    + "".join(f"\t Link {n}: {what} Errors: 0\n" for n in LINKS for what in ("Replay", "Recovery", "CRC"))
    for gpu in GPUS
)
NAMES = [*(f"GPU{n}" for n in GPUS), *(f"NIC{n}" for n in PORTS)]
MATRIX = "\t".join(["", *NAMES, "CPU Affinity\tNUMA Affinity\n"]) + "".join(
    "\t".join(
        [
            f"GPU{gpu}",
            *("X" if other == gpu else "NV18" for other in GPUS),
            *("PXB" if port == gpu else "SYS" for port in PORTS),
            "0-55\t0\n",
        ]
    )
    for gpu in GPUS
)
ADAPTER = (
    "CA 'mlx5_{0}'\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tPort 1:\n\t\tState: Active\n"
    "\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
)
ADAPTERS = "".join(ADAPTER.format(port) for port in PORTS)
FACE = "Settings for ens1:\n\tSpeed: 400000Mb/s\n\tDuplex: Full\n\tLink detected: yes\n"
BRIDGE = (
    "17:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)\n\t\tACSCtl:\tSrcValid- ReqRedir-\n"
    "81:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"
)
COUNTERS = "".join(
    f"/sys/class/infiniband/mlx5_0/ports/1/counters/{name}:0\n"
    for name in ("symbol_error", "link_downed", "local_link_integrity_errors", "port_rcv_errors")
)
HEALTHY = {
    "nvlink": RATES,
    "topology": MATRIX,
    "nvlink-errors": ERRORS,
    "ibstat": ADAPTERS,
    "ethtool": FACE,
    "lspci": BRIDGE,
    "counters": COUNTERS,
}


def judged(check: str, changed: dict[str, str]) -> tuple[str, str]:
    """Return verdict and reason if both hosts print the changed outputs, so that no host differs from the other."""
    hosts = [DeclaredHost(name, "dgx-h100", 8) for name in ("n1", "n2")]
    scope = HostScope(HostSite(hosts=hosts), FIGURES.systems, FIGURES.hosts, figures_sha256())
    events = [
        ToolRan(
            t_ms=0, host=host.name, tool=tool, command=tool, exit_code=0, output=text, boot_id="b", ran_ms=1
        )
        for _ in range(2)
        for host in hosts
        for tool, text in (HEALTHY | changed).items()
    ]
    judgement, _ = judge_layer(check, scope, Circumstances(), events, Window(0, 0, len(events), 0, 10))
    return str(judgement.verdict), judgement.reason


@pytest.mark.parametrize(
    "check", ["nvlink", "nvlink-errors", "rails", "interfaces", "access-control", "links"]
)
def test_healthy_hosts_pass(check: str) -> None:
    assert judged(check, {})[0] == "PASS"


@pytest.mark.parametrize(
    ("check", "changed", "verdict", "finding"),
    [
        # `topo -m` without NVLinks (deepseek-ai/DeepEP issue 128), and with a part of them (NVIDIA/nccl 1617)
        ("nvlink", {"topology": MATRIX.replace("NV18", "SYS")}, "FAIL", "n1: GPU0 is joined by SYS, not NV18 -> reset"),
        ("nvlink", {"topology": MATRIX.replace("NV18", "NV6")}, "FAIL", "n1: GPU0 is joined by NV6, not NV18 -> reset"),
        ("nvlink", {"topology": MATRIX.partition("GPU7\tNV")[0]}, "FAIL", "n1 connects 7 of 8 GPUs -> reset"),
        # leptonai/gpud issue 1085: all links of a GPU are inactive
        (
            "nvlink",
            {"nvlink": RATES.replace("\t Link 5: 26.562 GB/s", "NVML: Unable to retrieve NVLink information", 1)},
            "FAIL",
            "NVML: Unable to retrieve NVLink information",
        ),
        ("nvlink-errors", {"nvlink-errors": ERRORS.partition("GPU 7")[0]}, "INCONCLUSIVE", "n1 counts errors of 126"),
        ("nvlink-errors", {"nvlink-errors": ERRORS.replace("Link 3:", "Link 2:")}, "INCONCLUSIVE", "136 of 144"),
        ("rails", {"ibstat": ADAPTERS + ADAPTER.format(3)}, "INCONCLUSIVE", "n1 mlx5_3/1 is there 2 times"),
        # ethtool, netlink/settings.c: a duplex that the driver does not know
        (
            "interfaces",
            {"ethtool": FACE.replace("Full", "Unknown! (255)")},
            "INCONCLUSIVE",
            "n1 ens1: speed 400000, link True, duplex Unknown! (255)",
        ),
        # a device whose registers read as ones
        ("access-control", {"lspci": BRIDGE.replace("rev a1", "rev ff")}, "FAIL", "81:00.0 does not answer (rev ff)"),
        ("access-control", {"lspci": BRIDGE + "81:00.1 Audio device: C-Media CM8738 (rev ff)\n"}, "PASS", ""),
        # Linux, drivers/infiniband/core/sysfs.c: counters of 4, 8 and 16 bits
        *(
            (
                "links",
                {"counters": COUNTERS.replace(f"{name}:0", f"{name}:{value}")},
                "INCONCLUSIVE",
                f"n1 mlx5_0/1 {name} is {value}",
            )
            for name, value in (("symbol_error", 65535), ("link_downed", 255), ("local_link_integrity_errors", 15))
        ),
        ("links", {"counters": COUNTERS.replace("symbol_error:0", "symbol_error:255")}, "PASS", ""),
    ],
)  # fmt: skip
def test_a_part_that_is_absent_or_not_counted_is_named(
    check: str, changed: dict[str, str], verdict: str, finding: str
) -> None:
    found, reason = judged(check, changed)
    assert (found, finding in reason) == (verdict, True), reason
