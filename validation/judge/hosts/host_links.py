"""The links of hosts: NVLinks and how they join the GPUs, the fabric manager, errors that were counted, full frames."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import NO_HOST, System, of_faults, some
from validation.judge.hosts.host_layer import DeclaredHost, hosts_with_systems, system_of
from validation.judge.verdict import Verdict

SWITCHED: Final = "nvswitch"
"""The fabric that needs a fabric manager."""


def judge_nvlinks(
    hosts: Mapping[str, Mapping[int, Mapping[int, bool]]],
    declared: Sequence[DeclaredHost],
    systems: Sequence[System],
) -> Judgement:
    """Whether every GPU of every host has all the links of its model, and all are active."""
    if not hosts:
        return NO_HOST
    wrong: list[str] = []
    known, unknown = hosts_with_systems(hosts, declared, systems)
    for host, system in known:
        gpus = hosts[host.name]
        if len(gpus) != system.gpus:
            wrong.append(f"{host.name} shows the links of {len(gpus)} of {system.gpus} GPUs")
        for gpu, links in sorted(gpus.items()):
            active = sum(links.values())
            dead = [str(link) for link, is_active in sorted(links.items()) if not is_active]
            if active != system.nvlinks or dead:
                which = f": {', '.join(dead)} not active" if dead else ""
                wrong.append(f"{host.name} GPU {gpu} has {active} of {system.nvlinks} NVLinks{which}")
    if wrong:
        return of_faults(wrong)
    if unknown:
        return Judgement(Verdict.INCONCLUSIVE, f"no figure says how many NVLinks it has: {some(unknown)}")
    return Judgement(Verdict.PASS)


def judge_topology(
    hosts: Mapping[str, Mapping[str, Sequence[str]]], declared: Sequence[DeclaredHost], golden: str
) -> Judgement:
    """Whether the GPUs are joined as on the golden host or, without one, as on most hosts of the same model."""
    if not hosts:
        return NO_HOST
    models = {host.name: host.model for host in declared}
    texts = {
        name: "; ".join(f"{gpu} {' '.join(cells)}" for gpu, cells in sorted(rows.items()))
        for name, rows in hosts.items()
    }
    wrong = []
    for name, text in sorted(texts.items()):
        peers = [texts[other] for other in sorted(texts) if models.get(other) == models.get(name)]
        is_golden = bool(golden) and models.get(golden) == models.get(name) and golden in texts
        usual = texts[golden] if is_golden else Counter(peers).most_common(1)[0][0]
        if text != usual:
            differing = [
                gpu for gpu, cells in sorted(hosts[name].items()) if f"{gpu} {' '.join(cells)}" not in usual
            ]
            than = golden if is_golden else "on the other hosts"
            wrong.append(f"{name}: {', '.join(differing) or 'the GPUs'} joined otherwise than {than}")
    return of_faults(wrong)


def judge_fabric(
    states: Mapping[str, str], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> Judgement:
    """Whether the fabric manager runs on every host whose GPUs are joined by switches."""
    of_model = {host.name: system_of(host, systems) for host in declared}
    switched = [name for name, system in of_model.items() if system is not None and system.fabric == SWITCHED]
    if not switched:
        reason = "no subject, so it counts for nothing: no host whose GPUs are joined by switches"
        return Judgement(Verdict.INCONCLUSIVE, reason, required=False)
    return of_faults(
        [
            f"the fabric manager of {name} is {states[name]}"
            for name in switched
            if name in states and states[name] != "active"
        ]
    )


def judge_counters(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> Judgement:
    """Whether no link counted anything between two readings, and none went away."""
    if not after:
        return NO_HOST
    wrong = []
    for name, counters in sorted(after.items()):
        if name not in before:
            return Judgement(Verdict.ERROR, f"the counters of {name} were read once")
        for counter, value in sorted(before[name].items()):
            if counter not in counters:
                wrong.append(f"{name} {counter.partition(' ')[0]} went away")
            elif counters[counter] != value:
                wrong.append(f"{name} {counter}: {counters[counter] - value:+d}")
    return of_faults(list(dict.fromkeys(wrong)))


def judge_frames(
    hosts: Mapping[str, Mapping[str, tuple[int, int]]],
    servers: Sequence[str],
    mtu: int,
    other_vlans: Sequence[str],
) -> Judgement:
    """Whether every host got an answer of each server to each frame of the full size that must not be divided.

    Of VLANs without storage the site file has no address that could answer, so where there are some, nothing is proven.
    """
    if not hosts and servers and mtu:
        return NO_HOST
    if not servers or not mtu:
        return Judgement(
            Verdict.INCONCLUSIVE, "the site file has no network.mtu, or no storage.ontap.data_lifs"
        )
    wrong = []
    for name, pings in sorted(hosts.items()):
        for server in servers:
            sent, received = pings.get(server, (0, 0))
            if not sent or received < sent:
                wrong.append(f"{name}: {received} of {sent} frames of {mtu} bytes came back from {server}")
    if not wrong and other_vlans:
        return Judgement(Verdict.INCONCLUSIVE, f"no frame was sent on the VLANs {', '.join(other_vlans)}")
    return of_faults(wrong)
