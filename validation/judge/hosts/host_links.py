"""Judges the links of hosts: NVLinks and their topology, the fabric manager, error counters, frames of the full
size.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from hostfacts.findings import change_of_counter, counter_changes
from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import (
    NO_HOST,
    HostGpus,
    Interface,
    NvLinks,
    System,
    Topology,
    all_gpus,
    of_faults,
    some,
)
from validation.judge.hosts.host_layer import DeclaredHost, hosts_with_systems, system_of
from validation.judge.verdict import Verdict

SWITCHED: Final = "nvswitch"
"""The fabric that needs a fabric manager."""


def judge_nvlinks(
    hosts: Mapping[str, NvLinks], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> Judgement:
    """Judge whether every GPU of every host has all the links of its model, each at its rate."""
    if not hosts:
        return NO_HOST
    wrong: list[str] = []
    known, unknown = hosts_with_systems(hosts, declared, systems)
    for host, system in known:
        gpus = hosts[host.name].mbytes_per_second
        if len(gpus) != system.gpus:
            wrong.append(f"{host.name} shows the links of {len(gpus)} of {system.gpus} GPUs")
        for gpu, links in sorted(gpus.items()):
            active = sum(rate > 0 for rate in links.values())
            dead = [str(link) for link, rate in sorted(links.items()) if not rate]
            if active != system.nvlinks or dead:
                which = f": {', '.join(dead)} not active" if dead else ""
                finding = f"{host.name} GPU {gpu} has {active} of {system.nvlinks} NVLinks{which}"
                wrong.append(needs(finding, Repair.RESET))
            wrong += [
                needs(
                    f"{host.name} GPU {gpu} link {link} at {rate} of {system.nvlink_mbytes_per_second} MB/s",
                    Repair.RESET,
                )
                for link, rate in sorted(links.items())
                if 0 < rate * 100 < system.nvlink_mbytes_per_second * RATE_PERCENT
            ]
    unread = [f"{name}: {line[:100]}" for name, links in sorted(hosts.items()) for line in links.unknown]
    if wrong:
        return of_faults([*wrong, *unread])
    if unread:
        return Judgement(
            Verdict.INCONCLUSIVE, f"muster does not know these words about NVLinks: {some(unread)}"
        )
    if unknown:
        return Judgement(Verdict.INCONCLUSIVE, f"no figure says how many NVLinks it has: {some(unknown)}")
    return Judgement(Verdict.PASS)


def judge_link_errors(
    hosts: Mapping[str, Mapping[str, str]], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> list[Judgement]:
    """Return FAIL if an NVLink had an error or its recovery failed; INCONCLUSIVE for counters that muster does not
    know.

    A host with counters of fewer links than its model has is INCONCLUSIVE, too.
    """
    if not hosts:
        return [NO_HOST]
    wrong, unknown = [], []
    for name, counts in sorted(hosts.items()):
        for finding, text in counts.items():
            counter = re.sub(r"^GPU \d+ Link \d+ ", "", finding)
            if counter in _NOT_COUNTED or text in {"0", "N/A"}:
                continue
            if counter in _LINK_ERRORS and text.isdecimal():
                wrong.append(needs(f"{name} {finding}: {text}", Repair.RESET))
            else:
                unknown.append(f"{name} {finding}: {text[:60]}")
    judgements = [of_faults(wrong)]
    if unknown:
        judgements.append(
            Judgement(Verdict.INCONCLUSIVE, f"muster does not know this of NVLinks: {some(unknown)}")
        )
    silent = []
    for host, system in hosts_with_systems(hosts, declared, systems)[0]:
        matches = (re.match(r"GPU \d+ Link \d+ ", finding) for finding in hosts[host.name])
        links = len({match[0] for match in matches if match is not None})
        if links < system.gpus * system.nvlinks:
            silent.append(f"{host.name} counts errors of {links} of {system.gpus * system.nvlinks} NVLinks")
    return [*judgements, Judgement(Verdict.INCONCLUSIVE, some(silent))] if silent else judgements


def judge_topology(
    hosts: Mapping[str, Topology],
    declared: Sequence[DeclaredHost],
    golden: str,
    systems: Sequence[System] = (),
) -> Judgement:
    """Judge whether GPUs and adapters are connected as on the golden host or, without one, as on most hosts of the
    model.

    If the figures of the model have adapters, each GPU must have an adapter behind its own PCIe switch. If its GPUs are
    connected by switches, each two GPUs must be connected by all their links.
    """
    if not hosts:
        return NO_HOST
    models = {host.name: host.model for host in declared}
    of_model = {host.name: system_of(host, systems) for host in declared}
    texts = {name: (tuple(one.columns), *map(tuple, one.rows.values())) for name, one in hosts.items()}
    wrong: list[str] = []
    for name, one in sorted(hosts.items()):
        system = of_model.get(name)
        if system is not None and system.adapters:
            wrong += _far_adapters(name, one, system)
        if system is not None and system.fabric == SWITCHED:
            wrong += _far_gpus(name, one, system)
        peers = [texts[other] for other in sorted(texts) if models.get(other) == models.get(name)]
        is_golden = bool(golden) and models.get(golden) == models.get(name) and golden in texts
        usual = texts[golden] if is_golden else Counter(peers).most_common(1)[0][0]
        if texts[name] != usual:
            differing = [gpu for gpu, cells in one.rows.items() if tuple(cells) not in usual]
            than = golden if is_golden else "on the other hosts"
            finding = f"{name}: {', '.join(differing) or 'the GPUs'} joined otherwise than {than}"
            wrong.append(needs(finding, Repair.REPLACE_HOST_PART))
    return of_faults(wrong)


def _far_adapters(name: str, topology: Topology, system: System) -> list[str]:
    """Return the findings about missing adapters: too few on the host, or GPUs without an adapter behind their PCIe
    switch.
    """
    adapters = [index for index, column in enumerate(topology.columns) if not column.startswith("GPU")]
    if len(adapters) < system.adapters:
        finding = f"{name} shows {len(adapters)} of {system.adapters} adapters"
        return [needs(finding, Repair.REPLACE_HOST_PART)]
    far = [
        gpu for gpu, cells in topology.rows.items() if not any(cells[column] in _NEAR for column in adapters)
    ]
    return [needs(f"{name}: no adapter near {', '.join(far)}", Repair.REPLACE_HOST_PART)] if far else []


def _far_gpus(name: str, topology: Topology, system: System) -> list[str]:
    """Return the findings about GPUs that are absent, or not connected with all others by all their NVLinks."""
    if len(topology.rows) != system.gpus:
        return [needs(f"{name} connects {len(topology.rows)} of {system.gpus} GPUs", Repair.RESET)]
    joined = {"X", f"NV{system.nvlinks}"}
    gpus = [index for index, column in enumerate(topology.columns) if column.startswith("GPU")]
    far = {gpu: sorted({cells[i] for i in gpus} - joined) for gpu, cells in topology.rows.items()}
    return [
        needs(f"{name}: {gpu} is joined by {', '.join(words)}, not NV{system.nvlinks}", Repair.RESET)
        for gpu, words in far.items()
        if words
    ]


_NEAR: Final = frozenset({"PIX", "PXB"})
"""Cells for a GPU and an adapter between which there are at most PCIe switches."""
RATE_PERCENT: Final = 98
"""Minimum rate of an NVLink in percent of the figure, because tools round it."""
_LINK_ERRORS: Final = frozenset(
    {
        "Replay Errors", "Recovery Errors", "CRC Errors", "CRC FLIT Error", "CRC Data Error", "CRC FLIT Errors",
        "CRC Data Errors", "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors",
        "Rx General Errors", "Local link integrity Errors", "Tx discards", "Link recovery failed events",
    }
)  # fmt: skip
_NOT_COUNTED: Final = frozenset(
    {"Symbol Errors", "Symbol BER", "Effective BER", "Tx packets", "Tx bytes", "Rx packets", "Rx bytes"}
    | {"Total link recovery events", "Raw BER"}
)
"""Counters that are not faults: corrected errors, packets and bytes."""


def judge_fabric(
    states: Mapping[str, str], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> Judgement:
    """Judge whether the fabric manager runs on every host whose GPUs are connected by switches."""
    of_model = {host.name: system_of(host, systems) for host in declared}
    switched = [name for name, system in of_model.items() if system is not None and system.fabric == SWITCHED]
    if not switched:
        reason = "no subject, so it counts for nothing: no host whose GPUs are joined by switches"
        return Judgement(Verdict.INCONCLUSIVE, reason, required=False)
    return of_faults(
        [
            needs(f"the fabric manager of {name} is {states[name]}", Repair.FABRIC)
            for name in switched
            if name in states and states[name] != "active"
        ]
    )


def judge_fabric_states(
    hosts: Mapping[str, HostGpus], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> Judgement:
    """Return INCONCLUSIVE if a GPU on switches does not report its fabric state.

    GPUs before Hopper cannot report it.
    """
    of_model = {host.name: system_of(host, systems) for host in declared}
    silent = [
        place
        for place, gpu in all_gpus(hosts)
        if (system := of_model.get(place.split(" ")[0])) is not None
        and system.fabric == SWITCHED
        and system.pcie_generation >= FIRST_WITH_STATE
        and {gpu.text("fabric/state"), gpu.text("fabric/status")} & {"", "N/A"}
    ]
    if silent:
        return Judgement(
            Verdict.INCONCLUSIVE, f"nothing says whether it is joined with the others: {some(silent)}"
        )
    return Judgement(Verdict.PASS)


FIRST_WITH_STATE: Final = 5
"""GPUs of this PCIe generation and later ones report the state of their fabric."""


def judge_counted(hosts: Mapping[str, Mapping[str, int | None]], models: Mapping[str, str]) -> Judgement:
    """Return INCONCLUSIVE if a link lacks a counter that another link of its kind has, or a host lacks a link of its
    model.

    The kind of a link is its adapter's, such as mlx5. All interfaces of the kernel are of one kind.
    """
    kinds: dict[str, set[str]] = {}
    links: dict[str, set[str]] = {}
    for name, counters in hosts.items():
        for counter in counters:
            link, _, field = counter.partition(" ")
            kinds.setdefault(_kind_of(link), set()).add(field)
            if "/" in link:
                links.setdefault(models.get(name, ""), set()).add(link)
    missing = []
    for name, counters in sorted(hosts.items()):
        own = {counter.partition(" ")[0] for counter in counters}
        missing += [f"{name} has no {link}" for link in sorted(links.get(models.get(name, ""), set()) - own)]
        missing += [
            f"{name} {link} has no {field}"
            for link in sorted(own)
            for field in sorted(kinds[_kind_of(link)])
            if f"{link} {field}" not in counters
        ]
    if missing:
        return Judgement(Verdict.INCONCLUSIVE, f"counters that others have: {some(missing)}")
    return Judgement(Verdict.PASS)


def judge_full(counters: Mapping[str, Mapping[str, int | None]]) -> Judgement:
    """Return INCONCLUSIVE for a counter of an RDMA port at its highest value, because it cannot count any more."""
    full = [
        f"{name} {counter} is {value}"
        for name, of_host in sorted(counters.items())
        for counter, value in sorted(of_host.items())
        if "/" in counter and value == _HIGHEST.get(counter.partition(" ")[2])
    ]
    if full:
        return Judgement(Verdict.INCONCLUSIVE, f"at its highest value, so it counts no more: {some(full)}")
    return Judgement(Verdict.PASS)


_HIGHEST: Final = {
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "port_xmit_discards": 65535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
}
"""The highest values of counters of ports: they have 4, 8 or 16 bits (Linux, PORT_PMA_ATTR)."""


def _kind_of(link: str) -> str:
    return re.sub(r"_?\d.*", "", link) if "/" in link else ""


def judge_counters(
    before: Mapping[str, Mapping[str, int | None]], after: Mapping[str, Mapping[str, int | None]]
) -> Judgement:
    """Judge whether no counter of a link changed between two readings, and no link disappeared.

    A counter that the adapter does not have is INCONCLUSIVE.
    """
    if not after:
        return NO_HOST
    wrong, unread = [], []
    for name, counters in sorted(after.items()):
        if name not in before:
            return Judgement(Verdict.ERROR, f"the counters of {name} were read once")
        changes = counter_changes(before[name], counters)
        wrong += [f"{name} {link} went away" for link in changes.missing]
        wrong += [
            f"{name} {change_of_counter(counter, change)}" for counter, change in changes.changed.items()
        ]
        unread += [f"{name} {counter}" for counter in changes.unread]
    if unread and not wrong:
        return Judgement(Verdict.INCONCLUSIVE, f"the adapter does not count this: {some(unread)}")
    return of_faults(wrong)


def judge_addresses(hosts: Mapping[str, Mapping[str, Interface]], networks: Sequence[str]) -> list[Judgement]:
    """Return FAIL if two hosts have the same address in one of the networks: each loses frames of the other."""
    around = [ip_network(network, strict=False) for network in networks]
    owners: dict[str, str] = {}
    wrong = []
    for name, interfaces in sorted(hosts.items()):
        own = {
            address: f"{name} {interface}"
            for interface, face in sorted(interfaces.items())
            for address in face.addresses
            if any(ip_address(address) in network for network in around)
        }
        for address, place in own.items():
            other = owners.setdefault(address, place)
            if other != place:
                finding = f"{other} and {place} have the same address {address}"
                wrong.append(needs(finding, Repair.SETTING))
    return [of_faults(wrong)] if wrong else []


FRAMES: Final = 3
"""The number of frames that each host sends to each server."""


def judge_frames(
    hosts: Mapping[str, Mapping[str, tuple[int, int]]],
    servers: Sequence[str],
    mtu: int,
    other_vlans: Sequence[str],
) -> Judgement:
    """Judge whether each server answered every host's frames of the full size, which must not be fragmented.

    In VLANs without storage, the site file has no address that could answer. If there are such VLANs, the verdict is
    INCONCLUSIVE.
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
            if sent < FRAMES or received < sent:
                wrong.append(f"{name}: {received} of {sent} frames of {mtu} bytes came back from {server}")
    if not wrong and other_vlans:
        return Judgement(Verdict.INCONCLUSIVE, f"no frame was sent on the VLANs {', '.join(other_vlans)}")
    return of_faults(wrong)
