"""A job for programs: the one form of `-o json` and `-o yaml` in every command, and of the Python client. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.views import gpus as gpu_views
from orchestrator.views.containers import waits_because
from orchestrator.views.jobs import WorkloadView, duration_seconds, index_of
from orchestrator.views.status import pod_status

EVENT_FIELDS: Final = ("source", "type", "age", "message")
"""The fields of an event, in the order of the columns of `muster get`."""


def job_record(
    view: WorkloadView,
    now_us: int,
    *,
    gpus: Iterable[gpu_views.GpuView] | None = None,
    events: Iterable[Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the job with the same keys everywhere; `gpuDetails` and `events` are null if they were not read.

    `now_us` is the present time, `events` have the values of EVENT_FIELDS.
    """
    return {
        "name": view.name,
        "namespace": view.namespace,
        "project": view.project,
        "type": view.type,
        "trainer": view.kind,
        "status": view.status,
        "waitsBecause": view.waits_because,
        "gpus": format_gpu(view.gpu_milli),
        "gpusAllocated": format_gpu(view.held_gpu_milli),
        "gpuMemory": view.gpu_memory,
        "gpuMemoryAllocated": view.held_gpus if view.gpu_memory else "",
        "node": view.node,
        "nodes": list(view.nodes),
        "image": view.image,
        "user": view.user,
        "priority": view.priority_class,
        "ageSeconds": max(0, now_us - view.created_us) // 1_000_000,
        "durationSeconds": duration_seconds(view, now_us),
        "createdByCli": view.created_by_cli,
        "serviceUrls": list(view.urls),
        "commandLine": view.command_line,
        "snapshots": list(view.snapshots),
        "chiefName": view.pods[-1].metadata.name if view.pods else "",
        "indexes": view.indexes
        and {
            "count": view.indexes.count,
            "succeededCount": view.indexes.succeeded_count,
            "succeededIndexes": view.indexes.succeeded,
            "failedIndexes": view.indexes.failed,
        },
        "instances": [_instance(view, pod, now_us) for pod in view.pods],
        "gpuDetails": None if gpus is None else [gpu_views.record(gpu) for gpu in gpus],
        "events": None
        if events is None
        else [dict(zip(EVENT_FIELDS, event, strict=True)) for event in events],
    }


def _instance(view: WorkloadView, pod: Pod, now_us: int) -> dict[str, Any]:
    return {
        "name": pod.metadata.name,
        "index": index_of(pod),
        "status": pod_status(pod),
        "waitsBecause": waits_because([pod], view.around),
        "node": pod.spec.node_name,
        "gpuDevices": pod.metadata.annotations.get(names.GPU_DEVICES_ANNOTATION, ""),
        "ageSeconds": max(0, now_us - time_us(pod.metadata.creation_timestamp)) // 1_000_000,
        "chief": pod is view.pods[-1],
    }
