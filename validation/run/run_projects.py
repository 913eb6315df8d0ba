"""The projects that a scenario needs. Between two scenarios of a group, projects are created, changed and deleted."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.errors import MusterError
from validation.errors import TargetError
from validation.judge.convergence import ConvergenceResult
from validation.report import record
from validation.run.node_groups import Wait
from validation.run.step_commands import StepCommands, StepFailed
from validation.scenario.commands import Action, demands
from validation.scenario.projects import LoadedProject
from validation.targets.recorder import Recorder

SETUP_MS: Final = 60_000
CLEANUP_MS: Final = 60_000


class CleanupFailed(MusterError):
    """An object that the run created still exists."""


class RunProjects:
    """The projects that this run has created."""

    def __init__(self, recorder: Recorder, commands: StepCommands, wait: Wait) -> None:
        self._recorder = recorder
        self._commands = commands
        self._wait = wait
        self._created: dict[str, LoadedProject] = {}

    async def become(self, projects: Mapping[str, LoadedProject], result: record.CheckResult) -> None:
        """Create the missing projects, change those that differ, and delete all others of the run.

        Raises StepFailed.
        """
        missing = {name: project for name, project in projects.items() if name not in self._created}
        changed = [name for name, project in projects.items() if self._created.get(name, project) != project]
        removed = [name for name in self._created if name not in projects]
        for name in removed:
            self._recorder.project_deleted(name)
            del self._created[name]
            await self._commands.run(f"muster project delete {name}", result)
        # Lower quotas before raising others, because the sum of all quotas must never exceed the cluster.
        for name in sorted(
            changed, key=lambda name: projects[name].quota_milli - self._created[name].quota_milli
        ):
            self._note(name, projects[name])
            quota = f"{projects[name].quota_milli / 1000:g}"
            await self._commands.run(f"muster project update {name} -g {quota}", result)
        for name, project in missing.items():
            self._note(name, project)
        lines = [f"muster project create {name} {project.options}" for name, project in missing.items()]
        await asyncio.gather(*(self._commands.run(line, result) for line in lines))
        await self._wait_for_namespaces(list(missing), removed)

    async def _wait_for_namespaces(self, missing: Sequence[str], removed: Sequence[str]) -> None:
        """Wait until the projects in `missing` have a namespace, and those in `removed` have none."""

        def differences() -> list[str]:
            absent = [
                f"project {name} got no namespace"
                for name in missing
                if not self._recorder.has_namespace(name)
            ]
            return absent + [
                f"the namespace of {name} was not deleted"
                for name in removed
                if self._recorder.has_namespace(name)
            ]

        convergence = await self._wait(differences, SETUP_MS)
        if convergence.result != ConvergenceResult.CONVERGED:
            raise StepFailed(f"{differences()[0]} within {SETUP_MS / 1000:g} s")

    def _note(self, name: str, project: LoadedProject) -> None:
        self._recorder.project(name, project)
        self._created[name] = project

    async def delete(self, history: Sequence[Action]) -> None:
        """Delete the projects with the workloads that `history` left, and wait until their pods are deleted.

        Raises CleanupFailed, and TargetError if the cluster can no longer be watched.
        """
        if not self._created:
            return
        scratch = record.CheckResult(id="cleanup", scenario="", kind="", title="", source="", verdict="")
        projects = list(self._created)
        alive: dict[str, list[str]] = {}
        for demand in demands(list(history)):
            alive.setdefault(demand.project, []).append(demand.name)
        try:
            for project, workloads in alive.items():
                self._recorder.command("delete", project, tuple(workloads))
                # A refused workload does not exist, so its deletion fails. All others are deleted with the project.
                with contextlib.suppress(StepFailed):
                    await self._commands.run(f"muster delete -p {project} {' '.join(workloads)}", scratch)
            for project in projects:
                self._recorder.project_deleted(project)
                await self._commands.run(f"muster project delete {project} --force", scratch)
        except (StepFailed, TargetError) as error:
            raise CleanupFailed(str(error)) from error

        def remaining_pods() -> list[str]:
            return [pod.pod for pod in self._recorder.pods_of(set(projects))]

        convergence = await self._wait(remaining_pods, CLEANUP_MS)
        self._created = {}
        if convergence.result != ConvergenceResult.CONVERGED:
            raise CleanupFailed(f"pod {remaining_pods()[0]} is still there after {CLEANUP_MS / 1000:g} s")
