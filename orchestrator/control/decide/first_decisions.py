"""The guard against workloads whose first decision crashes the process: the leader records them before the decision.

If a decision exhausts the memory or crashes in a library, it raises no error that `quarantine` could catch.
Before the leader decides on a workload for the first time, it writes the workload's id into the ConfigMap
`muster-first-decisions`. After the decision has returned, the leader clears the list.

    leader ends during a decision ──> the next leader finds the ids
        one of these workloads has an outcome: the decision had returned, so none is a suspect
        none has an outcome: all are suspects
        it first decides without the suspects, so that all other workloads get their GPUs
        then it tries the suspects: in groups if they are many, otherwise one by one
    leader ends with a single suspect that was in a crash before ──> that workload is set aside

Details and alternatives: docs/decisions/first-decisions.md.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.objects import ConfigMap, Pod
from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.record import write_record
from orchestrator.names import FIRST_DECISIONS_CONFIG_MAP, SYSTEM_NAMESPACE
from orchestrator.observe.pod_status import NotDecided
from orchestrator.planner.model import PodState, Snapshot, Workload

logger = logging.getLogger(__name__)

FIELD_MANAGER: Final = "muster-first-decisions"
PATH: Final = CONFIG_MAPS.path(SYSTEM_NAMESPACE, FIRST_DECISIONS_CONFIG_MAP)
KEY: Final = "record.json"
MAX_DEATHS: Final = 2
"""Number of crashes after which a workload is set aside.

In the last crash, the workload must have been the only suspect.
"""
PARTS: Final = 16
"""Several suspects are tried in this number of groups."""
TRIAL_SECONDS: Final = 5.0
"""A new leader tries no suspect for this time, so that all other workloads are bound first."""
WRITE_SECONDS: Final = 2.0
"""Maximum time that a decision waits for the write of the record."""
CLEAR_SECONDS: Final = 1.0
_NO_OUTCOME: Final = (f"{NotDecided.SKIPPED}:", f"{NotDecided.UNREADABLE}:")
"""The beginnings of condition messages on pods that were in no decision."""
MAX_LISTED: Final = 20_000
"""Maximum number of ids in the record: a ConfigMap holds 1 MiB."""


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The ConfigMap's content. `trying` and `suspects` have the number of crashes by workload id.

    `starting`: the first decision of the leader has not returned yet.
    """

    trying: dict[str, int] = {}
    suspects: dict[str, int] = {}
    excluded: tuple[str, ...] = ()
    starting: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Workloads (ids) that a decision leaves out: `untried` until their trial, `excluded` until they are deleted."""

    untried: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


class FirstDecisions:
    """Records the new workloads of each decision, and finds the workloads that crashed the process.

    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        is_leader: Callable[[], bool],
        clock: Callable[[], float],
        trial_seconds: float = TRIAL_SECONDS,
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._clock = clock
        self._trial_seconds = trial_seconds
        self._began = clock()
        self._returned: dict[str, Workload] = {}
        self._trying: dict[str, int] = {}
        self._inherited: dict[str, int] = {}
        self._fresh: list[Workload] = []
        self._suspects: dict[str, int] = {}
        self._excluded: dict[str, None] = {}
        self._starting = True
        self._all_are_suspects = False
        self._was_trial = False
        self._is_failing = False
        self._written = Record()
        self._changed = asyncio.Event()

    async def recall(self) -> None:
        """Read the record of the previous leader."""
        try:
            found = await self._transport.get(PATH, ConfigMap)
            record = msgspec.json.decode(found.data[KEY], type=Record)
        except NotFound:
            return
        except (ClusterError, KeyError, msgspec.DecodeError) as error:
            logger.warning("the first decisions of the leader before are not known: %s", error)
            return
        self._written = record
        self._excluded = dict.fromkeys(record.excluded)
        self._suspects = dict(record.suspects)
        self._inherited = dict(record.trying)
        self._all_are_suspects = record.starting and not record.trying

    async def begin(self, snapshot: Snapshot, pods: Mapping[str, Pod]) -> LeftOut:
        """Record the workloads that the decision tries. Return the workloads that it must leave out."""
        if self._starting:
            self._judge_inherited(snapshot, pods)
        fresh = self._find_fresh(snapshot, pods)
        self._forget_deleted(snapshot)
        trial = self._next_trial()
        self._was_trial = bool(trial)
        self._fresh = [] if trial else fresh
        self._trying = trial or {workload.id: 0 for workload in fresh[:MAX_LISTED]}
        if self._trying or self._starting:
            await self._write_in_time()
        elif self._must_be_written():
            self._changed.set()
        untried = [name for name in self._suspects if name not in trial]
        untried += [workload.id for workload in fresh] if trial else []
        return LeftOut(tuple(untried), tuple(self._excluded))

    def returned(self, snapshot: Snapshot) -> None:
        """Note that the decision has returned, so that none of the workloads that it tried is a suspect."""
        self._returned |= {workload.id: workload for workload in self._fresh}
        if self._was_trial:
            self._returned |= {
                workload.id: workload for workload in snapshot.workloads if workload.id in self._trying
            }
        for name in self._trying:
            self._suspects.pop(name, None)
        self._trying, self._fresh, self._starting = {}, [], False
        self._changed.set()

    async def run(self) -> None:
        """Clear the record after decisions, until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(CLEAR_SECONDS)
            self._changed.clear()
            if not self._trying and self._must_be_written():
                await self._write_in_time()

    def _judge_inherited(self, snapshot: Snapshot, pods: Mapping[str, Pod]) -> None:
        """If the previous leader's decision did not return, mark the workloads that it tried as suspects.

        All of them were in one decision, so the outcome of one workload shows that the decision returned. Example: the
        leader is killed while it binds 60 new jobs, and 3 of them are bound: none of the 60 is a suspect.
        """
        inherited, self._inherited = self._inherited, {}
        there = {workload.id: workload for workload in snapshot.workloads}
        inherited = {name: deaths for name, deaths in inherited.items() if name in there}
        if any(_came_back(there[name], deaths, pods) for name, deaths in inherited.items()):
            for name in inherited:
                self._suspects.pop(name, None)
            inherited = {}
        died = {name: deaths + 1 for name, deaths in inherited.items()}
        if len(died) == 1 and max(died.values()) >= MAX_DEATHS:
            name, deaths = died.popitem()
            self._excluded[name] = None
            self._suspects.pop(name, None)
            logger.error("workload %s is set aside: the operator ended %d times with it", name, deaths)
        self._suspects |= died
        if self._suspects:
            logger.warning(
                "the leader before ended during a decision; %d workloads wait for a trial",
                len(self._suspects),
            )

    @property
    def has_trial(self) -> bool:
        """Whether suspects can be tried now."""
        return bool(self._suspects) and self._clock() >= self._began + self._trial_seconds

    def _find_fresh(self, snapshot: Snapshot, pods: Mapping[str, Pod]) -> list[Workload]:
        """Return the workloads for which no completed decision is known."""
        returned = self._returned
        changed = [workload for workload in snapshot.workloads if returned.get(workload.id) is not workload]
        if self._all_are_suspects:
            self._suspects |= {
                workload.id: 1
                for workload in changed
                if _is_pending(workload) and workload.id not in self._excluded
            }
            self._all_are_suspects = False
        fresh = []
        for workload in changed:
            if workload.id in self._suspects or workload.id in self._excluded:
                continue
            before = returned.get(workload.id)
            if before is None:
                is_fresh = _is_pending(workload) and not _was_decided(workload, pods)
            else:
                is_fresh = _specs(before) != _specs(workload)
            if is_fresh:
                fresh.append(workload)
            else:
                returned[workload.id] = workload
        return fresh

    def _forget_deleted(self, snapshot: Snapshot) -> None:
        if (
            not self._suspects
            and not self._excluded
            and len(self._returned) < 2 * len(snapshot.workloads) + 1000
        ):
            return
        there = {workload.id for workload in snapshot.workloads}
        self._suspects = {name: deaths for name, deaths in self._suspects.items() if name in there}
        self._excluded = {name: None for name in self._excluded if name in there}
        self._returned = {name: workload for name, workload in self._returned.items() if name in there}

    def _next_trial(self) -> dict[str, int]:
        """Return the suspects of the next trial with their numbers of crashes.

        Suspects with the most crashes come first. Empty if there is no trial now.

        After a trial, the next decision is for other new workloads.
        """
        if not self.has_trial or self._was_trial or self._starting:
            return {}
        most = max(self._suspects.values())
        likely = {name: deaths for name, deaths in self._suspects.items() if deaths == most}
        return dict(islice(likely.items(), -(-len(likely) // PARTS)))

    def _record(self) -> Record:
        return Record(self._trying, self._suspects, tuple(self._excluded), self._starting)

    def _must_be_written(self) -> bool:
        return self._record() != self._written

    async def _write_in_time(self) -> None:
        """Write the record if this process leads. If the write fails, the decision is made without it."""
        if not self._is_leader():
            return
        record = self._record()
        data = {KEY: msgspec.json.encode(record).decode()}
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await write_record(
                    self._transport, FIRST_DECISIONS_CONFIG_MAP, data, field_manager=FIELD_MANAGER
                )
        except (ClusterError, TimeoutError) as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "new workloads are decided on without a record of them: %r", error)
            self._is_failing = True
        else:
            self._written = record
            self._is_failing = False


def _is_pending(workload: Workload) -> bool:
    return any(pod.state is PodState.PENDING for pod in workload.pods)


def _specs(workload: Workload) -> tuple[object, ...]:
    """Return the specifications of the pods' ResourceClaims. They can change when a ResourceClaim is created after
    its pod.
    """
    return tuple(pod.request.claim_specs for pod in workload.pods if pod.request.claim_specs)


def _was_decided(workload: Workload, pods: Mapping[str, Pod]) -> bool:
    """Return whether an operator has written the outcome of a decision on each pending pod."""
    if _specs(workload):
        return False
    return all(pod.state is not PodState.PENDING or _has_outcome(pods.get(pod.id)) for pod in workload.pods)


def _came_back(workload: Workload, deaths: int, pods: Mapping[str, Pod]) -> bool:
    """Return whether the outcome of the workload proves that the decision has returned.

    If the workload was a suspect (`deaths` > 0), the outcome on a pending pod can come from an earlier decision, so
    only a binding counts.
    """
    is_bound = bool(workload.pods) and not _is_pending(workload)
    return is_bound or (deaths == 0 and _was_decided(workload, pods))


def _has_outcome(pod: Pod | None) -> bool:
    if pod is None:
        return False
    return bool(pod.status.nominated_node_name) or any(
        condition.type == "PodScheduled" and not condition.message.startswith(_NO_OUTCOME)
        for condition in pod.status.conditions
    )
