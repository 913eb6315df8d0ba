"""Outputs with known faults from outside the repository (../shared/cases/validation): each has the expected verdict."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import Event, NodeSeen, ToolRan
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.layers.checks import LAYERS, TESTS, judge_layer
from validation.layers.tools import TOOLS

CASES = Path(__file__).parents[4] / "shared" / "cases" / "validation"
EXPECTED: list[dict[str, Any]] = (
    json.loads((CASES / "expected.json").read_text()) if (CASES / "expected.json").exists() else []
)
HEALTHY = {
    "nvidia-smi": "nvidia-smi-575-healthy.xml",
    "nvlink": "nvlink-h100-26.562.txt",
    "topology": "topo-h200-good.txt",
    "kernel-log": "dmesg-healthy.log",
    "counters": "counters-before.txt",
    "nccl": "nccl-good.log",
    "burn-in": "gpu-burn-h100.txt",
    "fio": "fio-2.9.json",
    "ibstat": "ibstat-h100-good.txt",
    "ethtool": "ethtool-good.txt",
}
ACCEPTED = {
    "PASS": {"PASS"},
    "not FAIL": {"PASS", "INCONCLUSIVE"},
    "not PASS": {"FAIL", "INCONCLUSIVE", "ERROR"},
}
GRAVITY = ("PASS", "INCONCLUSIVE", "ERROR", "FAIL")
SOURCE = {"samples": "nvidia-smi"}
"""Tools whose output has the format of another tool."""


def outputs(case: dict[str, Any], name: str) -> dict[str, list[str]]:
    """Return the outputs of each tool on a host, in the first and the second reading."""
    files = {tool: [file, file] for tool, file in (HEALTHY | case.get(name, {})).items()}
    if name == "n2":
        files |= {tool: [files[tool][0], file] for tool, file in case.get("again", {}).items()}
    texts = {tool: [(CASES / file).read_text() for file in both] for tool, both in files.items()}
    if name != "n2":
        texts["nvidia-smi"] = [re.sub("<uuid>GPU-.", "<uuid>GPU-f", text) for text in texts["nvidia-smi"]]
    return texts | {"fabric-manager": ["active\n"] * 2, "clock-source": ["tsc\n"] * 2}


def verdicts(case: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return verdict and reason of each layer that reads a changed output; n1 is healthy, and n2 has the fault."""
    names = [case["only"]] if "only" in case else ["n1", "n2"]
    hosts = {name: outputs(case, name) for name in names}
    models = {name: case.get("models", {}).get(name, case.get("model", "dgx-h100")) for name in names}
    branch = re.search(r"<driver_version>(\d+)", hosts["n2"]["nvidia-smi"][0])
    assert branch is not None
    site = HostSite(
        hosts=[DeclaredHost(name, models[name], 8) for name in names],
        driver=branch[1],
        mounts=["/mnt/mount_0"],
        golden=case.get("golden", ""),
        tests=list(TESTS),
        nonce="n",
    )
    figures = load_thresholds()
    scope = HostScope(site, figures.systems, figures.hosts, figures_sha256())
    runs = [
        ToolRan(
            0, name, tool, tool, 0, hosts[name][SOURCE.get(tool, tool)][time], boot_id="b", ran_ms=3_660_000
        )
        for time in (0, 1)
        for name in names
        for tool in TOOLS
        if SOURCE.get(tool, tool) in hosts[name]
    ]
    events: list[Event] = [*(NodeSeen(t_ms=0, node=name, gpus=8) for name in names), *runs]
    changed = {tool for key in ("n1", "n2", "again") for tool in case.get(key, {})}
    found = {}
    for layer, described in LAYERS.items():
        if layer == "drift":  # needs an earlier record
            continue
        if changed & {SOURCE.get(tool, tool) for tool in described.tools}:
            judged, _ = judge_layer(layer, scope, Circumstances(), events, Window(0, 0, len(events), 0, 10))
            found[layer] = (str(judged.verdict), judged.reason)
    return found


@pytest.mark.skipif(
    not EXPECTED, reason="the cases are not beside the repository: ../shared/cases/validation"
)
@pytest.mark.parametrize("case", EXPECTED, ids=[case["name"] for case in EXPECTED])
def test_known_faults_and_healthy_outputs_have_the_verdict_of_their_list(case: dict[str, Any]) -> None:
    found = verdicts(case)
    worst = max((verdict for verdict, _ in found.values()), key=GRAVITY.index, default="PASS")
    assert worst in ACCEPTED[case["expect"]], found
