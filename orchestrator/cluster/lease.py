"""Leader election on a Lease: of several replicas at most one acts.

Time is measured with a monotonic clock of this process. Another replica's lease counts as expired only if this process
has seen no change of the lease for the lease's whole duration. So it does not depend on the wall clocks of the
machines.

Each write has the resourceVersion that the replica read. If two replicas write with the same resourceVersion, the
server refuses the second write.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec

from orchestrator.cluster.errors import AlreadyExists, ClusterError, Conflict, LeaseLost, NotFound
from orchestrator.cluster.objects import Lease, LeaseSpec, Metadata
from orchestrator.cluster.quantity import format_time
from orchestrator.cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from orchestrator.cluster.transport import Transport

log = logging.getLogger(__name__)

R = TypeVar("R")


class LeaseElection:
    """One replica's part in an election.

        election = LeaseElection(transport, namespace="muster-system", name="scheduler", identity=hostname)
        await election.run(work)          # waits for the lease, runs work(), stops it if leadership is lost

    or by hand: `await election.acquire()`, then `hold()` beside the work, and `release()` at the end. Ask
    `is_leader()` right before each write (fencing).

    `is_leader()` becomes false by itself, `lease_seconds - renew_seconds` after the last successful renewal. That also
    holds if the process was suspended. Others can take the lease only `lease_seconds` after that renewal. Example: with
    15 and 5 seconds, `is_leader()` is false after 10 seconds, and others can take the lease after 15.

    Raises ValueError unless 0 < 2 * renew_seconds <= lease_seconds. `clock` is monotonic, `wall_clock` is only
    written into the Lease for people to read; both give seconds.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: int = 15,
        renew_seconds: float = 5,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        if not 0 < 2 * renew_seconds <= lease_seconds:
            raise ValueError(
                f"renew_seconds {renew_seconds} must be at most half of lease_seconds {lease_seconds}"
            )
        if not identity:
            raise ValueError("identity is empty; it must be unique to the replica")
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._what = f"lease {namespace}/{name}"
        self._path = LEASES.path(namespace, name)
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._random = random
        self._held: Lease | None = None
        self._renewed = -math.inf
        self._seen_version = ""
        self._seen_at = -math.inf

    def is_leader(self) -> bool:
        """Return whether this replica may act now."""
        return self._held is not None and self._clock() < self._leads_until()

    async def acquire(self) -> None:
        """Wait until this replica is the leader. After a failure of the API, try again."""
        while not await self._attempt():
            await self._sleep(self._renew_seconds * (0.4 + 0.2 * self._random()))
        log.info("%s: %s leads", self._what, self._identity)

    async def hold(self) -> None:
        """Renew the lease until it is lost, then raise LeaseLost."""
        pause = self._renew_seconds
        while True:
            await self._sleep(pause * (0.9 + 0.1 * self._random()))
            pause = self._renew_seconds if await self._renewed_in_time() else self._renew_seconds / 5

    async def release(self) -> None:
        """Give the lease back, so that no other replica waits for it to expire. Never raises ClusterError."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            while not await self._given_back(held):
                # A cancelled renewal may have been written: read the lease again.
                held = await self._transport.get(self._path, Lease)
                if held.spec.holder_identity != self._identity:
                    return
        except ClusterError as error:
            log.warning("%s was not given back and has to expire: %s", self._what, error)

    async def _given_back(self, held: Lease) -> bool:
        spec = msgspec.structs.replace(
            held.spec, holder_identity="", lease_duration_seconds=1, renew_time=self._now()
        )
        try:
            await self._transport.replace(self._path, msgspec.structs.replace(held, spec=spec), Lease)
        except Conflict:
            return False
        return True

    async def run(self, work: Callable[[], Coroutine[object, object, R]]) -> R:
        """Wait for the leadership, run `work` while the lease is renewed, and release the lease; return the result of
        `work`.

        If leadership is lost, the task of `work` is cancelled and awaited, and LeaseLost is raised: acquire again, or
        exit.
        """
        await self.acquire()
        working = asyncio.ensure_future(work())
        holding = asyncio.ensure_future(self.hold())
        try:
            await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
                holding.result()
            return working.result()
        finally:
            for task in (working, holding):
                task.cancel()
            await asyncio.gather(working, holding, return_exceptions=True)
            await self.release()

    async def _attempt(self) -> bool:
        """Try once to become the leader."""
        try:
            lease = await self._transport.get(self._path, Lease)
        except NotFound:
            return await self._written(None)
        except ClusterError as error:
            log.warning("%s cannot be read: %s", self._what, error)
            return False
        if lease.metadata.resource_version != self._seen_version:
            self._seen_version = lease.metadata.resource_version
            self._seen_at = self._clock()
        holder = lease.spec.holder_identity
        expires = self._seen_at + (lease.spec.lease_duration_seconds or self._lease_seconds)
        if holder and holder != self._identity and self._clock() < expires:
            return False
        return await self._written(lease)

    async def _renewed_in_time(self) -> bool:
        """Renew once; return False if the caller must try again soon. Raises LeaseLost."""
        remaining_seconds = self._leads_until() - self._clock()
        if self._held is None or remaining_seconds <= 0:
            self._lose("it could not be renewed in time")
        try:
            async with asyncio.timeout(remaining_seconds):
                if await self._written(self._held):
                    return True
                await self._check_holder()
        except TimeoutError:
            log.warning("%s: no answer while it was renewed", self._what)
        return False

    async def _check_holder(self) -> None:
        """Read the lease after a failed write. Raise LeaseLost if another replica leads.

        The write may have succeeded and only its answer was lost.
        """
        try:
            lease = await self._transport.get(self._path, Lease)
        except NotFound:
            self._lose("it was deleted")
        except ClusterError as error:
            log.warning("%s cannot be read: %s", self._what, error)
            return
        if lease.spec.holder_identity != self._identity:
            self._lose(f"{lease.spec.holder_identity or 'nobody'} holds it now")
        self._held = lease

    async def _written(self, lease: Lease | None) -> bool:
        """Write this replica as the holder into `lease` (None: create the lease); return False if the write failed."""
        started = self._clock()
        now = self._now()
        spec = LeaseSpec(self._identity, self._lease_seconds, now, now, 0)
        try:
            if lease is None:
                new_lease = Lease(Metadata(self._name, self._namespace), spec)
                self._held = await self._transport.create(LEASES.path(self._namespace), new_lease, Lease)
            else:
                before = lease.spec
                if before.holder_identity == self._identity:
                    spec = msgspec.structs.replace(
                        spec, acquire_time=before.acquire_time, lease_transitions=before.lease_transitions
                    )
                else:
                    spec = msgspec.structs.replace(
                        spec, lease_transitions=(before.lease_transitions or 0) + 1
                    )
                changed = msgspec.structs.replace(lease, spec=spec)
                self._held = await self._transport.replace(self._path, changed, Lease)
        except (AlreadyExists, Conflict):
            return False
        except ClusterError as error:
            log.warning("%s cannot be written: %s", self._what, error)
            return False
        self._renewed = started
        return True

    def _leads_until(self) -> float:
        return self._renewed + self._lease_seconds - self._renew_seconds

    def _now(self) -> str:
        return format_time(int(self._wall_clock() * 1_000_000))

    def _lose(self, why: str) -> NoReturn:
        self._held = None
        raise LeaseLost(f"{self._what} is lost: {why}")
