"""Keeps the reservation of idle nodes while the checks of a run wait for their hosts, in a thread of its own."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec

from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.progress import Reporter
from validation.errors import TargetError
from validation.judge.hosts.host_layer import HostScope
from validation.targets.reservation import DEAD_SECONDS, POLL_SECONDS, Reservation


class NotReserved(TargetError):
    """No node could be reserved, so nothing was started."""

    exit_code = 2


class ReservedNodes:
    """The reserved nodes of a run. `close` gives the nodes back. They are also given back if the main thread ends
    without `close`.

    If a node must be given back before the end of the run, `interrupt` gets the reason, and the process gets SIGTERM.
    """

    def __init__(self, kubeconfig: Path | None, run: str, progress: Reporter) -> None:
        self._kubeconfig = kubeconfig
        self._run = run
        self._progress = progress
        self._interrupt: Callable[[str], None] = progress
        self._end = threading.Event()
        self._problem = ""
        self._thread: threading.Thread | None = None

    def take(self, names: Sequence[str]) -> dict[str, str]:
        """Reserve the idle ones of these nodes. Return the others with their reasons. Raises NotReserved."""
        taken = Future[dict[str, str]]()
        for number in (signal.SIGTERM, signal.SIGHUP):
            # a signal between checks must give the nodes back, too
            signal.signal(number, signal.default_int_handler)
        self._thread = threading.Thread(target=self._hold, args=(names, taken), name="reserved-nodes")
        self._thread.start()
        try:
            return taken.result()
        except KeyboardInterrupt as interrupt:
            self.close()
            raise NotReserved("interrupted before the first check; the nodes are given back") from interrupt

    def watch(self, interrupt: Callable[[str], None]) -> None:
        """Let `interrupt` get the reason if a node must be given back before the end of the run."""
        self._interrupt = interrupt

    def close(self) -> None:
        """Give the nodes back. Raises TargetError if that is not possible."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._problem:
            raise TargetError(self._problem)

    def _hold(self, names: Sequence[str], taken: Future[dict[str, str]]) -> None:
        try:
            asyncio.run(self._held(names, taken))
        except MusterError as error:
            self._problem = str(error)
        if not taken.done():
            taken.set_exception(NotReserved(self._problem or "the nodes cannot be reserved"))

    async def _held(self, names: Sequence[str], taken: Future[dict[str, str]]) -> None:
        async with Transport(load_access(self._kubeconfig), user_agent="muster-validate") as transport:
            reservation = Reservation(transport, self._run, self._progress)
            try:
                await reservation.take(names)
                taken.set_result(dict(reservation.busy))
                await self._keep(reservation)
            finally:
                await reservation.give_back()

    async def _keep(self, reservation: Reservation) -> None:
        """Renew the reservation until the run has ended, or a node must be given back."""
        renewed, reason = time.monotonic(), ""
        while await self._continues(POLL_SECONDS):
            if reason:
                continue  # do not give the nodes back here: the main thread must end the loads first
            try:
                reason = await reservation.renew()
                renewed = time.monotonic()
            except ClusterError as error:
                # after DEAD_SECONDS without a renewal, another run may take the nodes
                if time.monotonic() - renewed > DEAD_SECONDS / 2:
                    reason = f"the reservation cannot be renewed: {error}"
            if reason:
                self._interrupt(f"in service: {reason}")
                os.kill(os.getpid(), signal.SIGTERM)

    async def _continues(self, seconds: float) -> bool:
        """Return whether the run has not ended after this time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._end.is_set() or not threading.main_thread().is_alive():
                return False
            await asyncio.sleep(0.2)
        return True


def only_taken(scope: HostScope, busy: dict[str, str]) -> HostScope:
    """Return the scope with the hosts that were reserved; the others are in `busy`."""
    hosts = [host for host in scope.site.hosts if host.name not in busy]
    return msgspec.structs.replace(scope, site=msgspec.structs.replace(scope.site, hosts=hosts, busy=busy))


def deviation(scope: HostScope) -> str:
    """Return why a run in service is not an acceptance."""
    busy = scope.site.busy or {}
    return f"in service: {len(scope.site.hosts)} of {len(scope.site.hosts) + len(busy)} hosts were examined"
