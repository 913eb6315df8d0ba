"""Writes the planner's snapshot as a snapshot file, without the defaults of `reader`."""

from decimal import Decimal
from functools import cache
from typing import Any

import yaml

from orchestrator.cluster.quantity import cpu_milli, format_time, memory_bytes
from orchestrator.labels import LabelRequirement
from orchestrator.planner import model
from orchestrator.simulation import forms
from orchestrator.simulation.extra_fields import camel, default_of, to_file, uncovered

Plain = dict[str, Any]
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MEMORY_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_YEAR_US = 365 * 86_400 * 1_000_000


def dump(snapshot: model.Snapshot) -> str:
    """Return the text of the snapshot file. `reader.load` reads it back as an equal snapshot."""
    return str(yaml.dump(document(snapshot), Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=110))


def document(snapshot: model.Snapshot) -> Plain:
    """Return the content of the snapshot file as mappings, lists and scalars."""
    return {
        "apiVersion": forms.API_VERSION,
        "kind": forms.KIND,
        **_extra(model.Snapshot, snapshot),
        "nodes": [_node(node) for node in snapshot.nodes],
        "projects": {project.name: _project(project) for project in snapshot.projects},
        "workloads": [_workload(workload) for workload in snapshot.workloads],
    }


def _node(node: model.Node) -> Plain:
    foreign = _request(node.foreign) | ({"pods": node.foreign_pods} if node.foreign_pods else {})
    return {
        "name": node.name,
        "gpus": node.gpu_count,
        **_unless(cpu_milli(forms.NODE_CPU), "cpu", node.cpu_milli, _cpu),
        **_unless(memory_bytes(forms.NODE_MEMORY), "memory", node.memory_bytes, _memory),
        **_unless(forms.NODE_PODS, "pods", node.pod_slots),
        **_unless("", "type", node.node_type),
        **_unless(True, "schedulable", node.schedulable),
        **_unless({}, "labels", dict(node.labels)),
        **_unless([], "taints", [_expression(taint) for taint in node.taints]),
        **_unless({}, "allocatable", dict(sorted(node.scalars.items()))),
        **_unless({}, "foreign", foreign),
        **_extra(model.Node, node),
    }


def _project(project: model.Project) -> Plain:
    quota: int | None = project.quota_gpu_milli
    default_weight = model.DEVICE_MILLI if quota is None else quota
    return {
        "quota": None if quota is None else _gpus(quota),
        **_unless(None, "limit", project.limit_gpu_milli, _gpus),
        **_unless(default_weight, "weight", project.over_quota_weight, _gpus),
        **_unless({}, "models", {bounds.model: _bounds(bounds) for bounds in project.gpu_models}),
        **_unless(None, "parent", project.parent),
        "created": _time(project.created_at_us),
        **_extra(model.Project, project),
    }


def _bounds(bounds: model.GpuModelBounds) -> Plain:
    return {
        **_unless(None, "quota", bounds.quota_gpu_milli, _gpus),
        **_unless(None, "limit", bounds.limit_gpu_milli, _gpus),
    }


def _workload(workload: model.Workload) -> Plain:
    default_priority = forms.INTERACTIVE_PRIORITY if workload.interactive else forms.TRAIN_PRIORITY
    runs = any(pod.state is not model.PodState.PENDING for pod in workload.pods)
    first = workload.pods[0] if workload.pods else None
    common = {} if first is None else _pod_request(first)
    return {
        "name": workload.name,
        "project": workload.project,
        "id": workload.id,
        "created": _time(workload.created_at_us),
        **_unless(workload.created_at_us if runs else 0, "started", workload.started_at_us, _time),
        **_unless(False, "interactive", workload.interactive),
        **_unless(not workload.interactive, "preemptible", workload.preemptible),
        **_unless(default_priority, "priority", workload.priority),
        **_unless(1, "minMember", workload.min_member),
        **common,
        **_extra(model.Workload, workload),
        "pods": [_pod(pod, common, first) for pod in workload.pods],
    }


def _pod(pod: model.Pod, common: Plain, first: model.Pod | None) -> Plain:
    own = {} if first is not None and _same_request(pod, first) else _whole_request(pod, common)
    default_state = model.PodState.PENDING if pod.node is None else model.PodState.ALLOCATED
    return {
        "name": pod.name,
        "id": pod.id,
        **_unless(default_state, "state", pod.state, lambda state: state.value),
        **_unless(None, "on", pod.node),
        **({"devices": list(pod.devices)} if pod.node is not None else {}),
        **_unless(None, "nominated", _nominated(pod)),
        **own,
        **_extra(model.Pod, pod),
    }


def _nominated(pod: model.Pod) -> Plain | None:
    if pod.nominated_node is None:
        return None
    return {"node": pod.nominated_node, **_unless([], "devices", list(pod.nominated_devices))}


def _same_request(pod: model.Pod, other: model.Pod) -> bool:
    return pod.request == other.request and pod.constraints == other.constraints


def _whole_request(pod: model.Pod, common: Plain) -> Plain:
    """Return the request of the pod.

    If only `common` sets a field, write the field's default, so that the pod does not inherit it.
    """
    whole: Plain = {
        "gpus": 0,
        "cpu": 0,
        "memory": 0,
        "requests": {},
        "nodeSelector": {},
        "nodeTerms": [],
        "tolerations": [],
        **{
            camel(field.name): to_file(default_of(field))
            for kind in (model.Request, model.Constraints)
            for field in uncovered(kind, forms.COVERED[kind])
        },
    }
    return {key: default for key, default in whole.items() if key in common} | _pod_request(pod)


def _pod_request(pod: model.Pod) -> Plain:
    constraints = pod.constraints
    terms = [[_expression(requirement) for requirement in term] for term in constraints.node_terms]
    return {
        **_request(pod.request),
        **_unless({}, "nodeSelector", dict(constraints.node_selector)),
        **_unless([], "nodeTerms", terms),
        **_unless([], "tolerations", [_expression(toleration) for toleration in constraints.tolerations]),
        **_extra(model.Constraints, constraints),
    }


def _request(request: model.Request) -> Plain:
    milli = request.gpu_count * model.DEVICE_MILLI + request.gpu_portion_milli
    return {
        **_unless(0, "gpus", milli, _gpus),
        **_unless(0, "cpu", request.cpu_milli, _cpu),
        **_unless(0, "memory", request.memory_bytes, _memory),
        **_unless({}, "requests", dict(request.scalars)),
        **_extra(model.Request, request),
    }


def _expression(part: model.Taint | model.Toleration | LabelRequirement) -> Plain:
    """Return a taint, toleration or requirement as a mapping with the same field names."""
    return dict(to_file(part))


def _extra(kind: type, value: Any) -> Plain:
    return {
        key: to_file(getattr(value, name))
        for name, key, default in _extra_fields(kind)
        if getattr(value, name) != default
    }


@cache
def _extra_fields(kind: type) -> tuple[tuple[str, str, Any], ...]:
    """Return the fields that `forms` does not abbreviate: attribute, name in the file, default."""
    return tuple(
        (field.name, camel(field.name), default_of(field)) for field in uncovered(kind, forms.COVERED[kind])
    )


def _unless(default: Any, key: str, value: Any, form: Any = None) -> Plain:
    return {} if value == default else {key: value if form is None else form(value)}


def _gpus(gpu_milli: int) -> int | float:
    whole, part = divmod(gpu_milli, model.DEVICE_MILLI)
    return float(Decimal(gpu_milli) / model.DEVICE_MILLI) if part else whole


def _cpu(milli: int) -> int | str:
    return f"{milli}m" if milli % 1000 else milli // 1000


def _memory(size_bytes: int) -> int | str:
    for suffix, unit in _MEMORY_UNITS:
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return size_bytes


def _time(microseconds: int) -> int | str:
    """Return the time as RFC 3339 text. Times in 1970, which only order workloads in examples, stay numbers."""
    return format_time(microseconds) if microseconds > _YEAR_US else microseconds
