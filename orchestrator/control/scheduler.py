"""The scheduling loop: wake when something changed, let it settle for a moment, decide once, carry it out.

A slow tick decides again even when nothing was seen to change, so that a lost event costs seconds and not the job.
"""

import asyncio
import logging
from collections.abc import Callable

from orchestrator.cluster.transport import Transport
from orchestrator.control.conditions import say_why_pods_wait
from orchestrator.control.executor import Executor
from orchestrator.control.observer import Observer
from orchestrator.planner import plan
from orchestrator.planner.model import Plan, PodState
from orchestrator.workloads.snapshot import Observed, Reading, read

logger = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.05
TICK_SECONDS = 10.0
RETRY_SECONDS = 1.0


class SchedulerLoop:
    """Decides on the observer's caches. `on_plan` receives every plan with the reading that it rests on."""

    def __init__(
        self,
        transport: Transport,
        observer: Observer,
        *,
        on_plan: Callable[[Reading, Plan], None],
        is_leader: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._observer = observer
        self._on_plan = on_plan
        self._is_leader = is_leader
        self._executor = Executor(transport, clock=asyncio.get_running_loop().time, is_leader=is_leader)

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await self._wait_for_change(TICK_SECONDS)
            if self._is_leader() and not await self.decide():
                await self._wait_for_change(RETRY_SECONDS)

    async def decide(self) -> bool:
        """One decision; True when everything that it decided went through."""
        pods = dict(self._observer.pods.objects)
        self._executor.confirm(pods)
        reading = read(self._observed())
        decision = plan(reading.snapshot)
        self._on_plan(reading, decision)
        done = await self._executor.carry_out(decision.evictions, decision.bindings, pods)
        await say_why_pods_wait(self._transport, _reasons(reading, decision), pods)
        return done

    async def _wait_for_change(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._observer.changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(DEBOUNCE_SECONDS)
        self._observer.changed.clear()

    def _observed(self) -> Observed:
        observer = self._observer
        return Observed(
            nodes=observer.nodes.objects,
            pods=observer.pods.objects,
            namespaces=observer.namespaces.objects,
            projects=observer.projects.objects,
            owners=(observer.jobs.objects, observer.stateful_sets.objects, observer.replica_sets.objects),
            assumed=self._executor.assumed,
            evicted=self._executor.evicted,
        )


def _reasons(reading: Reading, decision: Plan) -> dict[str, tuple[str, str]]:
    """By pod uid, why it waits."""
    bound = {binding.pod for binding in decision.bindings}
    reasons = {uid: ("Unreadable", message) for uid, message in reading.unreadable_pods.items()}
    for workload in reading.snapshot.workloads:
        reason = decision.pending.get(workload.id)
        if reason is not None:
            reasons |= {
                pod.id: (reason.code.value, reason.message)
                for pod in workload.pods
                if pod.state is PodState.PENDING and pod.id not in bound
            }
    return reasons
