"""Each judgement on hosts has a defect that it notices, with the verdict of the second judge; none is without a row."""

import ast
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

import validation.judge.hosts
from hostfacts.kernel_lines import FAULTS
from tests.validation.host_defects import HOST_DEFECTS
from tests.validation.host_doubles import FakeHosts, Output
from tests.validation.host_judgements import NAMES, NODES, ROWS, SICK, SMI, last
from validation.catalogue.kill_matrix import load_mutants
from validation.judge.check_verdict import Circumstances, Judgement, Window
from validation.judge.events import NodeSeen
from validation.judge.hosts import gpu_state
from validation.judge.hosts.gpu_elements import COUNTS, LEAST, RANGES, WORDS
from validation.judge.verdict import Verdict
from validation.layers import groups
from validation.layers.checks import LAYERS, judge_layer
from validation.layers.tools import TOOLS
from validation.plan.acceptance import shipped_check_ids

FOLDER = Path(validation.judge.hosts.__file__).parent
OTHERS = {"group_search.py", "group_findings.py", "drift.py"}
"""Judgements with tests of their own: tests/validation/judge/hosts/."""
NO_SUBJECT = {"fabric", "drift"}


def judged(check: str, hosts: FakeHosts, nodes: Mapping[str, int] = NODES) -> tuple[Judgement, str]:
    """Return our judgement and the verdict of the second judge; each tool runs before and after the loads."""
    events: list[Any] = [NodeSeen(t_ms=0, node=name, gpus=gpus) for name, gpus in nodes.items()]
    site = hosts.scope.site
    for reading in (1, 2):
        for name, tool in TOOLS.items():
            if reading == 2 and name == groups.NCCL_NODES:  # twice would be one test with each host twice
                continue
            for index, host in enumerate(site.hosts):
                line = (
                    groups.command(site, 1, site.hosts, index, "192.0.2.1")
                    if name == groups.NCCL_NODES
                    else ""
                )
                events.append(hosts.ran(tool, host.name, line))
    window = Window(0, 0, len(events), 0, 10)
    judgement, _ = judge_layer(check, hosts.scope, Circumstances(), events, window)
    entry = {
        "id": f"hosts/layer/{check}",
        "volatile": {"window": {"fromEvent": 0, "untilEvent": len(events)}},
    }
    scope, others = msgspec.to_builtins(hosts.scope), [msgspec.to_builtins(event) for event in events]
    return judgement, second_judge().judge_layer(entry, {"hosts": scope}, others)


def second_judge() -> Any:
    """Return the module of the second judge, which imports its parts from its own folder."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("second_judge_hosts")


def of_second_judge(judgement: Judgement) -> str:
    return str(judgement.verdict) if judgement.required else "NO SUBJECT"


@pytest.mark.parametrize("name", ROWS)
def test_each_judgement_has_a_defect_that_it_notices(name: str) -> None:
    row = ROWS[name]
    judgement, other = judged(row.check, row.hosts(), row.nodes)
    assert (str(judgement.verdict), row.says in judgement.reason) == (row.verdict, True), judgement
    assert other == of_second_judge(judgement)


@pytest.mark.parametrize("check", LAYERS)
def test_healthy_hosts_have_no_finding(check: str) -> None:
    judgement, other = judged(check, FakeHosts(names=NAMES))
    assert other == of_second_judge(judgement)
    assert check in NO_SUBJECT or judgement.verdict == Verdict.PASS, judgement


def findings(path: Path) -> set[int]:
    """Return the lines of a module on which a function makes a judgement other than PASS, or words of a finding."""
    tree = ast.parse(path.read_text())
    lines: set[int] = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Call)
                and re.match(r"(?:needs|Judgement|Said)\((?!Verdict.PASS)", ast.unparse(node))
            ):
                lines.add(node.lineno)
    return lines


def test_no_judgement_on_hosts_is_without_a_defect() -> None:
    modules = {str(path): path for path in FOLDER.glob("*.py") if path.name not in OTHERS}
    reached: dict[str, set[int]] = {name: set() for name in modules}

    def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if name not in modules:
            return None
        if event == "line":
            reached[name].add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    killers = {mutant.name: mutant.killers(shipped_check_ids()) for mutant in load_mutants()}
    rows = [(row.check, row.hosts(), row.nodes) for row in ROWS.values()]
    rows += [
        (check, hosts(), NODES)
        for name, hosts in HOST_DEFECTS.items()
        if name not in ROWS
        for check in {killer.rpartition("/")[2] for killer in killers[name]}
    ]
    gpu_state._is_well.cache_clear()  # a line of a cached result is not reached again
    for check, hosts, nodes in rows:
        sys.settrace(trace)
        try:
            judged(check, hosts, nodes)
        finally:
            sys.settrace(before)
    missing = [
        f"{path.name}:{line}: {path.read_text().splitlines()[line - 1].strip()}"
        for name, path in sorted(modules.items())
        for line in sorted(findings(path) - reached[name])
    ]
    assert missing == [], "\n".join(missing)


def test_each_kind_of_fault_in_the_kernels_log_has_a_defect() -> None:
    logs = "".join(
        output.text
        for row in ROWS.values()
        if row.check == "faults"
        for (_, tool), output in row.hosts().changed.items()
        if tool == "kernel-log" and isinstance(output, Output)
    )
    others = {"Xid", "memory error", "PCIe error"}  # in the kill matrix since their checks exist
    lines = logs.splitlines()
    found = {kind for kind, pattern in FAULTS if any(pattern.search(line) for line in lines)}
    assert {kind for kind, _ in FAULTS} - others == found - others


ELEMENTS = {
    **dict.fromkeys(WORDS, "frobnicated"),
    **{path: str(count.most + 1) for path, count in COUNTS.items()},
    **dict.fromkeys(LEAST, "0"),
    **{path: f"{most + 1} C" for path, (_, most) in RANGES.items()},
}
"""The elements of nvidia-smi that are judged, each with a text that no healthy GPU has."""


@pytest.mark.parametrize("path", ELEMENTS)
def test_each_element_of_nvidia_smi_that_is_judged_has_a_defect(path: str) -> None:
    group, _, name = path.rpartition("/")
    element = f"<{name}>{ELEMENTS[path]}</{name}>"
    element = f"<{group}>{element}</{group}>" if group else element
    hosts = FakeHosts({(SICK, "nvidia-smi"): Output(last(SMI, "</gpu>", f"{element}</gpu>"))}, names=NAMES)
    found = {check: judged(check, hosts) for check in ("state", "memory", "fabric", "pcie")}
    worded = {check: judgement for check, (judgement, _) in found.items() if name in judgement.reason}
    assert worded, {check: judgement.reason for check, (judgement, _) in found.items()}
    assert all(judgement.verdict != Verdict.PASS for judgement in worded.values())
    assert all(of_second_judge(judgement) == other for judgement, other in found.values())
