"""Doubles of clusters whose jobs train, or pretend to train."""

from typing import Final

import msgspec

from tests.validation.fake_target import FakeTarget, WitnessedTarget
from tests.validation.workloads.results import result
from validation.judge.events import OutputSeen, PodSeen
from validation.judge.training.training_result import Ended, TrainingData, TrainingEnvironment, TrainingResult
from validation.scenario.loaded import SHIPPED

NETAPP1: Final = SHIPPED / "tr4858" / "training.scenario.yaml"
SMALL: Final = SHIPPED / "muster" / "training.scenario.yaml"
_ON_GPU = TrainingEnvironment("2.21.0", "3.15.1", "3.11.7", "gpu", ["Tesla V100-SXM2-32GB"])
_ON_CPU = TrainingEnvironment("2.21.0", "3.15.1", "3.11.7", "cpu", ["CPU x86_64"])


def document(workload: str) -> TrainingResult:
    """Return the result of an honest job with this name."""
    if workload == "netapp1":
        return result(environment=_ON_GPU)
    return result(environment=_ON_CPU, data=TrainingData("synthetic"))


class _Trains(FakeTarget):
    """Its jobs train for a minute and end. Subclasses change their results."""

    ran_ms = 60_000
    exit_code = 0
    problem_of_output = ""

    def lines(self, workload: str) -> list[str]:
        """Return the last lines of the job's containers."""
        return [msgspec.json.encode(document(workload)).decode()]

    def lines_of(self, pod: PodSeen) -> list[str]:
        """Return the last lines of the pod's containers."""
        return self.lines(pod.workload)

    async def problem(self) -> str:
        """End the jobs at the end of the step. Return an empty text: no problem."""
        assert self.recorder is not None
        for pods in self.pods.values():
            for pod in pods:
                if pod.node:
                    self._end(pod)
        return ""

    def _end(self, pod: PodSeen) -> None:
        assert self.recorder is not None
        self.tell(pod, change="modified", phase="Succeeded")
        for line in self.lines_of(pod):
            self.recorder.record(
                OutputSeen(
                    self.recorder.now_ms(),
                    pod.uid,
                    pod.project,
                    pod.workload,
                    pod.pod,
                    pod.node,
                    self.exit_code,
                    self.ran_ms,
                    "docker.io/netapp/tensorflow@sha256:0",
                    line,
                    self.problem_of_output,
                )
            )


class Trains(_Trains, WitnessedTarget):
    """Jobs on nodes with agents."""


class LeavesNothing(Trains):
    """Its jobs print no result."""

    def lines(self, workload: str) -> list[str]:
        return []


class PrintsWithoutTraining(Trains):
    """Its jobs print a result of another run: no driver shows a process of theirs."""

    def used(self, pod: PodSeen) -> tuple[int, ...]:
        return ()


class ClaimsMoreTime(Trains):
    """Its container ended earlier than such a training can end."""

    ran_ms = 20_000


class TrainsElsewhere(Trains):
    """The job for a GPU used the CPU, and the job for the CPU used a GPU."""

    def lines(self, workload: str) -> list[str]:
        other = "netapp1" if workload != "netapp1" else "other"
        return super().lines(other)


class PrintsTwice(Trains):
    """Its job prints two results; the better one must not count."""

    def lines(self, workload: str) -> list[str]:
        return super().lines(workload) * 2


class PrintsWords(Trains):
    """The last line of its job is not a result."""

    def lines(self, workload: str) -> list[str]:
        return ["done"]


class LosesItsData(Trains):
    """Its storage fails."""

    exit_code = 10

    def lines(self, workload: str) -> list[str]:
        lost = msgspec.structs.replace(
            document(workload), ended=Ended.DATA_FAULT, reason="train-00001 is empty"
        )
        return [msgspec.json.encode(lost).decode()]


class CannotBeRead(Trains):
    """Its kubelet does not return the log."""

    problem_of_output = "502 Bad Gateway"


class WithoutAgents(_Trains, FakeTarget):
    """A cluster without agents, so that no driver is asked."""
