"""Judges how tools ran on hosts (duration, reboots), and whether the GPUs are those of the site file."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.gpu_elements import SILENT
from validation.judge.hosts.host_facts import FioJob, HostGpus, System, all_gpus, of_faults, some
from validation.judge.hosts.host_layer import DeclaredHost, hosts_with_systems, system_of
from validation.judge.verdict import Verdict

MEASURED_FIO_GRACE_MS: Final = 1000
"""Maximum difference by which fio's own runtime may be shorter than requested, because fio rounds it."""


def judge_boots(boots: Mapping[str, Sequence[str]], *, is_needed: bool) -> list[Judgement]:
    """Judge whether no host rebooted between its readings, because a reboot clears counters and logs.

    `boots` has the boot id of each reading. If `is_needed`, a reading without a boot id is INCONCLUSIVE.
    """
    anew = [name for name, ids in sorted(boots.items()) if len(set(ids) - {""}) > 1]
    if anew:
        return [Judgement(Verdict.FAIL, f"booted anew between two readings: {some(anew)}")]
    unknown = [name for name, ids in sorted(boots.items()) if not all(ids)]
    if is_needed and unknown:
        return [Judgement(Verdict.INCONCLUSIVE, f"nothing says since when it is up: {some(unknown)}")]
    return []


def judge_duration(ran_ms: Mapping[str, int], subject: str, *, least_ms: int) -> list[Judgement]:
    """Return FAIL if a load ended before its time on a host, even if the load itself reported success."""
    early = [
        f"{name}: {subject} ended after {ran // 1000} of {least_ms // 1000} s"
        for name, ran in sorted(ran_ms.items())
        if ran < least_ms
    ]
    return [Judgement(Verdict.FAIL, some(early))] if early else []


def judge_same(rest: Mapping[str, HostGpus], samples: Mapping[str, Sequence[HostGpus]]) -> list[Judgement]:
    """Return FAIL if a reading under load is of another GPU or driver than the reading at rest."""
    wrong: list[str] = []
    for name, of_host in sorted(samples.items()):
        if name not in rest:
            continue
        known = {gpu.uuid for gpu in rest[name].gpus}
        drivers = {one.driver for one in of_host} - {rest[name].driver}
        wrong += [
            f"{name}: its driver under load is {driver}, at rest {rest[name].driver}"
            for driver in sorted(drivers)
        ]
        others = {gpu.uuid for one in of_host for gpu in one.gpus} - known
        wrong += [f"{name}: only under load it shows the GPU {uuid}" for uuid in sorted(others)]
    return [of_faults(wrong)] if wrong else []


def judge_short_reads(hosts: Mapping[str, Sequence[FioJob]]) -> list[Judgement]:
    """Return INCONCLUSIVE if fio read less than it asked for, or dropped a read: the rate then counts other reads."""
    short = [
        f"{name}: {job.name} had {job.short_reads} short or dropped reads"
        for name, jobs in sorted(hosts.items())
        for job in jobs
        if job.short_reads
    ]
    return [Judgement(Verdict.INCONCLUSIVE, some(short))] if short else []


def judge_models(
    hosts: Mapping[str, HostGpus], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> Judgement:
    """Judge whether every GPU is the product that a host of this model has, with its memory."""
    wrong: list[str] = []
    known, unknown = hosts_with_systems(hosts, declared, systems)
    for host, system in known:
        gpus = hosts[host.name].gpus
        others = [gpu.model for gpu in gpus if not _is_of(gpu.model, system)]
        if others:
            wrong.append(
                f"{host.name}: {len(others)} of its GPUs are {others[0]}, a {host.model} has "
                f"{' or '.join(system.products) or system.gpu}"
            )
        small = [gpu for gpu in gpus if gpu.memory_mib < system.memory_mib]
        if small and not others:
            wrong.append(
                f"{host.name} {small[0].bus_id} has {small[0].memory_mib} of {system.memory_mib} MiB"
            )
    if not wrong and unknown:
        return Judgement(Verdict.INCONCLUSIVE, f"no figure says which GPUs it has: {some(unknown)}")
    return of_faults([needs(finding, Repair.REPLACE) for finding in wrong])


def _is_of(product: str, system: System) -> bool:
    return product in system.products if system.products else system.gpu in product


def judge_power(
    hosts: Mapping[str, HostGpus], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> list[Judgement]:
    """Judge whether the power limit of every GPU is at least its default, and at least the figure of the host's model.

    If nvidia-smi gives no limit, or one in another unit than W, the verdict is INCONCLUSIVE.
    """
    limits = {host.name: system_of(host, systems) for host in declared}
    wrong, unknown = [], []
    for name, host in sorted(hosts.items()):
        system = limits.get(name)
        least = system.power_limit_watts * 1000 if system is not None else 0
        for gpu in host.gpus:
            texts = [
                gpu.text(*(f"{group}/{word}" for group in _GROUPS for word in words)) for words in _LIMITS
            ]
            now, usual = (_milliwatts(text) for text in texts)
            if now is None:
                unknown.append(f"{name} {gpu.bus_id}: its power limit is {texts[0]!r}")
            elif now < max(least, usual or 0):
                expected = max(least, usual or 0) // 1000
                finding = f"{name} {gpu.bus_id}: power limit {now // 1000} of {expected} W"
                wrong.append(needs(finding, Repair.SETTING))
    judgements = [Judgement(Verdict.INCONCLUSIVE, some(unknown))] if unknown else []
    return [of_faults(wrong), *judgements]


_GROUPS: Final = ("gpu_power_readings", "power_readings")
_LIMITS: Final = (("current_power_limit", "enforced_power_limit", "power_limit"), ("default_power_limit",))


def _milliwatts(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?:\.(\d\d))? W", text)
    return int(match[1]) * 1000 + int(match[2] or 0) * 10 if match else None


def judge_owners(hosts: Mapping[str, HostGpus]) -> list[Judgement]:
    """Judge whether only one host shows each GPU. Two hosts that show the same GPU are the same machine.

    A GPU without a UUID is INCONCLUSIVE, because nothing else identifies it.
    """
    owners: dict[str, str] = {}
    wrong, nameless = [], []
    for name, host in sorted(hosts.items()):
        buses: set[str] = set()
        for gpu in host.gpus:
            if gpu.bus_id.lower() in buses:
                wrong.append(f"{name} shows two GPUs at {gpu.bus_id}")
            buses.add(gpu.bus_id.lower())
            if not gpu.bus_id or not re.fullmatch(r"GPU-[0-9A-Za-z-]+", gpu.uuid):
                nameless.append(f"{name} {gpu.bus_id}: its UUID is {gpu.uuid!r}")
                continue
            if gpu.uuid in owners:
                other = owners[gpu.uuid]
                named = f"{name} and {other} show" if other != name else f"{name} shows twice"
                wrong.append(f"{named} the same GPU {gpu.uuid}")
            owners[gpu.uuid] = name
    judgements = [Judgement(Verdict.FAIL, "; ".join(wrong[:2]))] if wrong else []
    if nameless:
        judgements.append(Judgement(Verdict.INCONCLUSIVE, some(nameless)))
    return judgements or [Judgement(Verdict.PASS)]


def judge_named(hosts: Mapping[str, HostGpus]) -> Judgement:
    """Return INCONCLUSIVE if a host has no driver version, or a GPU no product or vBIOS: equality compares them."""
    silent = [
        f"{name}: nothing says its driver"
        for name, host in sorted(hosts.items())
        if not host.driver or host.driver in SILENT
    ]
    silent += [
        f"{place}: nothing says its {what}"
        for place, gpu in all_gpus(hosts)
        for what, text in (("product", gpu.model), ("vBIOS", gpu.vbios))
        if not text or text in SILENT
    ]
    return Judgement(Verdict.INCONCLUSIVE, some(silent)) if silent else Judgement(Verdict.PASS)
