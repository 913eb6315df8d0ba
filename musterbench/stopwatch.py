"""Watches the pods of a benchmark from outside: when each was created, bound and Running."""

import asyncio
import statistics
import time
from collections.abc import Callable

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError

_PATIENCE_SECONDS = 600.0
_TELL_SECONDS = 5.0
_QUIET_SECONDS = 3.0


class BenchmarkFailed(MusterError):
    """The measurement did not come to its end."""


class Stopwatch:
    """When each pod was first seen, first seen bound and first seen Running, in seconds of a monotonic clock."""

    def __init__(self, transport: Transport) -> None:
        self.pods = Reflector(transport, PODS, Pod, on_change=self._see)
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self._names: dict[str, tuple[str, str]] = {}

    def _see(self, change: Change[Pod]) -> None:
        pod, now = change.object, time.monotonic()
        uid = pod.metadata.uid
        self.created.setdefault(uid, now)
        self._names[uid] = (pod.metadata.namespace, pod.metadata.labels.get("bench", ""))
        if pod.spec.node_name:
            self.bound.setdefault(uid, now)
        if pod.status.phase == "Running":
            self.running.setdefault(uid, now)

    def of(self, phase: str) -> list[str]:
        """Uids of the pods of a phase."""
        return [uid for uid, (_, label) in self._names.items() if label == phase]

    async def until(
        self, count: int, phase: str, subject: dict[str, float], progress: Callable[[str], None]
    ) -> None:
        """Wait until `count` pods of the phase are in `subject`, and report the number now and then.

        Raises BenchmarkFailed if no pod is added for ten minutes.
        """
        progressed = reported = time.monotonic()
        before = 0
        while (done := sum(uid in subject for uid in self.of(phase))) < count:
            now = time.monotonic()
            if done > before:
                before, progressed = done, now
            if now - progressed > _PATIENCE_SECONDS:
                raise BenchmarkFailed(f"{phase}: {done} of {count}, no more for {_PATIENCE_SECONDS:.0f} s")
            if now - reported > _TELL_SECONDS:
                reported = now
                progress(f"{phase}: {done} of {count}")
            await asyncio.sleep(0.1)

    async def until_quiet(self) -> None:
        """Wait until no pod has changed for three seconds, which means that the controllers have finished."""
        events = -1
        while events != self.pods.counters.events:
            events = self.pods.counters.events
            await asyncio.sleep(_QUIET_SECONDS)

    async def until_deleted(self, phase: str) -> None:
        """Wait until no pod of the phase is there any more."""
        uids = set(self.of(phase))
        started = time.monotonic()
        while remaining := len(uids & self.pods.objects.keys()):
            if time.monotonic() - started > _PATIENCE_SECONDS:
                raise BenchmarkFailed(
                    f"{phase}: {remaining} pods are still there after {_PATIENCE_SECONDS:.0f} s"
                )
            await asyncio.sleep(0.1)

    def seconds(self, phase: str, subject: dict[str, float]) -> float:
        """Return the seconds from the first binding of the phase until the last of its pods was in `subject`."""
        uids = self.of(phase)
        return max(subject[uid] for uid in uids) - min(self.bound[uid] for uid in uids)

    def waits(self, phase: str, since: float = 0.0) -> dict[str, float]:
        """Return p50 and p99 of the milliseconds from creation, or from `since` if later, to binding."""
        waits = sorted((self.bound[uid] - max(since, self.created[uid])) * 1000 for uid in self.of(phase))
        return {
            "p50_ms": statistics.median(waits),
            "p99_ms": waits[min(len(waits) - 1, len(waits) * 99 // 100)],
        }
