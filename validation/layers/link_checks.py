"""The layers of the network, the mounts and the kernel of hosts."""

from hostfacts.clock import read_clock_source
from hostfacts.counters import read_counters
from validation.judge.check_verdict import Judgement
from validation.judge.events import NodeSeen
from validation.judge.hosts.host_adapters import (
    judge_access_control,
    judge_interfaces,
    judge_modules,
    judge_rails,
)
from validation.judge.hosts.host_clock import judge_clock_sources
from validation.judge.hosts.host_facts import judge_kubelets, judge_mtu
from validation.judge.hosts.host_links import (
    judge_addresses,
    judge_counted,
    judge_counters,
    judge_frames,
    judge_full,
)
from validation.judge.hosts.host_storage import judge_mounts, judge_written
from validation.judge.verdict import Verdict
from validation.layers.frames import read_pings
from validation.layers.gpudirect import read_access_control, read_modules
from validation.layers.links import read_ethtool, read_ibstat, read_networks
from validation.layers.mounts import read_mounts, read_written
from validation.layers.readings import Readings


def rails(readings: Readings) -> list[Judgement]:
    """Judge the RDMA ports."""
    scope = readings.scope
    return judge_rails(readings.read("ibstat", read_ibstat), scope.site.hosts, scope.systems)


def interfaces(readings: Readings) -> list[Judgement]:
    """Judge link and speed of the network interfaces."""
    return judge_interfaces(readings.read("ethtool", read_ethtool), readings.models())


def access_control(readings: Readings) -> list[Judgement]:
    """Judge whether PCIe bridges redirect the traffic between GPUs and adapters."""
    return [judge_access_control(readings.read("lspci", read_access_control))]


def peer_memory(readings: Readings) -> list[Judgement]:
    """Judge whether the module for GPUDirect RDMA is loaded."""
    return [judge_modules(readings.read("lsmod", read_modules), readings.models())]


def clock_source(readings: Readings) -> list[Judgement]:
    """Judge the clock source of the kernel."""
    return judge_clock_sources(readings.read("clock-source", read_clock_source))


def mtu(readings: Readings) -> list[Judgement]:
    """Judge MTU and full frames on the networks of the storage."""
    site = readings.scope.site
    interfaces = readings.read("interfaces", read_networks)
    pings = readings.read("frames", read_pings)
    return [
        judge_mtu(interfaces, site.networks, site.mtu),
        judge_frames(pings, site.servers, site.mtu, site.other_vlans),
        *judge_addresses(interfaces, site.networks),
    ]


def mounts(readings: Readings) -> list[Judgement]:
    """Judge the NFS mounts."""
    site = readings.scope.site
    return [judge_mounts(readings.read("mounts", read_mounts), site.mounts, site.mount_options, site.servers)]


def written(readings: Readings) -> list[Judgement]:
    """Judge whether hosts read the files of each other."""
    written, read = readings.read("write", read_written), readings.read("read", read_written)
    return [judge_written(written, read, readings.scope.site.mounts)]


def counters(readings: Readings) -> list[Judgement]:
    """Judge the counters of links between two readings."""
    if readings.runs("counters") < 2:
        return [Judgement(Verdict.ERROR, "the counters were not read before and after")]
    before = readings.read("counters", read_counters, first=True)
    after = readings.read("counters", read_counters)
    return [judge_counters(before, after), judge_counted(before, readings.models()), judge_full(after)]


def kubelets(readings: Readings) -> list[Judgement]:
    """Judge whether Kubernetes has the GPUs of each host."""
    nodes = {e.node: e.gpus for e in readings.events if isinstance(e, NodeSeen)}
    return [judge_kubelets({name: len(host.gpus) for name, host in readings.gpus().items()}, nodes)]
