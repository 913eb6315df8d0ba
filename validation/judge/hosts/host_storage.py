"""Judges the storage of hosts: mounts, and files that one host wrote and another reads.

It also judges the load on all GPUs (`judge_burn_in`).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_compare import below_median
from validation.judge.hosts.host_facts import NO_HOST, BurnIn, Mount, Threshold, find_threshold, of_faults
from validation.judge.verdict import Verdict

SPREAD_PERCENT: Final = 5
"""Maximum percentage by which a host may be below the median of its model under the same load (DeepOps, HPLTHRESH
1.05).
"""
GPU_SPREAD_PERCENT: Final = 10
"""Maximum percentage for one GPU: rates of single healthy GPUs differ more than the sums of hosts."""
_ALIASES: Final = {"nfsvers": "vers", "intr": "", "nointr": ""}
"""Options that `mount` shows under another name than it accepts, or ignores."""
SOFT: Final = ("soft", "softerr")
"""Options with which NFS gives up a request after some time."""
_NO_MOUNT: Final = Judgement(Verdict.INCONCLUSIVE, "no mount was declared: --mount DIRECTORY")


def judge_mounts(
    hosts: Mapping[str, Mapping[str, Mount]],
    mounts: Sequence[str],
    options: Sequence[str],
    servers: Sequence[str],
) -> Judgement:
    """Judge whether each declared directory is an NFS mount on each host, from a server of the site, with the given
    options. It must be neither read-only nor soft.
    """
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
            if "ro" in mount.options and "ro" not in options:
                wrong.append(f"{name}: {directory} is read-only")
            wrong += [
                f"{name}: {directory} is mounted {option}, so a slow server can corrupt data (nfs(5))"
                for option in SOFT
                if option in mount.options and option not in options
            ]
            missing = [option for option in options if not _has(mount.options, option)]
            if missing:
                wrong.append(f"{name}: {directory} is mounted without {', '.join(missing)}")
    return of_faults(wrong)


def judge_written(
    written: Mapping[str, Mapping[str, Sequence[str]]],
    read: Mapping[str, Mapping[str, Sequence[str]]],
    mounts: Sequence[str],
) -> Judgement:
    """Judge whether every host wrote a file into every mount, and read there the files of all hosts."""
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
                f"{name} does not read the file of {writer} in {directory}"
                for host, writer in sorted(writers.items())
                if host not in of_host.get(directory, ())
            ]
    return of_faults(wrong)


def judge_burn_in(
    hosts: Mapping[str, BurnIn],
    gpus: Mapping[str, int],
    cards: Mapping[str, str] = {},
    thresholds: Sequence[Threshold] = (),
) -> Judgement:
    """Judge whether no GPU had wrong results, all GPUs were loaded, and each was as fast as the others of its model.

    `cards` has the product of the GPUs of each host. The threshold of a product is for one GPU. Hosts without a product
    are compared with each other.
    """
    if not hosts:
        return NO_HOST
    wrong = _burnt(hosts, gpus)
    if wrong:
        return of_faults(wrong)
    silent = [
        name for name, burn in sorted(hosts.items()) if len(burn.gflops) != burn.gpus or not all(burn.gflops)
    ]
    if silent:
        return Judgement(Verdict.ERROR, f"{silent[0]} did not say how fast each GPU was")
    each = {(name, gpu): rate for name, burn in hosts.items() for gpu, rate in enumerate(burn.gflops)}
    kinds = {key: cards.get(key[0], "") for key in each}
    for key, rate, usual in below_median(each, 100 - GPU_SPREAD_PERCENT, kinds):
        finding = f"{key[0]} GPU {key[1]} reached {rate} Gflop/s, the median is {usual}"
        wrong.append(needs(finding, Repair.COOLING))
    sums = {name: sum(burn.gflops) for name, burn in hosts.items()}
    for name, rate, usual in below_median(sums, 100 - SPREAD_PERCENT, cards):
        wrong.append(
            needs(
                f"{name} reached {rate} Gflop/s, over {SPREAD_PERCENT} % below the median {usual}",
                Repair.COOLING,
            )
        )
    for name, burn in sorted(hosts.items()):
        least = find_threshold(thresholds, "burn-in", [cards.get(name, "")], "any")
        low = [gpu for gpu, rate in enumerate(burn.gflops) if least is not None and rate < least.at_least]
        if low and least is not None:
            slowest = f"GPU {low[0]} at {burn.gflops[low[0]]}"
            finding = f"{name}: {len(low)} GPUs below {least.at_least:g} Gflop/s by {least.source}: {slowest}"
            wrong.append(needs(finding, Repair.COOLING))
    if wrong:
        return of_faults(wrong)
    return Judgement(Verdict.PASS, f"{min(sums.values())} to {max(sums.values())} Gflop/s on a host")


def _burnt(hosts: Mapping[str, BurnIn], gpus: Mapping[str, int]) -> list[str]:
    wrong = [
        needs(f"{name} GPU {gpu} calculated wrong results", Repair.REPLACE)
        for name, burn in sorted(hosts.items())
        for gpu in burn.faulty
    ]
    wrong += [
        needs(f"{name}: gpu_burn says {', '.join(burn.warnings)}", Repair.REPLACE)
        for name, burn in sorted(hosts.items())
        if burn.warnings
    ]
    return wrong + [
        f"{name}: {burn.gpus} of {gpus[name]} GPUs were loaded"
        for name, burn in sorted(hosts.items())
        if gpus.get(name) and burn.gpus != gpus[name]
    ]


def _has(options: Sequence[str], option: str) -> bool:
    name, equals, value = option.partition("=")
    plain = f"{_ALIASES.get(name, name)}{equals}{value}"
    return plain.lstrip("=") == "" or plain in options or (plain == "vers=4" and "vers=4.0" in options)
