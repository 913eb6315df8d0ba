"""The events after a tiny world has come to rest: every order of two arrivals and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orchestrator.planner import plan
from tests.specification.planner_driver import ended, settle, snapshot_of, submitted
from tests.specification.tiny import Job, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.planner.model import Snapshot
    from tests.specification.planner_driver import Decider

EVENTS: Final = 2


def arrivals(world: World) -> list[Job]:
    """Return, for each team without children, a small job and an urgent one as large as the cluster allows."""
    parents = {team.parent for team in world.teams}
    leaves = [index for index in range(len(world.teams)) if index not in parents]
    large = (max(world.nodes), min(2, len(world.nodes)))
    return [job for team in leaves for job in (Job(team, 1), Job(team, *large, priority=1))]


def after(world: World, snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """Yield the cluster after each possible next event, with the event's name."""
    for job in arrivals(world):
        yield f"{job} arrives", submitted(snapshot, job)
    for workload in snapshot.workloads:
        yield f"{workload.id} ends", ended(snapshot, workload.id)


def faults_of_orders(
    world: World, *, decider: Decider = plan, events: int = EVENTS
) -> Iterator[tuple[str, ...]]:
    """Yield the events that lead to a fault, with the fault as the last element."""
    first = settle(world, snapshot_of(world), decider=decider)
    yield from ((fault,) for fault in first.faults)
    ways: list[tuple[tuple[str, ...], Snapshot]] = [((), first.snapshot)]
    for _ in range(events):
        following = []
        for names, snapshot in ways:
            for name, changed in after(world, snapshot):
                found = settle(world, changed, decider=decider)
                yield from ((*names, name, fault) for fault in found.faults)
                following.append(((*names, name), found.snapshot))
        ways = following
