"""The steps of a scenario, parsed and checked, with the result of the oracle for the state after each."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from validation.judge.evidence import Evidence
from validation.judge.scheduling import oracle
from validation.judge.scheduling.expectation import Expectation
from validation.scenario.commands import Action, Delete, Submit, demands, parse
from validation.scenario.document import Document
from validation.scenario.loaded import LoadedStep, StepCommand
from validation.scenario.projects import LoadedProject
from validation.scenario.schema import Cluster, Erratum, Expect, Step
from validation.scenario.upkeep import Upkeep, load_upkeep


class StepLoader:
    """Loads the steps of one scenario in their order.

    `history` has the actions up to the last loaded step. `ended` has the jobs that have reached their time limit by
    then.
    """

    def __init__(
        self,
        document: Document,
        cluster: Cluster,
        projects: Mapping[str, LoadedProject],
        *,
        errata: Mapping[str, Erratum],
        history: list[Action],
        ended: frozenset[str],
    ) -> None:
        self.document = document
        self.cluster = cluster
        self.projects = projects
        self.errata = errata
        self.history = history
        self.ended = ended
        self.drained_milli = 0
        """The GPUs of cordoned nodes, in thousandths."""

    def load(self, step: Step, place: tuple[str | int, ...]) -> LoadedStep:
        """Return the loaded step. Raises ScenarioError that names `place`."""
        quotas = {name: project.quota_milli for name, project in self.projects.items()}
        commands = tuple(
            StepCommand(line, self._action(line, step.default_project, (*place, "run", number), quotas))
            for number, line in enumerate(step.run)
        )
        self.history += [command.action for command in commands]
        deleted = {name for command in commands for name in _deleted(command.action)}
        self.ended = (self.ended - deleted) | set(step.expect.ended)
        alive = [demand for demand in demands(self.history) if demand.name not in self.ended]
        gpus = self.cluster.nodes * self.cluster.gpus_per_node
        claims = [project.claim(name) for name, project in self.projects.items()]
        upkeep = self._upkeep(step, place, gpus * 1000)
        capacity_milli = gpus * 1000 - self.drained_milli
        division = oracle.divide(capacity_milli, claims, alive)
        submits = [action for action in self.history if isinstance(action, Submit)]
        pods = sum(action.pods for action in submits if action.project in quotas)
        return LoadedStep(
            id=step.id,
            title=step.title,
            source=step.source,
            errata=tuple(step.errata),
            excused=self._excused(step),
            default_project=self._default_project(step, place, quotas),
            commands=commands,
            expectation=self._expectation(step.expect, (*place, "expect"), quotas, alive),
            demands=tuple(alive),
            capacity_milli=capacity_milli,
            division=division,
            least=Evidence(self.cluster.nodes, gpus, pods, pods),
            within_ms=self.document.duration_ms((*place, "within"), step.within),
            refused=self._refused(step, place, quotas),
            hold_ms=self.document.duration_ms((*place, "hold"), step.hold),
            upkeep=upkeep,
        )

    def _upkeep(self, step: Step, place: tuple[str | int, ...], all_milli: int) -> Upkeep:
        """Return the work of an administrator in the step, and update `drained_milli` for the nodes that remain
        cordoned.
        """
        try:
            upkeep = load_upkeep(step, self._alive_names(), is_drained=bool(self.drained_milli))
        except ValueError as error:
            raise self.document.error(place, str(error)) from error
        if upkeep.drain is not None:
            self.drained_milli = upkeep.drain.gpu_milli
        elif upkeep.uncordon:
            self.drained_milli = 0
        if sum(project.quota_milli for project in self.projects.values()) > all_milli - self.drained_milli:
            raise self.document.error(
                (*place, "drain"), "the nodes that stay have fewer GPUs than the quotas"
            )
        return upkeep

    def _excused(self, step: Step) -> tuple[str, ...]:
        """Return the fields in which an erratum of the step excuses a contradiction."""
        named = [self.errata[name] for name in step.errata if name in self.errata]
        return tuple(dict.fromkeys(field for erratum in named for field in erratum.excuses))

    def _refused(
        self, step: Step, place: tuple[str | int, ...], quotas: Mapping[str, int]
    ) -> tuple[str, ...]:
        """Return the commands that must be refused.

        They must change quotas: the checks detect other forbidden actions by their effect.
        """
        for number, line in enumerate(step.refused):
            words = line.split()
            if words[:3] != ["muster", "project", "update"] or len(words) != 6 or words[4] != "-g":
                where = (*place, "refused", number)
                raise self.document.error(
                    where, "a refused command must be `muster project update NAME -g QUOTA`"
                )
            if words[3] not in quotas:
                raise self.document.error((*place, "refused", number), f"unknown project `{words[3]}`")
        return tuple(step.refused)

    def _default_project(self, step: Step, place: tuple[str | int, ...], quotas: Mapping[str, int]) -> str:
        if step.default_project and step.default_project not in quotas:
            raise self.document.error((*place, "defaultProject"), f"unknown project `{step.default_project}`")
        return step.default_project

    def _action(
        self, line: str, default_project: str, place: tuple[str | int, ...], quotas: dict[str, int]
    ) -> Action:
        try:
            action = parse(line)
        except ValueError as error:
            raise self.document.error(place, str(error)) from error
        if not action.project:
            action = replace(action, project=default_project)
        if not action.project:
            raise self.document.error(
                place, "the command names no project: add -p PROJECT, or `defaultProject` to the step"
            )
        if action.project not in quotas:
            raise self.document.error(place, f"unknown project `{action.project}`")
        alive = {(demand.project, demand.name) for demand in demands(self.history)}
        if isinstance(action, Delete):
            missing = [name for name in action.names if (action.project, name) not in alive]
            if missing:
                raise self.document.error(place, f"deletes `{missing[0]}`, which no earlier line submits")
        return action

    def _expectation(
        self, expect: Expect, place: tuple[str | int, ...], quotas: dict[str, int], alive: list[oracle.Demand]
    ) -> Expectation:
        self._check_names(expect, place, quotas)
        for number, other in enumerate(expect.or_else):
            if other.ended or other.or_else:
                where = (*place, "orElse", number, "ended" if other.ended else "orElse")
                raise self.document.error(where, "another state has no `ended` and no `orElse` of its own")
        running = [demand for demand in alive if demand.name not in expect.pending]
        allocated = dict.fromkeys(quotas, 0)
        if expect.allocated is None:
            for demand in running:
                allocated[demand.project] += demand.gpu_milli * demand.pods
        else:
            for name, gpus in expect.allocated.items():
                allocated[name] = self.document.milli((*place, "allocated", name), gpus)
        total = sum(allocated.values())
        return Expectation(
            allocated_milli=allocated,
            total_milli=total
            if expect.total is None
            else self.document.milli((*place, "total"), expect.total),
            pending=tuple(sorted(expect.pending)),
            running=len(running) if expect.running is None else expect.running,
            evicted=tuple(sorted(expect.evicted)),
            same_gpu=tuple(tuple(group) for group in expect.same_gpu),
            gpus_in_use=expect.gpus_in_use,
            ended=tuple(sorted(self.ended & self._alive_names())) or msgspec.UNSET,
            or_else=tuple(
                self._expectation(other, (*place, "orElse", number), quotas, alive)
                for number, other in enumerate(expect.or_else)
            )
            or msgspec.UNSET,
        )

    def _alive_names(self) -> frozenset[str]:
        return frozenset(demand.name for demand in demands(self.history))

    def _check_names(self, expect: Expect, place: tuple[str | int, ...], quotas: dict[str, int]) -> None:
        """Raise ScenarioError if the expectation names an unknown project or workload."""
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


def _deleted(action: Action) -> tuple[str, ...]:
    return action.names if isinstance(action, Delete) else ()


def _names(action: Action) -> tuple[str, ...]:
    return (action.name,) if isinstance(action, Submit) else action.names
