"""The defects in the kill matrix, each as a double of a cluster with this defect."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tests.validation.api_targets import (
    AltersClaims,
    HasNoDriverOnANode,
    IgnoresOtherClients,
    NobodyLeads,
    SharesTheGpu,
    TooOldForClaims,
    TwoDefaultClasses,
)
from tests.validation.digests_targets import (
    CorruptsBesideAnUnreadNode,
    CorruptsEverywhere,
    CorruptsSilently,
)
from tests.validation.fake_target import FakeTarget, HidesEvictions, SwapsDevices
from tests.validation.training_targets import LeavesNothing
from tests.validation.use_targets import LeavesOneIdle
from validation.judge.events import PodSeen
from validation.report.record import Command
from validation.scenario.commands import Action
from validation.targets.planner import SimulatedRecorder
from validation.witness.urls import Opened


class _Once(FakeTarget):
    """Misbehaves once, at the first submit for which it can, and is honest before and after."""

    done = False

    def act(self, action: Action) -> None:
        super().act(action)
        if not self.done:
            self.done = self.misbehave()

    def misbehave(self) -> bool:
        """Misbehave, and return whether that was possible."""
        raise NotImplementedError

    def first(self, **changes: object) -> list[PodSeen]:
        """Return the first pod of each pending job, with these changes."""
        waiting = [pods[0] for pods in self.pods.values() if not pods[0].node]
        return [msgspec.structs.replace(pod, **changes) for pod in waiting]

    def for_a_moment(self, pods: list[PodSeen]) -> bool:
        """Let the recorder see the pods as running, and then as they were."""
        for pod in pods:
            self.tell(pod, change="modified", phase="Running")
        for pod in pods:
            self.tell(self.pods[pod.project, pod.workload][0], change="modified")
        return bool(pods)


class OverbooksANode(_Once):
    """For a moment, a pod of nine GPUs is on a node of eight."""

    def misbehave(self) -> bool:
        return self.for_a_moment(self.first(node="n1", gpu_milli=9000, devices=tuple(range(9)))[:1])


class HoldsAGpuTwice(_Once):
    """For a moment, two pods are on one GPU."""

    def misbehave(self) -> bool:
        waiting = self.first(node="n1", gpu_milli=1000, devices=(0,))[:1]
        other = [msgspec.structs.replace(pod, uid="uid-ghost", pod="ghost") for pod in waiting]
        for pod in [*waiting, *other]:
            self.tell(pod, change="modified", phase="Running")
        for pod in other:
            self.tell(pod, change="modified", phase="Succeeded")
            self.tell(pod, change="deleted", phase="Succeeded")
        return self.for_a_moment(waiting)


class InteractiveBeyondQuota(_Once):
    """For a moment, a non-preemptible pod beyond its quota holds all GPUs of a node."""

    def misbehave(self) -> bool:
        everything = self.first(node="n1", gpu_milli=8000, devices=tuple(range(8)), preemptible=False)[:1]
        beyond = [pod for pod in everything if self.quotas[pod.project] < 8000]
        return self.for_a_moment(beyond)


class EvictsWithinQuota(FakeTarget):
    """Evicts the first running pod of another project instead of the right victim."""

    def evict(self, pod: PodSeen) -> None:
        running = [pods[0] for pods in self.pods.values() if pods[0].node and pods[0].project != pod.project]
        super().evict(running[0] if running else pod)


class EvictsInteractiveWork(FakeTarget):
    """Evicts a non-preemptible pod instead of a preemptible one."""

    def evict(self, pod: PodSeen) -> None:
        running = [pods[0] for pods in self.pods.values() if pods[0].node and not pods[0].preemptible]
        super().evict(running[0] if running else pod)


class BindsAGangInPart(FakeTarget):
    """Binds one pod of a gang immediately, while the others are pending."""

    def act(self, action: Action) -> None:
        super().act(action)
        for pods in self.pods.values():
            if pods[0].min_member > 1 and not pods[0].node:
                self.tell(pods[0], change="modified", node="n2", devices=(0,), phase="Running")


class ForgetsTheTime(FakeTarget):
    """Lets interactive jobs run beyond their time limit."""

    def end(self, key: tuple[str, str]) -> None:
        assert isinstance(self.recorder, SimulatedRecorder)
        self.recorder.clock_ms += 30_000


class IgnoresNodeGroups(FakeTarget):
    """Binds pods to the first node with enough free GPUs, even if their project must not use it."""

    def allows(self, pod: PodSeen, node: str) -> bool:
        return True


class UsesCordonedNodes(FakeTarget):
    """Binds pods to cordoned nodes first."""

    def open_nodes(self) -> list[str]:
        assert self.recorder is not None
        cordoned = self.recorder.state.cordoned
        return sorted(self.recorder.state.nodes, key=lambda node: node not in cordoned)


class ForgetsItsPromises(FakeTarget):
    """Nominates each pod to n1, and binds it as if it had no nomination."""

    def nominate(self, pod: PodSeen) -> PodSeen:
        return self.tell(pod, change="modified", nominated_node="n1")


class ShowsWhatIsNotSo(FakeTarget):
    """Shows a running job as pending or the reverse, nine allocated GPUs, a wrong quota, and a page with zeros."""

    def show(self, last_word: str) -> list[dict[str, Any]]:
        rows = super().show(last_word)
        if last_word == "-A" and not rows:
            rows.append({"project": next(iter(self.quotas)), "name": "deleted-long-ago"})
        if last_word == "-A":
            rows[0] |= {"status": "Pending" if rows[0].get("status") == "Running" else "Running"}
        elif last_word == "node":
            rows[0] |= {"gpusAllocated": "9"}
        else:
            rows[0] |= {"spec": rows[0]["spec"] | {"gpu": {"quota": "0.999"}}}
        return rows

    def page_rows(self, view: str) -> list[dict[str, Any]]:
        """Return rows of a page that shows the state before anything ran."""
        rows = super().page_rows(view)
        old = {"figure": {"value": "0 (0%)"}, "point": {"GPUs ALLOCATED": "0"}}
        return [{**row, **old.get(row["of"], {})} for row in rows]


class ShowsAnotherContainer(FakeTarget):
    """Prints the log of another job, and opens a shell in that job's container."""

    def printed(self, project: str, workload: str) -> str:
        return super().printed(project, "other")

    async def execute(self, line: str, *, started_ms: int) -> Command:
        done = await super().execute(line, started_ms=started_ms)
        is_shell = line.startswith("muster bash ")
        return Command(line, 0, started_ms, 1, stdout="other-1") if is_shell else done


class ForgetsTheDefaultProject(FakeTarget):
    """Puts jobs that name no project into another project than the default."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if line.startswith("muster project set "):
            line = f"muster project set {next(name for name in self.quotas if name != line.split()[3])}"
        return await super().execute(line, started_ms=started_ms)


class HidesTheMount(FakeTarget):
    """Describes jobs with another directory than that of their volume."""

    def __init__(self) -> None:
        super().__init__()
        self.mounted = ["test at /mnt"]


class ClonesNothing(FakeTarget):
    """Gives a job the claim of the others in place of a clone."""

    def clone(self, name: str) -> dict[str, Any]:
        its = super().clone(name)
        return {"metadata": its["metadata"], "spec": its["spec"] | {"volumeName": "pvc-of-test"}}


class TakesNoSnapshot(FakeTarget):
    """Creates snapshots that do not become ready."""

    def snapshot(self, name: str) -> dict[str, Any]:
        return super().snapshot(name) | {"status": {"readyToUse": False}}


class ServesNothing(FakeTarget):
    """Prints SERVICE URLs behind which no job answers."""

    async def open_url(self, url: str) -> Opened:
        return Opened(502)


class HasTwoVolumes(FakeTarget):
    """Gives each job a volume of its own."""

    def answer(self, line: str, pod: str) -> str:
        return super().answer(line, pod).replace("pvc-test-", "other-")


class ShowsNothing(FakeTarget):
    """Shows empty lists."""

    def show(self, last_word: str) -> list[dict[str, Any]]:
        return []


class CannotShow(FakeTarget):
    """Ends each command that shows something with an error."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        done = await super().execute(line, started_ms=started_ms)
        return Command(line, 1, started_ms, 1, stderr="no\nthe list is gone") if done.stdout else done


def evicts_in(number: int) -> Callable[[], FakeTarget]:
    """Return a double that evicts a wrong pod in the step with this number, and is honest before."""

    class EvictsSomebodyElse(FakeTarget):
        steps = 0
        evicted = False

        async def problem(self) -> str:
            self.steps += 1
            return ""

        def schedule(self) -> None:
            super().schedule()
            running = [pods[0] for pods in self.pods.values() if pods[0].node]
            if self.steps == number and running and not self.evicted:
                self.evicted = True
                self.evict(running[-1])

    return EvictsSomebodyElse


TARGETS: Final[dict[str, Callable[[], FakeTarget]]] = {
    "overbooks-a-node": OverbooksANode,
    "holds-a-gpu-twice": HoldsAGpuTwice,
    "evicts-within-quota": EvictsWithinQuota,
    "interactive-beyond-quota": InteractiveBeyondQuota,
    "evicts-interactive-work": EvictsInteractiveWork,
    "binds-a-gang-in-part": BindsAGangInPart,
    "hides-evictions": HidesEvictions,
    "forgets-the-time": ForgetsTheTime,
    "ignores-node-groups": IgnoresNodeGroups,
    "uses-cordoned-nodes": UsesCordonedNodes,
    "forgets-its-promises": ForgetsItsPromises,
    "swaps-devices": SwapsDevices,
    "leaves-no-result": LeavesNothing,
    "corrupts-silently": CorruptsSilently,
    "corrupts-everywhere": CorruptsEverywhere,
    "corrupts-beside-an-unread-node": CorruptsBesideAnUnreadNode,
    "shows-what-is-not-so": ShowsWhatIsNotSo,
    "shows-another-container": ShowsAnotherContainer,
    "two-volumes": HasTwoVolumes,
    "leaves-a-gpu-idle": LeavesOneIdle,
    "too-old-for-claims": TooOldForClaims,
    "alters-claims": AltersClaims,
    "no-driver-on-a-node": HasNoDriverOnANode,
    "two-gpus-of-a-claim": SharesTheGpu,
    "two-default-classes": TwoDefaultClasses,
    "nobody-leads": NobodyLeads,
    "hides-the-mount": HidesTheMount,
    "clones-nothing": ClonesNothing,
    "takes-no-snapshot": TakesNoSnapshot,
    "serves-nothing": ServesNothing,
    "ignores-other-clients": IgnoresOtherClients,
    "forgets-the-default-project": ForgetsTheDefaultProject,
}
