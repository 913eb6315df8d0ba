"""The operator process: elected by Lease, it runs the scheduling loop and the project controller until told to stop."""

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from orchestrator.cluster.discovery import served_version
from orchestrator.cluster.errors import LeaseLost
from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.last_object import LastObject
from orchestrator.cluster.lease import LeaseElection
from orchestrator.cluster.resources import DRA_VERSIONS, RESOURCE_CLAIMS
from orchestrator.cluster.timeouts import OPERATOR_REQUEST_SECONDS, Limits
from orchestrator.cluster.transport import Transport
from orchestrator.control.carry_out.out_of_service import OutOfService
from orchestrator.control.carry_out.requests import REQUESTS_IN_FLIGHT
from orchestrator.control.decide.object_guard import ObjectGuard
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.control.operator_config import DEFAULT_CONFIG, MemoryLimitsMode, OperatorConfig
from orchestrator.control.projects.dependencies import Dependencies
from orchestrator.control.projects.memory_watch import MemoryWatch
from orchestrator.control.projects.project_controller import ProjectController
from orchestrator.control.projects.success_snapshots import SuccessSnapshots
from orchestrator.control.projects.time_limits import Caches, TimeLimits
from orchestrator.control.report.background import Task, repeat
from orchestrator.control.report.health import Health, health_pages
from orchestrator.control.report.metrics import OperatorMetrics
from orchestrator.control.report.settings_record import SettingsRecord
from orchestrator.manifests.render import default_image
from orchestrator.names import LEASE_NAME, SYSTEM_NAMESPACE
from orchestrator.observe.snapshot import Reading
from orchestrator.pages import serving_pages
from orchestrator.planner import Planner
from orchestrator.planner.model import Plan

logger = logging.getLogger(__name__)

COLLECTION_THRESHOLDS = (200_000, 20, 50)
LEASE_SECONDS = 8
RENEW_SECONDS = OPERATOR_REQUEST_SECONDS
"""A leader without a renewal stops this time before its lease expires; a standby takes over within 12 s."""
LIMITS = Limits(connections=REQUESTS_IN_FLIGHT + 16)
"""More connections than bindings and evictions use, so that the lease is renewed even if these get slow answers."""


def default_name() -> str:
    """Return the name of this replica in the election: the name of its pod, or of this machine."""
    return os.environ.get("POD_NAME") or socket.gethostname()


def unique_identity(name: str) -> str:
    """Return a unique identity of this process in the election. Two processes with one name have different identities.

    So a container that was killed and restarts waits until the lease of its former process has expired.
    """
    return f"{name}_{uuid.uuid4()}"


async def operate(
    access: Access,
    name: str,
    *,
    config: OperatorConfig = DEFAULT_CONFIG,
    image: str = "",
    health_host: str = "",
    health_port: int = 0,
    last_object: Path | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. After a loss of leadership, wait for it again. Raises subclasses of ClusterError.

    `name` shows people which replica leads; it need not be unique.

    `image` is the image of the operator and of reservation pods; empty: the image of this version. If `health_host` is
    given, the pages of `health` and the metrics are served there. `last_object` is a file that outlives the process;
    without it, objects that end the process while it reads them are not found.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    health, metrics = Health(loop.time), OperatorMetrics()
    guard = ObjectGuard(LastObject(last_object))
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(Transport(access, "muster-operator", limits=LIMITS))
        if health_host:
            pages = health_pages(health) | {"/metrics": metrics.page}
            port = await stack.enter_async_context(serving_pages(pages, health_host, health_port))
            logger.info("http://%s:%d/healthz, /readyz and /metrics", health_host, port)
        leading = asyncio.create_task(
            _lead_repeatedly(
                transport,
                unique_identity(name),
                config,
                health,
                metrics,
                guard=guard,
                image=image or default_image(),
            )
        )
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if leading.done():
            stopping.cancel()
            leading.result()
        leading.cancel()
        await asyncio.wait({leading})
        logger.info("stopped")


def freeze_caches() -> None:
    """Exclude the present objects from garbage collection: they are many, live long and have no cycles.

    With 140,000 pods, collections tripled the time of a decision, and one collection took seconds, which is too long
    for a leader. Garbage in later objects is still collected.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)


def _discard_the_caches() -> None:
    """Collect the garbage of an earlier leadership. Only a standby has the seconds that this takes."""
    gc.unfreeze()
    gc.collect()


async def _lead_repeatedly(
    transport: Transport,
    identity: str,
    config: OperatorConfig,
    health: Health,
    metrics: OperatorMetrics,
    *,
    guard: ObjectGuard,
    image: str,
) -> None:
    await guard.recall(transport)  # the current leader must learn from the record that this process died
    while True:
        health.on_standby()
        metrics.on_standby()
        _discard_the_caches()
        election = LeaseElection(
            transport,
            namespace=SYSTEM_NAMESPACE,
            name=LEASE_NAME,
            identity=identity,
            lease_seconds=LEASE_SECONDS,
            renew_seconds=RENEW_SECONDS,
        )
        logger.info("waiting for the lease %s/%s as %s", SYSTEM_NAMESPACE, LEASE_NAME, identity)
        try:
            await election.run(
                lambda: _lead(transport, election, config, health, metrics, guard=guard, image=image)  # noqa: B023 - run awaits it
            )
        except LeaseLost as error:
            logger.warning("%s; standing by", error)


async def _lead(
    transport: Transport,
    election: LeaseElection,
    config: OperatorConfig,
    health: Health,
    metrics: OperatorMetrics,
    *,
    guard: ObjectGuard,
    image: str,
) -> None:
    """Run as the leader. Caches are listed after the lease was won, so they show all of the former leader's writes."""
    health.leading()
    freeze_caches()
    dra_version = await served_version(transport, RESOURCE_CLAIMS.group, DRA_VERSIONS)
    await guard.recall(transport)
    observer = Observer(transport, dra_version=dra_version, with_gpu_nodes=True, guard=guard)
    async with observer.running() as group:
        await guard.forget_deleted(transport, observer.uids)
        freeze_caches()
        metrics.leading(observer.projects.objects)
        projects = ProjectController(transport, observer, config, is_leader=election.is_leader)
        is_first = True

        def note(reading: Reading, decision: Plan) -> None:
            nonlocal is_first
            projects.note(reading, decision)
            if is_first:  # after the first decision, all other long-lived objects exist as well
                asyncio.get_running_loop().call_soon(freeze_caches)
                is_first = False

        scheduler = SchedulerLoop(
            transport,
            observer,
            on_plan=note,
            is_leader=election.is_leader,
            health=health,
            metrics=metrics,
            planner=Planner().plan,
            config=config,
            image=image,
            dra_version=dra_version,
        )
        logger.info("leading: %d nodes, %d pods", len(observer.nodes.objects), len(observer.pods.objects))
        tasks = _tasks(transport, observer, scheduler, config, is_leader=election.is_leader)
        for name, task in {"the controller of projects": projects.run, **tasks}.items():
            group.create_task(repeat(name, task))
        await scheduler.run()


def _tasks(
    transport: Transport,
    observer: Observer,
    scheduler: SchedulerLoop,
    config: OperatorConfig,
    *,
    is_leader: Callable[[], bool],
) -> dict[str, Task]:
    """Return the tasks other than the scheduler and the controller of projects, by name."""
    limits = TimeLimits(
        transport,
        Caches(observer.projects.objects, observer.namespaces.objects, observer.pods.objects),
        now_us=scheduler.now_us,
        warn=lambda pod, message: scheduler.warn(pod, "TimeLimit", message),
        is_leader=is_leader,
    )
    caches = observer.jobs.objects, observer.namespaces.objects, observer.projects.objects
    tasks: dict[str, Task] = {
        "the record of the settings": SettingsRecord(transport, config, is_leader=is_leader).run,
        "the check of time limits": limits.check,
        "the check for snapshots": SuccessSnapshots(transport, *caches, is_leader=is_leader).check,
        "the check of dependencies": Dependencies(transport, *caches, is_leader=is_leader).check,
    }
    if config.out_of_service_after_seconds is not None:
        tasks["the check of dead nodes"] = OutOfService(
            transport,
            observer.nodes.objects,
            after_seconds=config.out_of_service_after_seconds,
            max_nodes=config.max_out_of_service_nodes,
            now_us=scheduler.now_us,
            is_leader=is_leader,
        ).check
    if config.gpu_memory_limits is MemoryLimitsMode.ENFORCE:
        tasks["the watch of GPU memory"] = MemoryWatch(
            observer.gpu_nodes,
            observer.pods.objects,
            observer.gpu_nodes_changed,
            now_us=scheduler.now_us,
            warn=scheduler.warn,
            evict=scheduler.evict,
            is_leader=is_leader,
        ).run
    return tasks
