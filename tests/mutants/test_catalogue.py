"""The catalogue of defects follows the code: every edit applies, and what it makes is still Python, or YAML."""

import ast
from pathlib import Path

import pytest
import yaml

from tests.mutants.catalogue import REPOSITORY, Mutant, mutants, write
from validation.scenario.loader import find, load


@pytest.mark.parametrize("mutant", mutants(), ids=lambda each: each.name)
def test_every_defect_applies_to_the_code_as_it_is(mutant: Mutant, tmp_path: Path) -> None:
    write(mutant, tmp_path / "mutant")
    for edit in mutant.edits:
        text = (tmp_path / "mutant" / edit.file).read_text()
        if edit.file.endswith((".yml", ".yaml")):
            yaml.safe_load(text)
        elif edit.file.endswith(".py"):
            ast.parse(text)


def test_every_defect_names_a_scenario_and_a_step_that_exist() -> None:
    scenarios = {each.scenario.metadata.id: each.scenario for each in load(find([]))}
    for mutant in (each for each in mutants() if each.scenario):
        scenario, _, step = mutant.killed_by.partition("/")
        assert scenario == mutant.scenario
        assert not step or step in {each.id for each in scenarios[scenario].steps}


def test_every_other_defect_names_a_test_that_exists() -> None:
    for mutant in (each for each in mutants() if not each.scenario):
        file, _, name = mutant.killed_by.partition("::")
        assert f"def {name}(" in (REPOSITORY / file).read_text()
