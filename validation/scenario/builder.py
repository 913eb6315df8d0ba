"""Checks the scenario of a file, and joins it with the scenarios that it continues."""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from validation.judge.api.api_checks import API_CHECKS
from validation.judge.api.containers import LOG, SHELL, VOLUMES
from validation.judge.evidence import Evidence
from validation.judge.training.training_job import DIGESTS, TrainingJob
from validation.judge.use.utilization import MAX_GAP_MS, Standard
from validation.judge.views.lists import JOBS, VIEWS, is_view, job_of
from validation.scenario.commands import Action, demands
from validation.scenario.document import Document, content_of
from validation.scenario.loaded import (
    NO_CLUSTER,
    LoadedScenario,
    LoadedStep,
    LoadedTraining,
    LoadedUtilization,
)
from validation.scenario.projects import LoadedProject, load_projects
from validation.scenario.schema import Cluster, Erratum, Scenario
from validation.scenario.steps import StepLoader


def load_errata(directory: Path) -> list[Erratum]:
    """Return the errata of the scenarios in `directory`; the list is empty if there is no errata.yaml."""
    path = directory / "errata.yaml"
    return list(_read(path, content_of(path))) if path.exists() else []


@lru_cache(maxsize=16)
def _read(path: Path, _content: bytes) -> list[Erratum]:
    """Return the errata in a file with this content, which every scenario in its folder needs."""
    return Document(path).convert(list[Erratum])


class Builder:
    """Checks one scenario against the scenario that it continues, and joins the two."""

    def __init__(
        self,
        document: Document,
        scenario: Scenario,
        before: LoadedScenario | None,
        history: list[Action],
        ended: frozenset[str],
    ) -> None:
        self.document = document
        self.scenario = scenario
        self.before = before
        self.history = history
        self.ended = ended
        self.errata = {erratum.id: erratum for erratum in load_errata(document.path.parent)}

    def build(self) -> LoadedScenario:
        """Return the scenario, joined with the scenarios that it continues. Raises ScenarioError."""
        if self.scenario.layers:
            return self._layers()
        if self.scenario.api:
            return self._api()
        cluster = self._cluster()
        jobs = {demand.project: demand.name for demand in reversed(demands(self.history))}
        node_types = self._node_types()
        before = self.before.projects if self.before else {}
        projects = load_projects(self.document, self.scenario.projects, node_types, before, jobs)
        self._check_quotas(cluster, projects)
        steps = self._steps(cluster, projects)
        self._check_views()
        for name in self.scenario.claims:
            if name not in projects:
                raise self.document.error(("claims", name), f"unknown project `{name}`")
        return LoadedScenario(
            scenario=self.scenario,
            path=self.document.path,
            sha256=hashlib.sha256(self.document.text.encode()).hexdigest(),
            cluster=cluster,
            projects=projects,
            steps=steps,
            errata=self._errata(),
            training=self._training(cluster),
            utilization=self._utilization(cluster),
            node_types=node_types,
        )

    def _steps(self, cluster: Cluster, projects: Mapping[str, LoadedProject]) -> tuple[LoadedStep, ...]:
        """Return the steps, and add their actions to `history`."""
        if not self.scenario.steps:
            raise self.document.error(("steps",), "a scenario needs at least one step")
        loader = StepLoader(
            self.document,
            cluster,
            projects,
            errata=self.errata,
            history=self.history,
            ended=self.ended,
        )
        step_ids = {"api", "invariant", "training", "utilization", "view"}
        steps = []
        for index, step in enumerate(self.scenario.steps):
            place = ("steps", index)
            if step.id in step_ids:
                raise self.document.error((*place, "id"), f"duplicate or reserved step id `{step.id}`")
            step_ids.add(step.id)
            steps.append(loader.load(step, place))
        if loader.drained_milli:
            raise self.document.error(("steps",), "the last step leaves nodes cordoned: `uncordon` them")
        self.history = loader.history
        return tuple(steps)

    def _errata(self) -> tuple[Erratum, ...]:
        """Return the errata that the scenario or a step names, each once.

        Raises ScenarioError if there is no such erratum.
        """
        names = [
            *self.scenario.metadata.errata,
            *(erratum for step in self.scenario.steps for erratum in step.errata),
        ]
        for name in names:
            if name not in self.errata:
                raise self.document.error(("metadata", "errata"), f"unknown erratum `{name}`")
        return tuple(self.errata[name] for name in dict.fromkeys(names))

    def _layers(self) -> LoadedScenario:
        """Return the scenario of checks of the hosts, which need no cluster."""
        scenario = self.scenario
        if self._has_more() or scenario.cluster or scenario.api:
            raise self.document.error(("layers",), "a scenario with `layers` has nothing else")
        if len(set(scenario.layers)) != len(scenario.layers):
            raise self.document.error(("layers",), "a layer is there twice")
        return self._bare(NO_CLUSTER)

    def _api(self) -> LoadedScenario:
        """Return the scenario of requests to the API server, which need no project."""
        names = self.scenario.api
        if self._has_more() or self.scenario.cluster is None:
            raise self.document.error(("api",), "a scenario with `api` has a `cluster`, and nothing else")
        for index, name in enumerate(names):
            if name not in API_CHECKS or name in names[:index]:
                known = ", ".join(API_CHECKS)
                raise self.document.error(("api", index), f"unknown or repeated `{name}`; there are: {known}")
        return self._bare(self.scenario.cluster)

    def _has_more(self) -> bool:
        """Return whether the scenario has a field that needs a project."""
        scenario = self.scenario
        parts = (scenario.steps, scenario.continues, scenario.projects, scenario.training, scenario.views)
        others = (scenario.node_types, scenario.claims)
        return any((*parts, *others)) or scenario.utilization is not None

    def _bare(self, cluster: Cluster) -> LoadedScenario:
        sha256 = hashlib.sha256(self.document.text.encode()).hexdigest()
        return LoadedScenario(self.scenario, self.document.path, sha256, cluster, {}, (), ())

    def _check_views(self) -> None:
        """Raise ScenarioError if a view is unknown, is named twice, or names a job that does not exist."""
        views = self.scenario.views
        for index, name in enumerate(views):
            if not is_view(name) or name in views[:index]:
                of_jobs = (f"{kind}/PROJECT/NAME" for kind in (JOBS, LOG, SHELL, *VOLUMES))
                known = ", ".join([*VIEWS, *of_jobs])
                raise self.document.error(
                    ("views", index), f"unknown or repeated view `{name}`; there are: {known}"
                )
            job = job_of(name)
            if job is not None:
                self._check_alive(*job, "views", index)

    def _check_alive(self, project: str, workload: str, *place: str | int) -> None:
        """Raise ScenarioError if the job does not exist after the last step."""
        if (project, workload) not in {(demand.project, demand.name) for demand in demands(self.history)}:
            raise self.document.error(place, f"no step leaves a job `{workload}` in `{project}`")

    def _training(self, cluster: Cluster) -> LoadedTraining | None:
        """Return the job whose result is judged, None if there is none. The job must exist after the last step."""
        training = self.scenario.training
        if training is None:
            return None
        self._check_alive(training.project, training.workload, "training", "workload")
        job = TrainingJob(
            training.project, training.workload, training.device, training.devices, training.mounts
        )
        if training.result == DIGESTS:
            every = cluster.nodes * cluster.gpus_per_node
            job = msgspec.structs.replace(job, devices=every, result=DIGESTS)
        return LoadedTraining(
            job, training.source, self.document.duration_ms(("training", "within"), training.within)
        )

    def _utilization(self, cluster: Cluster) -> LoadedUtilization | None:
        """Return the required use of the GPUs after the last step, None if there is none."""
        utilization = self.scenario.utilization
        if utilization is None:
            return None
        window_ms = self.document.duration_ms(("utilization", "window"), utilization.window)
        if not window_ms:
            raise self.document.error(("utilization", "window"), "a window of no time has nothing in it")
        standard = Standard(
            window_ms,
            self.document.duration_ms(("utilization", "warmUp"), utilization.warm_up),
            utilization.minimum_percent,
            utilization.minimum_percent_of_a_gpu,
        )
        gpus = cluster.nodes * cluster.gpus_per_node
        least = Evidence(cluster.nodes, gpus, 1, 1, gpus * max(1, window_ms // MAX_GAP_MS))
        return LoadedUtilization(standard, utilization.source, least)

    def _cluster(self) -> Cluster:
        if self.before is not None:
            if self.scenario.cluster is not None:
                message = f"`cluster` is inherited from `{self.before.id}`: remove it here"
                raise self.document.error(("cluster",), message)
            return self.before.cluster
        if self.scenario.cluster is None:
            raise self.document.error((), "a scenario that continues no other needs `cluster`")
        return self.scenario.cluster

    def _check_quotas(self, cluster: Cluster, projects: Mapping[str, LoadedProject]) -> None:
        capacity = cluster.nodes * cluster.gpus_per_node * 1000
        quotas_milli = sum(project.quota_milli for project in projects.values())
        if quotas_milli > capacity:
            message = f"the quotas sum to {quotas_milli / 1000:g} GPUs, the cluster has {capacity / 1000:g}"
            raise self.document.error(("projects",), message)

    def _node_types(self) -> tuple[str, ...]:
        types = self.scenario.node_types
        if types and self.before is not None:
            raise self.document.error(("nodeTypes",), "`nodeTypes` are those of the scenario before")
        if len(set(types)) != len(types):
            raise self.document.error(("nodeTypes",), "a group is there twice")
        return tuple(types) if self.before is None else self.before.node_types
