"""The checks of the layers below Kubernetes: the tools that each needs, and its verdict on their output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from validation.errors import MISTAKES
from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun, mistake
from validation.judge.events import Event, ToolRan
from validation.judge.evidence import NO_EVIDENCE, Evidence
from validation.judge.hosts.drift import NO_BASELINE
from validation.judge.hosts.host_layer import HostScope, HostSite, join, of_site
from validation.judge.hosts.host_runs import judge_boots
from validation.judge.units import spell
from validation.judge.verdict import Verdict
from validation.layers import gpu_checks, groups, link_checks, load_checks, tools
from validation.layers.readings import Readings


@dataclass(frozen=True, slots=True)
class Layer:
    """A check of the hosts. `test` is the command line's name for the load that it puts on them; empty if it puts none.

    If the number of runs depends on the output, `bound` returns the maximum number and duration of the runs as text.
    """

    title: str
    source: str
    tools: tuple[str, ...]
    judge: Callable[[Readings], list[Judgement]]
    test: str = ""
    bound: Callable[[HostSite], str] | None = None

    def usual_seconds(self) -> int:
        """Return the usual duration of the check."""
        return sum(tools.TOOLS[tool].usual_seconds for tool in self.tools)


DRIFT: Final = "drift"
_PRACTICE: Final = "validation/catalogue/thresholds.yaml"
LAYERS: Final = {
    "gpus": Layer(
        "Every host has all its GPUs", "nvidia-smi -q -x", ("nvidia-smi", "counters"), gpu_checks.inventory
    ),
    "equality": Layer(
        "Driver, vBIOS, InfoROM and memory are equal on all hosts, or as on the golden one",
        "nvidia-smi -q -x",
        ("nvidia-smi",),
        gpu_checks.equality,
    ),
    "state": Layer(
        "Every GPU says that it is well, and nothing that is not understood",
        "nvidia-smi -q -x",
        ("nvidia-smi",),
        gpu_checks.state,
    ),
    "memory": Layer(
        "No uncorrected error of memory, nothing waits to be retired or remapped",
        "nvidia-smi -q -x",
        ("nvidia-smi",),
        gpu_checks.memory,
    ),
    "faults": Layer(
        "No Xid in the kernel's log, no clock held down by hardware",
        "dmesg; nvidia-smi -q -x",
        ("nvidia-smi", "kernel-log"),
        gpu_checks.faults,
    ),
    "nvlink": Layer(
        "All NVLinks are active, and join the GPUs as on the golden host",
        f"nvidia-smi nvlink -s; nvidia-smi topo -m; {_PRACTICE}",
        ("nvlink", "topology"),
        gpu_checks.nvlink,
    ),
    "nvlink-errors": Layer(
        "No NVLink counted an error",
        "nvidia-smi nvlink -e",
        ("nvlink-errors",),
        gpu_checks.nvlink_errors,
    ),
    "fabric": Layer(
        "The fabric manager runs where the GPUs are joined by switches, and each GPU is joined",
        "systemctl is-active nvidia-fabricmanager; nvidia-smi -q -x",
        ("fabric-manager", "nvidia-smi"),
        gpu_checks.fabric,
    ),
    "rails": Layer(
        "All RDMA ports of the model are up, at their rate, and equal on all hosts",
        f"ibstat; {_PRACTICE}",
        ("ibstat",),
        link_checks.rails,
    ),
    "interfaces": Layer(
        "Every network interface has link and speed as on the other hosts",
        "ethtool",
        ("ethtool",),
        link_checks.interfaces,
    ),
    "access-control": Layer(
        "No PCIe bridge redirects the traffic between GPUs and adapters",
        "lspci -vvv",
        ("lspci",),
        link_checks.access_control,
    ),
    "peer-memory": Layer(
        "The module for GPUDirect RDMA is loaded",
        "lsmod",
        ("lsmod",),
        link_checks.peer_memory,
    ),
    "clock-source": Layer(
        "The kernel reads the time from a counter of the processor",
        "current_clocksource",
        ("clock-source",),
        link_checks.clock_source,
    ),
    "mtu": Layer(
        "Full frames pass to the storage on every network",
        "ip -json address; ping -M do",
        ("interfaces", "frames"),
        link_checks.mtu,
    ),
    "mounts": Layer(
        "Every NFS mount is there with its options on every host",
        "findmnt --json --types nfs,nfs4",
        ("mounts",),
        link_checks.mounts,
    ),
    "written": Layer(
        "A file that a host writes into a mount is read on every host",
        "a file of every host in every mount",
        ("write", "read", "remove"),
        link_checks.written,
        tools.MOUNTS,
    ),
    "nccl": Layer(
        "NCCL all-reduce on one host reaches its bus bandwidth",
        f"all_reduce_perf; {_PRACTICE}",
        ("nccl",),
        load_checks.nccl,
        tools.NCCL,
    ),
    groups.NCCL_NODES: Layer(
        "NCCL joins all hosts, each with each, at the rate of their adapters",
        "all-reduce over groups of hosts; docs/reference/host-checks.md",
        (groups.NCCL_NODES,),
        load_checks.nccl_nodes,
        groups.NCCL_NODES,
        groups.bound,
    ),
    "fio": Layer(
        "All hosts together read fast enough", f"fio; {_PRACTICE}", ("fio",), load_checks.fio, tools.FIO
    ),
    "burn-in": Layer(
        "An hour of load brings no fault, and the hosts are equally fast",
        "gpu_burn -tc 3600",
        ("burn-in",),
        load_checks.burn_in,
        tools.BURN_IN,
    ),
    "pcie": Layer(
        "Every GPU has all lanes of its PCIe link, at full generation under load",
        f"nvidia-smi -q -x; {_PRACTICE}",
        ("nvidia-smi", tools.SAMPLES),
        gpu_checks.pcie,
    ),
    "load": Layer(
        "Under load no GPU was slowed, too hot, or had an error of memory",
        "nvidia-smi -q -x, beside the loads",
        ("nvidia-smi", tools.SAMPLES),
        load_checks.load,
    ),
    "links": Layer(
        "No link flapped, and no error was counted during the run",
        "counters of the kernel, before and after",
        ("counters",),
        link_checks.counters,
    ),
    "faults-after": Layer(
        "No Xid and no clock held down after all that ran",
        "dmesg; nvidia-smi -q -x",
        ("nvidia-smi", "kernel-log"),
        gpu_checks.faults,
    ),
    "memory-after": Layer(
        "No uncorrected error of memory after all that ran",
        "nvidia-smi -q -x",
        ("nvidia-smi",),
        gpu_checks.memory,
    ),
    DRIFT: Layer(
        "No figure or fact of a host or GPU is worse than in the baseline",
        f"an earlier record of the site; {_PRACTICE}",
        ("nvidia-smi",),
        load_checks.drift,
    ),
    "kubelets": Layer(
        "Kubernetes counts as many GPUs on each host as its driver",
        "nvidia-smi -q -x; status.allocatable of the nodes",
        ("nvidia-smi",),
        link_checks.kubelets,
    ),
}
AFTER: Final = frozenset({"links", "faults-after", "memory-after", "kubelets"})
"""The checks that run their tools again, after the loads."""
TESTS: Final = tuple(dict.fromkeys(layer.test for layer in LAYERS.values() if layer.test))


def describe_tests() -> str:
    """Return the names of the tests that put a load on the hosts, with their durations."""
    lasting = {layer.test: layer.usual_seconds() for layer in LAYERS.values() if layer.test}
    return ", ".join(f"{test} (about {spell(seconds)})" for test, seconds in lasting.items())


def judge_layer(
    name: str,
    scope: HostScope | msgspec.UnsetType,
    circumstances: Circumstances,
    events: Sequence[Event],
    window: Window | None,
) -> tuple[Judgement, Evidence]:
    """Return the verdict on a layer from the output of its tools, and the evidence: the numbers of hosts, GPUs and
    outputs.
    """
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return unrun, NO_EVIDENCE
    if window is None or scope is msgspec.UNSET:
        return Judgement(Verdict.INCONCLUSIVE, "the hosts were not examined"), NO_EVIDENCE
    if name not in LAYERS:
        return Judgement(Verdict.ERROR, f"there is no layer {name}"), NO_EVIDENCE
    if name == DRIFT and scope.baseline is msgspec.UNSET:
        return NO_BASELINE, NO_EVIDENCE
    readings = Readings(scope, events[window.from_event : window.until_event])
    try:
        judged = LAYERS[name].judge(readings)
    except MISTAKES as error:
        judged = [mistake(error)]
    judgements = [*judged, *judge_boots(readings.boots(), is_needed=name in AFTER)]
    names = {e.host for e in readings.events if isinstance(e, ToolRan) and not e.problem}
    declared = [host for host in scope.site.hosts if host.name in names]
    evidence = Evidence(len(declared), sum(host.gpus for host in declared), 0, readings.outputs)
    every = [*of_site(scope.site), *readings.problems, *judgements]
    return join(every, evidence=readings.outputs > 0), evidence
