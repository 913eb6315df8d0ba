"""A clock that is set forwards or back must change no decision, and cost no leadership."""

import ast
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import orchestrator
from orchestrator.cluster.lease import LeaseElection
from orchestrator.cluster.transport import Transport
from tests.cluster.fake_api_server import FakeApiServer, access_to, serving
from tests.cluster.test_lease import LeaseStore
from tests.cluster.waiting import ManualClock, running, until

ROOT = Path(orchestrator.__file__).parent
WALL_CLOCKS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("date", "today"),
}
WRITES_DATES = {
    "cluster/eviction.py": "when a pod was evicted, for people",
    "cluster/exec_plugin.py": "whether a credential has reached the time at which its plugin says that it ends",
    "cluster/lease.py": "when a lease was renewed, for people; it is never compared",
    "control/report/audit.py": "when a pod was evicted, for people",
    "control/carry_out/claim_grants.py": "when a claim was allocated, from which kube-scheduler counts a limit",
    "control/report/conditions.py": "since when a pod waits, for people",
    "control/report/events.py": "when an event happened, for people",
    "control/report/metrics.py": "when the last decision was, and how long workloads waited, for people",
    "control/projects/project_status.py": "since when a condition of a project holds, for people",
    "control/decide/scheduler.py": "when the loop began; from then on it counts the seconds by itself",
    "control/report/problems.py": "since when a pod is stuck, for people",
    "control/report/skipped.py": "since when an object is skipped, for people",
}
DECIDES = ("planner", "cluster", "control")
"""The packages of the operator process. Packages of the command line may show ages."""


def wall_clock_readers() -> Iterator[str]:
    for package in DECIDES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and (node.value.id, node.attr) in WALL_CLOCKS
                ):
                    yield str(path.relative_to(ROOT))


def test_only_dates_that_people_read_come_from_the_wall_clock() -> None:
    assert set(wall_clock_readers()) <= set(WRITES_DATES)


async def test_a_leader_whose_wall_clock_jumps_keeps_leading() -> None:
    clock = ManualClock()
    years = count(1)

    def jumping() -> float:
        """Return a time that jumps a year forward, then a year back, at each call."""
        return 1.7e9 + (1 if next(years) % 2 else -1) * 365 * 86400

    async with serving() as server, Transport(access_to(server), sleep=clock.sleep) as transport:
        store = LeaseStore(server)
        election = LeaseElection(
            transport,
            namespace="muster-system",
            name="scheduler",
            identity="me",
            clock=clock,
            sleep=clock.sleep,
            wall_clock=jumping,
        )
        await election.acquire()
        async with running(election.hold()):
            await until(lambda: len(puts(server)) >= 20)
            assert election.is_leader()
        assert store.spec["holderIdentity"] == "me"


async def test_a_lease_is_not_taken_early_because_the_wall_clock_of_its_reader_jumped() -> None:
    clock = ManualClock()
    async with serving() as server, Transport(access_to(server), sleep=clock.sleep) as transport:
        LeaseStore(server).write(
            holderIdentity="other", leaseDurationSeconds=30, renewTime="2026-01-01T00:00:00.000000Z"
        )
        election = LeaseElection(
            transport,
            namespace="muster-system",
            name="scheduler",
            identity="me",
            clock=clock,
            sleep=clock.sleep,
            wall_clock=lambda: 4e9,
        )
        started = clock.now
        await election.acquire()
        assert clock.now - started >= 30


def puts(server: FakeApiServer) -> list[object]:
    return list(server.requests_of("PUT"))
