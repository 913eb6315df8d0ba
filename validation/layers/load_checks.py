"""The layers that put a load on the hosts, judge the readings under the load, and compare them with a baseline."""

from collections.abc import Iterable, Sequence

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.events import ClusterSeen, ToolRan
from validation.judge.hosts.drift import NO_BASELINE, judge_drift
from validation.judge.hosts.group_findings import judge_groups
from validation.judge.hosts.host_compare import below_median
from validation.judge.hosts.host_facts import (
    System,
    judge_fio,
    judge_nccl,
    of_faults,
    site_threshold,
)
from validation.judge.hosts.host_layer import DeclaredHost, system_of
from validation.judge.hosts.host_load import judge_load
from validation.judge.hosts.host_runs import (
    MEASURED_FIO_GRACE_MS,
    judge_duration,
    judge_power,
    judge_same,
    judge_short_reads,
)
from validation.judge.hosts.host_storage import judge_burn_in, judge_mounts
from validation.judge.verdict import Verdict
from validation.layers import groups, tools
from validation.layers.burn_in import read_burn_in
from validation.layers.figures import measure
from validation.layers.fio import read_fio
from validation.layers.nccl import read_nccl
from validation.layers.readings import Readings

NCCL_PERCENT = 90
"""Minimum bus bandwidth of a host, in percent of the median of its model."""


def nccl(readings: Readings) -> list[Judgement]:
    """Judge all-reduce on each host, by the threshold and by the other hosts of the same model."""
    scope, runs, judgements = readings.scope, readings.read("nccl", read_nccl), list[Judgement]()
    rates: dict[str, int] = {}
    for host in scope.site.hosts:
        system = system_of(host, scope.systems)
        if host.name not in runs:
            continue
        run, fabric = runs[host.name], system.fabric if system is not None else ""
        judged = judge_nccl(run, scope.thresholds, metric="nccl-all-reduce", fabric=fabric)
        judgements.append(Judgement(judged.verdict, f"{host.name}: {judged.reason}"))
        rates[host.name] = int(max(run.rows, key=lambda row: row.size_bytes).bus_gbytes_per_second * 1000)
    for name, rate, usual in below_median(rates, NCCL_PERCENT, readings.models()):
        finding = f"{name} reached {rate / 1000:g} GB/s, the median is {usual / 1000:g}"
        judgements.append(of_faults([needs(finding, Repair.RESET)]))
    return judgements


def nccl_nodes(readings: Readings) -> list[Judgement]:
    """Judge the tests of groups of hosts."""
    scope = readings.scope
    hosts = groups.joined_hosts(scope.site)
    by_name = {host.name: host for host in hosts}
    tests: dict[int, list[ToolRan]] = {}
    for event in readings.events:
        if isinstance(event, ToolRan) and event.tool == groups.NCCL_NODES and event.host in by_name:
            match = groups.COMMAND.search(event.command)
            tests.setdefault(int(match[1]) if match else -1, []).append(event)
            readings.outputs += 1
    judged = [
        groups.read_test(events, groups.least_mbytes((by_name[e.host] for e in events), scope.systems))
        for events in tests.values()
    ]
    return [*judge_groups([host.name for host in hosts], judged), *_without_figure(hosts, scope.systems)]


def _without_figure(hosts: Iterable[DeclaredHost], systems: Sequence[System]) -> list[Judgement]:
    silent = [host.name for host in hosts if not groups.least_mbytes([host], systems)]
    reason = f"no figure of the adapters of {len(silent)} hosts: {', '.join(silent[:4])}"
    return [Judgement(Verdict.INCONCLUSIVE, reason)] if silent else []


def fio(readings: Readings) -> list[Judgement]:
    """Judge the read rate of all hosts together, and compare each host with the others."""
    if not readings.scope.site.mounts:
        return [judge_mounts({}, (), (), ())]
    runs, models = readings.read("fio", read_fio), []
    least_ms = tools.FIO_SECONDS * 1000
    read_ms = {name: min((job.read_ms for job in jobs), default=0) for name, jobs in runs.items()}
    early = judge_duration(readings.ran_ms("fio"), "fio", least_ms=least_ms)
    early += judge_duration(read_ms, "reading", least_ms=least_ms - MEASURED_FIO_GRACE_MS)
    early += judge_short_reads(runs)
    for host in readings.scope.site.hosts:
        system = system_of(host, readings.scope.systems)
        models += [system.gpu if system is not None else host.model] * host.gpus
    threshold = site_threshold(readings.scope.thresholds, "fio-read", models, "nfs")
    if threshold is None:
        return [
            Judgement(Verdict.INCONCLUSIVE, f"no threshold of fio-read for {len(models)} such GPUs on nfs"),
            *early,
        ]
    judged = judge_fio(runs, read_bytes_per_second=int(threshold.at_least * 10**9))
    return [judged, *early] if runs else early


def burn_in(readings: Readings) -> list[Judgement]:
    """Judge the results of an hour of load, and the rate of each GPU."""
    scope = readings.scope
    declared = {host.name: host.gpus for host in scope.site.hosts}
    systems = {host.name: system_of(host, scope.systems) for host in scope.site.hosts}
    cards = {
        name: system.gpu if system is not None else readings.models()[name]
        for name, system in systems.items()
    }
    judged = judge_burn_in(readings.read("burn-in", read_burn_in), declared, cards, scope.thresholds)
    least_ms = tools.BURN_SECONDS * 1000
    return [judged, *judge_duration(readings.ran_ms("burn-in"), "the load", least_ms=least_ms)]


def load(readings: Readings) -> list[Judgement]:
    """Judge the readings of GPUs under load."""
    samples = readings.samples()
    silent = [host.name for host in readings.scope.site.hosts if host.gpus and host.name not in samples]
    gpus = {host.name: host.gpus for host in readings.scope.site.hosts}
    judgements = judge_load(samples, readings.models(), gpus) if samples else []
    for name, of_host in sorted(samples.items()):
        for sample in of_host:
            limits = judge_power({name: sample}, readings.scope.site.hosts, readings.scope.systems)
            judgements += [
                Judgement(one.verdict, f"under load: {one.reason}")
                for one in limits
                if one.verdict != Verdict.PASS
            ]
    if silent and not readings.problems:
        reason = (
            f"not read under load, as no load ran: {', '.join(silent)}; --host-test nccl puts one on them"
        )
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    return [*judgements, *(judge_same(readings.gpus(), samples) if samples else [])]


def drift(readings: Readings) -> list[Judgement]:
    """Compare the figures of the run with those of the baseline."""
    baseline = readings.scope.baseline
    if not baseline:
        return [NO_BASELINE]
    readings.gpus()
    uids = [event.kube_system_uid for event in readings.events if isinstance(event, ClusterSeen)]
    return judge_drift(baseline, measure(readings.scope, readings.events), uids[-1] if uids else "")
