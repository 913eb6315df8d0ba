from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.errors import LeaseLost
from orchestrator.cluster.lease import LeaseElection
from tests.cluster.fake_api_server import JSON, Answer, FakeApiServer, Hang, Request, error_answer
from tests.cluster.waiting import ManualClock, running, until

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport

LEASES = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
PATH = f"{LEASES}/scheduler"


class LeaseStore:
    """One lease, whose writes need its resourceVersion, as on the API server."""

    def __init__(self, server: FakeApiServer) -> None:
        self.lease: JSON | None = None
        self.version = 0
        server.on("GET", PATH, self._get)
        server.on("POST", LEASES, self._post)
        server.on("PUT", PATH, self.put)

    def write(self, **spec: Any) -> None:
        """Write the lease as another replica."""
        self._store({"metadata": {"name": "scheduler", "namespace": "muster-system"}, "spec": spec})

    @property
    def spec(self) -> JSON:
        assert self.lease is not None
        spec: JSON = self.lease["spec"]
        return spec

    def _store(self, lease: JSON) -> Answer:
        self.version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self.version)}}
        return Answer(self.lease)

    def _get(self, _: Request) -> Answer:
        return error_answer(404, "NotFound") if self.lease is None else Answer(self.lease)

    def _post(self, request: Request) -> Answer:
        return error_answer(409, "AlreadyExists") if self.lease else self._store(request.body)

    def put(self, request: Request) -> Answer:
        if self.lease is None:
            return error_answer(404, "NotFound")
        if request.body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return error_answer(409, "Conflict", "the object has been modified")
        return self._store(request.body)


@pytest.fixture
def store(server: FakeApiServer) -> LeaseStore:
    return LeaseStore(server)


def election(transport: Transport, clock: ManualClock, identity: str = "me", **options: Any) -> LeaseElection:
    options = {
        "clock": clock,
        "sleep": clock.sleep,
        "wall_clock": lambda: 1.5,
        "random": lambda: 0.5,
        **options,
    }
    return LeaseElection(transport, namespace="muster-system", name="scheduler", identity=identity, **options)


async def test_the_first_replica_makes_the_lease(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    assert not me.is_leader()
    await me.acquire()
    assert me.is_leader()
    assert store.spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:00:01.500000Z",
        "renewTime": "1970-01-01T00:00:01.500000Z",
        "leaseTransitions": 0,
    }


async def test_a_dead_leaders_lease_is_taken_after_its_whole_time_as_seen_from_here(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    """Its renewTime does not matter, because the other machine's clock can be wrong by years."""
    store.write(
        holderIdentity="other", leaseDurationSeconds=30, renewTime="1999-01-01T00:00:00Z", leaseTransitions=4
    )
    me = election(transport, clock)
    await me.acquire()
    assert 30 <= clock.now - 1000 <= 35
    assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("me", 5)


async def test_a_lease_that_is_renewed_is_not_taken(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    store.write(holderIdentity="other", leaseDurationSeconds=15)

    async def sleep(seconds: float) -> None:
        store.write(holderIdentity="other", leaseDurationSeconds=15)
        await clock.sleep(seconds)

    async with running(election(transport, clock, sleep=sleep).acquire()):
        await until(lambda: len(server.requests_of("GET")) > 20)
    assert not server.requests_of("PUT")


async def test_a_lease_that_was_given_back_is_taken_at_once(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    first, second = election(transport, clock, "first"), election(transport, clock, "second")
    await first.acquire()
    await first.release()
    assert not first.is_leader()
    assert (store.spec["holderIdentity"], store.spec["leaseDurationSeconds"]) == ("", 1)
    await second.acquire()
    assert second.is_leader()
    assert clock.slept == []


async def test_of_two_that_take_an_expired_lease_at_once_one_leads(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    store.write(holderIdentity="", leaseDurationSeconds=1)
    replicas = [election(transport, ManualClock(), name) for name in ("a", "b", "c")]
    tasks = [asyncio.ensure_future(replica.acquire()) for replica in replicas]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [replica.is_leader() for replica in replicas].count(True) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_leadership_ends_by_itself_before_another_may_take_it(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    await me.acquire()
    clock.now += 9.9
    assert me.is_leader()
    clock.now += 0.2
    assert not me.is_leader()


async def test_holding_renews_and_keeps_the_leadership(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    await me.acquire()
    async with running(me.hold()):
        await until(lambda: len(server.requests_of("PUT")) > 10)
        assert me.is_leader()
    assert set(clock.slept) == {4.75}
    assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("me", 0)


async def test_a_lease_that_another_took_is_lost(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    await me.acquire()
    store.write(holderIdentity="other", leaseDurationSeconds=15)
    with pytest.raises(LeaseLost, match="other holds it now"):
        await me.hold()
    assert not me.is_leader()


async def test_a_lease_that_was_deleted_is_lost(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    await me.acquire()
    store.lease = None
    with pytest.raises(LeaseLost, match="deleted"):
        await me.hold()


async def test_a_renewal_whose_answer_was_lost_is_no_loss(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    def written_without_answer(request: Request) -> Answer:
        store.put(request)
        return error_answer(500)

    me = election(transport, clock)
    await me.acquire()
    server._scripts["PUT", PATH].clear()
    server.on("PUT", PATH, written_without_answer, store.put)
    async with running(me.hold()):
        await until(lambda: len(server.requests_of("PUT")) >= 3)
        assert me.is_leader()


async def test_a_server_that_fails_too_long_costs_the_leadership(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    await me.acquire()
    server._scripts["PUT", PATH][:] = [error_answer(500)]
    server._scripts["GET", PATH][:] = [error_answer(500)]
    with pytest.raises(LeaseLost, match="could not be renewed in time"):
        await me.hold()
    assert 10 <= clock.now - 1000 < 11
    assert len(server.requests_of("PUT")) == 6


async def test_a_server_that_does_not_answer_costs_the_leadership_in_time(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    async def long_sleep(seconds: float) -> None:
        await clock.sleep(9.95)

    me = election(transport, clock, sleep=long_sleep)
    await me.acquire()
    server._scripts["PUT", PATH][:] = [Hang()]
    async with asyncio.timeout(2):
        with pytest.raises(LeaseLost):
            await me.hold()


async def test_work_runs_while_the_lease_is_held_and_gives_it_back(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)

    async def work() -> str:
        assert me.is_leader()
        return "done"

    assert await me.run(work) == "done"
    assert store.spec["holderIdentity"] == ""


async def test_work_is_stopped_when_the_lease_is_lost(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    stopped = False

    async def work() -> None:
        nonlocal stopped
        store.write(holderIdentity="other", leaseDurationSeconds=15)
        try:
            await asyncio.Event().wait()
        finally:
            stopped = True

    with pytest.raises(LeaseLost):
        await election(transport, clock).run(work)
    assert stopped
    assert store.spec["holderIdentity"] == "other"


async def test_work_that_fails_gives_the_lease_back(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    async def work() -> None:
        raise LookupError("a mistake")

    with pytest.raises(LookupError):
        await election(transport, clock).run(work)
    assert store.spec["holderIdentity"] == ""


async def test_a_replica_that_is_stopped_gives_the_lease_back(
    store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    async with running(me.run(asyncio.Event().wait)):
        await until(me.is_leader)
    assert store.spec["holderIdentity"] == ""


async def test_giving_back_to_a_server_that_fails_is_no_error(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    me = election(transport, clock)
    await me.acquire()
    server._scripts["PUT", PATH][:] = [error_answer(500)]
    await me.release()
    assert not me.is_leader()


async def test_a_server_that_fails_is_waited_out_before_leading(
    server: FakeApiServer, store: LeaseStore, transport: Transport, clock: ManualClock
) -> None:
    server._scripts["GET", PATH].insert(0, error_answer(500))
    server._scripts["POST", LEASES].insert(0, error_answer(403))
    me = election(transport, clock)
    await me.acquire()
    assert me.is_leader()
    assert len(clock.slept) == 2


@pytest.mark.parametrize("options", [{"renew_seconds": 8}, {"renew_seconds": 0}, {"identity": ""}])
async def test_times_that_cannot_work_are_refused(
    transport: Transport, clock: ManualClock, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"renew_seconds|identity"):
        election(transport, clock, **options)
