"""The checks of the layers below Kubernetes: which tools each needs, and its verdict by what these printed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from orchestrator.progress import printable
from validation.errors import LayerError
from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun
from validation.judge.events import Event, NodeSeen, ToolRan
from validation.judge.evidence import NO_EVIDENCE, Evidence
from validation.judge.hosts.host_facts import (
    HostGpus,
    judge_driver,
    judge_equality,
    judge_faults,
    judge_fio,
    judge_inventory,
    judge_kubelets,
    judge_memory_errors,
    judge_mtu,
    judge_nccl,
    judge_pcie,
    site_threshold,
)
from validation.judge.hosts.host_layer import MISSING_TOOL, DeclaredHost, HostScope, join, of_site, system_of
from validation.judge.hosts.host_links import (
    judge_counters,
    judge_fabric,
    judge_frames,
    judge_nvlinks,
    judge_topology,
)
from validation.judge.hosts.host_runs import MEASURED_FIO_GRACE_MS, judge_boots, judge_duration, judge_models
from validation.judge.hosts.host_storage import judge_burn_in, judge_mounts, judge_written
from validation.judge.units import spell
from validation.judge.verdict import Verdict
from validation.layers import tools
from validation.layers.burn_in import read_burn_in
from validation.layers.counters import read_counters, read_pings
from validation.layers.fio import read_fio
from validation.layers.kernel_log import read_log
from validation.layers.links import read_networks
from validation.layers.mounts import read_mounts, read_written
from validation.layers.nccl import read_nccl
from validation.layers.nvidia_smi import read_nvidia_smi
from validation.layers.nvlink import read_links, read_service, read_topology

T = TypeVar("T")


@dataclass(slots=True)
class Readings:
    """What the tools printed on the hosts, read; `problems` gathers what could not be."""

    scope: HostScope
    events: Sequence[Event]
    problems: list[Judgement] = field(default_factory=list)
    outputs: int = 0

    def read(self, tool: str, parse: Callable[[str], T], *, first: bool = False) -> dict[str, T]:
        """By host what the tool printed last, or first. What cannot be read is a problem with the host's name."""
        values: dict[str, T] = {}
        for host in self.scope.site.hosts:
            if not tools.TOOLS[tool].line(self.scope.site, host):
                continue
            runs = [
                e for e in self.events if isinstance(e, ToolRan) and (e.host, e.tool) == (host.name, tool)
            ]
            problem = _problem(tool, host, runs)
            if problem is not None:
                self.problems.append(problem)
                continue
            try:
                values[host.name] = parse(runs[0 if first else -1].output)
                self.outputs += 1
            except LayerError as error:
                self.problems.append(Judgement(Verdict.ERROR, f"{host.name}: {error}"))
        return values

    def ran_ms(self, tool: str) -> dict[str, int]:
        """By host for how long the tool ran, where it came to its end."""
        runs = [e for e in self.events if isinstance(e, ToolRan) and e.tool == tool]
        return {e.host: e.ran_ms for e in runs if not (e.problem or e.exit_code)}

    def boots(self) -> dict[str, list[str]]:
        """By host the boot id of every reading."""
        ids: dict[str, list[str]] = {}
        for event in self.events:
            if isinstance(event, ToolRan) and not event.problem:
                ids.setdefault(event.host, []).append(event.boot_id)
        return ids

    def runs(self, tool: str) -> int:
        """How often the tool ran on the host on which it ran least."""
        names = [e.host for e in self.events if isinstance(e, ToolRan) and e.tool == tool]
        return min((names.count(host.name) for host in self.scope.site.hosts), default=0)

    def gpus(self) -> dict[str, HostGpus]:
        """What nvidia-smi says of the GPUs."""
        return self.read("nvidia-smi", read_nvidia_smi)


def _problem(tool: str, host: DeclaredHost, runs: Sequence[ToolRan]) -> Judgement | None:
    """Why nothing can be read of a tool on a host; None if something can."""
    if not runs:
        return Judgement(Verdict.ERROR, f"{host.name}: {tool} was not run")
    last = runs[-1]
    if last.problem:
        return Judgement(Verdict.ERROR, f"{host.name}: {last.problem}")
    if last.exit_code == MISSING_TOOL:
        program = tools.TOOLS[tool].program.replace(" ", " or ")
        return Judgement(Verdict.INCONCLUSIVE, f"{host.name} has no {program}")
    if last.exit_code:
        words = (last.error_output.strip() or last.output.strip()).splitlines()
        reason = f"{host.name}: {tool} ended with exit code {last.exit_code}"
        return Judgement(
            tools.TOOLS[tool].failure, f"{reason}: {printable(words[-1][:200])}" if words else reason
        )
    return None


@dataclass(frozen=True, slots=True)
class Layer:
    """A check of the hosts. `test` is the load that it puts on them, as the command line names it; empty for none."""

    title: str
    source: str
    tools: tuple[str, ...]
    judge: Callable[[Readings], list[Judgement]]
    test: str = ""

    def usual_seconds(self) -> int:
        """About how long it takes."""
        return sum(tools.TOOLS[tool].usual_seconds for tool in self.tools)


def _inventory(readings: Readings) -> list[Judgement]:
    hosts, declared = readings.gpus(), {host.name: host.gpus for host in readings.scope.site.hosts}
    known = {name: host for name, host in hosts.items() if declared[name]}
    judgements = [
        judge_inventory({name: host}, expected_hosts=1, gpus_per_host=declared[name])
        for name, host in sorted(known.items())
    ]
    unknown = sorted(hosts.keys() - known.keys())
    if unknown:
        reason = f"the site file does not say how many GPUs they have: {', '.join(unknown)}"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    return [*judgements, judge_owners(hosts)]


def judge_owners(hosts: Mapping[str, HostGpus]) -> Judgement:
    """Whether no GPU is shown by two hosts, which would then be one."""
    owners: dict[str, str] = {}
    wrong = [
        f"{name} and {owners[gpu.uuid]} show the same GPU {gpu.uuid}"
        for name, host in sorted(hosts.items())
        for gpu in host.gpus
        if owners.setdefault(gpu.uuid, name) != name
    ]
    return Judgement(Verdict.FAIL, "; ".join(wrong[:2])) if wrong else Judgement(Verdict.PASS)


def _by_model(readings: Readings, hosts: Mapping[str, HostGpus]) -> list[dict[str, HostGpus]]:
    models: dict[str, dict[str, HostGpus]] = {}
    for host in readings.scope.site.hosts:
        if host.name in hosts:
            models.setdefault(host.model, {})[host.name] = hosts[host.name]
    return list(models.values())


def _equality(readings: Readings) -> list[Judgement]:
    hosts, site = readings.gpus(), readings.scope.site
    judgements = [
        judge_equality(of_model, of_model.get(site.golden)) for of_model in _by_model(readings, hosts)
    ]
    return [
        *judgements,
        judge_driver({name: host.driver for name, host in hosts.items()}, site.driver),
        judge_models(hosts, site.hosts, readings.scope.systems),
    ]


def _memory(readings: Readings) -> list[Judgement]:
    hosts = readings.gpus()
    return [judge_memory_errors(hosts)] if hosts else []


def _faults(readings: Readings) -> list[Judgement]:
    hosts, logs = readings.gpus(), readings.read("kernel-log", read_log)
    both = {name: host for name, host in hosts.items() if name in logs}
    return [judge_faults(both, logs)] if both or logs else []


def _nvlink(readings: Readings) -> list[Judgement]:
    scope = readings.scope
    links, joined = readings.read("nvlink", read_links), readings.read("topology", read_topology)
    return [
        judge_nvlinks(links, scope.site.hosts, scope.systems),
        judge_topology(joined, scope.site.hosts, scope.site.golden),
    ]


def _fabric(readings: Readings) -> list[Judgement]:
    states = readings.read("fabric-manager", read_service)
    return [judge_fabric(states, readings.scope.site.hosts, readings.scope.systems)]


def _pcie(readings: Readings) -> list[Judgement]:
    hosts, judgements = readings.gpus(), []
    for declared in readings.scope.site.hosts:
        system = system_of(declared, readings.scope.systems)
        if declared.name not in hosts:
            continue
        if system is None:
            reason = f"no figure says which PCIe links {declared.name} has, a {declared.model}"
            judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
            continue
        host = {declared.name: hosts[declared.name]}
        judgements.append(judge_pcie(host, generation=system.pcie_generation, width=system.pcie_width))
    return judgements


def _mtu(readings: Readings) -> list[Judgement]:
    site = readings.scope.site
    interfaces = readings.read("interfaces", read_networks)
    pings = readings.read("frames", read_pings)
    return [
        judge_mtu(interfaces, site.networks, site.mtu),
        judge_frames(pings, site.servers, site.mtu, site.other_vlans),
    ]


def _mounts(readings: Readings) -> list[Judgement]:
    site = readings.scope.site
    return [judge_mounts(readings.read("mounts", read_mounts), site.mounts, site.mount_options, site.servers)]


def _written(readings: Readings) -> list[Judgement]:
    written, read = readings.read("write", read_written), readings.read("read", read_written)
    return [judge_written(written, read, readings.scope.site.mounts)]


def _nccl(readings: Readings) -> list[Judgement]:
    scope, runs, judgements = readings.scope, readings.read("nccl", read_nccl), []
    for host in scope.site.hosts:
        system = system_of(host, scope.systems)
        if host.name in runs:
            fabric = system.fabric if system is not None else ""
            judged = judge_nccl(runs[host.name], scope.thresholds, metric="nccl-all-reduce", fabric=fabric)
            judgements.append(Judgement(judged.verdict, f"{host.name}: {judged.reason}"))
    return judgements


def _fio(readings: Readings) -> list[Judgement]:
    if not readings.scope.site.mounts:
        return [judge_mounts({}, (), (), ())]
    runs, models = readings.read("fio", read_fio), []
    least_ms = tools.FIO_SECONDS * 1000
    read_ms = {name: min((job.read_ms for job in jobs), default=0) for name, jobs in runs.items()}
    early = judge_duration(readings.ran_ms("fio"), "fio", least_ms=least_ms)
    early += judge_duration(read_ms, "reading", least_ms=least_ms - MEASURED_FIO_GRACE_MS)
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


def _burn_in(readings: Readings) -> list[Judgement]:
    declared = {host.name: host.gpus for host in readings.scope.site.hosts}
    judged = judge_burn_in(readings.read("burn-in", read_burn_in), declared)
    least_ms = tools.BURN_SECONDS * 1000
    return [judged, *judge_duration(readings.ran_ms("burn-in"), "the load", least_ms=least_ms)]


def _counters(readings: Readings) -> list[Judgement]:
    if readings.runs("counters") < 2:
        return [Judgement(Verdict.ERROR, "the counters were not read before and after")]
    return [
        judge_counters(
            readings.read("counters", read_counters, first=True), readings.read("counters", read_counters)
        )
    ]


def _kubelets(readings: Readings) -> list[Judgement]:
    nodes = {e.node: e.gpus for e in readings.events if isinstance(e, NodeSeen)}
    return [judge_kubelets({name: len(host.gpus) for name, host in readings.gpus().items()}, nodes)]


_PRACTICE: Final = "validation/catalogue/thresholds.yaml"
LAYERS: Final = {
    "gpus": Layer("Every host has all its GPUs", "nvidia-smi -q -x", ("nvidia-smi", "counters"), _inventory),
    "equality": Layer(
        "Driver, vBIOS, InfoROM and memory are equal on all hosts, or as on the golden one",
        "nvidia-smi -q -x",
        ("nvidia-smi",),
        _equality,
    ),
    "memory": Layer(
        "No uncorrected error of memory, nothing waits to be retired or remapped",
        "nvidia-smi -q -x",
        ("nvidia-smi",),
        _memory,
    ),
    "faults": Layer(
        "No Xid in the kernel's log, no clock held down by hardware",
        "dmesg; nvidia-smi -q -x",
        ("nvidia-smi", "kernel-log"),
        _faults,
    ),
    "nvlink": Layer(
        "All NVLinks are active, and join the GPUs as on the golden host",
        f"nvidia-smi nvlink -s; nvidia-smi topo -m; {_PRACTICE}",
        ("nvlink", "topology"),
        _nvlink,
    ),
    "fabric": Layer(
        "The fabric manager runs where the GPUs are joined by switches",
        "systemctl is-active nvidia-fabricmanager",
        ("fabric-manager",),
        _fabric,
    ),
    "pcie": Layer(
        "Every GPU has all lanes of its PCIe link, at full generation under load",
        f"nvidia-smi -q -x; {_PRACTICE}",
        ("nvidia-smi",),
        _pcie,
    ),
    "mtu": Layer(
        "Full frames pass to the storage on every network",
        "ip -json address; ping -M do",
        ("interfaces", "frames"),
        _mtu,
    ),
    "mounts": Layer(
        "Every NFS mount is there with its options on every host",
        "findmnt --json --types nfs,nfs4",
        ("mounts",),
        _mounts,
    ),
    "written": Layer(
        "A file that a host writes into a mount is read on every host",
        "a file of every host in every mount",
        ("write", "read", "remove"),
        _written,
        tools.MOUNTS,
    ),
    "nccl": Layer(
        "NCCL all-reduce on one host reaches its bus bandwidth",
        f"all_reduce_perf; {_PRACTICE}",
        ("nccl",),
        _nccl,
        tools.NCCL,
    ),
    "fio": Layer("All hosts together read fast enough", f"fio; {_PRACTICE}", ("fio",), _fio, tools.FIO),
    "burn-in": Layer(
        "An hour of load brings no fault, and the hosts are equally fast",
        "gpu_burn -tc 3600",
        ("burn-in",),
        _burn_in,
        tools.BURN_IN,
    ),
    "links": Layer(
        "No link flapped, and no error was counted during the run",
        "counters of the kernel, before and after",
        ("counters",),
        _counters,
    ),
    "faults-after": Layer(
        "No Xid and no clock held down after all that ran",
        "dmesg; nvidia-smi -q -x",
        ("nvidia-smi", "kernel-log"),
        _faults,
    ),
    "kubelets": Layer(
        "Kubernetes counts as many GPUs on each host as its driver",
        "nvidia-smi -q -x; status.allocatable of the nodes",
        ("nvidia-smi",),
        _kubelets,
    ),
}
AFTER: Final = frozenset({"links", "faults-after", "kubelets"})
"""Those whose tools are run again, though they ran before."""
TESTS: Final = tuple(dict.fromkeys(layer.test for layer in LAYERS.values() if layer.test))


def describe_tests() -> str:
    """The names of the tests that put a load on the hosts, with how long they take."""
    lasting = {layer.test: layer.usual_seconds() for layer in LAYERS.values() if layer.test}
    return ", ".join(f"{test} (about {spell(seconds)})" for test, seconds in lasting.items())


def judge_layer(
    name: str,
    scope: HostScope | msgspec.UnsetType,
    circumstances: Circumstances,
    events: Sequence[Event],
    window: Window | None,
) -> tuple[Judgement, Evidence]:
    """The verdict on a layer by what the tools printed, and how many hosts, GPUs and outputs that rests on."""
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return unrun, NO_EVIDENCE
    if window is None or scope is msgspec.UNSET:
        return Judgement(Verdict.INCONCLUSIVE, "the hosts were not examined"), NO_EVIDENCE
    if name not in LAYERS:
        return Judgement(Verdict.ERROR, f"there is no layer {name}"), NO_EVIDENCE
    readings = Readings(scope, events[window.from_event : window.until_event])
    judgements = [*LAYERS[name].judge(readings), *judge_boots(readings.boots(), is_needed=name in AFTER)]
    names = {e.host for e in readings.events if isinstance(e, ToolRan) and not e.problem}
    declared = [host for host in scope.site.hosts if host.name in names]
    evidence = Evidence(len(declared), sum(host.gpus for host in declared), 0, readings.outputs)
    every = [*of_site(scope.site), *readings.problems, *judgements]
    return join(every, evidence=readings.outputs > 0), evidence
