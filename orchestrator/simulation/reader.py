"""Reads a snapshot file: fills in defaults and expands short forms. Errors name file and line."""

import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from orchestrator.cluster.gpu_fraction import gpu_milli
from orchestrator.cluster.objects import FINISHED, Pod
from orchestrator.cluster.quantity import cpu_milli, memory_bytes, parse_time, whole_count
from orchestrator.document import Document
from orchestrator.errors import MusterError
from orchestrator.labels import LabelRequirement
from orchestrator.names import GPU_RESOURCE
from orchestrator.observe.failed_starts import Start, counting, rejection_of
from orchestrator.observe.pod_status import is_rejected, last_start_us
from orchestrator.observe.request import MAX_AMOUNT, MAX_DEVICES, NO_SCALARS, amount_of_scalar
from orchestrator.planner import model
from orchestrator.planner.traits import PodTraits
from orchestrator.simulation import forms
from orchestrator.simulation.devices import Devices
from orchestrator.simulation.extra_fields import camel, from_file, uncovered
from orchestrator.simulation.templates import Templates, has_succeeded, namespace_of, of_status
from orchestrator.simulation.values import problems

Place = tuple[str | int, ...]
T = TypeVar("T")
_TERMINATING: Final = (model.PodState.RELEASING,)
_ON_A_NODE: Final = (model.PodState.ALLOCATED, model.PodState.RELEASING)
ONLY_IN_STATES: Final[Mapping[str, tuple[model.PodState, ...]]] = {
    **dict.fromkeys(("stuck", "replaced"), _TERMINATING),
    **dict.fromkeys(("never_started", "bound_at_us", "start_problem", "cannot_start"), _ON_A_NODE),
}
"""The states of a pod in which it may have the field."""
MAX_PODS: Final = 100_000
"""Maximum number of pods of one workload in a file. Kubernetes is designed for 150,000 pods in a cluster."""
_OWN: Final[Mapping[str, tuple[str, Callable[[str], int], int, int | str]]] = {
    "gpus": (GPU_RESOURCE, whole_count, MAX_DEVICES, 0),
    "cpu": ("cpu", cpu_milli, MAX_AMOUNT, forms.NODE_CPU),
    "memory": ("memory", memory_bytes, MAX_AMOUNT, forms.NODE_MEMORY),
    "pods": ("pods", whole_count, MAX_AMOUNT, forms.NODE_PODS),
}
"""For each field of a node in the file: the resource name in Kubernetes, the parser, the maximum and the default."""


def load(path: Path) -> model.Snapshot:
    """Read a snapshot file. Raises UsageError that names file and line."""
    document = Document(path)
    form = document.convert(forms.file_form())
    first = next(problems(form), None)
    if first is not None:
        raise document.error(first[0], f"{first[1]} (at {'.'.join(map(str, first[0]))})")
    return _Reader(document, form).snapshot()


class _Reader:
    """Converts the form of one file to a snapshot."""

    def __init__(self, document: Document, form: forms.SnapshotForm) -> None:
        self._document = document
        self._form = form
        self._ids: dict[str, Place] = {}
        self._templates = Templates(document)
        self._has_templates = any(workload.template is not UNSET for workload in form.workloads)
        self._rejections: list[model.Rejection] = []
        self._starts: list[Start] = []

    def snapshot(self) -> model.Snapshot:
        form = self._form
        nodes = tuple(self._node(node, ("nodes", index)) for index, node in enumerate(form.nodes))
        projects = tuple(
            self._project(name, project, index) for index, (name, project) in enumerate(form.projects.items())
        )
        self._devices = Devices(nodes)
        for index, workload in enumerate(form.workloads):
            self._hold_named_devices(workload, ("workloads", index))
        workloads = [
            self._workload(workload, ("workloads", index), index)
            for index, workload in enumerate(form.workloads)
        ]
        rest = self._extra(model.Snapshot, (form,))
        rejections = (*rest.pop("rejections", ()), *counting(self._rejections, self._starts))
        # A workload whose pods have all ended is not in a snapshot.
        present = tuple(workload for workload in workloads if workload.pods)
        return model.Snapshot(
            nodes=nodes, projects=projects, workloads=present, rejections=rejections, **rest
        )

    def _node(self, form: forms.NodeForm, place: Place) -> model.Node:
        self._unique(f"node {form.name}", (*place, "name"))
        foreign = form.foreign
        request = self._request((foreign,), (*place, "foreign"))
        return model.Node(
            name=form.name,
            gpu_count=self._own(form, "gpus", place),
            cpu_milli=self._own(form, "cpu", place),
            memory_bytes=self._own(form, "memory", place),
            pod_slots=self._own(form, "pods", place),
            scalars=dict(self._scalars(form.allocatable, (*place, "allocatable"))),
            labels=form.labels,
            taints=tuple(model.Taint(taint.key, taint.value, taint.effect) for taint in form.taints),
            schedulable=form.schedulable,
            node_type=form.type,
            foreign=request,
            foreign_pods=foreign.pods,
            **self._extra(model.Node, (form,)),
        )

    def _own(self, form: forms.NodeForm, key: str, place: Place) -> int:
        """Return the node's amount of a resource with a field of its own, from that field or from `allocatable`."""
        resource, parse, most, default = _OWN[key]
        value: int | str | msgspec.UnsetType = getattr(form, key)
        where: Place = (*place, key)
        if resource in form.allocatable:
            where = (*place, "allocatable", resource)
            if value is not UNSET:
                raise self._error(where, f"`{resource}` is there as `{key}` too: write one of them")
            value = form.allocatable[resource]
        amount = self._parsed(parse, default if value is UNSET else value, where)
        if not 0 <= amount <= most:
            raise self._error(where, f"a node has 0 to {most} of {key}, not {amount}")
        return amount

    def _scalars(self, quantities: Mapping[str, int | str], place: Place) -> model.Scalars:
        """Return the resources without a field of their own.

        Raises UsageError if a quantity is negative or cannot be read.
        """
        amounts = [
            (name, self._parsed(partial(_amount_of, name), value, (*place, name)))
            for name, value in sorted(quantities.items())
            if name not in NO_SCALARS
        ]
        return tuple((name, amount) for name, amount in amounts if amount)

    def _project(self, name: str, form: forms.ProjectForm, index: int) -> model.Project:
        place: Place = ("projects", name)
        if form.parent is not None and form.parent not in self._form.projects:
            raise self._error((*place, "parent"), f"there is no project `{form.parent}`")

        def milli(key: str, value: Any) -> int | None:
            return None if value is None else self._parsed(gpu_milli, value, (*place, key))

        quota, limit, weight = (milli(key, getattr(form, key)) for key in ("quota", "limit", "weight"))
        default_weight = model.DEVICE_MILLI if quota is None else quota
        return model.Project(
            name=name,
            quota_gpu_milli=typing.cast("Any", quota),
            limit_gpu_milli=limit,
            over_quota_weight=default_weight if weight is None else weight,
            parent=form.parent,
            created_at_us=self._time(form.created, index + 1, (*place, "created")),
            gpu_models=tuple(
                model.GpuModelBounds(gpu_model, milli("models", bounds.quota), milli("models", bounds.limit))
                for gpu_model, bounds in sorted(form.models.items())
            ),
            **self._extra(model.Project, (form,)),
        )

    def _workload(self, form: forms.WorkloadForm, place: Place, index: int) -> model.Workload:
        if form.project not in self._form.projects and form.id is None:
            known = ", ".join(self._form.projects) or "none"
            raise self._error(
                (*place, "project"), f"there is no project `{form.project}`; there are: {known}"
            )
        workload_id = f"{form.project}/{form.name}" if form.id is None else form.id
        self._unique(f"workload {workload_id}", (*place, "name"))
        created = self._time(form.created, index + 1, (*place, "created"))
        listed = self._pods(form, place)
        read = [
            self._pod(form, workload_id, number, pod, where) for number, (pod, where) in enumerate(listed)
        ]
        pods = tuple(pod for pod in read if pod is not None)
        # As in a cluster, a gang with a pod that has succeeded may end pod by pod.
        succeeded = any(has_succeeded(pod) for pod, _ in listed)
        runs = any(pod.state is not model.PodState.PENDING for pod in pods)
        return model.Workload(
            id=workload_id,
            name=form.name,
            project=form.project,
            priority=self._templates.priority(form, place) if form.priority is None else form.priority,
            preemptible=not form.interactive if form.preemptible is None else form.preemptible,
            created_at_us=created,
            pods=pods,
            min_member=min(form.min_member, len(pods)) if succeeded else form.min_member,
            interactive=form.interactive,
            started_at_us=self._time(form.started, created if runs else 0, (*place, "started")),
            **self._extra(model.Workload, (form,)),
        )

    def _pods(self, form: forms.WorkloadForm, place: Place) -> list[tuple[forms.PodForm, Place]]:
        """Return the pods in their long form, each with its path in the file."""
        if isinstance(form.pods, list):
            if form.on is not None or form.devices is not None:
                key = "devices" if form.on is None else "on"
                raise self._error((*place, key), f"`{key}` goes with a number of pods: write it for each pod")
            if not form.pods:
                raise self._error((*place, "pods"), "0 pods are no workload: give 1 or more")
            return [(pod, (*place, "pods", number)) for number, pod in enumerate(form.pods)]
        if form.pods < 1:
            raise self._error((*place, "pods"), f"{form.pods} pods are no workload: give 1 or more")
        if form.pods > MAX_PODS:
            raise self._error((*place, "pods"), f"a workload has at most {MAX_PODS} pods")
        nodes = [form.on] * form.pods if isinstance(form.on, str) else form.on or []
        if len(nodes) > form.pods:
            raise self._error((*place, "on"), f"`on` names {len(nodes)} nodes for {form.pods} pods")
        if form.devices is not None and (form.pods != 1 or not nodes):
            raise self._error((*place, "devices"), "`devices` goes with one pod that is `on` a node")
        waiting = [None] * (form.pods - len(nodes))
        return [(forms.PodForm(on=node, devices=form.devices), place) for node in [*nodes, *waiting]]

    def _pod(
        self, form: forms.WorkloadForm, workload_id: str, number: int, pod: forms.PodForm, place: Place
    ) -> model.Pod | None:
        """Return the pod; None if it has ended."""
        pod_id = f"{workload_id}/{number}" if pod.id is None else pod.id
        self._unique(f"pod {pod_id}", place)
        observed = self._templates.pod(form, pod, place)
        rejected = observed is not None and is_rejected(observed)
        if observed is not None and not rejected and (started_us := last_start_us(observed)):
            self._starts.append(Start(pod.on or "", workload_id, started_us))
        if observed is not None and observed.status.phase in FINISHED:
            if rejected:
                self._rejections.append(rejection_of(observed, workload_id, pod_id))
            return None
        request, constraints = self._requirements(form, pod, observed, place)
        extra = self._extra(model.Pod, (pod,))
        if self._has_templates and "traits" not in extra:
            extra["traits"] = self._traits(form, observed, place)
        state = model.PodState(pod.state or ("pending" if pod.on is None else "allocated"))
        if (state is model.PodState.PENDING) != (pod.on is None):
            raise self._error(
                place, f"a pod that is {state.value} must {'not ' * (pod.on is not None)}be `on` a node"
            )
        for name, states in ONLY_IN_STATES.items():
            if extra.get(name) and state not in states:
                needed = " or ".join(each.value for each in states)
                raise self._error(
                    (*place, camel(name)),
                    f"`{camel(name)}` goes with a pod that is {needed}, not {state.value}",
                )
        return model.Pod(
            id=pod_id,
            name=f"{form.name}-{number}" if pod.name is None else pod.name,
            request=request,
            constraints=constraints,
            state=state,
            node=pod.on,
            devices=self._devices_of(form, pod, request, place),
            nominated_node=None if pod.nominated is None else pod.nominated.node,
            nominated_devices=() if pod.nominated is None else tuple(pod.nominated.devices),
            **({} if observed is None else of_status(observed)) | extra,
        )

    def _traits(self, form: forms.WorkloadForm, observed: Pod | None, place: Place) -> PodTraits:
        """Return the traits of the pod. Without a template it has a namespace and no labels."""
        if observed is not None and form.template is not UNSET:
            return self._templates.traits(observed, place[:2])
        return PodTraits(namespace_of(form))

    def _devices_of(
        self, form: forms.WorkloadForm, pod: forms.PodForm, request: model.Request, place: Place
    ) -> tuple[int, ...]:
        """Return the devices of the pod on its node. If the file does not name them, they are chosen."""
        if pod.on is None or pod.devices is not None or pod.on not in self._devices.nodes:
            return tuple(pod.devices or ())
        chosen = self._devices.choose(pod.on, request)
        if chosen is None:
            raise self._error(place, f"{pod.on} has not enough free GPUs for `{form.name}`")
        return chosen

    def _hold_named_devices(self, form: forms.WorkloadForm, place: Place) -> None:
        """Occupy the devices that the file names, before devices are chosen for other pods."""
        for pod, where in self._pods(form, place):
            if pod.on is None:
                continue
            if pod.on not in self._devices.nodes and form.id is None:
                raise self._error((*where, "on"), f"there is no node `{pod.on}`")
            if pod.devices:
                request = self._requirements(form, pod, self._templates.pod(form, pod, where), where)[0]
                for device in pod.devices:
                    self._devices.occupy(pod.on, device, request)

    def _requirements(
        self, form: forms.WorkloadForm, pod: forms.PodForm, observed: Pod | None, place: Place
    ) -> tuple[model.Request, model.Constraints]:
        """Return the request and the constraints of the pod, from its template or from the file's own fields."""
        if observed is not None and form.template is not UNSET:
            return self._templates.requirements(observed, place[:2])
        return self._request((pod, form), place), self._constraints((pod, form))

    def _request(self, sources: Sequence[Any], place: Place) -> model.Request:
        gpus = self._parsed(gpu_milli, _first(sources, "gpus", 0), (*place, "gpus"))
        whole, portion = divmod(gpus, model.DEVICE_MILLI)
        if whole and portion:
            raise self._error(
                (*place, "gpus"), "ask for whole GPUs, or for a part of one (above 0 and below 1)"
            )
        return model.Request(
            gpu_count=whole,
            gpu_portion_milli=portion,
            cpu_milli=self._parsed(cpu_milli, _first(sources, "cpu", 0), (*place, "cpu")),
            memory_bytes=self._parsed(memory_bytes, _first(sources, "memory", 0), (*place, "memory")),
            scalars=self._requests(_first(sources, "requests", {}), (*place, "requests")),
            **self._extra(model.Request, sources),
        )

    def _requests(self, quantities: Mapping[str, int | str], place: Place) -> model.Scalars:
        for name in quantities:
            if name in NO_SCALARS:
                raise self._error((*place, name), f"`{name}` has a field of its own: gpus, cpu or memory")
        return self._scalars(quantities, place)

    def _constraints(self, sources: Sequence[Any]) -> model.Constraints:
        terms = _first(sources, "node_terms", [])
        return model.Constraints(
            node_selector=tuple(sorted(_first(sources, "node_selector", {}).items())),
            node_terms=tuple(
                tuple(
                    LabelRequirement(requirement.key, requirement.operator, tuple(requirement.values))
                    for requirement in term
                )
                for term in terms
            ),
            tolerations=tuple(
                model.Toleration(toleration.key, toleration.operator, toleration.value, toleration.effect)
                for toleration in _first(sources, "tolerations", [])
            ),
            **self._extra(model.Constraints, sources),
        )

    def _extra(self, kind: type, sources: Sequence[msgspec.Struct]) -> dict[str, Any]:
        """Return the values that the sources set for the model's fields without a short form."""
        values: dict[str, Any] = {}
        for name, hint in _extra_fields(kind):
            value = _first(sources, name, UNSET)
            if value is not UNSET:
                values[name] = from_file(value, hint)
        return values

    def _time(self, value: int | str | None, default: int, place: Place) -> int:
        if value is None:
            return default
        return value if isinstance(value, int) else self._parsed(parse_time, value, place)

    def _parsed(self, parse: Callable[[str], T], value: object, place: Place) -> T:
        try:
            return parse(str(value))
        except ValueError as error:
            raise self._error(place, str(error)) from error

    def _unique(self, subject: str, place: Place) -> None:
        first = self._ids.setdefault(subject, place)
        if first is not place:
            raise self._error(place, f"{subject} is there twice, first in line {self._document.line(first)}")

    def _error(self, place: Place, message: str) -> MusterError:
        return self._document.error(place, message)


@cache
def _extra_fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the fields of the class without a short form, with their types."""
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in uncovered(kind, forms.COVERED[kind]))


def _first(sources: Sequence[Any], name: str, default: Any) -> Any:
    """Return the value of the first form that sets this field (a pod's comes before its workload's), or the default."""
    values = (getattr(form, name, UNSET) for form in sources)
    return next((value for value in values if value is not UNSET), default)


def _amount_of(resource: str, quantity: str) -> int:
    """Return the amount of the resource. Raises ValueError with the resource's name if the quantity is invalid."""
    try:
        return amount_of_scalar(resource, quantity)
    except ValueError as error:
        raise ValueError(f"{resource}: {error}") from error
