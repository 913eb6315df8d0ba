"""The storage as the hosts have it: mounts, bytes that one host wrote and another reads; and the load on all GPUs."""

from collections.abc import Mapping, Sequence
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import NO_HOST, BurnIn, Mount, of_faults
from validation.judge.verdict import Verdict

SPREAD_PERCENT: Final = 5
"""By how much the rates of hosts under the same load may differ (DeepOps, HPLTHRESH 1.05)."""
_ALIASES: Final = {"nfsvers": "vers", "intr": "", "nointr": ""}
"""Options that `mount` takes by another name than it shows, or does nothing with."""
_NO_MOUNT: Final = Judgement(Verdict.INCONCLUSIVE, "no mount was declared: --mount DIRECTORY")


def judge_mounts(
    hosts: Mapping[str, Mapping[str, Mount]],
    mounts: Sequence[str],
    options: Sequence[str],
    servers: Sequence[str],
) -> Judgement:
    """Whether each declared directory is an NFS mount on each host, from a server of the site, with its options."""
    if not mounts:
        return _NO_MOUNT
    if not hosts:
        return NO_HOST
    wrong = []
    for name, of_host in sorted(hosts.items()):
        for directory in mounts:
            mount = of_host.get(directory)
            if mount is None:
                wrong.append(f"{name}: {directory} is no NFS mount")
                continue
            server = mount.source.rpartition(":/")[0].strip("[]")
            if servers and server not in servers:
                wrong.append(f"{name}: {directory} comes from {server}, none of {', '.join(servers)}")
            missing = [option for option in options if not _has(mount.options, option)]
            if missing:
                wrong.append(f"{name}: {directory} is mounted without {', '.join(missing)}")
    return of_faults(wrong)


def judge_written(
    written: Mapping[str, Mapping[str, Sequence[str]]],
    read: Mapping[str, Mapping[str, Sequence[str]]],
    mounts: Sequence[str],
) -> Judgement:
    """Whether every host wrote into every mount, and every host read there what each of them had written."""
    if not mounts:
        return _NO_MOUNT
    if not written or not read:
        return NO_HOST
    wrong = [
        f"{name} did not write into {directory}"
        for name, of_host in sorted(written.items())
        for directory in mounts
        if len(of_host.get(directory, ())) != 1
    ]
    for directory in mounts:
        writers = {host: name for name, of_host in written.items() for host in of_host.get(directory, ())}
        if len(writers) != len(written) and not wrong:
            wrong.append(f"{directory}: two hosts call themselves by the same name")
        for name, of_host in sorted(read.items()):
            wrong += [
                f"{name} does not read in {directory} what {writer} wrote"
                for host, writer in sorted(writers.items())
                if host not in of_host.get(directory, ())
            ]
    return of_faults(wrong)


def judge_burn_in(hosts: Mapping[str, BurnIn], gpus: Mapping[str, int]) -> Judgement:
    """Whether no GPU calculated anything wrong, all GPUs were loaded, and the hosts were equally fast."""
    if not hosts:
        return NO_HOST
    wrong = [
        f"{name} GPU {gpu} calculated wrong results"
        for name, burn in sorted(hosts.items())
        for gpu in burn.faulty
    ]
    wrong += [
        f"{name}: {burn.gpus} of {gpus[name]} GPUs were loaded"
        for name, burn in sorted(hosts.items())
        if gpus.get(name) and burn.gpus != gpus[name]
    ]
    rates = {name: sum(burn.gflops) for name, burn in hosts.items()}
    if wrong or not rates:
        return of_faults(wrong)
    slowest, fastest = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
    if not rates[slowest]:
        return Judgement(Verdict.ERROR, f"{slowest} did not say how fast it was")
    if (rates[fastest] - rates[slowest]) * 100 > rates[fastest] * SPREAD_PERCENT:
        wrong.append(
            f"{slowest} reached {rates[slowest]} Gflop/s, {fastest} {rates[fastest]}: over {SPREAD_PERCENT} % apart"
        )
        return of_faults(wrong)
    return Judgement(Verdict.PASS, f"{rates[slowest]} to {rates[fastest]} Gflop/s on a host")


def _has(options: Sequence[str], option: str) -> bool:
    name, equals, value = option.partition("=")
    plain = f"{_ALIASES.get(name, name)}{equals}{value}"
    return plain.lstrip("=") == "" or plain in options or (plain == "vers=4" and "vers=4.0" in options)
