"""Reports each eviction (victim, GPUs, preemptor, rule, time) by an Event on the pod and a record that is kept longer.

A record is an EvictionRecord in the namespace of the victim's workload, one for each evicted pod. Members of the
project can read the records. Only the operator's account can create them, and no account can change one.

The newest records of a namespace are kept: they outlive the pod, the job and the operator, and are deleted with the
namespace. No eviction waits for its record: a failed write is logged and repeated.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from orchestrator.cluster.errors import (
    AlreadyExists,
    ClusterError,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unreachable,
)
from orchestrator.cluster.objects import Object, Pod
from orchestrator.cluster.quantity import format_time, parse_time
from orchestrator.cluster.resources import EVENTS, EVICTION_RECORDS, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.control.operator_config import DEFAULT_CONFIG, OperatorConfig
from orchestrator.control.report.background import BackgroundWriter
from orchestrator.control.report.events import pod_event
from orchestrator.names import EVICTION_REASON_ANNOTATION, OPERATOR_ACCOUNT, WORKLOAD_LABEL
from orchestrator.observe.grace_periods import grace_seconds
from orchestrator.observe.request import devices_of
from orchestrator.observe.snapshot import Reading, owner_uid
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.model import Eviction, Node, Plan, Workload

logger = logging.getLogger(__name__)

MAX_RECORDS: Final = 200
"""Maximum number of records of a namespace; the newest are kept."""
PRUNE_AFTER: Final = 50
"""Number of new records in a namespace after which records beyond the maximum are deleted."""
MAX_MESSAGE_CHARACTERS: Final = 1000
EVENT_REASONS: Final = {
    "quota": "Reclaimed",
    "fair-share": "Reclaimed",
    "priority": "Preempted",
    "consolidation": "Moved",
    "stale-gang": "StaleGang",
    "unhealthy": "MovedOffUnhealthy",
    "memory": "GpuMemoryExceeded",
}
"""The reason of the Event by rule of the eviction; `Evicted` for other rules."""

PARTING_SECONDS: Final = 2.0
"""Maximum time for which a stopping operator writes the remaining records."""
_WRITES_IN_FLIGHT: Final = 8
_RULE = re.compile(r"by the rule of ([\w-]+)")
_PASSING = (ServerFault, TooManyRequests, Unreachable)


class EvictionRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One pod that lost its GPUs. `gpu_milli` is the lost amount, in thousandths of the node's GPUs.

    `at` is RFC 3339. The beneficiary is empty if it is unknown. `grace_seconds` is the time that the pod has after `at`
    to save its state; None if unknown.
    """

    at: str
    project: str
    workload: str
    workload_id: str
    pod: str
    pod_uid: str
    gpu_milli: int
    node: str
    devices: tuple[int, ...] = ()
    beneficiary: str = ""
    beneficiary_project: str = ""
    rule: str
    message: str
    grace_seconds: int | None = None


class _Stored(Object, frozen=True, kw_only=True):
    """An EvictionRecord object of the API server."""

    resource = EVICTION_RECORDS

    spec: EvictionRecord


class Audit:
    """Writes records and Events of evictions in the background. `clock` returns seconds since the epoch."""

    def __init__(
        self,
        transport: Transport,
        config: OperatorConfig = DEFAULT_CONFIG,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._config = config
        self._clock = clock
        self._workloads: dict[str, Workload] = {}
        self._sizes = GpuSizes({})
        self._unwritten: dict[str, deque[EvictionRecord]] = {}
        self._recalled: list[Pod] = []
        self._added: dict[str, int] = {}
        self._background = BackgroundWriter(self.write, sleep=sleep)
        self._slots = asyncio.Semaphore(_WRITES_IN_FLIGHT)

    def know(self, reading: Reading, decision: Plan) -> None:
        """Store the workloads of a decision with evictions: `note` reads names and amounts from them."""
        if decision.evictions:
            self._workloads = {workload.id: workload for workload in reading.snapshot.workloads}
            self._sizes = GpuSizes.of(reading.snapshot.nodes)

    def know_workload(self, workload: Workload, nodes: Iterable[Node]) -> None:
        """Store a workload that is evicted outside of decisions, and the sizes of the nodes' GPUs."""
        self._workloads = {**self._workloads, workload.id: workload}
        self._sizes = GpuSizes.of(nodes)

    def note(self, pod: Pod, eviction: Eviction) -> None:
        """Queue the record of an eviction that was carried out. Never waits and never fails."""
        loser = self._workloads.get(eviction.workload)
        winner = self._workloads.get(eviction.beneficiary)
        lost = next((victim for victim in loser.pods if victim.id == eviction.pod), None) if loser else None
        record = EvictionRecord(
            at=format_time(int(self._clock() * 1_000_000)),
            project=loser.project if loser else "",
            workload=loser.name if loser else pod.metadata.labels.get(WORKLOAD_LABEL, pod.metadata.name),
            workload_id=eviction.workload or owner_uid(pod),
            pod=pod.metadata.name,
            pod_uid=pod.metadata.uid,
            gpu_milli=self._sizes.held_milli(lost.request, lost.node) if lost else 0,
            node=(lost.node if lost else None) or pod.spec.node_name,
            devices=lost.devices if lost else devices_of(pod),
            beneficiary=winner.name if winner else "",
            beneficiary_project=winner.project if winner else "",
            rule=eviction.rule,
            message=eviction.message[:MAX_MESSAGE_CHARACTERS],
            grace_seconds=grace_seconds(pod, self._config.max_checkpoint_grace_seconds),
        )
        self._unwritten.setdefault(pod.metadata.namespace, deque(maxlen=MAX_RECORDS)).append(record)
        self._background.wake()

    def recall(self, pods: Iterable[Pod]) -> None:
        """Queue the evictions of pods that are still terminating, because an earlier leader may not have recorded
        them.
        """
        for pod in pods:
            if (
                EVICTION_REASON_ANNOTATION in pod.metadata.annotations
                and pod.metadata.deletion_timestamp is not None
            ):
                self._recalled.append(pod)
                self._background.wake()

    async def run(self) -> None:
        """Write until cancelled, and then up to PARTING_SECONDS longer if records are left."""
        try:
            await self._background.run()
        finally:
            if self._unwritten or self._recalled:
                await self._write_before_exit()

    async def write(self) -> bool:
        """Write all queued records. Return false if some of them must be tried again."""
        is_recalled = await self._check_recalled()
        batches, self._unwritten = self._unwritten, {}
        done = await asyncio.gather(*(self._write(namespace, batches[namespace]) for namespace in batches))
        return is_recalled and all(done)

    async def _check_recalled(self) -> bool:
        """Note the recalled evictions that the operator made. Return false if the API server does not answer.

        A pod can have the annotation from its owner's template. `managedFields` names the operator only if it wrote the
        annotation.
        """
        while self._recalled:
            pod = self._recalled[-1]
            path = PODS.path(pod.metadata.namespace, pod.metadata.name)
            try:
                raw: dict[str, Any] = await self._transport.get(path)
            except NotFound:
                logger.debug("%s was deleted; its evictor is unknown", path)
            except _PASSING as error:
                logger.warning("evictions of the leader before are to be recorded later: %s", error)
                return False
            except ClusterError as error:
                logger.warning("the eviction of %s is on no record: %s", path, error)
            else:
                if raw["metadata"].get("uid") == pod.metadata.uid and _is_written_by_the_operator(raw):
                    reason = pod.metadata.annotations[EVICTION_REASON_ANNOTATION]
                    rule = _RULE.search(reason)
                    self.note(pod, Eviction(pod.metadata.uid, "", "", rule[1] if rule else "", reason))
            self._recalled.pop()
        return True

    async def _write_before_exit(self) -> None:
        try:
            async with asyncio.timeout(PARTING_SECONDS):
                await self.write()
        except TimeoutError:
            logger.warning("some evictions of the last moment are on no record: the API server was too slow")

    async def _write(self, namespace: str, batch: deque[EvictionRecord]) -> bool:
        records = list(batch)
        done = await asyncio.gather(
            self._keep(namespace, records),
            *(self._tell(namespace, record) for record in records),
            return_exceptions=True,
        )
        errors = [outcome for outcome in done if isinstance(outcome, BaseException)]
        for error in errors:
            if not isinstance(error, ClusterError):
                raise error
        if any(isinstance(error, _PASSING) for error in errors):
            later = self._unwritten.setdefault(namespace, deque(maxlen=MAX_RECORDS))
            later.extendleft(reversed(records))
            logger.warning(
                "%d evictions in %s are to be recorded later: %s", len(records), namespace, errors[0]
            )
            return False
        for error in errors:
            logger.error("%d evictions in %s are on no record: %s", len(records), namespace, error)
        return True

    async def _keep(self, namespace: str, records: list[EvictionRecord]) -> None:
        """Create the records that do not exist yet, and delete old records beyond the maximum."""
        await asyncio.gather(*(self._add(namespace, record) for record in records))
        self._added[namespace] = self._added.get(namespace, PRUNE_AFTER) + len(records)
        if self._added[namespace] > PRUNE_AFTER:
            await self._prune(namespace)
            self._added[namespace] = 0

    async def _add(self, namespace: str, record: EvictionRecord) -> None:
        body = {
            "apiVersion": EVICTION_RECORDS.api_version,
            "kind": EVICTION_RECORDS.kind,
            "metadata": {
                "name": f"{record.pod[:180]}.{record.pod_uid}"[:253].lower(),
                "namespace": namespace,
            },
            "spec": record,
        }
        try:
            async with self._slots:
                await self._transport.create(EVICTION_RECORDS.path(namespace), body)
        except AlreadyExists:
            logger.debug("the eviction of %s/%s is on record already", namespace, record.pod)

    async def _prune(self, namespace: str) -> None:
        for stored in (await _stored_in(self._transport, namespace))[:-MAX_RECORDS]:
            path = EVICTION_RECORDS.path(namespace, stored.metadata.name)
            try:
                async with self._slots:
                    await self._transport.delete(path, uid=stored.metadata.uid)
            except NotFound:
                logger.debug("%s was already deleted", path)

    async def _tell(self, namespace: str, record: EvictionRecord) -> None:
        """Create the Event. Its name contains the pod's uid, so that a repetition has no effect."""
        event = pod_event(
            namespace=namespace,
            pod=record.pod,
            uid=record.pod_uid,
            name=record.pod_uid,
            reason=EVENT_REASONS.get(record.rule, "Evicted"),
            message=record.message,
            at_us=parse_time(record.at),
        )
        try:
            async with self._slots:
                await self._transport.create(EVENTS.path(namespace), event)
        except AlreadyExists:
            logger.debug("the event of %s/%s is there already", namespace, record.pod)
        except _PASSING:
            raise
        except ClusterError as error:
            logger.warning("no event for %s/%s: %s", namespace, record.pod, error)


async def evictions_in(transport: Transport, namespace: str) -> list[EvictionRecord]:
    """Return the recorded evictions of a namespace, oldest first. Raises subclasses of ClusterError."""
    return [stored.spec for stored in (await _stored_in(transport, namespace))[-MAX_RECORDS:]]


async def newest_evictions(transport: Transport, namespaces: Iterable[str | None]) -> list[EvictionRecord]:
    """Return the newest evictions in these namespaces, or in all (None), oldest first; at most MAX_RECORDS.

    Only one page of all records is in memory at a time. Raises subclasses of ClusterError.
    """
    newest: list[_Stored] = []
    for namespace in namespaces:
        async with aclosing(transport.pages(EVICTION_RECORDS.path(namespace), _Stored)) as pages:
            async for page in pages:
                newest = sorted([*newest, *page.items], key=_age)[-MAX_RECORDS:]
    return [stored.spec for stored in newest]


async def _stored_in(transport: Transport, namespace: str) -> list[_Stored]:
    page = await transport.list(EVICTION_RECORDS.path(namespace), _Stored)
    return sorted(page.items, key=_age)


def _age(stored: _Stored) -> tuple[str, str]:
    return stored.spec.at, stored.spec.pod_uid


def _is_written_by_the_operator(pod: Mapping[str, Any]) -> bool:
    key = f"f:{EVICTION_REASON_ANNOTATION}"
    return any(
        entry.get("manager") == OPERATOR_ACCOUNT
        and key in entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        for entry in pod["metadata"].get("managedFields", ())
    )
