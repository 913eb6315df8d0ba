"""Worlds that a soak found and that are not mended yet: who mends one moves its file to `tests/planner/regressions`."""

from pathlib import Path

import pytest

from orchestrator.simulation.reader import load
from tests.world.settling import Pace, settle

PACES = {
    "covered-life-1850069": (Pace(1, is_mixed=True), 1_850_069_001),
    "nomination-lost-life-1820095": (Pace(5, is_mixed=True), 1_820_095_001),
    "nomination-lost-saturated-flat-1840112": (Pace(5), 1_840_112_001),
}


@pytest.mark.xfail(strict=True, reason="not mended yet")
@pytest.mark.parametrize("name", PACES)
def test_an_open_world_settles(name: str) -> None:
    pace, seed = PACES[name]
    path = Path(__file__).with_name("open") / f"{name}.yaml"
    assert settle(load(path), pace, seed).violations == {}
