"""The checks of a run in the order in which they run: the acceptance test plan."""

import inspect
from dataclasses import dataclass

from validation.judge.invariants import INVARIANTS
from validation.judge.training_job import MOUNTS, RESNET50
from validation.scenario.loader import LoadedScenario, LoadedStep, chains

TRAINING_TITLES = {
    RESNET50: "ResNet-50 is trained to the end, and its loss falls",
    MOUNTS: "The images come over every mount, over each a fair part of them",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A step of a scenario, the result of its training job, or an invariant over all of it.

    `group` numbers the scenarios that share a state.
    """

    group: int
    scenario: LoadedScenario
    step: LoadedStep | None = None
    training: str = ""
    invariant: str = ""

    @property
    def id(self) -> str:
        """`<scenario>/<step>`, `<scenario>/training/<name>` or `<scenario>/invariant/<name>`."""
        return f"{self.scenario.id}/{self.name}"

    @property
    def name(self) -> str:
        """The id without the scenario."""
        if self.step is not None:
            return self.step.id
        return f"training/{self.training}" if self.training else f"invariant/{self.invariant}"

    @property
    def title(self) -> str:
        """What is checked, in a sentence."""
        if self.step is not None:
            return self.step.title
        if self.training:
            return TRAINING_TITLES[self.training]
        summary, _, _ = (inspect.getdoc(INVARIANTS[self.invariant]) or "").partition("\n\n")
        return " ".join(summary.split())


def plan(scenarios: list[LoadedScenario]) -> list[Check]:
    """All checks: group by group, in each scenario its steps, what its training job left, and then its invariants."""
    checks: list[Check] = []
    for number, group in enumerate(chains(scenarios)):
        for scenario in group:
            checks += [Check(number, scenario, step=step) for step in scenario.steps]
            if scenario.training is not None:
                checks += [Check(number, scenario, training=name) for name in scenario.training.job.checks]
            checks += [Check(number, scenario, invariant=name) for name in INVARIANTS]
    return checks
