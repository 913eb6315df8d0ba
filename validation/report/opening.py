"""The parts of the record that exist before a run: the errata of its scenarios, and defects from the kill matrix."""

from collections.abc import Iterable

from validation.catalogue.kill_matrix import load_mutants
from validation.report.record import MutantRecord
from validation.scenario.loaded import LoadedScenario
from validation.scenario.schema import Erratum


def mutants_of(check_ids: Iterable[str]) -> list[MutantRecord]:
    """Return the defects that these checks were shown to detect."""
    ids = list(check_ids)
    mutants = [MutantRecord(mutant.name, mutant.defect, mutant.killers(ids)) for mutant in load_mutants()]
    return [mutant for mutant in mutants if mutant.killers]


def errata_of(scenarios: Iterable[LoadedScenario]) -> list[Erratum]:
    """Return the errata of the scenarios, each once."""
    return list({erratum.id: erratum for scenario in scenarios for erratum in scenario.errata}.values())
