"""Compares the state of the cluster with what a step expects: both as data, the differences in words."""

from collections.abc import Mapping, Sequence

import msgspec

from validation.judge import oracle
from validation.judge.state import State
from validation.judge.units import gpus


class Expectation(msgspec.Struct, frozen=True, rename="camel"):
    """What must be true when a step has settled. None: not compared. GPU quantities in thousandths."""

    allocated_milli: dict[str, int] | None = None
    total_milli: int | None = None
    pending: tuple[str, ...] | None = None
    running: int | None = None
    evicted: tuple[str, ...] = ()
    same_gpu: tuple[tuple[str, ...], ...] = ()
    gpus_in_use: int | None = None
    """How many physical devices are in use, in whole or in part."""


class Actual(msgspec.Struct, frozen=True, rename="camel"):
    """What is true on the cluster, for comparison with an Expectation. `devices`: the GPUs of each running workload as
    `node/index`.
    """

    allocated_milli: dict[str, int]
    total_milli: int
    pending: tuple[str, ...]
    running: int
    evicted: tuple[str, ...]
    gpus_in_use: int
    devices: dict[str, tuple[str, ...]]
    unsettled: tuple[str, ...] = ()
    """Workloads that neither run nor wait with a pod: not started, being deleted, or between two pods."""


def observe(state: State, evicted: Sequence[str], projects: Sequence[str]) -> Actual:
    """The Actual of `state` for the workloads of `projects`; `evicted` names those evicted since the step began."""
    held = state.allocated_milli()
    allocated = {project: held.get(project, 0) for project in projects}
    running = {key for key in state.running() if key[0] in allocated}
    pending = {key for key in state.pending() if key[0] in allocated}
    everything = {key for key in state.by_workload() if key[0] in allocated and key not in state.deleted}
    queued = {key for key in pending if key in everything}
    devices: dict[str, set[str]] = {}
    for pod in state.holding():
        if pod.project in allocated:
            devices.setdefault(pod.workload, set()).update(f"{pod.node}/{index}" for index in pod.devices)
    return Actual(
        allocated_milli=allocated,
        total_milli=sum(allocated.values()),
        pending=tuple(sorted(name for _, name in pending)),
        running=len(running),
        evicted=tuple(sorted(set(evicted))),
        gpus_in_use=len({device for owned in devices.values() for device in owned}),
        devices={name: tuple(sorted(owned)) for name, owned in sorted(devices.items())},
        unsettled=tuple(sorted(name for _, name in (everything | pending) - running - queued)),
    )


def differences(expected: Expectation, actual: Actual) -> list[str]:
    """One line for each value that is not the expected one; empty if the expectation is satisfied."""
    lines: list[str] = []
    if expected.allocated_milli is not None:
        lines += _allocation(expected.allocated_milli, actual.allocated_milli)
    if expected.total_milli is not None and expected.total_milli != actual.total_milli:
        lines.append(f"total: expected {gpus(expected.total_milli)}, is {gpus(actual.total_milli)}")
    if expected.running is not None and expected.running != actual.running:
        lines.append(f"running workloads: expected {expected.running}, are {actual.running}")
    if expected.gpus_in_use is not None and expected.gpus_in_use != actual.gpus_in_use:
        lines.append(f"GPUs in use: expected {expected.gpus_in_use}, are {actual.gpus_in_use}")
    if expected.pending is not None:
        lines += _names("pending", expected.pending, actual.pending)
    lines += _names("evicted", expected.evicted, actual.evicted)
    for group in expected.same_gpu:
        places = {actual.devices.get(name, ()) for name in group}
        if len(places) != 1 or len(next(iter(places))) != 1:
            places_text = ", ".join(
                f"{name} on {' '.join(actual.devices.get(name, ())) or 'none'}" for name in group
            )
            lines.append(f"same GPU: {places_text}")
    if not lines and actual.unsettled:
        lines.append(f"not settled: {', '.join(actual.unsettled)}")
    return lines


def contradictions(expected: Expectation, division: oracle.Division) -> list[str]:
    """One line for each value that the oracle derives otherwise than expected; empty if the two agree.

    Evictions and devices are not compared: the oracle divides one pool of GPUs and has no past.
    """
    derived = Actual(
        allocated_milli=dict(division.allocated_milli),
        total_milli=sum(division.allocated_milli.values()),
        pending=tuple(sorted(name for _, name in division.pending)),
        running=len(division.running),
        evicted=(),
        gpus_in_use=0,
        devices={},
    )
    comparable = Expectation(
        allocated_milli=expected.allocated_milli,
        total_milli=expected.total_milli,
        pending=expected.pending,
        running=expected.running,
    )
    return differences(comparable, derived)


def _allocation(expected: Mapping[str, int], actual: Mapping[str, int]) -> list[str]:
    return [
        f"{project}: expected {gpus(milli)} GPUs, has {gpus(actual.get(project, 0))}"
        for project, milli in expected.items()
        if milli != actual.get(project, 0)
    ]


def _names(what: str, expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    missing = sorted(set(expected) - set(actual))
    surplus = sorted(set(actual) - set(expected))
    lines = []
    if missing:
        lines.append(f"not {what} but should be: {', '.join(missing)}")
    if surplus:
        lines.append(f"{what} but should not be: {', '.join(surplus)}")
    return lines
