"""The requirements that a run must prove: those of the catalogue, limited by a profile and the chosen parts."""

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from validation.catalogue.catalogue import PATH, Catalogue, Profile, Requirement, checks_of, load_catalogue
from validation.errors import CatalogueError
from validation.judge.requirements import RequirementFacts
from validation.planned_checks import plan
from validation.scenario.loaded import LoadedScenario
from validation.scenario.loader import find, load, with_predecessors
from validation.targets.kinds import CLUSTER, LAB, PLANNER, REAL_LAB

PROFILES = {LAB: "lab", REAL_LAB: "lab-real", CLUSTER: "current", PLANNER: "planner"}
"""The profile of each kind of target, if none was chosen."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The catalogue under a profile. `parts` limits the run to these parts of the catalogue; empty: all parts."""

    catalogue: Catalogue
    profile: Profile
    parts: tuple[str, ...]
    check_ids: tuple[str, ...]
    """All checks that ship, whether they run or not."""

    @property
    def facts(self) -> list[RequirementFacts]:
        """The facts about every requirement that the judge needs."""
        in_part = {requirement.id for requirement in self.catalogue.part_requirements(self.parts)}
        return [
            RequirementFacts(
                id=requirement.id,
                checks=checks_of(requirement, self.check_ids),
                not_applicable=self.profile.excludes(requirement),
                in_part=requirement.id in in_part,
            )
            for requirement in self.catalogue.requirements
        ]

    def excludes(self, check_id: str) -> str:
        """Return the reason if a check does not apply because the profile excludes all requirements that it proves.

        Empty if it applies.
        """
        proven = [r for r in self.catalogue.requirements if checks_of(r, [check_id])]
        reasons = [self.profile.excludes(requirement) for requirement in proven]
        return reasons[0] if reasons and all(reasons) else ""

    def excludes_scenario(self, scenario: LoadedScenario) -> str:
        """Return the reason if the scenario does not run because none of its steps applies.

        Empty if at least one step applies.
        """
        reasons = [self.excludes(f"{scenario.id}/{step.id}") for step in scenario.steps]
        return reasons[0] if reasons and all(reasons) else ""

    def select(self, scenarios: Sequence[LoadedScenario]) -> list[LoadedScenario]:
        """Return the scenarios that the chosen parts need, and the scenarios that they continue.

        Scenarios of hosts whose checks do not apply are left out; the requirements have the reason. Raises
        CatalogueError if no scenario is left.
        """
        applying = [
            scenario
            for scenario in scenarios
            if not scenario.scenario.layers or not all(self.excludes(check.id) for check in plan([scenario]))
        ]
        if not self.parts:
            return applying
        patterns = [
            pattern.partition("/")[0]
            for requirement in self.catalogue.part_requirements(self.parts)
            for pattern in requirement.checks
        ]
        names = {s.id for s in applying if any(fnmatchcase(s.id, pattern) for pattern in patterns)}
        if not names:
            raise CatalogueError(self._nothing())
        return with_predecessors(applying, names)

    def _nothing(self) -> str:
        """Return why there is no check of the chosen parts."""
        wanted = self.catalogue.part_requirements(self.parts)
        parts = ", ".join(self.parts)
        if not any(requirement.checks for requirement in wanted):
            return f"no scenario proves anything of {parts}: no check of it exists yet"
        excluded = [reason for requirement in wanted if (reason := self.profile.excludes(requirement))]
        if len(excluded) == len(wanted):
            return f"nothing of {parts} applies to the profile {self.profile.id}: {excluded[0]}; name another --profile"
        return f"no chosen scenario proves anything of {parts}"

    def checks(self, requirement: Requirement) -> list[str]:
        """Return the ids of the checks that prove the requirement."""
        return checks_of(requirement, self.check_ids)


def open_acceptance(profile: str, parts: Iterable[str], target: str, path: Path = PATH) -> Acceptance:
    """Return the requirements that a run on the target must prove. An empty `profile` means the target's own.

    Raises CatalogueError.
    """
    catalogue = load_catalogue(path)
    chosen = catalogue.profile(profile or PROFILES[target])
    if target not in chosen.targets:
        raise CatalogueError(f"the profile `{chosen.id}` is not for the target {target}")
    names = tuple(dict.fromkeys(parts))
    catalogue.part_requirements(names)
    return Acceptance(catalogue, chosen, names, shipped_check_ids())


@functools.cache
def shipped_check_ids() -> tuple[str, ...]:
    """Return the ids of all checks that ship with muster."""
    return tuple(check.id for check in plan(load(find())))


def foreign(scenarios: Collection[LoadedScenario]) -> list[str]:
    """Return a sentence for each scenario that does not ship with muster.

    A run of such a scenario is not an acceptance.
    """
    return [
        f"scenario {scenario.id} is not one that ships with muster"
        for scenario in scenarios
        if not scenario.shipped
    ]
