"""Judges the adapters of hosts: RDMA ports and interfaces rail by rail, modules and bridges for GPUDirect RDMA."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import NO_HOST, Ethernet, Port, System, of_faults, some
from validation.judge.hosts.host_layer import DeclaredHost, hosts_with_systems
from validation.judge.verdict import Verdict


def judge_rails(
    hosts: Mapping[str, Sequence[Port]], declared: Sequence[DeclaredHost], systems: Sequence[System]
) -> list[Judgement]:
    """Judge whether each host has the RDMA ports of its model, up and at their rate, and whether the ports of all hosts
    are equal.

    A port that is down on most hosts of the model is not in use.
    """
    if not hosts:
        return [NO_HOST]
    wrong: list[str] = []
    known, unknown = hosts_with_systems(hosts, declared, systems)
    for host, system in known:
        ports = hosts[host.name]
        fast = [port for port in ports if _is_up(port) and port.rate_gbits >= system.adapter_gbits]
        if len(fast) < system.adapters:
            slow = [f"{p.adapter}/{p.port} {p.state} at {p.rate_gbits:g}" for p in ports if p not in fast]
            finding = f"{host.name} has {len(fast)} of {system.adapters} ports at {system.adapter_gbits} Gb/s"
            wrong.append(needs(f"{finding}{': ' if slow else ''}{', '.join(slow)}", Repair.RESEAT))
    models = {host.name: host.model for host in declared}
    facts = {
        name: {f"{port.adapter}/{port.port}": _rail(port) for port in ports} for name, ports in hosts.items()
    }
    wrong += [needs(finding, Repair.RESEAT) for finding in _unlike(facts, models)]
    judgements = [of_faults(list(dict.fromkeys(wrong)))]
    lone = [f"{host.name}, a {host.model}" for host, system in known if not system.adapters]
    unknown = [*unknown, *lone]
    odd = [
        f"{name} {port.adapter}/{port.port} is {port.state}, {port.physical_state}"
        for name, ports in sorted(hosts.items())
        for port in ports
        if not _is_up(port) and port.state != "Down"
    ]
    unread = [
        f"{name} {port.adapter}/{port.port}: {line[:100]}"
        for name, ports in sorted(hosts.items())
        for port in ports
        for line in port.unknown
    ]
    counts = Counter((name, port.adapter, port.port) for name, ports in hosts.items() for port in ports)
    unread += [
        f"{name} {adapter}/{port} is there {count} times"
        for (name, adapter, port), count in sorted(counts.items())
        if count > 1
    ]
    if unread:
        judgements.append(Judgement(Verdict.INCONCLUSIVE, f"muster does not know this: {some(unread)}"))
    if odd:
        judgements.append(Judgement(Verdict.INCONCLUSIVE, f"neither up nor down: {some(odd)}"))
    if unknown:
        judgements.append(
            Judgement(Verdict.INCONCLUSIVE, f"no figure says how many adapters it has: {some(unknown)}")
        )
    return judgements


def _is_up(port: Port) -> bool:
    return (port.state, port.physical_state) == ("Active", "LinkUp")


def _rail(port: Port) -> tuple[str, ...]:
    return (port.state, port.physical_state, f"{port.rate_gbits:g} Gb/s", port.link_layer, port.firmware)


def judge_interfaces(hosts: Mapping[str, Sequence[Ethernet]], models: Mapping[str, str]) -> list[Judgement]:
    """Judge whether each interface has the same link state and speed as on the other hosts, and as the other ports of
    its adapter.
    """
    if not hosts:
        return [NO_HOST]
    facts = {
        name: {
            face.name: (f"{face.speed_mbits} Mb/s", f"link {face.has_link}", face.duplex) for face in faces
        }
        for name, faces in hosts.items()
    }
    wrong = [needs(finding, Repair.RESEAT) for finding in _unlike(facts, models)]
    wrong += [
        needs(f"{name} {face.name} runs at half duplex", Repair.RESEAT)
        for name, faces in sorted(hosts.items())
        for face in faces
        if face.has_link and face.duplex == "Half"
    ]
    unsure: list[str] = []
    for name, faces in sorted(hosts.items()):
        up = [face for face in faces if face.has_link is not False]
        unsure += [
            f"{name} {face.name}: speed {face.speed_mbits}, link {face.has_link}, duplex {face.duplex or None}"
            for face in up
            if face.speed_mbits is None or face.has_link is None or face.duplex not in _DUPLEX
        ]
        unsure += [
            f"{name} {face.name} runs at {face.speed_mbits} of {face.supported_mbits} Mb/s"
            for face in up
            if face.speed_mbits is not None
            and face.supported_mbits >= FAST_MBITS
            and face.speed_mbits < face.supported_mbits
        ]
        speeds: dict[str, set[int]] = {}
        for face in up:
            if face.speed_mbits is not None:
                speeds.setdefault(_adapter_of(face.name), set()).add(face.speed_mbits)
        unsure += [
            f"{name}: the ports of {adapter} run at {' and '.join(map(str, sorted(of_adapter)))} Mb/s"
            for adapter, of_adapter in sorted(speeds.items())
            if len(of_adapter) > 1
        ]
    judgements = [of_faults(wrong)]
    if unsure:
        judgements.append(Judgement(Verdict.INCONCLUSIVE, some(unsure)))
    return judgements


_DUPLEX: Final = frozenset({"Full", "Half"})
FAST_MBITS: Final = 100_000
"""An interface that supports at least this speed belongs to storage or GPUs, and should run at its highest speed."""


def _adapter_of(interface: str) -> str:
    """Return the name of an interface without its port: ens1f0np0 and ens1f1np1 belong to one adapter.

    Example: `_adapter_of("ens1f0np0")` returns `'ens1'`.
    """
    return re.sub(r"(?:f\d+)?(?:np\d+)?$", "", interface)


def _unlike(hosts: Mapping[str, Mapping[str, tuple[str, ...]]], models: Mapping[str, str]) -> list[str]:
    """Return the ports that differ between hosts of a model: the ports of the minority, or of all hosts if there is no
    majority.
    """
    wrong = []
    for model in sorted({models.get(name, "") for name in hosts}):
        peers = {name: ports for name, ports in hosts.items() if models.get(name, "") == model}
        for port in sorted({port for ports in peers.values() for port in ports}):
            values = {name: ports.get(port, ("absent",)) for name, ports in sorted(peers.items())}
            (usual, count), *others = Counter(values.values()).most_common()
            if others and others[0][1] == count:
                each = "; ".join(f"{name} {', '.join(value)}" for name, value in values.items())
                wrong.append(f"{port} differs: {each}")
                continue
            wrong += [
                f"{name} {port} is {', '.join(value)}, not {', '.join(usual)}"
                for name, value in values.items()
                if value != usual
            ]
    return wrong


def judge_access_control(hosts: Mapping[str, Mapping[str, Sequence[str]]]) -> Judgement:
    """Judge whether no PCIe bridge sends traffic between GPU and adapter through the processor (ACS), and each device
    answers.
    """
    if not hosts:
        return NO_HOST
    wrong = []
    for name, bridges in sorted(hosts.items()):
        on = {
            bridge: [control for control in controls if control in _REDIRECTS]
            for bridge, controls in bridges.items()
        }
        wrong += [
            needs(f"{name}: {device} does not answer ({NO_ANSWER})", Repair.COLD_START)
            for device, controls in sorted(bridges.items())
            if NO_ANSWER in controls
        ]
        named = [f"{bridge} {' '.join(controls)}" for bridge, controls in sorted(on.items()) if controls]
        if named:
            wrong.append(needs(f"{name}: ACS is on at {some(named)}", Repair.SETTING))
    if wrong:
        return of_faults(wrong)
    silent = [name for name, bridges in sorted(hosts.items()) if not bridges]
    if silent:
        return Judgement(Verdict.INCONCLUSIVE, f"nothing says whether ACS is on: {some(silent)}")
    return Judgement(Verdict.PASS)


NO_ANSWER: Final = "rev ff"
"""The revision that lspci prints for a device whose registers cannot be read."""
_REDIRECTS: Final = frozenset({"SrcValid+", "ReqRedir+", "CmpltRedir+", "UpstreamFwd+"})


def judge_modules(hosts: Mapping[str, Sequence[str]], models: Mapping[str, str]) -> Judgement:
    """Judge whether the kernel module for GPUDirect RDMA is loaded on each host with RDMA adapters."""
    if not hosts:
        return NO_HOST
    with_rdma = {name for name, modules in hosts.items() if _RDMA & set(modules)}
    without = sorted(name for name in with_rdma if not _PEERMEM & set(hosts[name]))
    if not with_rdma:
        reason = "no subject, so it counts for nothing: no host with RDMA adapters"
        return Judgement(Verdict.INCONCLUSIVE, reason, required=False)
    if not without:
        return Judgement(Verdict.PASS)
    has = {models.get(name) for name in with_rdma - set(without)}
    verdict = Verdict.FAIL if any(models.get(name) in has for name in without) else Verdict.INCONCLUSIVE
    finding = f"nvidia_peermem is not loaded, so GPUDirect RDMA needs DMA-BUF: {some(without)}"
    return Judgement(verdict, needs(finding, Repair.SETTING))


_RDMA: Final = frozenset({"mlx5_ib", "mlx4_ib", "bnxt_re", "irdma"})
_PEERMEM: Final = frozenset({"nvidia_peermem", "nv_peer_mem"})
