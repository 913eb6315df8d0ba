"""The content of `list` and `get`: workloads joined with their pods, services and ingresses.

A workload is the pods with the same topmost owner (`owners`); a bare pod is a workload of one. Jobs and StatefulSets
are shown even without pods, because a pending or ended workload may have none. Everything here is pure; times are
microseconds since the epoch.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator import names
from orchestrator.cluster.gpu_fraction import DEVICE_MILLI, format_gpu, gpu_milli
from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import (
    Event,
    Ingress,
    IngressRule,
    Job,
    Metadata,
    Object,
    Pod,
    PodSpec,
    Service,
    StatefulSet,
)
from orchestrator.cluster.quantity import time_us, whole_count
from orchestrator.cluster.wire import has_condition
from orchestrator.observe.owners import Chain, Owners, chosen_priority_class
from orchestrator.views.containers import NOTHING_READ, Surroundings, waits_because
from orchestrator.views.dependencies import Delay, Delays
from orchestrator.views.status import FINAL, SUSPENDED, workload_status

PENDING_ADDRESS: Final = "<pending>"
SEVERAL_NODES: Final = "<multiple>"

_POD_SUFFIX: Final = "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""The suffix of a Job in the names of its pods."""
_SCHEMES: Final = ("http", "https")
_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one or more namespaces as they were read. `projects` maps a namespace to its project.

    `owners` are the owners of pods, Jobs and StatefulSets, of any kind. `around` has, by namespace, the PVCs, events
    and nodes that give the reason why a pod is not started. `has_all_jobs`: all Jobs of the namespaces were read.
    """

    projects: Mapping[str, str]
    jobs: Sequence[Job] = ()
    stateful_sets: Sequence[StatefulSet] = ()
    pods: Sequence[Pod] = ()
    services: Sequence[Service] = ()
    ingresses: Sequence[Ingress] = ()
    owners: Sequence[Object] = ()
    around: Mapping[str, Surroundings] = field(default_factory=dict)
    has_all_jobs: bool = True


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of an Indexed Job: their number, and those that succeeded or finally failed, such as `0-36,40`."""

    count: int
    succeeded_count: int
    succeeded: str
    failed: str

    def __str__(self) -> str:
        failed = f", failed: {self.failed}" if self.failed else ""
        return f"{self.succeeded_count} of {self.count} succeeded{failed}"


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload as people see it. `gpu_milli` is the request of all of its pods together.

    A workload that requests memory of GPUs has no `gpu_milli`, because the fraction of a device depends on the node. It
    has the amount in `gpu_memory`, as it was written, on `gpu_count` devices. `around` has the PVCs, events and nodes
    that give the reason why a pod does not run. `delay` is why a job with dependencies has not started.
    """

    name: str
    namespace: str
    project: str
    kind: str
    uid: str
    type: str
    status: str
    created_us: int
    started_us: int | None
    finished_us: int | None
    nodes: tuple[str, ...]
    image: str
    user: str
    gpu_milli: int
    gpu_memory: str
    gpu_count: int
    created_by_cli: bool
    urls: tuple[str, ...]
    priority_class: str
    command_line: str
    snapshots: tuple[str, ...]
    labels: Mapping[str, str] = field(repr=False)
    pods: tuple[Pod, ...] = field(repr=False)
    around: Surroundings = field(default=NOTHING_READ, repr=False)
    indexes: Indexes | None = None
    delay: Delay | None = None

    @property
    def is_final(self) -> bool:
        """Whether the workload has ended and does not run again: Succeeded, Failed or TimedOut."""
        return self.status in FINAL

    @property
    def waits_because(self) -> str:
        """Why the job has no pods yet, or pods have no node or do not run; empty if all pods run or have ended."""
        return ": ".join(self.delay) if self.delay else waits_because(self.pods, self.around)

    @property
    def node(self) -> str:
        """The node of its pods, `<multiple>` for several nodes, or nothing."""
        return self.nodes[0] if len(self.nodes) == 1 else SEVERAL_NODES if self.nodes else ""

    @property
    def gpus(self) -> str:
        """The sum of the requests of its pods: `2`, `0.5`; or requested GPU memory: `4G` of one GPU, `2x4G` of two."""
        if not self.gpu_memory:
            return format_gpu(self.gpu_milli)
        return f"{self.gpu_count}x{self.gpu_memory}" if self.gpu_count > 1 else self.gpu_memory

    @property
    def held_gpu_milli(self) -> int:
        """The GPUs of its pods that have a node.

        Requested GPU memory is not counted, see `GpusOfJobs` and `held_gpus`.
        """
        return self.held_by_nodes_milli({})

    def held_by_nodes_milli(self, placed_milli: Mapping[str, int]) -> int:
        """Return the GPUs of its pods that have a node.

        For a pod whose uid is in `placed_milli`, this amount counts. For others, the request counts.
        """
        return sum(milli for _, milli in self.held_of_pods_milli(placed_milli))

    def held_of_pods_milli(self, placed_milli: Mapping[str, int]) -> Iterator[tuple[Pod, int]]:
        """Yield its pods that have a node, each with its GPUs as in `held_by_nodes_milli`."""
        for pod in self._holding():
            placed = placed_milli.get(pod.metadata.uid)
            yield pod, requested_gpu_milli(pod.metadata, pod.spec) if placed is None else placed

    @property
    def held_gpus(self) -> str:
        """The GPUs of its pods that have a node, in the form of `gpus`."""
        if not self.gpu_memory:
            return format_gpu(self.held_gpu_milli)
        count = sum(_fraction_devices(pod.metadata) for pod in self._holding())
        return f"{count}x{self.gpu_memory}" if count > 1 else self.gpu_memory if count else ""

    def _holding(self) -> Iterator[Pod]:
        return (pod for pod in self.pods if pod.spec.node_name and pod.status.phase not in _ENDED)


@dataclass(frozen=True, slots=True)
class _Source:
    """The objects of a workload from which its view is made: its Job or StatefulSet, if it has one, and its pods."""

    kind: str
    metadata: Metadata
    template: Metadata
    spec: PodSpec
    replicas: int
    pods: tuple[Pod, ...]
    workload: Job | StatefulSet | None = None
    gpu_milli: int | None = None


def workload_views(listing: Listing) -> list[WorkloadView]:
    """Return the workloads of all projects in the listing: those that never started on top, then newest first."""
    addresses, delays = _Addresses(listing), Delays(listing.jobs, is_complete=listing.has_all_jobs)
    views = [_view(source, listing, addresses, delays) for source in _sources(listing)]
    return sorted(views, key=newest_first)


def events_of(view: WorkloadView, events: Iterable[Event]) -> list[Event]:
    """Return the events about the workload or one of its pods, deleted ones included, oldest first.

    An evicted pod is recognized by its name, and by the time of the event, because an earlier workload may have had the
    same name.
    """
    uids = {view.uid} | {pod.metadata.uid for pod in view.pods}
    index = "[0-9]+-" if view.indexes else ""
    pod_name = re.compile(rf"{re.escape(view.name)}-({index}{_POD_SUFFIX}|[0-9]+)")
    since_us = view.created_us // 1_000_000 * 1_000_000

    def concerns(event: Event) -> bool:
        about = event.involved_object
        is_pod = about.kind == "Pod" and pod_name.fullmatch(about.name) is not None
        is_of_deleted = is_pod and event_time_us(event) >= since_us
        return about.uid in uids or is_of_deleted

    return sorted((event for event in events if concerns(event)), key=event_time_us)


def event_time_us(event: Event) -> int:
    """Return when the event happened last."""
    stamps = (
        event.last_timestamp,
        event.event_time,
        event.first_timestamp,
        event.metadata.creation_timestamp,
    )
    return next((time_us(stamp) for stamp in stamps if stamp), 0)


def duration_seconds(view: WorkloadView, now_us: int) -> int | None:
    """Return the time from the first pod's start to the end or to now; None while the workload is suspended."""
    if view.started_us is None:
        return None if view.status == SUSPENDED else 0
    return max(0, (view.finished_us or now_us) - view.started_us) // 1_000_000


def requested_gpu_milli(metadata: Metadata, spec: PodSpec) -> int:
    """Return the request of one pod of this template; a malformed amount counts as nothing here."""
    try:
        fraction = metadata.annotations.get(names.GPU_FRACTION_ANNOTATION)
        if fraction is not None:
            return gpu_milli(fraction) * _fraction_devices(metadata)
        limits = (container.resources.limits.get(names.GPU_RESOURCE, 0) for container in spec.containers)
        return sum(whole_count(str(limit)) * DEVICE_MILLI for limit in limits)
    except (ValueError, ArithmeticError):
        return 0


def _fraction_devices(metadata: Metadata) -> int:
    text = metadata.annotations.get(names.GPU_FRACTION_DEVICES_ANNOTATION, "1")
    return (whole_number(text) or 1) if len(text) < 4 else 1


def suspended_replicas(workload: StatefulSet) -> int | None:
    """Return how many replicas a suspended StatefulSet had; None if no annotation has the number."""
    text = workload.metadata.annotations.get(names.SUSPENDED_REPLICAS_ANNOTATION, "")
    return whole_number(text) if len(text) < 7 else None


def _sources(listing: Listing) -> list[_Source]:
    workloads: list[Job | StatefulSet] = [*listing.jobs, *listing.stateful_sets]
    owners = Owners({pod.metadata.uid: pod for pod in listing.pods}, [*listing.owners, *workloads])
    pods_by_owner: dict[str, list[Pod]] = {}
    chains: dict[str, Chain] = {}
    for pod in sorted(listing.pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name)):
        chain = owners.chain(pod)
        chains[chain.id] = chain
        pods_by_owner.setdefault(chain.id, []).append(pod)
    sources = []
    for workload in workloads:
        pods = tuple(pods_by_owner.pop(workload.metadata.uid, ()))
        if workload.metadata.namespace in listing.projects and not owners.is_part(workload):
            sources.append(_source(workload, pods))
    for owner, group in pods_by_owner.items():
        first = group[0]
        if first.metadata.namespace in listing.projects and first.spec.scheduler_name == names.SCHEDULER_NAME:
            sources.append(_pods_alone(group, chains[owner]))
    return sources


def _source(workload: Job | StatefulSet, pods: tuple[Pod, ...]) -> _Source:
    template = workload.spec.template
    if isinstance(workload, Job):
        parallelism, completions = workload.spec.parallelism, workload.spec.completions
        replicas = 1 if parallelism is None else parallelism
        replicas = replicas if completions is None else min(replicas, completions)
    else:
        replicas = 1 if workload.spec.replicas is None else workload.spec.replicas
        replicas = replicas or suspended_replicas(workload) or 0
    kind = workload.resource.kind
    return _Source(kind, workload.metadata, template.metadata, template.spec, replicas, pods, workload)


def _pods_alone(pods: Sequence[Pod], chain: Chain) -> _Source:
    """Return the workload of pods whose topmost owner is neither a Job nor a StatefulSet.

    All facts except the requests are those of the first pod.
    """
    first = pods[0]
    created = first.metadata if chain.owner is None else chain.owner.metadata
    metadata = Metadata(
        name=chain.name,
        namespace=first.metadata.namespace,
        uid=chain.id,
        creation_timestamp=created.creation_timestamp,
        labels=first.metadata.labels,
        annotations=first.metadata.annotations,
    )
    # A controller keeps failed pods beside their successors. They hold no GPUs.
    counted = _active(pods)
    requested_milli = sum(requested_gpu_milli(pod.metadata, pod.spec) for pod in counted)
    return _Source(
        chain.kind, metadata, first.metadata, first.spec, len(counted), tuple(pods), gpu_milli=requested_milli
    )


def _view(source: _Source, listing: Listing, addresses: "_Addresses", delays: Delays) -> WorkloadView:
    metadata, annotations = source.metadata, source.metadata.annotations
    delay = delays.of(metadata.uid)
    submitted_us = time_us(annotations.get(names.SUBMITTED_AT_ANNOTATION))
    return WorkloadView(
        name=metadata.name,
        namespace=metadata.namespace,
        project=listing.projects.get(metadata.namespace, ""),
        kind=source.kind,
        uid=metadata.uid,
        type=_type(source),
        status=delay.status if delay else workload_status(source.workload, source.pods),
        created_us=submitted_us or time_us(metadata.creation_timestamp),
        started_us=_started_us(source.pods),
        finished_us=_finished_us(source.workload),
        nodes=_nodes(source.pods),
        image=source.spec.containers[0].image if source.spec.containers else "",
        user=annotations.get(names.USER_ANNOTATION, ""),
        gpu_milli=(
            requested_gpu_milli(source.template, source.spec) * source.replicas
            if source.gpu_milli is None
            else source.gpu_milli
        ),
        gpu_memory=source.template.annotations.get(names.GPU_MEMORY_ANNOTATION, ""),
        gpu_count=_fraction_devices(source.template) * source.replicas,
        created_by_cli=names.COMMAND_LINE_ANNOTATION in annotations,
        urls=addresses.urls(metadata, source.pods),
        priority_class=chosen_priority_class(metadata) or source.spec.priority_class_name,
        command_line=annotations.get(names.COMMAND_LINE_ANNOTATION, ""),
        snapshots=tuple(filter(None, annotations.get(names.SNAPSHOTS_ANNOTATION, "").split(","))),
        labels=metadata.labels,
        pods=source.pods,
        around=listing.around.get(metadata.namespace, NOTHING_READ),
        indexes=_indexes(source.workload),
        delay=delay,
    )


def _indexes(workload: Job | StatefulSet | None) -> Indexes | None:
    if not isinstance(workload, Job) or workload.spec.completion_mode != "Indexed":
        return None
    status = workload.status
    return Indexes(
        workload.spec.completions or 0, status.succeeded, status.completed_indexes, status.failed_indexes
    )


def index_of(pod: Pod) -> int | None:
    """Return the index of a pod of an Indexed Job; None for any other pod."""
    return whole_number(pod.metadata.annotations.get(names.COMPLETION_INDEX_ANNOTATION, ""))


def _type(source: _Source) -> str:
    fallback = names.INTERACTIVE if source.kind == "StatefulSet" else names.TRAIN
    label = source.metadata.labels.get(names.TYPE_LABEL, fallback)
    preemptible = source.template.annotations.get(names.PREEMPTIBLE_ANNOTATION) == "true"
    word = label.capitalize()
    return f"{word}-Preemptible" if label == names.INTERACTIVE and preemptible else word


def _started_us(pods: Sequence[Pod]) -> int | None:
    placed = [pod for pod in pods if pod.spec.node_name]
    stamps = [time_us(pod.status.start_time or pod.metadata.creation_timestamp) for pod in placed]
    return min(stamps, default=None)


def _finished_us(workload: Job | StatefulSet | None) -> int | None:
    if not isinstance(workload, Job):
        return None
    failed = has_condition(workload.status.conditions, "Failed")
    stamp = workload.status.completion_time or (failed.last_transition_time if failed else "")
    return time_us(stamp) or None


def _nodes(pods: Sequence[Pod]) -> tuple[str, ...]:
    return tuple(sorted({pod.spec.node_name for pod in _active(pods) if pod.spec.node_name}))


def _active(pods: Sequence[Pod]) -> Sequence[Pod]:
    """Return the pods that have not ended; if all have ended, the last one."""
    return [pod for pod in pods if pod.status.phase not in _ENDED] or pods[-1:]


def newest_first(view: WorkloadView) -> tuple[bool, int, int, str, str]:
    """Return the sort key of jobs: those that never started first, then the newest."""
    started = view.started_us
    return (started is not None, -(started or 0), -view.created_us, view.namespace, view.name)


class _Addresses:
    """Where workloads can be reached from outside, by namespace and workload name."""

    def __init__(self, listing: Listing) -> None:
        self._urls: dict[tuple[str, str], list[str]] = {}
        self._node_ports: dict[tuple[str, str], list[int]] = {}
        for ingress in listing.ingresses:
            self._add(ingress, _ingress_urls(ingress))
        for service in listing.services:
            ports = service.spec.ports
            if service.spec.type == "LoadBalancer":
                self._add(
                    service, [f"http://{host}:{port.port}" for host in _hosts(service) for port in ports]
                )
            elif service.spec.type == "NodePort":
                self._node_ports[_key(service)] = [port.node_port for port in ports]

    def urls(self, metadata: Metadata, pods: Sequence[Pod]) -> tuple[str, ...]:
        """Return the workload's URLs. A URL whose address is not known yet is `<pending>`."""
        key = metadata.namespace, metadata.name
        host = next((pod.status.host_ip for pod in pods if pod.status.host_ip), "")
        ports = self._node_ports.get(key, [])
        by_node = [f"http://{host}:{port}" if host else PENDING_ADDRESS for port in ports]
        return (*self._urls.get(key, ()), *by_node)

    def _add(self, exposed: Ingress | Service, urls: list[str]) -> None:
        self._urls.setdefault(_key(exposed), []).extend(urls or [PENDING_ADDRESS])


def _ingress_urls(ingress: Ingress) -> list[str]:
    """Return the URLs of an ingress; empty while no controller serves it, so that its status has no address."""
    addresses = _hosts(ingress)
    return [
        f"{way}://{host}{path}"
        for rule in ingress.spec.rules
        for host in ([rule.host] if addresses and rule.host else addresses)
        for path in _paths(ingress, rule)
        for way in _SCHEMES
    ]


def _paths(ingress: Ingress, rule: IngressRule) -> list[str]:
    """Return the paths of a rule, without the short aliases `/<workload>` if the rule has other paths."""
    paths = [path.path for path in rule.http.paths] if rule.http else []
    alias = re.compile(rf"/{re.escape(_key(ingress)[1])}(-[0-9]+)?")
    return [path for path in paths if not alias.fullmatch(path)] or paths


def _hosts(exposed: Ingress | Service) -> list[str]:
    return [address.ip or address.hostname for address in exposed.status.load_balancer.ingress]


def _key(exposed: Ingress | Service) -> tuple[str, str]:
    labels = exposed.metadata.labels
    return exposed.metadata.namespace, labels.get(names.WORKLOAD_LABEL, exposed.metadata.name)
