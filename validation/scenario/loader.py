"""Loads scenario files: parses and checks them, and joins scenarios that continue others. Errors name file and line."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from validation.errors import ScenarioError
from validation.judge import oracle
from validation.judge.api_checks import API_CHECKS
from validation.judge.containers import LOG, SHELL, VOLUMES
from validation.judge.evidence import NO_EVIDENCE, Evidence
from validation.judge.expectation import Expectation
from validation.judge.training_job import TrainingJob
from validation.judge.utilization import MAX_GAP_MS, Standard
from validation.judge.views import JOBS, VIEWS, is_view, job_of
from validation.scenario.commands import Action, Delete, Submit, parse
from validation.scenario.document import Document
from validation.scenario.projects import LoadedProject, load_projects
from validation.scenario.scaling import Size, scale, size_of
from validation.scenario.schema import Cluster, Erratum, Scenario, Step, duration_ms, milli

SUFFIX = ".scenario.yaml"
SHIPPED = Path(__file__).resolve().parent.parent / "scenarios"
SUITES = tuple(SHIPPED / name for name in ("hosts", "cluster", "tr4858", "muster", "hosts-after"))
"""The hosts, the cluster on them, the reference, what protects the behaviour that the reference does not exercise, and
the hosts again."""


NO_CLUSTER = Cluster(profile="", nodes=0, gpus_per_node=0)


@dataclass(frozen=True, slots=True)
class StepCommand:
    """A command line of a step, and what it submits or deletes."""

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
    division: oracle.Division
    """What the oracle derives for the moment after this step."""
    least: Evidence
    """The least to judge by: all nodes and GPUs of the cluster, and every pod that was submitted."""
    within_ms: int
    hold_ms: int
    refused: tuple[str, ...] = ()
    """Command lines that must fail, and change nothing."""


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


def find(paths: list[Path] | None = None) -> list[Path]:
    """All scenario files below `paths` (default: those that ship with muster), those of one path sorted."""
    paths = paths or list(SUITES)
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files.update(dict.fromkeys(sorted(path.rglob(f"*{SUFFIX}"))))
        elif path.exists():
            files[path] = None
        else:
            raise ScenarioError(f"{path}: no such file or directory")
    if not files:
        raise ScenarioError(f"no {SUFFIX} file below {', '.join(str(path) for path in paths)}")
    return list(files)


def load(paths: list[Path], size: Size | None = None) -> list[LoadedScenario]:
    """The scenarios of `paths`, each after the one that it continues; for a site of `size` GPUs, None: as printed.

    Raises ScenarioError.
    """
    documents: dict[str, tuple[Document, Scenario]] = {}
    for path in paths:
        document = Document(path)
        scenario = document.convert(Scenario)
        first = documents.get(scenario.metadata.id)
        if first is not None:
            message = f"duplicate scenario id `{scenario.metadata.id}`, also in {first[0].path}"
            raise document.error(("metadata", "id"), message)
        documents[scenario.metadata.id] = (document, scenario)
    loaded: dict[str, LoadedScenario] = {}
    for name in documents:
        _resolve(name, documents, loaded, (), size)
    return list(loaded.values())


def select(scenarios: list[LoadedScenario], pattern: str) -> list[LoadedScenario]:
    """Those whose id matches the shell pattern, and all that they continue. Raises ScenarioError if none does."""
    matching = {scenario.id for scenario in scenarios if fnmatch(scenario.id, pattern)}
    if not matching:
        known = ", ".join(scenario.id for scenario in scenarios)
        raise ScenarioError(f"no scenario matches `{pattern}`; there are: {known}")
    return with_predecessors(scenarios, matching)


def with_predecessors(scenarios: list[LoadedScenario], names: set[str]) -> list[LoadedScenario]:
    """The named scenarios and all that they continue, in the order of `scenarios`."""
    by_id = {scenario.id: scenario for scenario in scenarios}
    selected: set[str] = set()
    for name in names:
        while name and name not in selected:
            selected.add(name)
            name = by_id[name].scenario.continues  # noqa: PLW2901 - walks back to the first
    return [scenario for scenario in scenarios if scenario.id in selected]


def chains(scenarios: list[LoadedScenario]) -> list[list[LoadedScenario]]:
    """Scenarios grouped by what they continue: a group shares one state, and groups are isolated from each
    other.
    """
    groups: dict[str, list[LoadedScenario]] = {}
    for scenario in scenarios:
        before = scenario.scenario.continues
        key = next((root for root, group in groups.items() if before and group[-1].id == before), scenario.id)
        groups.setdefault(key, []).append(scenario)
    return list(groups.values())


def load_errata(directory: Path) -> list[Erratum]:
    """The errata beside the scenarios of `directory`; none if there is no errata.yaml."""
    path = directory / "errata.yaml"
    return Document(path).convert(list[Erratum]) if path.exists() else []


def demands(history: list[Action]) -> list[oracle.Demand]:
    """The workloads that exist after `history`, in order of submission."""
    alive: dict[tuple[str, str], oracle.Demand] = {}
    for action in history:
        if isinstance(action, Submit):
            alive[action.project, action.name] = oracle.Demand(
                project=action.project,
                name=action.name,
                gpu_milli=action.gpu_milli,
                preemptible=action.preemptible,
                priority=100 if action.interactive else 50,
                pods=action.pods,
                min_member=action.min_member,
            )
        else:
            for name in action.names:
                alive.pop((action.project, name), None)
    return list(alive.values())


def _resolve(
    name: str,
    documents: dict[str, tuple[Document, Scenario]],
    loaded: dict[str, LoadedScenario],
    waiting: tuple[str, ...],
    size: Size | None,
) -> LoadedScenario:
    if name in loaded:
        return loaded[name]
    document, scenario = documents[name]
    before: LoadedScenario | None = None
    if scenario.continues:
        if scenario.continues not in documents or scenario.continues in (*waiting, name):
            raise document.error(
                ("continues",), f"cannot continue `{scenario.continues}`: unknown, or a circle"
            )
        other = next((s.id for s in loaded.values() if s.scenario.continues == scenario.continues), None)
        if other:
            raise document.error(("continues",), f"`{other}` continues `{scenario.continues}` already")
        before = _resolve(scenario.continues, documents, loaded, (*waiting, name), size)
    scenario, is_scaled = _scaled(name, documents, size)
    history, ended = _history(before, loaded)
    result = _Builder(document, scenario, before, history, ended).build()
    if is_scaled:
        result = replace(result, size=str(size))
    loaded[name] = result
    return result


def _scaled(
    name: str, documents: dict[str, tuple[Document, Scenario]], size: Size | None
) -> tuple[Scenario, bool]:
    """The scenario for a site of this size, and whether that differs from what is printed. Raises ScenarioError."""
    document, scenario = documents[name]
    first = scenario
    earlier: list[Scenario] = []
    while first.continues:
        first = documents[first.continues][1]
        earlier.insert(0, first)
    if size is None or first.cluster is None or size_of(first.cluster) == size:
        return scenario, False
    try:
        return scale(scenario, earlier, size_of(first.cluster), size), True
    except ValueError as error:
        raise document.error((), f"cannot be scaled to {size} GPUs: {error}") from error


def _history(
    last: LoadedScenario | None, loaded: dict[str, LoadedScenario]
) -> tuple[list[Action], frozenset[str]]:
    """What was done up to the end of this scenario, and which jobs had ended by then."""
    actions: list[Action] = []
    ended: set[str] = set()
    while last is not None:
        actions = [command.action for step in last.steps for command in step.commands] + actions
        ended |= {name for step in last.steps for name in step.expectation.ended_jobs}
        last = loaded.get(last.scenario.continues)
    return actions, frozenset(ended)


class _Builder:
    """Checks one scenario against what it inherits, and joins the two."""

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
        if not self.scenario.steps:
            raise self.document.error(("steps",), "a scenario needs at least one step")
        step_ids: set[str] = set()
        steps = []
        for index, step in enumerate(self.scenario.steps):
            place = ("steps", index)
            if step.id in step_ids or step.id in {"api", "invariant", "training", "utilization", "view"}:
                raise self.document.error((*place, "id"), f"duplicate or reserved step id `{step.id}`")
            step_ids.add(step.id)
            steps.append(self._step(step, place, cluster, projects))
        self._check_views()
        for name in self.scenario.claims:
            if name not in projects:
                raise self.document.error(("claims", name), f"unknown project `{name}`")
        erratum_ids = [
            *self.scenario.metadata.errata,
            *(e for step in self.scenario.steps for e in step.errata),
        ]
        for erratum in erratum_ids:
            if erratum not in self.errata:
                raise self.document.error(("metadata", "errata"), f"unknown erratum `{erratum}`")
        return LoadedScenario(
            scenario=self.scenario,
            path=self.document.path,
            sha256=hashlib.sha256(self.document.text.encode()).hexdigest(),
            cluster=cluster,
            projects=projects,
            steps=tuple(steps),
            errata=tuple(self.errata[name] for name in dict.fromkeys(erratum_ids)),
            training=self._training(),
            utilization=self._utilization(cluster),
            node_types=node_types,
        )

    def _layers(self) -> LoadedScenario:
        """Checks of the hosts, which need no cluster."""
        scenario = self.scenario
        if self._has_more() or scenario.cluster or scenario.api:
            raise self.document.error(("layers",), "a scenario with `layers` has nothing else")
        if len(set(scenario.layers)) != len(scenario.layers):
            raise self.document.error(("layers",), "a layer is there twice")
        return self._bare(NO_CLUSTER)

    def _api(self) -> LoadedScenario:
        """Requests to the API server, which need no project."""
        names = self.scenario.api
        if self._has_more() or self.scenario.cluster is None:
            raise self.document.error(("api",), "a scenario with `api` has a `cluster`, and nothing else")
        for index, name in enumerate(names):
            if name not in API_CHECKS or name in names[:index]:
                known = ", ".join(API_CHECKS)
                raise self.document.error(("api", index), f"unknown or repeated `{name}`; there are: {known}")
        return self._bare(self.scenario.cluster)

    def _has_more(self) -> bool:
        """Whether there is anything that happens in a project."""
        scenario = self.scenario
        parts = (scenario.steps, scenario.continues, scenario.projects, scenario.training, scenario.views)
        others = (scenario.node_types, scenario.claims)
        return any((*parts, *others)) or scenario.utilization is not None

    def _bare(self, cluster: Cluster) -> LoadedScenario:
        sha256 = hashlib.sha256(self.document.text.encode()).hexdigest()
        return LoadedScenario(self.scenario, self.document.path, sha256, cluster, {}, (), ())

    def _check_views(self) -> None:
        """Refuse lists that there are not, and one that is there twice."""
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
        """Refuse a job that is not there when the last step has ended."""
        if (project, workload) not in {(demand.project, demand.name) for demand in demands(self.history)}:
            raise self.document.error(place, f"no step leaves a job `{workload}` in `{project}`")

    def _training(self) -> LoadedTraining | None:
        """The job whose result is judged; it runs when the last step has ended."""
        training = self.scenario.training
        if training is None:
            return None
        self._check_alive(training.project, training.workload, "training", "workload")
        job = TrainingJob(
            training.project, training.workload, training.device, training.devices, training.mounts
        )
        return LoadedTraining(job, training.source, self._duration(("training", "within"), training.within))

    def _utilization(self, cluster: Cluster) -> LoadedUtilization | None:
        """How much the GPUs must be used, from when the last step has ended."""
        utilization = self.scenario.utilization
        if utilization is None:
            return None
        window_ms = self._duration(("utilization", "window"), utilization.window)
        if not window_ms:
            raise self.document.error(("utilization", "window"), "a window of no time has nothing in it")
        standard = Standard(
            window_ms,
            self._duration(("utilization", "warmUp"), utilization.warm_up),
            utilization.least_percent,
            utilization.least_percent_of_a_gpu,
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

    def _step(
        self,
        step: Step,
        place: tuple[str | int, ...],
        cluster: Cluster,
        projects: Mapping[str, LoadedProject],
    ) -> LoadedStep:
        quotas = {name: project.quota_milli for name, project in projects.items()}
        commands = tuple(
            StepCommand(line, self._action(line, (*place, "run", number), quotas))
            for number, line in enumerate(step.run)
        )
        self.history += [command.action for command in commands]
        deleted = {name for command in commands for name in _deleted(command.action)}
        self.ended = (self.ended - deleted) | set(step.expect.ended)
        alive = [demand for demand in demands(self.history) if demand.name not in self.ended]
        gpus = cluster.nodes * cluster.gpus_per_node
        division = oracle.divide(
            gpus * 1000, [project.claim(name) for name, project in projects.items()], alive
        )
        submits = [action for action in self.history if isinstance(action, Submit)]
        pods = sum(action.pods for action in submits if action.project in quotas)
        return LoadedStep(
            id=step.id,
            title=step.title,
            source=step.source,
            errata=tuple(step.errata),
            excused=tuple(
                dict.fromkeys(
                    field
                    for name in step.errata
                    if name in self.errata
                    for field in self.errata[name].excuses
                )
            ),
            commands=commands,
            expectation=self._expectation(step, (*place, "expect"), quotas, alive),
            demands=tuple(alive),
            division=division,
            least=Evidence(cluster.nodes, gpus, pods, pods),
            within_ms=self._duration((*place, "within"), step.within),
            refused=self._refused(step, place, quotas),
            hold_ms=self._duration((*place, "hold"), step.hold),
        )

    def _refused(
        self, step: Step, place: tuple[str | int, ...], quotas: Mapping[str, int]
    ) -> tuple[str, ...]:
        """The lines, which change quotas: what must not be done to jobs is seen by what becomes of them."""
        for number, line in enumerate(step.refused):
            words = line.split()
            if words[:3] != ["muster", "project", "update"] or len(words) != 6 or words[4] != "-g":
                where = (*place, "refused", number)
                raise self.document.error(where, "what is refused is `muster project update NAME -g QUOTA`")
            if words[3] not in quotas:
                raise self.document.error((*place, "refused", number), f"unknown project `{words[3]}`")
        return tuple(step.refused)

    def _action(self, line: str, place: tuple[str | int, ...], quotas: dict[str, int]) -> Action:
        try:
            action = parse(line)
        except ValueError as error:
            raise self.document.error(place, str(error)) from error
        if action.project not in quotas:
            raise self.document.error(place, f"unknown project `{action.project}`")
        alive = {(demand.project, demand.name) for demand in demands(self.history)}
        if isinstance(action, Delete):
            missing = [name for name in action.names if (action.project, name) not in alive]
            if missing:
                raise self.document.error(place, f"deletes `{missing[0]}`, which no earlier line submits")
        return action

    def _expectation(
        self, step: Step, place: tuple[str | int, ...], quotas: dict[str, int], alive: list[oracle.Demand]
    ) -> Expectation:
        expect = step.expect
        self._check_names(step, place, quotas)
        running = [demand for demand in alive if demand.name not in expect.pending]
        allocated = dict.fromkeys(quotas, 0)
        if expect.allocated is None:
            for demand in running:
                allocated[demand.project] += demand.gpu_milli * demand.pods
        else:
            for name, gpus in expect.allocated.items():
                allocated[name] = self._milli((*place, "allocated", name), gpus)
        total = sum(allocated.values())
        return Expectation(
            allocated_milli=allocated,
            total_milli=total if expect.total is None else self._milli((*place, "total"), expect.total),
            pending=tuple(sorted(expect.pending)),
            running=len(running) if expect.running is None else expect.running,
            evicted=tuple(sorted(expect.evicted)),
            same_gpu=tuple(tuple(group) for group in expect.same_gpu),
            gpus_in_use=expect.gpus_in_use,
            ended=tuple(sorted(self.ended & self._alive_names())) or msgspec.UNSET,
        )

    def _alive_names(self) -> frozenset[str]:
        return frozenset(demand.name for demand in demands(self.history))

    def _check_names(self, step: Step, place: tuple[str | int, ...], quotas: dict[str, int]) -> None:
        """Refuse what the expectation says of projects and workloads that there are not."""
        expect = step.expect
        known = {name for action in self.history for name in _names(action)}
        for name in expect.allocated or {}:
            if name not in quotas:
                raise self.document.error((*place, "allocated", name), f"unknown project `{name}` in expect")
        lists = {"pending": expect.pending, "evicted": expect.evicted, "ended": expect.ended}
        lists |= {f"sameGpu {index}": group for index, group in enumerate(expect.same_gpu)}
        for key, names in lists.items():
            for name in names:
                if name not in known:
                    where = (*place, key.split()[0])
                    raise self.document.error(where, f"unknown workload `{name}` in expect")

    def _milli(self, place: tuple[str | int, ...], gpus: object) -> int:
        try:
            return milli(gpus)  # type: ignore[arg-type]
        except ValueError as error:
            raise self.document.error(place, str(error)) from error

    def _duration(self, place: tuple[str | int, ...], text: str) -> int:
        try:
            return duration_ms(text)
        except ValueError as error:
            raise self.document.error(place, str(error)) from error


def _deleted(action: Action) -> tuple[str, ...]:
    return action.names if isinstance(action, Delete) else ()


def _names(action: Action) -> tuple[str, ...]:
    return (action.name,) if isinstance(action, Submit) else action.names
