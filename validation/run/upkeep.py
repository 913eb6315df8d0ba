"""Performs the maintenance of a step while jobs run: drains nodes, uncordons them, and kills the operator."""

from collections.abc import Awaitable, Callable
from typing import Final

from validation.errors import TargetError
from validation.judge.check_verdict import Circumstances
from validation.judge.convergence import Convergence, ConvergenceResult
from validation.judge.events import NodesDrained, NodesOpened, OperatorKilled
from validation.judge.scheduling.upkeep import nominated_nodes
from validation.judge.state import evictions
from validation.judge.units import gpus
from validation.scenario.loaded import LoadedStep
from validation.scenario.upkeep import LoadedDrain, Upkeep
from validation.targets.base import Target
from validation.targets.recorder import Recorder

CORDON_MS: Final = 60_000
NOMINATION_MS: Final = 30_000
"""Maximum wait for an eviction by the operator and a nomination to the freed GPUs."""
Wait = Callable[[Callable[[], list[str]], int], Awaitable[Convergence]]
"""Waits until there are no differences, for at most the given milliseconds."""


class NodeUpkeep:
    """The administrator's work of this run, and the nodes that it has cordoned."""

    def __init__(self, target: Target, recorder: Recorder, wait: Wait) -> None:
        self._target = target
        self._recorder = recorder
        self._wait = wait
        self._nodes: tuple[str, ...] = ()

    async def perform(self, upkeep: Upkeep, from_event: int) -> Circumstances:
        """Do the work of a step that began at `from_event`.

        If a problem prevents it, the circumstances have the problem.

        Raises TargetError.
        """
        if upkeep.drain is not None:
            return await self._drain(upkeep.drain)
        if upkeep.uncordon:
            await self.leave()
        if upkeep.restart_operator:
            return await self._restart(from_event)
        return Circumstances()

    async def prepare(self, step: LoadedStep) -> None:
        """Before the commands of the step, give a grace period to the pods that terminate in it. Raises TargetError.

        If the step kills the operator, all running pods get it. Otherwise the pods of jobs that reach their time limit
        get it.
        """
        holding = self._recorder.state.holding()
        if not step.upkeep.restart_operator:
            holding = [pod for pod in holding if pod.workload in step.expectation.ended_jobs]
        await self._target.let_end_slowly(holding)

    async def leave(self) -> None:
        """Uncordon the nodes that this run has cordoned. Raises TargetError."""
        nodes, self._nodes = self._nodes, ()
        if nodes:
            self._recorder.record(NodesOpened(self._recorder.now_ms(), nodes))
            await self._target.cordon(dict.fromkeys(nodes, False))

    async def _drain(self, drain: LoadedDrain) -> Circumstances:
        """Cordon the nodes of the jobs, and evict the pods of the run's projects there. Other pods are not evicted."""
        state = self._recorder.state
        jobs = ", ".join(drain.nodes_of)
        nodes = sorted({pod.node for pod in state.holding() if pod.workload in drain.nodes_of})
        gpu_milli = sum(state.nodes[node] for node in nodes) * 1000
        if gpu_milli != drain.gpu_milli:
            return Circumstances(
                unfinished=f"not run: {jobs} are on nodes with {gpus(gpu_milli)} GPUs in all, and "
                f"{gpus(drain.gpu_milli)} are to be drained"
            )
        self._nodes = tuple(nodes)
        await self._target.cordon(dict.fromkeys(nodes, True))

        def open_nodes() -> list[str]:
            return [node for node in nodes if node not in self._recorder.state.cordoned]

        convergence = await self._wait(open_nodes, CORDON_MS)
        if convergence.result != ConvergenceResult.CONVERGED:
            raise TargetError(f"node {open_nodes()[0]} was not cordoned within {CORDON_MS / 1000:g} s")
        pods = [pod for pod in self._recorder.state.holding() if pod.node in nodes]
        uids = tuple(pod.uid for pod in pods)
        self._recorder.record(NodesDrained(self._recorder.now_ms(), self._nodes, uids))
        await self._target.drain(pods)
        return Circumstances()

    async def _restart(self, from_event: int) -> Circumstances:
        """Kill the operator after an eviction, while another pod is nominated to the freed GPUs.

        Then wait for the next leader.
        """

        def has_nominations() -> bool:
            return bool(nominated_nodes(self._recorder.state))

        def missing() -> list[str]:
            evicted = evictions(self._recorder.events[from_event:])
            return (
                []
                if evicted and has_nominations()
                else ["no pod was evicted, or no pod is nominated to its GPUs"]
            )

        convergence = await self._wait(missing, NOMINATION_MS)
        if convergence.result != ConvergenceResult.CONVERGED:
            return Circumstances(failure=f"{missing()[0]}, within {NOMINATION_MS / 1000:g} s")
        problem = await self._target.kill_operator()
        if problem:
            return Circumstances(unfinished=f"not run: {problem}")
        self._recorder.record(OperatorKilled(self._recorder.now_ms()))
        in_time = has_nominations()
        await self._target.operator_leads_again()
        if not in_time:
            return Circumstances(unfinished="the operator was killed too late: its nominations were bound")
        return Circumstances()
