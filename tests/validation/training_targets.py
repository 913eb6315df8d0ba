"""Doubles of clusters whose jobs train, or say that they do."""

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
    """What an honest job of that name leaves."""
    if workload == "netapp1":
        return result(environment=_ON_GPU)
    return result(environment=_ON_CPU, data=TrainingData("synthetic"))


class _Trains(FakeTarget):
    """Its jobs train for a minute, then end. Subclasses change what they leave."""

    ran_ms = 60_000
    exit_code = 0
    problem_of_output = ""

    def lines(self, workload: str) -> list[str]:
        """What the containers of the job print last."""
        return [msgspec.json.encode(document(workload)).decode()]

    async def problem(self) -> str:
        """The step has ended: now the jobs end, too."""
        assert self.recorder is not None
        for pods in self.pods.values():
            for pod in pods:
                if pod.node:
                    self._end(pod)
        return ""

    def _end(self, pod: PodSeen) -> None:
        assert self.recorder is not None
        self.tell(pod, change="modified", phase="Succeeded")
        for line in self.lines(pod.workload):
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
    """On nodes with agents."""


class LeavesNothing(Trains):
    """The result is left out."""

    def lines(self, workload: str) -> list[str]:
        return []


class PrintsWithoutTraining(Trains):
    """Jobs print the document of somebody else's run: no driver has a process of theirs."""

    def used(self, pod: PodSeen) -> tuple[int, ...]:
        return ()


class ClaimsMoreTime(Trains):
    """The container ended before so much can have been trained."""

    ran_ms = 20_000


class TrainsElsewhere(Trains):
    """The job that was to use a GPU used the processor, and the other way round."""

    def lines(self, workload: str) -> list[str]:
        other = "netapp1" if workload != "netapp1" else "other"
        return super().lines(other)


class PrintsTwice(Trains):
    """Two documents: the better one must not count."""

    def lines(self, workload: str) -> list[str]:
        return super().lines(workload) * 2


class PrintsWords(Trains):
    """The last line is no document."""

    def lines(self, workload: str) -> list[str]:
        return ["done"]


class LosesItsData(Trains):
    """The storage failed."""

    exit_code = 10

    def lines(self, workload: str) -> list[str]:
        lost = msgspec.structs.replace(
            document(workload), ended=Ended.DATA_FAULT, reason="train-00001 is empty"
        )
        return [msgspec.json.encode(lost).decode()]


class CannotBeRead(Trains):
    """The kubelet does not hand out the log."""

    problem_of_output = "502 Bad Gateway"


class WithoutAgents(_Trains, FakeTarget):
    """Nobody asks the driver of a node."""
