"""The checks of a run in the order in which they run: the acceptance test plan."""

from dataclasses import dataclass

from validation.check_titles import UTILIZATION, title_of
from validation.errors import ScenarioError
from validation.judge.scheduling.invariants import INVARIANTS
from validation.layers.checks import LAYERS
from validation.scenario.loaded import LoadedScenario, LoadedStep
from validation.scenario.loader import chains


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a run. It is one of these:

    - a step of a scenario
    - a list that muster shows after a step
    - the result of a training job
    - the use of the GPUs in a scenario
    - an invariant over all events of a scenario
    - a layer of the hosts
    - an answer of the API server

    `group` numbers the scenarios that share a state.
    """

    group: int
    scenario: LoadedScenario
    step: LoadedStep | None = None
    view: str = ""
    training: str = ""
    utilization: bool = False
    invariant: str = ""
    layer: str = ""
    api: str = ""

    @property
    def id(self) -> str:
        """The id: `<scenario>/<step>`, `<scenario>/utilization`, or with the kind: `<scenario>/view/<name>`,
        `…/training/…`.
        """
        return f"{self.scenario.id}/{self.name}"

    @property
    def name(self) -> str:
        """The id without the scenario."""
        if self.step is not None:
            return self.step.id
        if self.layer:
            return f"layer/{self.layer}"
        if self.api:
            return f"api/{self.api}"
        if self.view:
            return f"view/{self.view}"
        if self.utilization:
            return UTILIZATION
        return f"training/{self.training}" if self.training else f"invariant/{self.invariant}"

    @property
    def title(self) -> str:
        """The checked condition, in a sentence."""
        return self.step.title if self.step is not None else title_of(self.name)


def plan(scenarios: list[LoadedScenario]) -> list[Check]:
    """Return all checks, group by group.

    The order in a scenario is: steps, views, results of jobs, use of GPUs, invariants.
    """
    checks: list[Check] = []
    for number, group in enumerate(chains(scenarios)):
        for scenario in group:
            if scenario.scenario.layers:
                checks += _layers(number, scenario)
                continue
            if scenario.scenario.api:
                checks += [Check(number, scenario, api=name) for name in scenario.scenario.api]
                continue
            checks += [Check(number, scenario, step=step) for step in scenario.steps]
            checks += [Check(number, scenario, view=name) for name in scenario.scenario.views]
            if scenario.training is not None:
                checks += [Check(number, scenario, training=name) for name in scenario.training.job.checks]
            if scenario.utilization is not None:
                checks.append(Check(number, scenario, utilization=True))
            checks += [Check(number, scenario, invariant=name) for name in invariants_of(scenario)]
    return checks


def invariants_of(scenario: LoadedScenario) -> list[str]:
    """Return the invariants that are checked over the scenario.

    Some are checked only if the scenario can have a subject.
    """
    projects, steps = scenario.projects.values(), scenario.steps
    applies = {
        "interactive-time-limit": any(project.interactive_limit_ms for project in projects),
        "node-affinity": any(project.limits_nodes for project in projects),
        "cordoned-node": any(step.upkeep.drain is not None for step in steps),
        "nominations-last": any(step.upkeep.restart_operator for step in steps),
    }
    return [name for name in INVARIANTS if applies.get(name, True)]


def _layers(number: int, scenario: LoadedScenario) -> list[Check]:
    unknown = next((name for name in scenario.scenario.layers if name not in LAYERS), None)
    if unknown is not None:
        raise ScenarioError(f"{scenario.path}: there is no layer `{unknown}`; there are: {', '.join(LAYERS)}")
    return [Check(number, scenario, layer=name) for name in scenario.scenario.layers]
