"""Compares the state of the cluster with the expectation of a step, and returns the differences as sentences."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from validation.judge.scheduling import oracle
from validation.judge.state import State
from validation.judge.units import gpus


class Expectation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The exact values after a step has settled. GPU quantities are in thousandths.

    Only the devices need not be exact: `same_gpu` and `gpus_in_use` give conditions on them.

    - `ended`: jobs that reached their time limit, and still exist without a pod.
    - `or_else`: alternative states that are also correct. Example: two teams are equal, and a job of either team may be
      evicted.

    Without such jobs or states, the keys `ended` and `or_else` are absent. Older records never have them.
    """

    allocated_milli: dict[str, int]
    total_milli: int
    running: int
    pending: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    same_gpu: tuple[tuple[str, ...], ...] = ()
    gpus_in_use: int | None = None
    """Number of physical devices that are in use, in whole or in part."""
    ended: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    or_else: "tuple[Expectation, ...] | msgspec.UnsetType" = msgspec.UNSET

    @property
    def states(self) -> "tuple[Expectation, ...]":
        """This state and its correct alternatives."""
        return (self, *(self.or_else or ()))

    @property
    def may_be_evicted(self) -> frozenset[str]:
        """The jobs that are evicted in one of the states."""
        return frozenset(name for state in self.states for name in state.evicted)

    @property
    def ended_jobs(self) -> frozenset[str]:
        """The jobs that reached their time limit."""
        return frozenset(self.ended or ())


class Actual(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The actual values on the cluster, for comparison with an Expectation.

    `devices` are the GPUs of each running workload as `node/index`.
    """

    allocated_milli: dict[str, int]
    total_milli: int
    pending: tuple[str, ...]
    running: int
    evicted: tuple[str, ...]
    gpus_in_use: int
    devices: dict[str, tuple[str, ...]]
    unsettled: tuple[str, ...] = ()
    """Workloads that neither run nor have a pending pod: not started, being deleted, or between two pods."""
    others: tuple[str, ...] = ()
    """Pods with GPUs that belong to no project of the scenario, as `project/pod`."""


def observe(state: State, evicted: Sequence[str], projects: Sequence[str]) -> Actual:
    """Return the actual values of `state` for the workloads of `projects`; `evicted` are the workloads that were
    evicted since the step began.
    """
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
        others=tuple(
            sorted(f"{pod.project}/{pod.pod}" for pod in state.holding() if pod.project not in allocated)
        ),
    )


def differences(expected: Expectation, actual: Actual) -> list[str]:
    """Return one line for each value that differs from the expectation; empty if it is satisfied.

    Of several expected states, the first one with the fewest differences counts.
    """
    return min((_differences(state, actual) for state in expected.states), key=len)


def _differences(expected: Expectation, actual: Actual) -> list[str]:
    lines = [line for _, line in _allocation_differences(expected, actual)]
    if expected.gpus_in_use is not None and expected.gpus_in_use != actual.gpus_in_use:
        lines.append(f"GPUs in use: expected {expected.gpus_in_use}, are {actual.gpus_in_use}")
    lines += _names("evicted", expected.evicted, actual.evicted)
    without_pods = set(actual.pending) & set(actual.unsettled)
    lines += _names("ended", sorted(expected.ended_jobs), sorted(expected.ended_jobs & without_pods))
    if actual.others:
        lines.append(f"GPUs are held by pods that are not of the scenario: {', '.join(actual.others)}")
    for group in expected.same_gpu:
        device_sets = {actual.devices.get(name, ()) for name in group}
        if len(device_sets) != 1 or len(next(iter(device_sets))) != 1:
            devices_text = ", ".join(
                f"{name} on {' '.join(actual.devices.get(name, ())) or 'none'}" for name in group
            )
            lines.append(f"same GPU: {devices_text}")
    unsettled = [name for name in actual.unsettled if name not in expected.ended_jobs]
    if not lines and unsettled:
        lines.append(f"not settled: {', '.join(unsettled)}")
    return lines


def _allocation_differences(expected: Expectation, actual: Actual) -> list[tuple[str, str]]:
    """Return the differences in the fields that the oracle derives too, each with the name of its field."""
    lines = [("allocated", line) for line in _allocation(expected.allocated_milli, actual.allocated_milli)]
    if expected.total_milli != actual.total_milli:
        lines.append(
            ("total", f"total: expected {gpus(expected.total_milli)}, is {gpus(actual.total_milli)}")
        )
    if expected.running != actual.running:
        lines.append(("running", f"running workloads: expected {expected.running}, are {actual.running}"))
    waiting = [name for name in actual.pending if name not in expected.ended_jobs]
    lines += [("pending", line) for line in _names("pending", expected.pending, waiting)]
    return lines


def contradictions(
    expected: Expectation, division: oracle.Division, excused: Collection[str] = ()
) -> list[str]:
    """Return one line for each value for which the oracle and the expectation differ, except for the fields in
    `excused`. The oracle need agree with only one of the expected states.

    Evictions and devices are not compared, because the oracle knows neither devices nor earlier states.
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
    lines = [
        [line for field, line in _allocation_differences(state, derived) if field not in excused]
        for state in expected.states
    ]
    return min(lines, key=len)


def _allocation(expected: Mapping[str, int], actual: Mapping[str, int]) -> list[str]:
    return [
        f"{project}: expected {gpus(milli)} GPUs, has {gpus(actual.get(project, 0))}"
        for project, milli in expected.items()
        if milli != actual.get(project, 0)
    ]


def _names(subject: str, expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    missing = sorted(set(expected) - set(actual))
    unexpected = sorted(set(actual) - set(expected))
    lines = []
    if missing:
        lines.append(f"not {subject} but should be: {', '.join(missing)}")
    if unexpected:
        lines.append(f"{subject} but should not be: {', '.join(unexpected)}")
    return lines
