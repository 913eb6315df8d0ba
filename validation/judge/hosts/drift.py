"""Compares the figures and facts of hosts with those of an earlier record, the baseline."""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import of_faults, some
from validation.judge.verdict import Verdict

NO_BASELINE: Final = Judgement(
    Verdict.INCONCLUSIVE, "no baseline was given: --baseline names an earlier record", required=False
)


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of the parts of a baseline. Names in JSON are in camel case."""


class MeasuredGpu(_Part, frozen=True):
    """A GPU with its figures, whose names give the units, and the facts that do not change by themselves."""

    uuid: str
    figures: dict[str, int] = {}
    facts: dict[str, str] = {}


class MeasuredHost(_Part, frozen=True):
    """A host with its figures and facts, and its GPUs in the order of nvidia-smi."""

    name: str
    figures: dict[str, int] = {}
    facts: dict[str, str] = {}
    gpus: list[MeasuredGpu] = []


class DriftLimit(_Part, frozen=True):
    """The limit of a figure, compared with the baseline: a minimum percentage of the earlier figure, or a maximum
    increase.

    `minimum_percent` 0: no minimum. `maximum_increase` -1: no maximum.
    """

    figure: str
    unit: str
    source: str
    date: str
    confidence: str
    minimum_percent: int = 0
    maximum_increase: int = -1


class Baseline(_Part, frozen=True):
    """The figures of an earlier record of the same site, and the ids of that record.

    `version` is the version of muster that made it, `manifest_sha256` the digest of its manifest, `identity_sha256`
    the digest of its identity.
    """

    run: str
    started: str
    version: str
    verdict: str
    site: str
    manifest_sha256: str
    identity_sha256: str
    kube_system_uid: str
    hosts: list[MeasuredHost]
    limits: list[DriftLimit]


def judge_drift(
    baseline: Baseline, measured: Sequence[MeasuredHost], kube_system_uid: str
) -> list[Judgement]:
    """Judge whether no figure is worse than in the baseline beyond its limit, and no fact has changed.

    The verdict is INCONCLUSIVE for a host or a GPU that the baseline lacks, and for a figure that only one record has.
    Figures that no host of this run has were not measured, so they are not compared.
    """
    earlier = {host.name: host for host in baseline.hosts}
    if foreign := _another_cluster(baseline, measured, kube_system_uid):
        return [Judgement(Verdict.INCONCLUSIVE, foreign)]
    if not measured:
        return []
    named = {name for host in measured for _, part in _parts(host) for name in part.figures}
    limits = [limit for limit in baseline.limits if limit.figure in named]
    unknown, worse, compared = list[str](), list[str](), 0
    for host in measured:
        if host.name not in earlier:
            unknown.append(f"{host.name} is not in it")
            continue
        before, now = dict(_parts(earlier[host.name])), dict(_parts(host))
        unknown += _other_parts(before, now)
        for place in before.keys() & now.keys():
            unknown += _changed(place, before[place].facts, now[place].facts)
        for limit in limits:
            pairs, unmatched = _pairs(limit.figure, before, now)
            unknown += unmatched
            compared += len(pairs)
            worse += [_worse(limit, *pair) for pair in pairs if _is_worse(limit, *pair[1:])]
    absent = _unmeasured(baseline, named) + sorted(earlier.keys() - {host.name for host in measured})
    return _judgements(baseline, sorted(worse), sorted(unknown), compared, absent)


def _judgements(
    baseline: Baseline, worse: Sequence[str], unknown: Sequence[str], compared: int, unmeasured: Sequence[str]
) -> list[Judgement]:
    about = f"the baseline {baseline.run} of {baseline.started[:10]}"
    judgements = []
    if worse:
        judgements.append(of_faults(worse))
    if unknown:
        reason = f"{about} does not fit: {some(unknown)}; take a new baseline if that was intended"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    if not compared:
        reason = f"no figure was compared with {about}: --host-test measures some"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    beside = f"; not measured now: {some(unmeasured)}" if unmeasured else ""
    figures = "1 figure" if compared == 1 else f"{compared} figures"
    return judgements or [Judgement(Verdict.PASS, f"{figures} compared with {about}{beside}")]


def _unmeasured(baseline: Baseline, named: Container[str]) -> list[str]:
    """Return the figures with a limit that only the baseline has."""
    there = {name for host in baseline.hosts for _, part in _parts(host) for name in part.figures}
    limited = [limit.figure for limit in baseline.limits if limit.figure in there]
    return [figure for figure in limited if figure not in named]


def _another_cluster(baseline: Baseline, measured: Sequence[MeasuredHost], uid: str) -> str:
    """Return why the baseline is of another cluster; empty if it can be of this one."""
    fix = f"the baseline {baseline.run} is of another cluster: give a record of this one to --baseline"
    if uid and baseline.kube_system_uid and uid != baseline.kube_system_uid:
        return f"{fix} (kube-system is {uid} here, {baseline.kube_system_uid} there)"
    here = {gpu.uuid for host in measured for gpu in host.gpus}
    there = {gpu.uuid for host in baseline.hosts for gpu in host.gpus}
    if here and not here & there:
        return f"{fix} (it has none of the {len(here)} GPUs)"
    return ""


def _parts(host: MeasuredHost) -> Iterator[tuple[str, MeasuredHost | MeasuredGpu]]:
    """Yield the host and its GPUs, each with its name in reasons."""
    yield host.name, host
    for gpu in host.gpus:
        yield f"{host.name} {gpu.uuid}", gpu


def _other_parts(
    before: Mapping[str, MeasuredHost | MeasuredGpu], now: Mapping[str, MeasuredHost | MeasuredGpu]
) -> list[str]:
    absent = [f"{place} is not there any more" for place in before.keys() - now.keys()]
    return absent + [f"{place} is not in it" for place in now.keys() - before.keys()]


def _changed(place: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{place}: {name} was {before.get(name, 'not read')}, is {now.get(name, 'not read')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]


def _pairs(
    figure: str,
    before: Mapping[str, MeasuredHost | MeasuredGpu],
    now: Mapping[str, MeasuredHost | MeasuredGpu],
) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Return the earlier and present value of the figure on each host or GPU, and findings if only one exists."""
    pairs, unmatched = list[tuple[str, int, int]](), list[str]()
    for place in before.keys() & now.keys():
        values = before[place].figures.get(figure), now[place].figures.get(figure)
        if values[0] is not None and values[1] is not None:
            pairs.append((place, values[0], values[1]))
        elif values != (None, None):
            unmatched.append(f"{place}: {figure} was {_or_not(values[0])}, is {_or_not(values[1])}")
    return pairs, unmatched


def _or_not(value: int | None) -> str:
    return "not measured" if value is None else str(value)


def _is_worse(limit: DriftLimit, before: int, now: int) -> bool:
    if limit.maximum_increase >= 0 and now > before + limit.maximum_increase:
        return True
    return now * 100 < before * limit.minimum_percent


def _worse(limit: DriftLimit, place: str, before: int, now: int) -> str:
    bound = (
        f"at least {limit.minimum_percent} %"
        if limit.minimum_percent
        else f"at most {limit.maximum_increase} {limit.unit} more"
    )
    finding = f"{place}: {limit.figure} is {now} {limit.unit}, was {before}, and may be {bound}"
    return needs(finding, _REPAIRS.get(limit.figure, Repair.SUPPORT))


_REPAIRS: Final = {
    "nccl-all-reduce": Repair.RESET,
    "fio-read": Repair.NETWORK,
    "burn-in": Repair.COOLING,
    "burn-in-clock": Repair.COOLING,
    "burn-in-power": Repair.COOLING,
    "burn-in-temperature": Repair.COOLING,
}
