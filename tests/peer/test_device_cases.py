"""The cases of Kubernetes' own device allocator, run against muster's allocator.

`MUSTER_DRA_CASES` names the file of cases, by default `../shared/peer/dra/visible.json.gz` beside the checkout;
`check_allocation.py` is in the same folder. Without this file the tests are skipped. `MUSTER_DRA_RESULTS` names the
file for the results, by default `reports/dra-results.json`.
"""

import gzip
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.peer.device_cases import solve

ROOT = Path(__file__).parents[2]
DEFAULT = ROOT.parent / "shared" / "peer" / "dra" / "visible.json.gz"
CASES = Path(os.environ.get("MUSTER_DRA_CASES") or DEFAULT)
CHECKS = [folder / "check_allocation.py" for folder in (CASES.parent, DEFAULT.parent)]
RESULTS = Path(os.environ.get("MUSTER_DRA_RESULTS") or ROOT / "reports" / "dra-results.json")

AGREE_AT_LEAST = 0.99

if not CASES.is_file() or not any(check.is_file() for check in CHECKS):
    pytest.skip("no cases of devices: name a file of them with MUSTER_DRA_CASES", allow_module_level=True)

Compare = Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[str]]


def load_compare() -> Compare:
    path = next(check for check in CHECKS if check.is_file())
    spec = importlib.util.spec_from_file_location("check_allocation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    compare: Compare = module.compare
    return compare


@cache
def differences() -> Mapping[str, Sequence[str]]:
    compare = load_compare()
    opener = gzip.open if CASES.suffix == ".gz" else open
    with opener(CASES, "rt", encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    return {case["id"]: compare(case, solve(case)) for case in cases}


def test_claims_get_the_devices_that_the_scheduler_of_kubernetes_would_give_them() -> None:
    failed = {name: problems for name, problems in differences().items() if problems}
    assert len(failed) <= (1 - AGREE_AT_LEAST) * len(differences()), failed


def test_the_results_about_devices_are_written(record_property: Callable[[str, object], None]) -> None:
    results = {name: "fail" if problems else "pass" for name, problems in differences().items()}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"cases": results}, indent=1) + "\n")
    record_property("cases", len(results))
    assert json.loads(RESULTS.read_text())["cases"] == results
