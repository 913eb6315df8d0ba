"""Scenarios that were parsed, checked and joined with the scenarios that they continue, ready to run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from validation.judge.evidence import NO_EVIDENCE, Evidence
from validation.judge.scheduling import oracle
from validation.judge.scheduling.expectation import Expectation
from validation.judge.training.training_job import TrainingJob
from validation.judge.use.utilization import Standard
from validation.scenario.commands import Action
from validation.scenario.projects import LoadedProject
from validation.scenario.schema import Cluster, Erratum, Scenario
from validation.scenario.upkeep import NO_UPKEEP, Upkeep

SHIPPED: Final = Path(__file__).resolve().parent.parent / "scenarios"
NO_CLUSTER: Final = Cluster(profile="", nodes=0, gpus_per_node=0)


@dataclass(frozen=True, slots=True)
class StepCommand:
    """A command line of a step, and the workloads that it submits or deletes."""

    line: str
    action: Action


@dataclass(frozen=True, slots=True)
class LoadedStep:
    """A step of a file, parsed and checked, ready to run and to be judged. `errata` are ids."""

    id: str
    title: str
    source: str
    errata: tuple[str, ...]
    excused: tuple[str, ...]
    """The fields that may contradict the oracle, because an erratum of the step excuses it."""
    commands: tuple[StepCommand, ...]
    expectation: Expectation
    demands: tuple[oracle.Demand, ...]
    """The workloads that exist after this step."""
    capacity_milli: int
    """The GPUs of the nodes that take pods after this step."""
    division: oracle.Division
    """The result of the oracle for the state after this step."""
    least: Evidence
    """Minimum evidence for a verdict: all nodes and GPUs of the cluster, and every submitted pod."""
    within_ms: int
    hold_ms: int
    default_project: str = ""
    """The project that `muster project set` makes the default before the commands; empty if it does not run."""
    refused: tuple[str, ...] = ()
    """Command lines that must fail, and change nothing."""
    upkeep: Upkeep = NO_UPKEEP
    """The work of an administrator after the commands."""


@dataclass(frozen=True, slots=True)
class LoadedTraining:
    """A job whose result is judged. The result must exist `within_ms` after the last step."""

    job: TrainingJob
    source: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class LoadedUtilization:
    """The required use of the GPUs. `least` includes one sample of each GPU for every ten seconds of the window."""

    standard: Standard
    source: str
    least: Evidence


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario of a file, parsed and checked, with the cluster and the projects of the scenarios that it
    continues.
    """

    scenario: Scenario
    path: Path
    sha256: str
    cluster: Cluster
    projects: dict[str, LoadedProject]
    steps: tuple[LoadedStep, ...]
    errata: tuple[Erratum, ...]
    training: LoadedTraining | None = None
    utilization: LoadedUtilization | None = None
    node_types: tuple[str, ...] = ()
    """The groups of the nodes while the scenario runs."""
    size: str = ""
    """The size for which the scenario was scaled, such as `8x8`; empty if it was not scaled."""

    @property
    def id(self) -> str:
        """The id of the scenario, unique among the loaded scenarios."""
        return self.scenario.metadata.id

    @property
    def quotas_milli(self) -> dict[str, int]:
        """The quota of each project in thousandths of a GPU."""
        return {name: project.quota_milli for name, project in self.projects.items()}

    @property
    def shipped(self) -> bool:
        """Whether the file of the scenario ships with muster."""
        return self.path.resolve().is_relative_to(SHIPPED)

    @property
    def least(self) -> Evidence:
        """Minimum evidence for a verdict on an invariant over the scenario."""
        if self.scenario.layers:
            return NO_EVIDENCE
        if self.scenario.api:
            return Evidence(self.cluster.nodes, self.cluster.nodes * self.cluster.gpus_per_node)
        return Evidence(self.cluster.nodes, self.cluster.nodes * self.cluster.gpus_per_node, 1, 1)
