"""The checks of a run in the order in which they run: the acceptance test plan."""

import inspect
from dataclasses import dataclass

from validation.judge.invariants import INVARIANTS
from validation.scenario.loader import LoadedScenario, LoadedStep, chains


@dataclass(frozen=True, slots=True)
class Check:
    """A step of a scenario, or an invariant over all of it. `group` numbers the scenarios that share a
    state.
    """

    group: int
    scenario: LoadedScenario
    step: LoadedStep | None = None
    invariant: str = ""

    @property
    def id(self) -> str:
        """`<scenario>/<step>` or `<scenario>/invariant/<name>`."""
        return f"{self.scenario.id}/{self.name}"

    @property
    def name(self) -> str:
        """The id without the scenario."""
        return self.step.id if self.step is not None else f"invariant/{self.invariant}"

    @property
    def title(self) -> str:
        """What is checked, in a sentence."""
        if self.step is not None:
            return self.step.title
        summary, _, _ = (inspect.getdoc(INVARIANTS[self.invariant]) or "").partition("\n\n")
        return " ".join(summary.split())


def plan(scenarios: list[LoadedScenario]) -> list[Check]:
    """All checks: group by group, in each scenario its steps and then its invariants."""
    checks: list[Check] = []
    for number, group in enumerate(chains(scenarios)):
        for scenario in group:
            checks += [Check(number, scenario, step=step) for step in scenario.steps]
            checks += [Check(number, scenario, invariant=name) for name in INVARIANTS]
    return checks
