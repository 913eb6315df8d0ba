"""Outputs that try to pass (hostile.yaml): each has its verdict, for both judges, with the reason."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.validation import host_doubles as doubles
from tests.validation.host_doubles import NAMES, FakeHosts, Output
from tests.validation.host_judgements import last
from tests.validation.test_host_judgements import judged, of_second_judge
from validation.judge.verdict import Verdict

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("hostile.yaml").read_text())


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{n}-{case['says'] or 'healthy'}" for n, case in enumerate(CASES)]
)
def test_no_hostile_output_passes(case: dict[str, Any]) -> None:
    tool = case.get("tool", "kernel-log")
    text = doubles.outputs(NAMES[1])[tool].text
    changed = f"{text}{case['lines']}\n" if "lines" in case else last(text, case["old"], case["new"])
    of_both = case["verdict"] == "PASS"  # a healthy line must not make two hosts differ
    hosts = {(name, tool): Output(changed) for name in (NAMES if of_both else NAMES[1:])}
    judgement, other = judged(case["check"], FakeHosts(hosts))
    assert (str(judgement.verdict), case["says"] in judgement.reason) == (case["verdict"], True), judgement
    assert other == of_second_judge(judgement)
    assert judgement.verdict == Verdict.PASS or NAMES[1] in judgement.reason


def test_there_are_more_than_sixty_hostile_outputs_with_their_sources() -> None:
    assert len([case for case in CASES if case["verdict"] != "PASS"]) > 60
    assert all(case["source"] for case in CASES)
