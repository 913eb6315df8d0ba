"""Carries out a plan: evictions and bindings, many at once, and remembers what the watch has not shown yet."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from orchestrator.cluster.binding import bind
from orchestrator.cluster.errors import ClusterError, Conflict, NotFound, ServerFault, Unreachable
from orchestrator.cluster.eviction import evict
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.names import EVICTION_REASON, GPU_DEVICES_ANNOTATION
from orchestrator.planner.model import Binding, Eviction
from orchestrator.workloads.snapshot import Assumption

logger = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT = 32
ASSUMPTION_SECONDS = 30.0
"""How long a binding or eviction that the watch does not confirm is believed."""


class Executor:
    """Binds and evicts. `assumed` and `evicted` are what was done and has not been seen on the watch yet."""

    def __init__(
        self, transport: Transport, *, clock: Callable[[], float], is_leader: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._clock = clock
        self._slots = asyncio.Semaphore(REQUESTS_IN_FLIGHT)
        self._assumed: dict[str, tuple[Assumption, float]] = {}
        self._evicted: dict[str, float] = {}

    @property
    def assumed(self) -> Mapping[str, Assumption]:
        """Bindings just made, by pod uid."""
        return {uid: assumption for uid, (assumption, _) in self._assumed.items()}

    @property
    def evicted(self) -> frozenset[str]:
        """Uids of pods just evicted."""
        return frozenset(self._evicted)

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """Forget what the watch shows by now, and what it failed to show for too long."""
        now = self._clock()
        for uid, (_, until) in list(self._assumed.items()):
            pod = pods.get(uid)
            if pod is None or pod.spec.node_name or now > until:
                del self._assumed[uid]
        for uid, until in list(self._evicted.items()):
            pod = pods.get(uid)
            if pod is None or pod.metadata.deletion_timestamp is not None or now > until:
                del self._evicted[uid]

    async def carry_out(
        self, evictions: Iterable[Eviction], bindings: Iterable[Binding], pods: Mapping[str, Pod]
    ) -> bool:
        """Evict and bind; True when all went through. What failed is decided again on fresh state."""
        tasks: list[Awaitable[bool]] = [
            self._evict(pods[each.pod], each) for each in evictions if each.pod in pods
        ]
        tasks += [self._bind(pods[each.pod], each) for each in bindings if each.pod in pods]
        return all(await asyncio.gather(*tasks))

    async def _bind(self, pod: Pod, binding: Binding) -> bool:
        uid = pod.metadata.uid
        self._assumed[uid] = (Assumption(binding.node, binding.devices), self._clock() + ASSUMPTION_SECONDS)
        devices = ",".join(str(device) for device in binding.devices)
        return await self._attempt(
            lambda: bind(
                self._transport,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=uid,
                node=binding.node,
                annotations={GPU_DEVICES_ANNOTATION: devices} if devices else {},
            ),
            what=f"bind {pod.metadata.namespace}/{pod.metadata.name} to {binding.node} devices [{devices}]",
            undo=lambda: self._assumed.pop(uid, None),
        )

    async def _evict(self, pod: Pod, eviction: Eviction) -> bool:
        uid = pod.metadata.uid
        self._evicted[uid] = self._clock() + ASSUMPTION_SECONDS
        return await self._attempt(
            lambda: evict(
                self._transport,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=uid,
                reason=EVICTION_REASON,
                message=eviction.message,
            ),
            what=f"evict {pod.metadata.namespace}/{pod.metadata.name}: {eviction.message}",
            undo=lambda: self._evicted.pop(uid, None),
        )

    async def _attempt(
        self, call: Callable[[], Awaitable[None]], *, what: str, undo: Callable[[], object]
    ) -> bool:
        async with self._slots:
            if not self._is_leader():
                undo()
                logger.warning("%s: left to the next leader", what)
                return False
            try:
                await call()
            except (Unreachable, ServerFault) as error:
                # It may have happened: believed until the watch shows otherwise, or for a while.
                logger.warning("%s: no answer: %s", what, error)
                return False
            except (NotFound, Conflict) as error:
                undo()
                logger.info("%s: overtaken by events: %s", what, error)
                return True
            except ClusterError as error:
                undo()
                logger.warning("%s: failed: %s", what, error)
                return False
            logger.info("%s", what)
            return True
