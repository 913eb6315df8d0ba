"""Grafana's own library for dashboards (grafana-foundation-sdk, in Go) reads every shipped dashboard."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from orchestrator.cli.monitoring import monitoring_files

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(shutil.which("go") is None, reason="there is no 'go' on PATH"),
]

SOURCES: Final = Path(__file__).parent / "grafana"
DASHBOARDS: Final = {name: text for name, text in monitoring_files().items() if name.endswith(".json")}
DAMAGES: Final[dict[str, tuple[Callable[[dict[str, Any]], object], str]]] = {
    "a panel of no type": (lambda panel: panel.update(type="statt"), 'no panel of type "statt"'),
    "a field that panels have not": (lambda panel: panel.update(titel=""), "unexpected field 'titel'"),
    "an option of other panels": (
        lambda panel: panel["options"].update(legend={}),
        "unexpected field 'legend'",
    ),
    "a unit that is a number": (
        lambda panel: panel["fieldConfig"]["defaults"].update(unit=3),
        "of type string",
    ),
    "an expression that is a number": (lambda panel: panel["targets"][0].update(expr=3), "of type string"),
    "a query of another database": (lambda panel: panel["targets"][0].update(rawSql=""), "field 'rawSql'"),
    "no expression": (lambda panel: panel["targets"][0].pop("expr"), "expr: required field is missing"),
    "wider than the page": (lambda panel: panel["gridPos"].update(w=40), "gridPos.w: must be <= 24"),
    "a datasource by its name": (lambda panel: panel.update(datasource="Prometheus"), "panels[0].datasource"),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that reads a dashboard."""
    loaded = subprocess.run(
        ["go", "mod", "download"], cwd=SOURCES, capture_output=True, text=True, timeout=120, check=False
    )
    if loaded.returncode:
        pytest.skip(f"grafana-foundation-sdk cannot be had: {loaded.stderr.strip()}")
    program = tmp_path_factory.mktemp("grafana") / "reader"
    built = subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(program), "."],
        cwd=SOURCES, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return program


def complaints(reader: Path, text: str) -> str:
    done = subprocess.run([reader], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert (done.returncode == 0) == (done.stdout == "")
    return done.stdout


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_takes_every_dashboard_as_it_is(reader: Path, name: str) -> None:
    assert complaints(reader, DASHBOARDS[name]) == ""


@pytest.mark.parametrize(("damage", "complaint"), DAMAGES.values(), ids=DAMAGES)
def test_grafana_refuses_a_damaged_dashboard(
    reader: Path, damage: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    board = json.loads(DASHBOARDS["muster-projects.json"])
    damage(board["panels"][0])
    assert complaint in complaints(reader, json.dumps(board))
