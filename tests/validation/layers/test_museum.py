"""Public reports of sick hosts (museum.yaml): each has the expected finding and repair."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hostfacts.kernel_log import read_log
from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import NAMES, FakeHosts
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.hosts.host_log import judge_logs
from validation.judge.verdict import Verdict, gravest
from validation.layers.checks import judge_layer
from validation.layers.tools import TOOLS

MUSEUM: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("museum.yaml").read_text())
BEGIN = "[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02-amd64-075)\n"


def judged(case: dict[str, Any]) -> tuple[Verdict, str]:
    """Return verdict and reasons of a host with these lines, and otherwise the output of a healthy host."""
    if case.get("tool", "kernel-log") == "kernel-log":
        judgements = judge_logs({"n2": read_log(BEGIN + case["lines"])})
        worst = gravest([one.verdict for one in judgements])
        return worst, "; ".join(one.reason for one in judgements)
    tool = case["tool"]
    text = doubles.outputs(NAMES[1])[tool].text + case["lines"]
    hosts = FakeHosts({(NAMES[1], tool): doubles.Output(text)})
    events = [hosts.ran(TOOLS[tool], host.name, "") for host in hosts.scope.site.hosts]
    judgement, _ = judge_layer(tool, hosts.scope, Circumstances(), events, Window(0, 0, len(events), 0, 10))
    return judgement.verdict, judgement.reason


@pytest.mark.parametrize("case", MUSEUM, ids=[f"{n}-{case['name']}" for n, case in enumerate(MUSEUM)])
def test_each_public_report_is_named_with_its_repair(case: dict[str, Any]) -> None:
    verdict, reason = judged(case)
    assert verdict in {Verdict.FAIL, Verdict.INCONCLUSIVE}
    assert case["name"] in reason
    if case["repair"]:
        assert verdict == Verdict.FAIL
        findings = [finding for finding in reason.split("; ") if case["name"] in finding]
        assert any(finding.endswith(f"-> {case['repair']}") for finding in findings), findings


def test_the_museum_has_sixty_reports_with_their_sources() -> None:
    assert len(MUSEUM) == 60
    assert all(case["source"].startswith("https://") for case in MUSEUM)
