"""Who lost which GPUs to whom, by which rule and when: an Event on the pod, and a record that outlives both.

The record is the ConfigMap `muster-evictions` in the namespace of the workload that lost: the last evictions of its
project, one JSON object a line, oldest first, bounded in number and bytes. It survives the pod, the job and the
operator, and goes with the project. Nothing waits for it: what cannot be written is logged and tried again, and an
eviction never fails because of it.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
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
from orchestrator.cluster.objects import ConfigMap, Pod
from orchestrator.cluster.quantity import format_time, parse_time
from orchestrator.cluster.resources import CONFIG_MAPS, EVENTS
from orchestrator.cluster.transport import Transport
from orchestrator.control.background import BackgroundWriter
from orchestrator.control.events import COMPONENT, pod_event
from orchestrator.control.operator_config import MAX_CHECKPOINT_GRACE_SECONDS
from orchestrator.names import EVICTION_REASON_ANNOTATION, WORKLOAD_LABEL
from orchestrator.planner.model import Eviction, Plan, Workload
from orchestrator.workloads.request import devices_of, grace_seconds
from orchestrator.workloads.snapshot import Reading, owner_uid

logger = logging.getLogger(__name__)

CONFIG_MAP: Final = "muster-evictions"
KEY: Final = "evictions"
MAX_RECORDS: Final = 200
MAX_BYTES: Final = 128 * 1024
MAX_MESSAGE_CHARACTERS: Final = 1000
EVENT_REASONS: Final = {
    "quota": "Reclaimed",
    "fair-share": "Reclaimed",
    "priority": "Preempted",
    "consolidation": "Moved",
    "stale-gang": "StaleGang",
    "unhealthy": "MovedOffUnhealthy",
}
"""By the rule of the eviction; any other is `Evicted`."""

PARTING_SECONDS: Final = 2.0
"""How long an operator that is told to stop goes on writing what is still to be written."""
_WRITES_IN_FLIGHT: Final = 8
_RULE = re.compile(r"by the rule of ([\w-]+)")
_ATTEMPTS_IN_A_ROW: Final = 5
_PASSING = (ServerFault, TooManyRequests, Unreachable)


class EvictionRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One pod that lost its GPUs. `at` is RFC 3339; the beneficiary is empty when it had gone by then.

    `grace_seconds` is how long it may go on from then to save its work; None when nothing says so.
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


class Audit:
    """Writes the evictions down in the background. `clock` gives seconds since the epoch."""

    def __init__(
        self,
        transport: Transport,
        *,
        max_checkpoint_grace_seconds: int = MAX_CHECKPOINT_GRACE_SECONDS,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._max_checkpoint_grace_seconds = max_checkpoint_grace_seconds
        self._clock = clock
        self._workloads: dict[str, Workload] = {}
        self._unwritten: dict[str, deque[EvictionRecord]] = {}
        self._background = BackgroundWriter(self.write, sleep=sleep)
        self._slots = asyncio.Semaphore(_WRITES_IN_FLIGHT)

    def know(self, reading: Reading, decision: Plan) -> None:
        """Take the workloads that a decision rests on: from them an eviction learns who is who."""
        if decision.evictions:
            self._workloads = {workload.id: workload for workload in reading.snapshot.workloads}

    def note(self, pod: Pod, eviction: Eviction) -> None:
        """Remember an eviction that was carried out. Never waits and never fails."""
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
            gpu_milli=lost.request.gpu_milli if lost else 0,
            node=(lost.node if lost else None) or pod.spec.node_name,
            devices=lost.devices if lost else devices_of(pod),
            beneficiary=winner.name if winner else "",
            beneficiary_project=winner.project if winner else "",
            rule=eviction.rule,
            message=eviction.message[:MAX_MESSAGE_CHARACTERS],
            grace_seconds=grace_seconds(pod, self._max_checkpoint_grace_seconds),
        )
        self._unwritten.setdefault(pod.metadata.namespace, deque(maxlen=MAX_RECORDS)).append(record)
        self._background.wake()

    def recall(self, pods: Iterable[Pod]) -> None:
        """Note the evictions of an operator that came to no record: of pods that are still on their way out."""
        for pod in pods:
            reason = pod.metadata.annotations.get(EVICTION_REASON_ANNOTATION)
            if reason is not None and pod.metadata.deletion_timestamp is not None:
                rule = _RULE.search(reason)
                self.note(pod, Eviction(pod.metadata.uid, "", "", rule[1] if rule else "", reason))

    async def run(self) -> None:
        """Write until cancelled, and for a moment longer if something is left."""
        try:
            await self._background.run()
        finally:
            if self._unwritten:
                await self._write_before_leaving()

    async def write(self) -> bool:
        """Write down all that is not yet written; False when some of it has to be tried again."""
        batches, self._unwritten = self._unwritten, {}
        return all(
            await asyncio.gather(*(self._write(namespace, batches[namespace]) for namespace in batches))
        )

    async def _write_before_leaving(self) -> None:
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
        """Add to the ConfigMap; somebody else's change in between means to read it again."""
        for attempt in range(_ATTEMPTS_IN_A_ROW):
            known = await _config_map(self._transport, namespace)
            bounded_records = bounded([*(decoded(known.data.get(KEY, "")) if known else ()), *records])
            metadata: dict[str, Any] = {"name": CONFIG_MAP, "namespace": namespace}
            if known is not None:
                metadata["resourceVersion"] = known.metadata.resource_version
            body = {
                "apiVersion": CONFIG_MAPS.api_version,
                "kind": CONFIG_MAPS.kind,
                "metadata": metadata,
                "data": {KEY: encoded(bounded_records)},
            }
            try:
                async with self._slots:
                    await self._transport.apply(
                        CONFIG_MAPS.path(namespace, CONFIG_MAP), body, field_manager=COMPONENT
                    )
            except ClusterError as error:
                if error.status != 409 or attempt + 1 == _ATTEMPTS_IN_A_ROW:
                    raise
            else:
                return

    async def _tell(self, namespace: str, record: EvictionRecord) -> None:
        """Create the Event. Its name is made of the pod's uid, so that doing it again does nothing."""
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
    """The evictions on record in a namespace, oldest first. Raises leaves of ClusterError."""
    known = await _config_map(transport, namespace)
    return decoded(known.data.get(KEY, "")) if known else []


def bounded(records: Iterable[EvictionRecord]) -> list[EvictionRecord]:
    """The newest records within the bounds, oldest first; of several about one pod, the first."""
    by_pod: dict[str, EvictionRecord] = {}
    for record in records:
        by_pod.setdefault(record.pod_uid, record)
    newest: deque[EvictionRecord] = deque()
    left_bytes = MAX_BYTES
    for record in reversed(list(by_pod.values())[-MAX_RECORDS:]):
        left_bytes -= len(msgspec.json.encode(record)) + 1
        if left_bytes < 0:
            break
        newest.appendleft(record)
    return list(newest)


def encoded(records: Iterable[EvictionRecord]) -> str:
    """The text of the ConfigMap: one JSON object a line."""
    return "".join(f"{msgspec.json.encode(record).decode()}\n" for record in records)


def decoded(text: str) -> list[EvictionRecord]:
    """The records in the text of the ConfigMap; a line that is none is logged and left out."""
    records = []
    for line in text.splitlines():
        try:
            records.append(msgspec.json.decode(line, type=EvictionRecord))
        except msgspec.MsgspecError as error:
            logger.warning("a line of %s is no record of an eviction: %s", CONFIG_MAP, error)
    return records


async def _config_map(transport: Transport, namespace: str) -> ConfigMap | None:
    try:
        return await transport.get(CONFIG_MAPS.path(namespace, CONFIG_MAP), ConfigMap)
    except NotFound:
        return None
