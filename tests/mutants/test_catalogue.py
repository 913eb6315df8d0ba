"""The catalogue of defects fits the code: every edit applies, and the edited file is still valid Python or YAML."""

import ast
from pathlib import Path

import pytest
import yaml

from tests.mutants.catalogue import REPOSITORY, Edit, Mutant, edited_files, mutants, write
from validation.judge.scheduling.invariants import INVARIANTS
from validation.scenario.loader import find, load


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_every_defect_applies_to_the_code_as_it_is(mutant: Mutant) -> None:
    for file, text in edited_files(mutant).items():
        if file.endswith((".yml", ".yaml")):
            yaml.safe_load(text)
        elif file.endswith(".py"):
            ast.parse(text)


def test_a_defect_is_written_into_a_copy_of_the_code_that_its_scenario_runs(tmp_path: Path) -> None:
    edit = Edit("orchestrator/names.py", "GROUP: Final = ", "GROUP: Final = 2 or ")
    write(Mutant("other", "a second name", "muster-gang", "muster-gang", (edit,)), tmp_path)
    text = (REPOSITORY / edit.file).read_text()
    assert (tmp_path / edit.file).read_text() == text.replace(edit.replace, edit.with_) != text
    assert [folder.name for folder in tmp_path.iterdir()] == ["orchestrator"]


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("orchestrator/names.py", "nothing has this", "contains 0 times"),
        ("orchestrator/names.py", "muster", "times, not once"),
        ("docs/reference/glossary.md", "# ", "in no folder that is copied"),
    ],
)
def test_an_edit_that_does_not_apply_is_refused(file: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        edited_files(Mutant("other", "nothing", "muster-gang", "muster-gang", (Edit(file, text, ""),)))


def test_every_defect_names_a_scenario_and_a_step_that_exist() -> None:
    scenarios = {each.scenario.metadata.id: each.scenario for each in load(find([]))}
    for mutant in (each for each in mutants() if each.scenario):
        scenario, _, step = mutant.killed_by.partition("/")
        assert scenario == mutant.scenario
        steps = {each.id for each in scenarios[scenario].steps}
        assert not step or step in steps | {f"invariant/{name}" for name in INVARIANTS}


def test_every_other_defect_names_a_test_that_exists() -> None:
    for mutant in (each for each in mutants() if not each.scenario):
        file, _, name = mutant.killed_by.partition("::")
        # A name may end with one set of parameters: `test_x[report.html]`.
        assert f"def {name.partition('[')[0]}(" in (REPOSITORY / file).read_text()
