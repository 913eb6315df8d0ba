"""Starts one lab: creates its directory, starts the supervisor, waits for the API server and the nodes."""

import asyncio
import contextlib
import dataclasses
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from musterlab import binaries, components, nodes, ports, state, supervisor, teardown
from musterlab.binaries import Binaries
from musterlab.errors import LabConflict, StartError, StateError
from musterlab.gpus import built, chart, models
from musterlab.realnodes import plan, register
from musterlab.realnodes.requirements import Tools
from musterlab.supervisor_handle import SupervisorHandle
from orchestrator.cluster.errors import ClusterError, NotFound, ServerFault, Unreachable
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import SERVICE_ACCOUNTS
from orchestrator.cluster.transport import Transport
from orchestrator.progress import Reporter

ATTEMPTS = 5
SERVER_SECONDS = 90.0

_POLL_SECONDS = 0.05
_SHOWN_LOG_LINES = 8
_SHOWN_LINE_LENGTH = 400


class _PortClash(Exception):
    """A port was taken between its choice and its use."""


@dataclass(frozen=True)
class LabSpec:
    """A lab to start.

    `node_counts` has the requested profiles by name, with their numbers of nodes. `groups` has the same with loaded
    profiles.

    `tools` is None without real nodes. Real nodes can pull the images in `image_archives` beside the lab's images.
    `api_server_flags` are flags of kube-apiserver beside the lab's flags or instead of them.
    """

    directory: Path
    groups: tuple[nodes.NodeGroup, ...]
    node_counts: tuple[tuple[str, int], ...]
    port: int | None
    binaries: Binaries
    real_nodes: tuple[plan.RealNode, ...] = ()
    tools: Tools | None = None
    image_archives: tuple[Path, ...] = ()
    api_server_flags: tuple[str, ...] = ()

    @property
    def gpus(self) -> models.Gpus | None:
        """The GPUs that NVIDIA's programs announce on each real node; None without real nodes or GPUs."""
        return next((node.gpus for node in self.real_nodes), None)

    @property
    def context(self) -> str:
        """Name of the kubeconfig context."""
        return f"muster-lab-{self.directory.name}"


async def launch(spec: LabSpec, reporter: Reporter) -> SupervisorHandle:
    """Start the lab and wait until pods can run on all its nodes. If that fails, no part of the lab is left.

    Raises:
        LabConflict: the directory is taken.
        PortTaken: the requested port is in use.
        StartError: a process ended or did not answer in time; the end of its log is in the message.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _attempt(spec, reporter)
        except _PortClash as clash:
            if spec.port is not None and components.API_SERVER in str(clash):
                raise ports.port_taken(spec.port) from clash
            if attempt == ATTEMPTS:
                raise StartError(
                    f"ports on loopback were taken {ATTEMPTS} times over, last: {clash}"
                ) from clash
            reporter(f"{clash}; trying with others")
    raise AssertionError("the last attempt returns or raises")


async def _attempt(spec: LabSpec, reporter: Reporter) -> SupervisorHandle:
    chosen = ports.choose(3)
    lab_ports = components.Ports(spec.port or chosen[0], chosen[1], chosen[2])
    record = state.Record(
        name=spec.directory.name,
        nodes=spec.node_counts,
        port=lab_ports.api_server,
        programs=spec.binaries.source,
        kubectl_directory=str(spec.binaries.kubectl_directory),
        starter_pid=os.getpid(),
        starter_start_ticks=state.own_start_ticks(),
        real_nodes=len(spec.real_nodes),
        gpus=str(spec.gpus) if spec.gpus else "",
        gpu_programs=built.roles(spec.gpus) if spec.gpus else {},
    )
    if not state.create(spec.directory, record):
        raise LabConflict(f"{spec.directory} exists: a lab of that name was started at the same moment")
    handle = None
    try:
        try:
            _prepare(spec, lab_ports)
        except OSError as error:
            raise StateError(
                f"{error.filename or spec.directory} cannot be written: {error.strerror}"
            ) from error
        except ValueError as error:
            raise StartError(str(error)) from error
        handle = SupervisorHandle(spec.directory)
        await _bring_up(spec, handle, reporter)
        state.write_record(spec.directory, dataclasses.replace(record, ready=True))
    except BaseException:
        teardown.stop(spec.directory, handle)
        raise
    return handle


def _prepare(spec: LabSpec, lab_ports: components.Ports) -> None:
    directory, real = spec.directory, spec.real_nodes
    api_server = spec.binaries.paths[components.API_SERVER]
    flags = [*components.claim_flags(binaries.kubernetes_minor(api_server)), *spec.api_server_flags]
    if spec.tools is None:
        components.prepare(directory, spec.context, spec.binaries.paths, lab_ports, api_server_flags=flags)
        return
    folders = [str(folder) for folder in plan.cgroup_folders(directory, real)]
    (directory / supervisor.CGROUPS).write_text(json.dumps(folders))
    components.prepare(
        directory, spec.context, spec.binaries.paths, lab_ports,
        api_server_flags=[*plan.api_server_flags(directory), *flags], more=plan.processes(directory, real),
    )  # fmt: skip
    plan.prepare(directory, real, lab_ports.api_server, spec.tools, spec.image_archives)


async def _bring_up(spec: LabSpec, handle: SupervisorHandle, reporter: Reporter) -> None:
    monitor = _StartupMonitor(spec.directory, handle)
    reporter(f"starting {components.ETCD} and {components.API_SERVER} ({spec.binaries.source})")
    async with Transport(load_access(spec.directory / "kubeconfig")) as transport:
        await monitor.wait_for("the API server", lambda: _serves(transport))
        reporter("the API server is ready")
        await nodes.permit_kwok(transport)
        for name in components.FOLLOWERS:
            handle.start(name)
        if spec.real_nodes:
            await _start_real_nodes(spec, handle, monitor, transport, reporter)
        await monitor.guard(nodes.create_all(transport, spec.groups, tainted=bool(spec.real_nodes)))
        node_names = {name for name, _ in nodes.names(spec.groups)}
        reporter(f"created {len(node_names)} nodes")
        if spec.real_nodes:
            await monitor.guard(register.equip(transport, spec.real_nodes))
            node_names |= {node.name for node in spec.real_nodes}
        await monitor.guard(nodes.wait_until_usable(transport, node_names, reporter))
        if spec.gpus is not None:
            await monitor.wait_for(
                f"the GPUs in the reports of NVIDIA's programs (see {spec.directory / supervisor.LOGS}/*-gpus.log)",
                lambda: register.gpus_shown(transport, spec.real_nodes),
            )
        await monitor.wait_for("the controller manager", lambda: _controlled(transport))
    reporter(f"{len(node_names)} of {len(node_names)} nodes are Ready")


async def _start_real_nodes(
    spec: LabSpec,
    handle: SupervisorHandle,
    monitor: "_StartupMonitor",
    transport: Transport,
    reporter: Reporter,
) -> None:
    await register.permit(transport)
    if spec.gpus is not None and spec.gpus.stack == "dra":
        await chart.install(transport, nvidias_driver=spec.gpus.has_nvidias_dra_driver)
        for node in spec.real_nodes:
            kubelet_access, driver_access = plan.accesses(spec.directory, node)
            await chart.write_access(transport, kubelet_access, driver_access)
    handle.start(plan.NETWORK)
    await monitor.wait_for("the network of the real nodes", lambda: _published(spec.directory))
    for node in spec.real_nodes:
        handle.start(node.name)
    reporter(f"starting containerd and kubelet of {', '.join(node.name for node in spec.real_nodes)}")


async def _published(directory: Path) -> bool:
    return plan.published(directory).exists()


async def _serves(transport: Transport) -> bool:
    try:
        return await transport.text("/readyz") == "ok"
    except (Unreachable, ServerFault):
        return False


async def _controlled(transport: Transport) -> bool:
    try:
        await transport.get(SERVICE_ACCOUNTS.path("default", "default"))
    except NotFound:
        return False
    return True


class _StartupMonitor:
    """Waits for a condition or does work, and fails as soon as a process of the lab ends."""

    def __init__(self, directory: Path, handle: SupervisorHandle) -> None:
        self._directory = directory
        self._supervisor = handle

    async def wait_for(self, subject: str, reached: Callable[[], Awaitable[bool]]) -> None:
        """Wait until `reached` returns True, at most `SERVER_SECONDS`."""

        async def poll() -> None:
            while not await reached():  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_POLL_SECONDS)

        try:
            async with asyncio.timeout(SERVER_SECONDS):
                await self.guard(poll())
        except TimeoutError as error:
            raise StartError(f"{subject} was not ready after {SERVER_SECONDS:.0f} s") from error

    async def guard(self, work: Awaitable[None]) -> None:
        """Do `work`, but stop as soon as a process ends.

        Raises:
            StartError: a process ended; the end of its log is in the message.
        """
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_POLL_SECONDS)
                self._check()
            await task
        except ClusterError as error:
            self._check()
            raise StartError(f"the API server failed while the lab came up: {error}") from error
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClusterError, StartError):
                await task

    def _check(self) -> None:
        if not self._directory.exists():
            raise StartError(f"lab {self._directory.name!r} was stopped while it came up")
        if self._supervisor.reaped():
            raise _failed(self._directory, "supervisor", None)
        record = state.read_record(self._directory)
        for process in state.read_status(self._directory, record).ended:
            if ports.in_use(process.log):
                raise _PortClash(f"{process.name} found its port taken")
            raise _failed(self._directory, process.name, process.exit_status)


def _failed(directory: Path, name: str, exit_status: int | None) -> StartError:
    log = directory / supervisor.LOGS / f"{name}.log"
    lines: deque[str] = deque(maxlen=_SHOWN_LOG_LINES)
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as file:
            lines.extend(line.rstrip()[:_SHOWN_LINE_LENGTH] for line in file if line.strip())
    ended = "ended" if exit_status is None else f"ended with status {exit_status}"
    tail = "".join(f"\n  {line}" for line in lines) or " it logged nothing"
    return StartError(f"{name} {ended} while the lab came up; the last lines of its log:{tail}")
