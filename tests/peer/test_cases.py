"""The cases of another scheduler, run against the planner.

`MUSTER_PEER_CASES` names the file of cases, by default `../shared/peer/cases.json` beside the checkout. Without this
file the tests are skipped. `MUSTER_PEER_RESULTS` names the file for the results, by default
`reports/peer-results.json`.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.peer.differences import DIFFERENCES
from tests.peer.figures import run_unit_case
from tests.peer.scenarios import is_supported, problems_of

ROOT = Path(__file__).parents[2]
CASES = Path(os.environ.get("MUSTER_PEER_CASES") or ROOT.parent / "shared" / "peer" / "cases.json")
RESULTS = Path(os.environ.get("MUSTER_PEER_RESULTS") or ROOT / "reports" / "peer-results.json")

PLAIN_AT_LEAST = 0.97
MAX_DIFFERENCES = 0.03

if not CASES.is_file():
    pytest.skip("no peer cases: name a file of them with MUSTER_PEER_CASES", allow_module_level=True)


@dataclass(frozen=True)
class Outcome:
    """The result of a case. `rules` are the deliberate differences that explain a failure."""

    case: Mapping[str, Any]
    result: str
    problems: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


def run(case: Mapping[str, Any]) -> Outcome:
    if not is_supported(case):
        return Outcome(case, "unsupported")
    problems = tuple(problems_of(case))
    rules = tuple(each.rule for each in DIFFERENCES if problems and each.applies(case))
    return Outcome(case, "fail" if problems else "pass", problems, rules)


@cache
def outcomes() -> tuple[Outcome, ...]:
    return tuple(run(case) for case in json.loads(CASES.read_text())["cases"])


@cache
def unit_results() -> Mapping[str, str]:
    results: dict[str, str] = {}
    for case in json.loads(CASES.read_text())["unit_cases"]:
        name = str(case.get("id") or f"{case['file']}::{case['name']}")
        times = sum(each == name or each.startswith(f"{name}#") for each in results)
        results[f"{name}#{times + 1}" if times else name] = run_unit_case(case)
    return results


def listing(found: Iterable[Outcome]) -> str:
    return "\n".join(f"{each.case['id']}: {'; '.join(each.problems[:3])}" for each in found)


def test_every_single_function_agrees() -> None:
    assert [name for name, result in unit_results().items() if result == "fail"] == []


def test_plain_scenarios_agree_but_for_the_table_of_differences() -> None:
    plain = [each for each in outcomes() if each.case.get("plain")]
    failed = [each for each in plain if each.result == "fail"]
    assert [each for each in failed if not each.rules] == [], listing(failed)
    assert len(plain) - len(failed) >= PLAIN_AT_LEAST * len(plain), listing(failed)


def test_deliberate_differences_are_few() -> None:
    supported = [each for each in outcomes() if each.result != "unsupported"]
    explained = [each for each in supported if each.rules]
    assert len(explained) <= MAX_DIFFERENCES * len(supported), listing(explained)


def test_the_results_are_written(record_property: Callable[[str, object], None]) -> None:
    results = {
        "cases": {each.case["id"]: each.result for each in outcomes()},
        "unit_cases": dict(unit_results()),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for kind, found in results.items():
        record_property(kind, dict(Counter(found.values())))
    assert set(results["cases"].values()) <= {"pass", "fail", "unsupported"}
