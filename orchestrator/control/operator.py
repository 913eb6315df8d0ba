"""The operator process: elected by Lease, it runs the scheduling loop and the project controller until told to stop."""

import asyncio
import logging
import os
import signal
import socket

from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.lease import LeaseElection
from orchestrator.cluster.transport import Transport
from orchestrator.control.observer import Observer
from orchestrator.control.projects import ProjectController
from orchestrator.control.scheduler import SchedulerLoop
from orchestrator.names import SYSTEM_NAMESPACE

logger = logging.getLogger(__name__)

LEASE_NAME = "muster-operator"


def default_identity() -> str:
    """Who this replica is in the election: its pod, or this very process.

    A container that restarts in its pod keeps its identity and need not wait for its own lease to expire.
    """
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


async def operate(access: Access, identity: str) -> None:
    """Run until SIGTERM or SIGINT. Raises LeaseLost when another replica took over, ClusterError leaves otherwise."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Transport(access, user_agent="muster-operator") as transport:
        election = LeaseElection(transport, namespace=SYSTEM_NAMESPACE, name=LEASE_NAME, identity=identity)
        logger.info("waiting for the lease %s/%s as %s", SYSTEM_NAMESPACE, LEASE_NAME, identity)
        leading = asyncio.create_task(election.run(lambda: _lead(transport, election)))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if leading.done():
            stopping.cancel()
            leading.result()
        leading.cancel()
        await asyncio.wait({leading})
        logger.info("stopped")


async def _lead(transport: Transport, election: LeaseElection) -> None:
    observer = Observer(transport)
    async with observer.running() as group:
        projects = ProjectController(transport, observer)
        scheduler = SchedulerLoop(transport, observer, on_plan=projects.note, is_leader=election.is_leader)
        logger.info("leading: %d nodes, %d pods", len(observer.nodes.objects), len(observer.pods.objects))
        group.create_task(projects.run())
        await scheduler.run()
