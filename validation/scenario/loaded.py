"""Scenarios as they run and are judged: parsed, checked, and joined with those that they continue."""

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
    """The fields in which an erratum of the step excuses a contradiction to the oracle."""
    commands: tuple[StepCommand, ...]
    expectation: Expectation
    demands: tuple[oracle.Demand, ...]
    """The workloads that exist after this step."""
    capacity_milli: int
    """The GPUs of the nodes that take pods after this step."""
    division: oracle.Division
    """The result of the oracle for the state after this step."""
    least: Evidence
    """The least to judge by: all nodes and GPUs of the cluster, and every pod that was submitted."""
    within_ms: int
    hold_ms: int
    refused: tuple[str, ...] = ()
    """Command lines that must fail, and change nothing."""
    upkeep: Upkeep = NO_UPKEEP
    """The work of an administrator after the commands."""


@dataclass(frozen=True, slots=True)
class LoadedTraining:
    """A job whose result is judged, and by when it must be there."""

    job: TrainingJob
    source: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class LoadedUtilization:
    """How much the GPUs must be used. `least`: also a sample of each GPU for every ten seconds of the window."""

    standard: Standard
    source: str
    least: Evidence


@dataclass(frozen=True, slots=True)
class LoadedScenario:
    """A scenario of a file, parsed and checked, with the cluster and quotas of those that it continues."""

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
    """The groups that the nodes are in while it runs."""
    size: str = ""
    """For which size it was scaled, `8x8`; empty: it is as printed."""

    @property
    def id(self) -> str:
        """Its name, unique among the loaded."""
        return self.scenario.metadata.id

    @property
    def quotas_milli(self) -> dict[str, int]:
        """By project, its quota in thousandths of a GPU."""
        return {name: project.quota_milli for name, project in self.projects.items()}

    @property
    def shipped(self) -> bool:
        """Whether its file came with muster."""
        return self.path.resolve().is_relative_to(SHIPPED)

    @property
    def least(self) -> Evidence:
        """The least by which an invariant over it can be judged."""
        if self.scenario.layers:
            return NO_EVIDENCE
        if self.scenario.api:
            return Evidence(self.cluster.nodes, self.cluster.nodes * self.cluster.gpus_per_node)
        return Evidence(self.cluster.nodes, self.cluster.nodes * self.cluster.gpus_per_node, 1, 1)
