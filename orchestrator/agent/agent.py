"""The agent's process: reads the GPUs each second and the host every five minutes, and serves metrics.

It keeps the GpuNode, the annotations and the condition of its node current.

The agent continues if a part is missing. Without NVML the GpuNode has the reason; without the kubelet the last holders
remain; without the API server the latest state is written later. Calls of NVML run in a thread of their own, because
they can block.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.agent import pod_resources
from orchestrator.agent.collector import Collector, Driver
from orchestrator.agent.errors import KubeletUnreachable
from orchestrator.agent.host import Host
from orchestrator.agent.host_watch import HOST_SECONDS, HostWatch, Source
from orchestrator.agent.metrics import GPU_NODE, NODE, AgentFigures, render
from orchestrator.agent.model import Gpu, NodeReading
from orchestrator.agent.nvml import Nvml
from orchestrator.agent.publisher import Publisher
from orchestrator.agent.report import Changes, failed_gpus, known_gpus, lost_gpus, spec_of, stamped
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.gpu_nodes import GpuNode, GpuNodeSpec
from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.resources import GPU_NODES, NODES
from orchestrator.cluster.timeouts import Limits
from orchestrator.cluster.transport import Transport
from orchestrator.cluster.wire import Metadata, Object
from orchestrator.exposition import CONTENT_TYPE, cpu_seconds, resident_bytes
from orchestrator.names import FAILED_GPUS_ANNOTATION, LOST_GPUS_ANNOTATION
from orchestrator.pages import Page, serving_pages

logger = logging.getLogger(__name__)

FIELD_MANAGER: Final = "muster-agent"
SAMPLE_SECONDS: Final = 1.0
KUBELET_SECONDS: Final = 2.0
"""Interval of the requests to the kubelet.

A pod with a GPU fraction is bound only after the agent has named the GPU of its reservation.
"""
NODE_SECONDS: Final = 60.0
"""Interval at which the Node is read. If a Node was deleted and registered again, its GPUs are then written again."""
BLOCKED_SECONDS: Final = 10.0
BLOCKED: Final = f"NVML: no answer for {BLOCKED_SECONDS:g} s"
STUCK_SECONDS: Final = 60.0
"""If NVML blocks for longer, the health page fails, so that the kubelet restarts the agent."""
LIMITS: Final = Limits(request_seconds=15, attempts=1, connections=4)
_ANNOTATIONS: Final = (FAILED_GPUS_ANNOTATION, LOST_GPUS_ANNOTATION)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of the agent; `pages_port` 0 takes a free port.

    If `host_root` is None, the host is not read. `kernel_log` is a file instead of the kernel's log.
    """

    node: str
    pages_host: str = "127.0.0.1"
    pages_port: int = 0
    socket: Path = pod_resources.SOCKET
    driver_root: Path | None = None
    sample_seconds: float = SAMPLE_SECONDS
    kubelet_seconds: float = KUBELET_SECONDS
    node_seconds: float = NODE_SECONDS
    host_root: Path | None = None
    host_seconds: float = HOST_SECONDS
    kernel_log: Path | None = None


class Agent:
    """The shared state of the agent's loops. `clock` is monotonic, `wall_clock` since the epoch, in seconds."""

    def __init__(
        self,
        transport: Transport,
        options: AgentOptions,
        *,
        driver: Driver | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        host: Source | None = None,
        booted_at: float | None = None,
    ) -> None:
        self._transport = transport
        self._options = options
        self._driver = driver or Nvml(options.driver_root)
        self._clock = clock
        self._wall_clock = wall_clock
        self._boot_id = _read(_BOOT_ID)
        self._held: list[pod_resources.HeldDevice] = []
        self._kubelet_problem = "the kubelet was not asked yet"
        self._figures = AgentFigures()
        self._read_at = clock()
        self._node_uid = ""
        self._failed: tuple[str, str] | None = None
        self._changes = Changes()
        self.reading = NodeReading(nvml_problem="it was not read yet", kubelet_problem=self._kubelet_problem)
        self._gpu_node = Publisher(GPU_NODE, self._write_gpu_node, count=self._count)
        if host is None and options.host_root is not None:
            host = Host(options.host_root, options.kernel_log)
        self._host = HostWatch(
            transport,
            options.node,
            host,
            wall_clock=wall_clock,
            booted_at=wall_clock() - time.clock_gettime(time.CLOCK_BOOTTIME)
            if booted_at is None
            else booted_at,
            seconds=options.host_seconds,
            count=self._count,
        )
        self._annotations = Publisher(NODE, self._write_annotations, count=self._count)

    async def run(self) -> None:
        """Read and write until cancelled."""
        known = await self._known()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._query_kubelet())
            group.create_task(self._query_node())
            group.create_task(self._gpu_node.run())
            group.create_task(self._annotations.run())
            group.create_task(self._host.run())
            group.create_task(self._read_gpus(known))

    def health_page(self) -> Page:
        """Return 503 if NVML has blocked for a minute, so that the kubelet restarts the agent.

        A new process may get an answer of NVML.
        """
        still = self._clock() - self._read_at
        if still > STUCK_SECONDS:
            return Page(f"the GPUs were last read {still:.0f} s ago\n", status=503)
        return Page("reading\n")

    def ready_page(self) -> Page:
        """Return the number of GPUs and the missing parts, always with 200: a restart would not help."""
        problems = filter(None, (self.reading.nvml_problem, self.reading.kubelet_problem))
        return Page("\n".join([f"{len(self.reading.gpus)} GPUs", *problems]) + "\n")

    def metrics_page(self) -> Page:
        """Return the metrics for Prometheus."""
        self._figures.cpu_seconds = cpu_seconds()
        self._figures.resident_bytes = resident_bytes()
        return Page(render(self.reading, self._figures, self._host.reading), content_type=CONTENT_TYPE)

    async def _read_gpus(self, known: dict[int, tuple[Gpu, str]]) -> None:
        collector = Collector(self._driver, clock=self._clock, wall_clock=self._wall_clock, known=known)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "nvml") as thread:
            due = loop.time()
            while True:
                future = loop.run_in_executor(thread, collector.read, tuple(self._held))
                await asyncio.wait({future}, timeout=BLOCKED_SECONDS)
                if not future.done():
                    logger.warning("%s", BLOCKED)
                    self._take(replace(self.reading, nvml_problem=BLOCKED))
                reading = await future
                self._read_at = self._clock()
                self._figures.samples += 1
                self._take(reading)
                due = max(due + self._options.sample_seconds, loop.time())
                await asyncio.sleep(due - loop.time())

    def _take(self, reading: NodeReading) -> None:
        self.reading = replace(reading, kubelet_problem=self._kubelet_problem)
        spec = self._changes.next(spec_of(reading, self._boot_id), self._clock())
        if spec is not None:
            self._gpu_node.offer(stamped(spec, self._wall_clock()))
        failed = self._failed if reading.nvml_problem else (failed_gpus(reading), lost_gpus(reading))
        if failed is not None and failed != self._failed:
            self._failed = failed
            self._annotations.offer(failed)

    async def _query_kubelet(self) -> None:
        while True:
            try:
                self._held = await pod_resources.list_devices(self._options.socket)
                problem = ""
            except KubeletUnreachable as error:
                problem = str(error)
            if problem != self._kubelet_problem:
                logger.log(logging.WARNING if problem else logging.INFO, problem or "the kubelet answers")
                self._kubelet_problem = problem
            await asyncio.sleep(self._options.kubelet_seconds)

    async def _query_node(self) -> None:
        """Write again the objects that were deleted with a Node: its annotations, and the GpuNode that it owned."""
        while True:
            await asyncio.sleep(self._options.node_seconds)
            try:
                node = await self._node()
            except ClusterError as error:
                logger.debug("whether the Node was made anew is not known: %s", error)
                continue
            if self._node_uid not in ("", node.uid):
                logger.warning("Node %s was made anew: its GPUs are written again", self._options.node)
                self._changes = Changes()
            self._node_uid = node.uid
            written = tuple(node.annotations.get(key, "") for key in _ANNOTATIONS)
            if self._failed is not None and self._failed != written:
                self._annotations.offer(self._failed)

    async def _node(self) -> Metadata:
        return (await self._transport.get(NODES.path(name=self._options.node), Object)).metadata

    async def _known(self) -> dict[int, tuple[Gpu, str]]:
        try:
            before = await self._transport.get(GPU_NODES.path(name=self._options.node), GpuNode)
        except ClusterError as error:
            logger.debug("nothing is known of before: %s", error)
            return {}
        return known_gpus(before.spec, self._boot_id)

    async def _write_gpu_node(self, spec: GpuNodeSpec) -> None:
        if not self._node_uid:
            self._node_uid = (await self._node()).uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._options.node, "uid": self._node_uid}
        body = {
            "apiVersion": GPU_NODES.api_version,
            "kind": GPU_NODES.kind,
            "metadata": {"name": self._options.node, "ownerReferences": [owner]},
            "spec": spec,
        }
        path = GPU_NODES.path(name=self._options.node)
        await self._transport.apply(path, body, field_manager=FIELD_MANAGER)

    async def _write_annotations(self, gpus: tuple[str, str]) -> None:
        annotations = {key: text or None for key, text in zip(_ANNOTATIONS, gpus, strict=True)}
        body = {"metadata": {"annotations": annotations}}
        await self._transport.patch(NODES.path(name=self._options.node), body)

    def _count(self, about: str, result: str) -> None:
        self._figures.writes[about, result] = self._figures.writes.get((about, result), 0) + 1


async def run_agent(access: Access, options: AgentOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(Transport(access, FIELD_MANAGER, limits=LIMITS))
        agent = Agent(transport, options)
        pages = {"/healthz": agent.health_page, "/readyz": agent.ready_page, "/metrics": agent.metrics_page}
        port = await stack.enter_async_context(serving_pages(pages, options.pages_host, options.pages_port))
        logger.info("http://%s:%d/metrics, /healthz and /readyz", options.pages_host, port)
        running = asyncio.create_task(agent.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
        logger.info("stopped")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
