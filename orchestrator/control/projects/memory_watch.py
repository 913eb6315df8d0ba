"""Checks the GPU memory of pods from the agents' reports.

A pod above its fraction gets a warning, and is evicted after a grace period.

The library in a container limits programs that use it. This check limits programs that avoid the library, and pods that
do not mount it.

The GpuNode of a node has the memory of each pod's processes. An annotation of the pod, which the operator writes, has
the limits. The library does not count the CUDA context of a process, whose size is unknown. So each process has an
allowance above the limit.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from orchestrator.cluster.gpu_nodes import GpuNode, GpuState, GpuUser
from orchestrator.cluster.objects import FINISHED, Pod
from orchestrator.cluster.quantity import parse_time
from orchestrator.names import GPU_MEMORY_LIMITS_ANNOTATION
from orchestrator.observe.request import is_admitted
from orchestrator.planner.model import SECOND_US
from orchestrator.submit.memory_limits import ANY_DEVICE, limits_of
from orchestrator.views.gpus import STALE_SECONDS

logger = logging.getLogger(__name__)

RULE: Final = "memory"
CONTEXT_MIB: Final = 768
"""Allowance for each process in addition to its allocations: CUDA context, code, and rounding by the driver.

Measured on an H100 (driver 580.159.04, CUDA 13.0): 518 MiB for a bare context, 554 with JAX, 634 with ResNet-50 of
PyTorch. The maximum was 682 (PyTorch with cudaMallocAsync). Other GPUs have not been measured.
"""
MARGIN_MIB: Final = 256
"""An excess begins if the use is above fraction plus allowances plus this margin.

It ends below fraction plus allowances.

So a pod whose use varies around the sum is not warned repeatedly.
"""
GRACE_SECONDS: Final = 60
"""Time for which a pod may use more GPU memory than its fraction before it is evicted."""
CHECK_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 1.0
"""Minimum time between two checks, because agents can write often."""
MAX_EVICTIONS: Final = 8
"""Maximum number of evictions in one check, so that a wrong report of an agent does not evict all pods together."""
_MIB: Final = 1 << 20

Key = tuple[str, str]
"""A pod's uid and the UUID of a GPU."""


@dataclass(frozen=True, slots=True)
class Use:
    """The memory of a pod's processes on a GPU, and the pod's fraction. `is_its_own`: the fraction is on this GPU."""

    pod: Pod
    node: str
    index: int
    uuid: str
    used_mib: int
    part_mib: int
    processes: int
    is_its_own: bool

    @property
    def key(self) -> Key:
        """The key of the use. The next check recognizes the same use by it."""
        return self.pod.metadata.uid, self.uuid

    def is_excess(self, *, since_before: bool) -> bool:
        """Return whether the use exceeds the fraction. After an excess, the use must fall below a lower bound."""
        margin_mib = 0 if since_before else MARGIN_MIB
        return self.used_mib > self.part_mib + CONTEXT_MIB * self.processes + margin_mib

    def __str__(self) -> str:
        own, none = f"and its fraction is {self.part_mib} MiB", "of which it has no fraction"
        fraction = own if self.is_its_own else none
        return f"{self.used_mib} MiB of GPU {self.index} ({self.uuid}) of node {self.node}, {fraction}"


class MemoryWatch:
    """Warns and evicts while this replica leads. `gpu_nodes` are by name, `pods` by uid; `now_us` returns the time.

    `evict` is called with a pod, the rule and the reason. A pod is evicted after `GRACE_SECONDS` of excess.
    """

    def __init__(
        self,
        gpu_nodes: Mapping[str, GpuNode],
        pods: Mapping[str, Pod],
        changed: asyncio.Event,
        *,
        now_us: Callable[[], int],
        warn: Callable[[Pod, str, str], None],
        evict: Callable[[Pod, str, str], None],
        is_leader: Callable[[], bool],
    ) -> None:
        self._gpu_nodes = gpu_nodes
        self._pods = pods
        self._changed = changed
        self._now_us = now_us
        self._warn = warn
        self._evict = evict
        self._is_leader = is_leader
        self._since_us: dict[Key, int] = {}

    async def run(self) -> None:
        """Check after each report of an agent, and at least every few seconds, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                logger.debug("device memory: looking without a change")
            self._changed.clear()
            self.check()
            await asyncio.sleep(PAUSE_SECONDS)

    def check(self) -> None:
        """Warn pods with a new excess, and evict pods after the grace period."""
        now_us, before = self._now_us(), self._since_us
        self._since_us, due = {}, []
        for use in self._uses(now_us):
            if not use.is_excess(since_before=use.key in before):
                continue
            since_us = self._since_us[use.key] = before.get(use.key, now_us)
            if use.key not in before and self._is_leader():
                self._warn(use.pod, "GpuMemoryExceeded", self._warning(use))
            if use.is_its_own and now_us - since_us >= GRACE_SECONDS * SECOND_US:
                due.append(use)
        for use in due[:MAX_EVICTIONS] if self._is_leader() else ():
            self._evict(use.pod, RULE, f"evicted by the rule of {RULE}: {self._reason(use)}")

    def _uses(self, now_us: int) -> Iterator[Use]:
        owners = _Owners(self._pods)
        for node in list(self._gpu_nodes.values()):
            if not node.spec.problem and _is_fresh(node, now_us):
                for state in node.spec.gpus:
                    yield from _uses_of(node.metadata.name, state, owners)

    def _warning(self, use: Use) -> str:
        if not use.is_its_own:
            end = "ask the administrator of the cluster for the cause"
        else:
            end = f"it is evicted unless that ends within {GRACE_SECONDS} s"
        return f"its processes have {use}: {end}"

    def _reason(self, use: Use) -> str:
        return f"its processes have {use}; it had more for at least {GRACE_SECONDS} s"


def _is_fresh(node: GpuNode, now_us: int) -> bool:
    """Return whether the agent's report is recent enough to be trusted; false if its time cannot be read."""
    try:
        observed_us = parse_time(node.spec.observed_at)
    except ValueError:
        return False
    return now_us - observed_us < STALE_SECONDS * SECOND_US


class _Owners:
    """Finds the pod of a process: by the pod's uid, or by the container if the cgroups of the node do not name pods."""

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods

    @cached_property
    def _by_container(self) -> Mapping[str, Pod]:
        return {
            status.container_id.rpartition("/")[2]: pod
            for pod in self._pods.values()
            if GPU_MEMORY_LIMITS_ANNOTATION in pod.metadata.annotations
            for status in pod.status.container_statuses
        }

    def pod_of(self, user: GpuUser) -> Pod | None:
        """Return the pod of the process; None if it is unknown."""
        if user.pod_uid:
            return self._pods.get(user.pod_uid)
        return self._by_container.get(user.container_id) if user.container_id else None


def _uses_of(node: str, state: GpuState, owners: _Owners) -> Iterator[Use]:
    """Yield the uses of one GPU by pods that muster bound to its node with a GPU fraction."""
    used: dict[str, tuple[Pod, int, int]] = {}
    for user in state.users:
        pod = owners.pod_of(user)
        # an agent reports only about pods of its own node; other pods are ignored
        if pod is not None and pod.spec.node_name == node and _counts(pod):
            _, mib, processes = used.get(pod.metadata.uid, (pod, 0, 0))
            used[pod.metadata.uid] = pod, mib + user.memory_mib, processes + user.processes
    for pod, used_mib, processes in used.values():
        limits = limits_of(pod)
        part_bytes = limits.get(state.uuid, limits.get(ANY_DEVICE))
        if limits:
            part_mib = (part_bytes or 0) // _MIB
            is_its_own = part_bytes is not None
            yield Use(pod, node, state.index, state.uuid, used_mib, part_mib, processes, is_its_own)


def _counts(pod: Pod) -> bool:
    return is_admitted(pod) and pod.metadata.deletion_timestamp is None and pod.status.phase not in FINISHED
