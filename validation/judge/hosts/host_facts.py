"""The layers below Kubernetes: facts that hosts report, and verdicts that name the host and the GPU."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

import msgspec

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_compare import below_median
from validation.judge.verdict import Verdict

NO_HOST: Final = Judgement(Verdict.ERROR, "no host answered")
NO_GPU: Final = Judgement(Verdict.ERROR, "no host answered with a GPU")
FIO_PERCENT: Final = 75
"""Minimum read rate of a host, in percent of the median of all hosts."""
NAMED: Final = 4
"""Maximum number of faults that a reason names. The others are counted."""


class _Fact(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of all facts. Names in JSON are in camel case."""


class HostGpu(_Fact, frozen=True):
    """One GPU as nvidia-smi describes it; None for a value that it does not give.

    `uncorrected_errors` are those since the driver was loaded. `is_idle`: its clocks are low because no program runs,
    so its PCIe link may be slow too. `throttles` are the reasons for which hardware holds the clocks down. `elements`
    has path and text of every leaf of the GPU's XML, in order.
    """

    bus_id: str
    model: str
    uuid: str
    vbios: str
    inforom: str
    memory_mib: int
    ecc_enabled: bool | None = None
    uncorrected_errors: int | None = None
    pages_pending: bool | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    is_idle: bool = False
    throttles: list[str] = []
    elements: list[tuple[str, str]] = []

    def text(self, *paths: str) -> str:
        """Return the text of the first of these elements that the GPU has; empty if it has none."""
        texts = dict(reversed(self.elements))
        return next((texts[path] for path in paths if path in texts), "")


class HostGpus(_Fact, frozen=True):
    """The GPUs of a host.

    `attached` is the number of GPUs that nvidia-smi counted; `elements` has the elements outside the GPUs.
    """

    driver: str
    attached: int
    gpus: list[HostGpu]
    elements: list[tuple[str, str]] = []


class NcclRow(_Fact, frozen=True):
    """One size of a nccl-tests run.

    The bandwidth is the lower of out-of-place and in-place; `wrong` is the sum of both, None if a count is missing.
    """

    size_bytes: int
    bus_gbytes_per_second: float
    wrong: int | None


class NcclRun(_Fact, frozen=True):
    """A run of nccl-tests. `version` is "" before 2.17, which did not print it.

    `out_of_bounds` is the number of wrong values that the run prints at its end.
    """

    version: str
    test: str
    devices: list[str]
    hosts: int
    rows: list[NcclRow]
    is_whole: bool
    out_of_bounds: int = 0


class Interface(_Fact, frozen=True):
    """A network interface of a host.

    `state` is as `ip` prints it, such as `UP`. `base` is the interface below a VLAN, `master` the bond of a port.
    """

    mtu: int
    addresses: list[str] = []
    state: str = ""
    base: str = ""
    master: str = ""


class Port(_Fact, frozen=True):
    """A port of an RDMA adapter. `unknown` has lines that muster does not know, and figures that are not numbers."""

    adapter: str
    port: int
    state: str
    physical_state: str
    rate_gbits: float
    link_layer: str
    firmware: str = ""
    unknown: list[str] = []


class Ethernet(_Fact, frozen=True):
    """A network interface as ethtool describes it; None for a value that it does not give.

    `supported_mbits` is the highest speed of its link modes, 0 if it names none.
    """

    name: str
    speed_mbits: int | None
    has_link: bool | None
    duplex: str = ""
    supported_mbits: int = 0


class NvLinks(_Fact, frozen=True):
    """The rate of each NVLink by GPU and link, 0 for an inactive link; and the lines that name no rate."""

    mbytes_per_second: dict[int, dict[int, int]]
    unknown: list[str] = []


class Topology(_Fact, frozen=True):
    """How GPUs are connected: the names of the columns, and the cells of each GPU, with CPU and NUMA affinity at the
    end.
    """

    columns: list[str]
    rows: dict[str, list[str]]


class FioJob(_Fact, frozen=True):
    """A group of fio's jobs. `error` is an errno, 0 for none; `read_ms` is the duration of its reads.

    `short_reads` is the number of reads that returned less than requested, or were dropped.
    """

    name: str
    error: int
    read_bytes_per_second: int
    write_bytes_per_second: int
    read_ms: int = 0
    short_reads: int = 0


class Mount(_Fact, frozen=True):
    """An NFS mount of a host."""

    source: str
    filesystem: str
    options: list[str]


class BurnIn(_Fact, frozen=True):
    """The result of a load on all GPUs: the GPUs with wrong results, the number of GPUs, and the final rate of each.

    `warnings` has the words and counts about errors that it printed while it ran.
    """

    faulty: list[int]
    gpus: int
    gflops: list[int]
    warnings: list[str] = []


class System(_Fact, frozen=True):
    """The hardware of a complete host of this model, with the source of the figures.

    `gpu` occurs in the product names of its GPUs; `products` are the complete names. `pcie_generation` and `pcie_width`
    are those of a GPU's link under load. `memory_mib` and `power_limit_watts` are the minimum of a GPU,
    `nvlink_mbytes_per_second` is the minimum of a link. `adapters` is the number of RDMA ports with at least
    `adapter_gbits`. 0: no figure.
    """

    model: str
    gpu: str
    gpus: int
    fabric: str
    nvlinks: int
    pcie_generation: int
    pcie_width: int
    source: str
    date: str
    confidence: str
    products: list[str] = []
    memory_mib: int = 0
    power_limit_watts: int = 0
    nvlink_mbytes_per_second: int = 0
    adapters: int = 0
    adapter_gbits: int = 0


class Threshold(_Fact, frozen=True):
    """The minimum of a figure for a number of GPUs of a model on a fabric, with its source.

    `gpu` occurs in the product name of these GPUs.
    """

    metric: str
    gpu: str
    gpus: int
    fabric: str
    at_least: float
    unit: str
    source: str
    date: str
    confidence: str
    size_bytes: int = 0


def judge_inventory(hosts: Mapping[str, HostGpus], *, gpus_per_host: int) -> Judgement:
    """Judge whether every host has all its GPUs.

    Each host is counted alone. Example: a host with seven GPUs and one with nine would have the correct sum.
    """
    if not hosts:
        return NO_HOST
    wrong = [
        f"{name} has {len(host.gpus)} of {gpus_per_host} GPUs"
        for name, host in sorted(hosts.items())
        if len(host.gpus) != gpus_per_host
    ]
    wrong += [
        f"nvidia-smi on {name} counts {host.attached} GPUs and describes {len(host.gpus)}"
        for name, host in sorted(hosts.items())
        if host.attached != len(host.gpus)
    ]
    return of_faults(wrong)


def judge_equality(hosts: Mapping[str, HostGpus], golden: HostGpus | None = None) -> Judgement:
    """Judge whether driver, model, vBIOS, InfoROM, memory and modes (such as MIG and ECC) are equal on all hosts.

    With a golden host, these values must equal the values of the golden host.
    """
    if not all_gpus(hosts):
        return NO_GPU
    facts: dict[str, Callable[[HostGpu], object]] = {
        "model": lambda gpu: gpu.model,
        "vBIOS": lambda gpu: gpu.vbios,
        "InfoROM": lambda gpu: gpu.inforom,
        "memory": lambda gpu: f"{gpu.memory_mib} MiB",
        "MIG": lambda gpu: gpu.text("mig_mode/current_mig"),
        "persistence": lambda gpu: gpu.text("persistence_mode"),
        "compute mode": lambda gpu: gpu.text("compute_mode"),
        "ECC": lambda gpu: gpu.text("ecc_mode/current_ecc"),
    }
    wrong = _odd(
        "driver",
        [(name, host.driver) for name, host in sorted(hosts.items())],
        None if golden is None else golden.driver,
    )
    for subject, read in facts.items():
        values = [(place, read(gpu)) for place, gpu in all_gpus(hosts)]
        wrong += _odd(subject, values, read(golden.gpus[0]) if golden is not None and golden.gpus else None)
    return of_faults(wrong)


def judge_nccl(run: NcclRun, thresholds: Iterable[Threshold], *, metric: str, fabric: str) -> Judgement:
    """Judge whether the run reached the bus bandwidth for its GPUs.

    The row of the threshold's size counts, not the average.
    """
    wrong = [row for row in run.rows if row.wrong]
    if wrong:
        subject = f"{wrong[0].wrong} wrong values at {wrong[0].size_bytes} bytes"
    else:
        subject = f"{run.out_of_bounds} wrong values in all"
    if wrong or run.out_of_bounds:
        return Judgement(Verdict.FAIL, needs(subject, Repair.SUPPORT))
    if not run.is_whole:
        return Judgement(Verdict.ERROR, f"{run.test or 'the run'} did not come to its end")
    threshold = find_threshold(thresholds, metric, run.devices, fabric)
    if threshold is None:
        models = ", ".join(sorted(set(run.devices)))
        return Judgement(
            Verdict.INCONCLUSIVE, f"no threshold of {metric} for {len(run.devices)} of {models} on {fabric}"
        )
    rows = [row for row in run.rows if row.size_bytes == threshold.size_bytes]
    if not rows:
        return Judgement(Verdict.ERROR, f"no row of {threshold.size_bytes} bytes")
    if any(row.wrong is None for row in run.rows):
        return Judgement(Verdict.ERROR, "the values were not checked: -c 1")
    rate = min(row.bus_gbytes_per_second for row in rows)
    reached = rate >= threshold.at_least
    text = f"{rate:g} {threshold.unit}, at least {threshold.at_least:g} by {threshold.source}"
    return Judgement(Verdict.PASS if reached else Verdict.FAIL, text)


def judge_mtu(hosts: Mapping[str, Mapping[str, Interface]], networks: Sequence[str], least: int) -> Judgement:
    """Judge whether each host has an interface in each of these networks, and all these interfaces have at least this
    MTU. These interfaces, those below them and the ports of their bonds must not be down.
    """
    if not hosts:
        return NO_HOST
    if not networks or not least:
        return Judgement(
            Verdict.INCONCLUSIVE, "the site file has no network.mtu, or no storage.ontap.export_cidrs"
        )
    wrong = []
    for name, interfaces in sorted(hosts.items()):
        for network in networks:
            inside = {i: face for i, face in interfaces.items() if _is_inside(face.addresses, network)}
            if not inside:
                wrong.append(f"{name} has no address in {network}")
            wrong += [
                f"{name} {interface}: MTU {face.mtu} of {least}"
                for interface, face in sorted(inside.items())
                if face.mtu < least
            ]
            used = {*inside, *(face.base for face in inside.values() if face.base)}
            wrong += [
                needs(f"{name} {interface} is {face.state}", Repair.RESEAT)
                for interface, face in sorted(interfaces.items())
                if face.state not in _USED and (interface in used or face.master in used)
            ]
    return of_faults(list(dict.fromkeys(wrong)))


_USED: Final = frozenset({"", "UP", "UNKNOWN"})
"""States of an interface that works. A driver that does not report the state has UNKNOWN."""


def judge_driver(drivers: Mapping[str, str], branch: str) -> Judgement:
    """Judge whether every driver is of the branch that the site declares, such as 580 or 580.82."""
    if not branch:
        return Judgement(Verdict.INCONCLUSIVE, "the site file has no versions.driver")
    return of_faults(
        [
            f"the driver of {name} is {driver}, not of {branch}"
            for name, driver in sorted(drivers.items())
            if driver != branch and not driver.startswith(f"{branch}.")
        ]
    )


def judge_kubelets(hosts: Mapping[str, int], nodes: Mapping[str, int]) -> Judgement:
    """Judge whether Kubernetes has the same number of GPUs on each host as the driver there, and no GPUs on another
    node.
    """
    if not nodes:
        return Judgement(Verdict.INCONCLUSIVE, "no scenario ran on the cluster, so its nodes are not known")
    wrong = [
        f"the driver of {name} shows {gpus} GPUs, Kubernetes has {nodes.get(name, 0)} there"
        for name, gpus in sorted(hosts.items())
        if nodes.get(name, 0) != gpus
    ]
    wrong += [
        f"{name} has {gpus} GPUs in Kubernetes, and is no host with GPUs of the site file"
        for name, gpus in sorted(nodes.items())
        if gpus and name not in hosts
    ]
    return of_faults(wrong)


def judge_fio(hosts: Mapping[str, Sequence[FioJob]], *, read_bytes_per_second: int) -> Judgement:
    """Judge whether all hosts together read at this rate without an error, and none is much slower than the others."""
    if not hosts or not all(hosts.values()):
        return Judgement(Verdict.ERROR, "a host has no job of fio")
    wrong = [
        f"{name}: {job.name} ended with errno {job.error}"
        for name, jobs in sorted(hosts.items())
        for job in jobs
        if job.error
    ]
    total = sum(job.read_bytes_per_second for jobs in hosts.values() for job in jobs)
    if total < read_bytes_per_second:
        rates = {name: sum(job.read_bytes_per_second for job in jobs) for name, jobs in hosts.items()}
        slowest = ", ".join(
            f"{name} {rates[name] / 1e9:.2f}" for name in sorted(rates, key=rates.__getitem__)
        )
        wrong.append(f"{total / 1e9:.2f} GB/s in all, at least {read_bytes_per_second / 1e9:.2f}: {slowest}")
    of_each = {name: sum(job.read_bytes_per_second for job in jobs) for name, jobs in hosts.items()}
    wrong += [
        needs(f"{name} read {rate / 1e9:.2f} GB/s, the median is {usual / 1e9:.2f}", Repair.NETWORK)
        for name, rate, usual in below_median(of_each, FIO_PERCENT, {})
    ]
    return of_faults(wrong)


def site_threshold(
    thresholds: Iterable[Threshold], metric: str, models: Sequence[str], fabric: str
) -> Threshold | None:
    """Return the threshold of a figure of all hosts together; None without GPUs or without a threshold."""
    return find_threshold(thresholds, metric, models, fabric) if models else None


def find_threshold(
    thresholds: Iterable[Threshold], metric: str, devices: Sequence[str], fabric: str
) -> Threshold | None:
    """Return the threshold for exactly these devices on that fabric, or None."""
    return next(
        (
            threshold
            for threshold in thresholds
            if (threshold.metric, threshold.gpus, threshold.fabric) == (metric, len(devices), fabric)
            and all(threshold.gpu in device for device in devices)
        ),
        None,
    )


def all_gpus(hosts: Mapping[str, HostGpus]) -> list[tuple[str, HostGpu]]:
    """Return every GPU with the name of its host and its bus id."""
    return [(f"{name} {gpu.bus_id}", gpu) for name, host in sorted(hosts.items()) for gpu in host.gpus]


def _is_inside(addresses: Sequence[str], network: str) -> bool:
    around = ip_network(network, strict=False)
    return any(ip_address(address) in around for address in addresses)


def _odd(subject: str, values: Sequence[tuple[str, object]], expected: object) -> list[str]:
    """Return the values that differ from `expected`; if that is None, from the most frequent value."""
    if not values:
        return []
    usual = Counter(value for _, value in values).most_common(1)[0][0] if expected is None else expected
    return [f"{place}: {subject} is {value}, not {usual}" for place, value in values if value != usual]


def of_faults(wrong: Sequence[str]) -> Judgement:
    """Return FAIL with these faults as the reason; PASS without a fault."""
    return Judgement(Verdict.FAIL, some(wrong)) if wrong else Judgement(Verdict.PASS)


def some(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others.

    Example: `some(["a", "b", "c", "d", "e"])` returns `'a; b; c; d; 1 more'`.
    """
    more = f"; {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more
