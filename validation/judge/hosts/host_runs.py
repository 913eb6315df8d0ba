"""How tools ran on hosts: for how long, and between which boots; and whether the GPUs are those of the site file."""

from collections.abc import Mapping, Sequence
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import HostGpus, System, of_faults, some
from validation.judge.hosts.host_layer import DeclaredHost, hosts_with_systems
from validation.judge.verdict import Verdict

MEASURED_FIO_GRACE_MS: Final = 1000
"""So much less than it was to run fio may count, as it rounds."""


def judge_boots(boots: Mapping[str, Sequence[str]], *, is_needed: bool) -> list[Judgement]:
    """Whether no host was booted anew between two readings: what it had counted and logged is gone then.

    `boots` has the boot id of each reading. Where it `is_needed` a reading without one is INCONCLUSIVE.
    """
    anew = [name for name, ids in sorted(boots.items()) if len(set(ids) - {""}) > 1]
    if anew:
        return [Judgement(Verdict.FAIL, f"booted anew between two readings: {some(anew)}")]
    unknown = [name for name, ids in sorted(boots.items()) if not all(ids)]
    if is_needed and unknown:
        return [Judgement(Verdict.INCONCLUSIVE, f"nothing says since when it is up: {some(unknown)}")]
    return []


def judge_duration(ran_ms: Mapping[str, int], what: str, *, least_ms: int) -> list[Judgement]:
    """FAIL if a load ended before its time on a host, whatever it says of its end."""
    early = [
        f"{name}: {what} ended after {ran // 1000} of {least_ms // 1000} s"
        for name, ran in sorted(ran_ms.items())
        if ran < least_ms
    ]
    return [Judgement(Verdict.FAIL, some(early))] if early else []


def judge_models(
    hosts: Mapping[str, HostGpus], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> Judgement:
    """Whether every GPU is of the model that a host of this model has, as the site file declares it."""
    wrong: list[str] = []
    known, unknown = hosts_with_systems(hosts, declared, systems)
    for host, system in known:
        others = [gpu.model for gpu in hosts[host.name].gpus if system.gpu not in gpu.model]
        if others:
            wrong.append(
                f"{host.name}: {len(others)} of its GPUs are {others[0]}, a {host.model} has {system.gpu}"
            )
    if not wrong and unknown:
        return Judgement(Verdict.INCONCLUSIVE, f"no figure says which GPUs it has: {some(unknown)}")
    return of_faults(wrong)
