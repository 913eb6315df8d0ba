"""Thousands of random lives, saturated clusters and worlds with ResourceClaims, with a check of each decision.

    python -m tests.world.soak --lives 1000 --steps 40 --saturated 30000 --claims 10000 --seed 0 --minutes 60

A failing world is shrunk and written as a file for `muster simulate`, except a world with ResourceClaims. A comment in
the file names the failed check and the further course of the world.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.simulation.writer import dump
from tests.world.claims import walk
from tests.world.scenes import saturated
from tests.world.settling import Pace, Settled, settle
from tests.world.shrink import shrunk
from tests.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.planner.model import Snapshot
    from tests.world.step import Violation

OUT = Path("reports", "soak")
MAX_FILES = 3
"""Maximum number of failing worlds that are shrunk and written for each check; others are only counted."""
PACES = (Pace(), Pace(1), Pace(5), Pace(1, is_late=True), Pace(5, is_mixed=True))


@dataclass(frozen=True)
class Failure:
    """The violation in a world, its snapshot, and whether one decision shows it or only a frozen world."""

    world: str
    violation: Violation
    snapshot: Snapshot
    pace: Pace
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The outcome of one world: the number of checked decisions, the number of evicted pods, and the violations.

    `broken` is the violation in a world with ResourceClaims. Such a world is not written as a file; its number builds
    it again.
    """

    decisions: int
    evictions: int
    failures: tuple[Failure, ...] = ()
    broken: str = ""


def live(seed: int, steps: int) -> Outcome:
    """Run one life, then freeze it until it is at rest."""
    world = World(seed)
    name = f"life {seed}"
    done = 0
    for _ in range(steps):
        done += 1
        if not world.step():
            break
    failures = [
        Failure(name, violation, snapshot, world.pace, seed * 1000 + 1)
        for violation, snapshot in world.violations.values()
    ]
    frozen = settle(world.snapshot, world.pace, seed * 1000 + 1)
    known = {failure.violation.check for failure in failures}
    failures += [
        failure
        for failure in _failures(name, frozen, world.pace, seed)
        if failure.violation.check not in known
    ]
    return Outcome(done + frozen.decisions, world.evictions + frozen.evictions, tuple(failures))


def saturate(seed: int, *, trees: bool) -> Outcome:
    """Run one saturated cluster until it is at rest."""
    snapshot = saturated(seed, trees=trees)
    # worlds without a time have no failures
    pace = replace(PACES[seed % len(PACES)], is_failing=bool(snapshot.now_us))
    settled = settle(snapshot, pace, seed * 1000 + 1)
    name = f"saturated {'tree' if trees else 'flat'} {seed}"
    failures = tuple(_failures(name, settled, pace, seed, start=snapshot))
    return Outcome(settled.decisions, settled.evictions, failures)


def claim(seed: int) -> Outcome:
    """Run one world with ResourceClaims until it is at rest."""
    try:
        return Outcome(*walk(seed))
    except AssertionError as error:
        return Outcome(0, 0, broken=f"tests.world.claims.walk({seed}): {error}")


def _failures(
    name: str, settled: Settled, pace: Pace, seed: int, start: Snapshot | None = None
) -> Iterator[Failure]:
    for violation, snapshot in settled.violations.values():
        yield Failure(name, violation, start or snapshot, pace, seed * 1000 + 1)


def fails(check: str, pace: Pace, seed: int, snapshot: Snapshot) -> bool:
    """Return whether the check fails while the snapshot is decided on until it is at rest."""
    return check in settle(snapshot, pace, seed).violations


def write(failure: Failure, folder: Path) -> Path:
    """Shrink the failing world and write it as a snapshot file. Returns the path of the file."""
    check = failure.violation.check
    still_fails = partial(fails, check, failure.pace, failure.seed)
    snapshot, facts = failure.snapshot, str(failure.violation)
    if still_fails(snapshot):
        snapshot = shrunk(snapshot, still_fails)
        facts = str(settle(snapshot, failure.pace, failure.seed).violations[check][0])
    else:
        facts += "; seen only with what the planner knew from the decisions before"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{check}-{failure.world.replace(' ', '-')}.yaml"
    lines = [f"{facts}", f"Seen in: {failure.world}. Settles with {failure.pace}:"]
    lines.append(f"muster simulate {path} --until-stable --grace-decisions {failure.pace.grace_decisions}")
    path.write_text("".join(f"# {line}\n" for line in lines) + dump(snapshot), encoding="utf-8")
    return path


def work(
    lives: int, steps: int, clusters: int, claims: int, seed: int
) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """Yield the lives, clusters and worlds with ResourceClaims alternately, so that an
    interrupted run has all kinds.
    """
    total = max(lives, clusters, claims)
    done_lives = done_clusters = done_claims = 0
    for number in range(1, total + 1):
        while done_lives * total < lives * number:
            yield "life", partial(live, seed + done_lives, steps)
            done_lives += 1
        while done_clusters * total < clusters * number:
            yield (
                "saturated",
                partial(saturate, seed + done_clusters, trees=done_clusters % 2 == 1),
            )
            done_clusters += 1
        while done_claims * total < claims * number:
            yield "claims", partial(claim, seed + done_claims)
            done_claims += 1


def soak(
    worlds: Iterable[tuple[str, Callable[[], Outcome]]], *, until: float, workers: int, folder: Path
) -> Counter[str]:
    """Run the worlds until the monotonic time `until`, and print the outcomes. Returns the
    number of failures by check.
    """
    by_check: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    evictions: Counter[str] = Counter()
    decisions = 0
    next_line = time.monotonic() + 10
    for kind, outcome in _outcomes(worlds, until, workers):
        counts[kind] += 1
        decisions += outcome.decisions
        evictions[kind] += outcome.evictions
        for failure in outcome.failures:
            check = failure.violation.check
            by_check[check] += 1
            if by_check[check] <= MAX_FILES:
                print(f"{failure.world}: {failure.violation}\n  {write(failure, folder)}", flush=True)
        if outcome.broken:
            by_check["claims"] += 1
            print(outcome.broken, flush=True)
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + 30
            print(
                f"{dict(counts)}, {decisions} decisions, evictions: {dict(evictions)}, "
                f"failures: {dict(by_check) or 'none'}",
                flush=True,
            )
    print(f"\n{'CHECK':<20} FAILING WORLDS")
    for check, count in by_check.most_common():
        print(f"{check:<20} {count}")
    print(
        f"\n{counts['life']} lives, {counts['saturated']} saturated clusters, {counts['claims']} worlds with claims, "
        f"{decisions} decisions checked"
    )
    for kind, count in counts.items():
        print(f"{kind:<20} {evictions[kind]} evictions, {evictions[kind] / count:.4f} for each world")
    return by_check


def _outcomes(
    worlds: Iterable[tuple[str, Callable[[], Outcome]]], until: float, workers: int
) -> Iterator[tuple[str, Outcome]]:
    if workers == 1:
        for kind, run in worlds:
            if time.monotonic() >= until:
                return
            yield kind, run()
        return
    with ProcessPoolExecutor(workers) as pool:
        batch = []
        for kind, run in worlds:
            batch.append((kind, pool.submit(run)))
            if len(batch) >= 20 * workers:
                yield from ((name, future.result()) for name, future in batch)
                batch = []
                if time.monotonic() >= until:
                    return
        yield from ((name, future.result()) for name, future in batch)


def main(words: list[str] | None = None) -> int:
    """Run the command line. Returns 1 if any check failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lives", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--saturated", type=int, default=30_000)
    parser.add_argument("--claims", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(words)
    worlds = work(options.lives, options.steps, options.saturated, options.claims, options.seed)
    until = time.monotonic() + 60 * options.minutes
    return 1 if soak(worlds, until=until, workers=options.workers, folder=options.out) else 0


if __name__ == "__main__":
    sys.exit(main())
