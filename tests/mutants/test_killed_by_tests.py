"""The defects that a test notices: each does. Those that a scenario notices need a lab each: `make mutants`."""

import pytest

from tests.mutants.__main__ import kill
from tests.mutants.catalogue import Mutant, mutants

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    "mutant", [pytest.param(each, id=each.name) for each in mutants() if not each.scenario]
)
def test_the_defect_makes_its_test_fail(mutant: Mutant) -> None:
    outcome = kill(mutant)
    assert outcome.killed, outcome
