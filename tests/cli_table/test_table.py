"""Every command line in the papers, and in scripts for Run:AI, unchanged, with `runai`."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli_table.table import Scenario, Site, carry_out, cells, load

HERE = Path(__file__).parent
SCENARIOS = [scenario for path in sorted(HERE.glob("*.yaml")) for scenario in load(path)]
PIPELINES = sorted((HERE / "pipelines").glob("*.sh"))


@pytest.mark.lab
@pytest.mark.real_nodes
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: re.sub(r"\W+", "-", each.name))
def test_a_scenario_does_as_its_table_says(
    scenario: Scenario, site: Site, with_quotas: Callable[[Mapping[str, int]], None]
) -> None:
    with_quotas(scenario.quotas)
    carry_out(scenario, site)


@pytest.mark.lab
@pytest.mark.real_nodes
@pytest.mark.parametrize("script", PIPELINES, ids=lambda path: path.stem)
def test_a_pipeline_of_researchers_works(script: Path, site: Site) -> None:
    done = site.shell(f"bash -eu -o pipefail {script}")
    assert done.returncode == 0, f"{script.name}\n{done.stdout}{done.stderr}"


def test_a_table_is_read_by_its_header_and_not_by_its_words() -> None:
    text = (
        "Showing jobs for project a\nNAME  STATUS   CREATED BY CLI  URL(S)\nx     Running  true            \n"
    )
    assert cells(text) == (
        ["NAME", "STATUS", "CREATED BY CLI", "URL(S)"],
        {"x": {"NAME": "x", "STATUS": "Running", "CREATED BY CLI": "true", "URL(S)": ""}},
    )


def test_a_step_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("- {scenario: s, steps: [{line: 'true', exti: 1}]}")
    with pytest.raises(ValueError, match="exti"):
        load(tmp_path / "t.yaml")
