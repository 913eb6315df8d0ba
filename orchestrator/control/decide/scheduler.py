"""The scheduling loop: wait for a change and then for a pause of changes, decide, start the requests.

Bindings and evictions continue while the next decision is made: running requests count as done. A decision is made
every TICK_SECONDS even without a change, so that a lost event delays a job by seconds only. An object that cannot be
read or decided on is skipped and reported; decisions about other objects continue.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.claim_grants import ClaimGrants
from orchestrator.control.carry_out.executor import Executor
from orchestrator.control.carry_out.memory_limits import MemoryLimits
from orchestrator.control.carry_out.reservations import Reservations
from orchestrator.control.carry_out.volume_claims import Claims
from orchestrator.control.decide.failure_notes import FailureNotes
from orchestrator.control.decide.first_decisions import FirstDecisions
from orchestrator.control.decide.intervals import (
    IDLE_PART_OF_DECISION,
    MAX_REST_SECONDS,
    MAX_RETRY_SECONDS,
    RETRY_SECONDS,
    TICK_SECONDS,
)
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.quarantine import PROJECT, Decided, Quarantine
from orchestrator.control.decide.requeue_holds import RequeueHolds
from orchestrator.control.decide.settling import settle
from orchestrator.control.decide.undecided import pending_reasons, quarantined, reasons, undecidable
from orchestrator.control.decide.unready import UNREADY_SECONDS, UnreadyPods
from orchestrator.control.decide.watch_lag import WatchLag
from orchestrator.control.operator_config import DEFAULT_CONFIG, MemoryLimitsMode, OperatorConfig
from orchestrator.control.report.audit import Audit
from orchestrator.control.report.background import repeat
from orchestrator.control.report.conditions import ConditionWriter
from orchestrator.control.report.events import Announcer
from orchestrator.control.report.health import Health
from orchestrator.control.report.metrics import OperatorMetrics
from orchestrator.control.report.problems import ProblemWriter
from orchestrator.control.report.skipped import MAX_LOGGED, SkippedRecord, left_over_names
from orchestrator.manifests.render import default_image
from orchestrator.observe.budgets import Budgets
from orchestrator.observe.health import labelled_memory_mib
from orchestrator.observe.reader import Reader
from orchestrator.observe.request import NODE_NAME_LABEL
from orchestrator.observe.snapshot import Hints, Reading
from orchestrator.planner import plan
from orchestrator.planner.model import SECOND_US, Eviction, Plan, PodState, Snapshot

logger = logging.getLogger(__name__)

SLICE: Final = 500
"""Maximum number of workloads that are read before other tasks run."""


class SchedulerLoop:
    """Decides on the observer's caches. `on_plan` receives every plan and the reading from which it was made.

    `wall_clock` (seconds since the epoch) is read once. Then the loop's monotonic clock is added to it for comparisons
    with Kubernetes' timestamps, so that a changed wall clock changes no decision.
    """

    def __init__(
        self,
        transport: Transport,
        observer: Observer,
        *,
        on_plan: Callable[[Reading, Plan], None],
        is_leader: Callable[[], bool],
        health: Health | None = None,
        metrics: OperatorMetrics | None = None,
        planner: Callable[[Snapshot], Plan] = plan,
        config: OperatorConfig = DEFAULT_CONFIG,
        image: str = "",
        wall_clock: Callable[[], float] = time.time,
        dra_version: str | None = None,
        unready_seconds: float = UNREADY_SECONDS,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._transport, self._observer = transport, observer
        self._on_plan = on_plan
        self._is_leader = is_leader
        self._quarantine = Quarantine(planner, loop.time)
        self._first = FirstDecisions(transport, is_leader=is_leader, clock=loop.time)
        self._budgets = Budgets(observer.guard.last)
        self._skipped = SkippedRecord(transport, is_leader=is_leader)
        self._clock = loop.time
        self._epoch = wall_clock() - loop.time()
        self._health = health or Health(loop.time)
        self._metrics = metrics or OperatorMetrics()
        self._skipped_count = 0
        grace_seconds, last = config.max_checkpoint_grace_seconds, observer.guard.last
        self._reader = Reader(config.settings, max_checkpoint_grace_seconds=grace_seconds, last=last)
        self._audit = Audit(transport, config)
        self._announcer = Announcer(transport)
        self._lag = WatchLag(loop.time)
        self._claims = Claims(transport, self._reader.volumes, self._labels_of, is_leader=is_leader)
        self._grants = ClaimGrants(transport, self._reader.claims.cache, version=dra_version)
        self._latest: Reading | None = None
        self._failures = FailureNotes(self._reader, self._clock, self.now_us, self.warn)
        self._executor = Executor(
            transport,
            self._reader.pods,
            is_leader=is_leader,
            on_refused=self._decide_again,
            on_evicted=self._note_eviction,
            on_forbidden=self._failures.eviction_blocked,
            on_bound=self._note_binding,
            on_failure=self._metrics.request_failed,
            on_unready=self._note_unready,
            on_denied=self._failures.denied,
            on_eviction_denied=self._failures.eviction_denied,
            claims=self._claims,
            grants=self._grants,
            limits=self._memory_limits(config),
            reservations=self._reservations(transport, image, is_leader),
            config=config,
        )
        self._requeue_holds = RequeueHolds(
            loop.time, self._executor.is_evicting, self._executor.nomination_of
        )
        self._left_over: tuple[str, ...] = ()
        self._unready = UnreadyPods(loop.time, unready_seconds)
        self._conditions = ConditionWriter(
            transport,
            observer.pods.objects,
            is_leader=is_leader,
            bindings_done=self._executor.idle,
            clock=loop.time,
            on_new_reason=self._announcer.waits,
            may_be_written=self._is_of_a_project,
        )
        self._problems = ProblemWriter(
            transport, observer.pods.objects, self._is_of_a_project, is_leader=is_leader, warn=self.warn
        )
        self._rest_seconds = 0.0
        self._follows = False
        observer.expect(self._is_echo, self._executor.is_nominating, self._grants.is_echo)
        observer.listen(self._requeue_holds.see)
        observer.listen(self._claims.see)

    def _is_of_a_project(self, pod: Pod) -> bool:
        return self._reader.is_of_a_project(pod.metadata.namespace)

    def _memory_limits(self, config: OperatorConfig) -> MemoryLimits | None:
        if config.gpu_memory_limits is not MemoryLimitsMode.ENFORCE:
            return None
        return MemoryLimits(
            gpu_node=self._observer.gpu_nodes.get,
            published=self._reader.claims.slices.gpus,
            labels=self._labels_of,
            warn=self.warn,
        )

    def _reservations(self, transport: Transport, image: str, is_leader: Callable[[], bool]) -> Reservations:
        return Reservations(
            transport,
            image=image or default_image(),
            gpu_node=self._observer.gpu_nodes.get,
            published=self._reader.claims.slices.gpus,
            memory_mib=lambda node: labelled_memory_mib(self._labels_of(node)),
            is_leader=is_leader,
            warn=self.warn,
            evict=self.evict,
            has_agents=lambda: bool(self._observer.gpu_nodes),
        )

    async def run(self) -> None:
        """Decide until cancelled. If a decision fails, it is logged, shown by `health`, and repeated later."""
        try:
            await self._run()
        finally:
            lags = self._lag.lags()
            if lags is not None:
                logger.info(
                    "the watch was behind the answers to %d bindings by p50 %.1f ms, p99 %.1f ms, longest %.1f ms;"
                    " it was begun again %d times",
                    lags.count,
                    lags.p50_ms,
                    lags.p99_ms,
                    lags.max_ms,
                    self._observer.pods.counters.watches - 1,
                )

    async def _run(self) -> None:
        failures = 0
        async with self._executor, asyncio.TaskGroup() as group:
            for recorded in (self._audit, self._requeue_holds, self._problems):
                recorded.recall(self._observer.pods.objects.values())
            await self._first.recall()
            await self._failures.recall(self._transport, self._observer.pods.objects.values())
            for writer in (
                self._conditions, self._problems, self._audit, self._announcer, self._skipped, self._first,
            ):  # fmt: skip
                group.create_task(repeat(f"the {type(writer).__name__}", writer.run))
            while True:
                await self._wait_for_change(TICK_SECONDS)
                if not self._is_leader():
                    continue
                try:
                    await self.catch_up()
                    await self.decide()
                except Exception as error:
                    failures += 1
                    logger.exception("the decision failed, %d in a row; nothing was begun", failures)
                    self._health.failed(f"{type(error).__name__}: {error}")
                    self._metrics.failed()
                    await asyncio.sleep(min(MAX_RETRY_SECONDS, RETRY_SECONDS * 2.0 ** min(failures - 1, 8)))
                    self._observer.changed.set()
                else:
                    failures = 0
                    self._health.decided()

    async def catch_up(self) -> None:
        """Read the unread content of the caches in slices. Other tasks run between slices.

        On a large cluster, a new leader reads for longer than its lease lasts, so the lease must be renewed in between.
        """
        if not self._follows:
            await self._observer.follow(self._reader.note)
            await self._observer.follow(self._executor.see)
            self._follows = True
        while self._reader.behind > SLICE:
            self._reader.read_ahead(SLICE, now_us=self.now_us())
            await asyncio.sleep(0)

    async def decide(self) -> None:
        """Make one decision and start its requests. Call `catch_up` first.

        The planner runs in its own thread, so that the lease is renewed and the caches are updated in the meantime. The
        next decision uses these updates.
        """
        started, busy_before = self._clock(), time.process_time()
        pods = self._observer.pods.objects
        self._executor.confirm(pods)
        put_off, avoided = self._unready.read(lambda uid: uid in pods and not pods[uid].spec.node_name)
        inherited = self._requeue_holds.inherited
        self._reader.pods.expect(
            self._requeue_holds.placeholders(
                self._observer.jobs.objects, self._observer.stateful_sets.objects
            ),
            inherited,
        )
        reading = self._reader.read(
            now_us=self.now_us(),
            hints=Hints(put_off, avoided, self._left_over),
            budgets=self._budgets.read(
                self._observer.budgets.objects.values(),
                pods,
                self._reader.pods.evictions,
                self._failures.protected(pods),
            ),
        )
        decided = await self._plan(reading.snapshot, pods)
        decision = decided.plan
        reading = self._name(reading, decided, pods)
        self._latest = reading
        self._on_plan(reading, decision)
        self._audit.know(reading, decision)
        self._executor.begin(
            decision.evictions, decision.bindings, pods, decision.nominations, decision.deallocations
        )
        self._executor.correct(self._reader.miscounted())
        self._requeue_holds.take(decision, inherited)
        self._left_over = decision.left_over
        self._want_conditions(reading, decided, put_off, pods)
        if self._first.has_trial or avoided or decided.undecided or decision.left_over:
            self._decide_again()
        self._announce_problems(reading, decision, pods)
        took = self._clock() - started
        busy_seconds = time.process_time() - busy_before
        self._rest_seconds = min(MAX_REST_SECONDS, IDLE_PART_OF_DECISION * busy_seconds)
        self._metrics.decided(reading, decision, took, self._skipped_count)
        logger.debug(
            "decided in %.0f ms: %d bindings, %d evictions, %d wait, %d were not reached",
            took * 1000,
            len(decision.bindings),
            len(decision.evictions),
            len(decision.pending),
            len(decision.left_over),
        )

    async def _plan(self, snapshot: Snapshot, pods: Mapping[str, Pod]) -> Decided:
        """Let the planner decide, without the workloads that `first_decisions` leaves out."""
        left_out = await self._first.begin(snapshot, pods)
        reduced = self._quarantine.without(snapshot, (*left_out.untried, *left_out.excluded))
        try:
            decided = await asyncio.to_thread(self._quarantine.decide, reduced)
        except Exception:
            self._first.returned(snapshot)
            raise
        self._first.returned(snapshot)
        return replace(decided, undecided=(*decided.undecided, *left_out.untried), excluded=left_out.excluded)

    def _name(self, reading: Reading, decided: Decided, pods: Mapping[str, Pod]) -> Reading:
        """Report the skipped objects. Return the reading with skipped projects added to its unreadable projects."""
        everything = [
            *reading.skipped,
            *self._budgets.skipped,
            *self._observer.skipped(),
            *quarantined(decided, reading.snapshot, pods),
        ]
        left_over = left_over_names(reading.snapshot, decided.plan.left_over)
        new = self._skipped.note(everything, left_over=left_over)
        for entry in new[:MAX_LOGGED]:
            pod = pods.get(entry.uid)
            if pod is None or pod.spec.node_name:  # a pending pod gets its condition and an Event elsewhere
                self._announcer.note_skipped(entry)
        self._health.note_skipped(map(str, everything))
        self._skipped_count = len(everything)
        self._warn_undecided(decided, reading.snapshot, pods)
        projects = {
            culprit.id: undecidable(culprit.why) for culprit in decided.quarantined if culprit.kind == PROJECT
        }
        return replace(reading, unreadable_projects={**reading.unreadable_projects, **projects})

    def _warn_undecided(self, decided: Decided, snapshot: Snapshot, pods: Mapping[str, Pod]) -> None:
        """Make an Event on running pods whose workload is skipped."""
        whys = {culprit.id: undecidable(culprit.why) for culprit in decided.quarantined}
        for workload in snapshot.workloads if whys else ():
            for pod in workload.pods if workload.id in whys else ():
                if pod.node is not None and pod.id in pods:
                    self.warn(pods[pod.id], "Skipped", whys[workload.id])

    def now_us(self) -> int:
        """Return the time in microseconds since the epoch, from the loop's clock."""
        return int((self._epoch + self._clock()) * SECOND_US)

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        """Make an Event on a running pod, once for each message."""
        self._announcer.warns(pod, reason, message)

    def evict(self, pod: Pod, rule: str, message: str) -> None:
        """Evict a pod outside of a decision. `rule` is the name of the rule."""
        snapshot = Snapshot((), (), ()) if self._latest is None else self._latest.snapshot
        workloads, uid = snapshot.workloads, pod.metadata.uid
        workload = next((one for one in workloads if any(member.id == uid for member in one.pods)), None)
        if workload is not None:
            self._audit.know_workload(workload, snapshot.nodes)
        name = "" if workload is None else workload.id
        self._executor.evict(pod, Eviction(uid, name, "", rule, message))

    def _want_conditions(
        self, reading: Reading, decided: Decided, put_off: Mapping[str, str], pods: Mapping[str, Pod]
    ) -> None:
        undecided = reasons(decided, reading.snapshot)
        obstructed = self._reader.volumes.obstructed(map(pods.get, reading.unreadable_pods))
        self._conditions.want(pending_reasons(reading, decided.plan, {*put_off, *obstructed}, undecided))

    def _announce_problems(self, reading: Reading, decision: Plan, pods: Mapping[str, Pod]) -> None:
        """Report problems of pods, avoided nodes, and running pods on unhealthy hardware, once for each problem."""
        self._problems.want(reading.problems)
        self._announcer.note_avoided(decision.avoided)
        if not decision.endangered:
            return
        for workload in reading.snapshot.workloads:
            message = decision.endangered.get(workload.id)
            for pod in workload.pods if message else ():
                if pod.state is PodState.ALLOCATED and pod.id in pods:
                    self.warn(pods[pod.id], "OnUnhealthyHardware", message or "")

    def _is_echo(self, uid: str, node: str) -> bool:
        """Return whether this process sent the binding that the watch has just shown."""
        is_ours = self._executor.is_assumed_on(uid, node)
        if is_ours:
            self._lag.seen(uid)
        return is_ours

    def _note_eviction(self, pod: Pod, eviction: Eviction) -> None:
        self._audit.note(pod, eviction)
        self._metrics.evicted(eviction)
        self._failures.evicted(pod, eviction)

    def _note_binding(self, uid: str) -> None:
        self._lag.answered(uid)
        self._metrics.bound(uid)

    def _note_unready(self, pod: Pod, node: str, why: str) -> None:
        """Put the pod off, so that other workloads can have the GPUs for a time."""
        self._unready.note(pod.metadata.uid, node, why)

    def _labels_of(self, name: str) -> Mapping[str, str]:
        nodes = self._observer.nodes.objects.values()
        labels = next((node.metadata.labels for node in nodes if node.metadata.name == name), {})
        return {**labels, NODE_NAME_LABEL: name}

    def _decide_again(self) -> None:
        """Schedule the next decision: after RETRY_SECONDS, or immediately if suspects can be tried."""
        seconds = 0.0 if self._first.has_trial else RETRY_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._observer.changed.set)

    async def _wait_for_change(self, seconds: float) -> None:
        await asyncio.sleep(self._rest_seconds)
        try:
            async with asyncio.timeout(seconds):
                await self._observer.changed.wait()
        except TimeoutError:
            return
        await settle(self._observer.changed)
