"""The questions of a run in the order in which they are asked: the acceptance test plan."""

from dataclasses import dataclass

from validation.judge.invariants import CHECKS
from validation.scenario.loader import LoadedScenario, LoadedStep, chains


@dataclass(frozen=True, slots=True)
class Question:
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
        return self.step.step.id if self.step is not None else f"invariant/{self.invariant}"

    @property
    def title(self) -> str:
        """What is asked, in a sentence."""
        if self.step is not None:
            return self.step.step.title
        return (
            (CHECKS[self.invariant].__doc__ or "")
            .split("\n\n")[0]
            .strip()
            .replace("\n", " ")
            .replace("    ", "")
        )


def plan(scenarios: list[LoadedScenario]) -> list[Question]:
    """All questions: group by group, in each scenario its steps and then its invariants."""
    questions: list[Question] = []
    for number, group in enumerate(chains(scenarios)):
        for scenario in group:
            questions += [Question(number, scenario, step=step) for step in scenario.steps]
            questions += [Question(number, scenario, invariant=name) for name in CHECKS]
    return questions
