"""What `submit` creates: a Submission as Kubernetes objects.

A train workload is a Job, an interactive one a StatefulSet of one pod (named `<name>-0`). Service and
Ingress stand beside the workload and belong to it, so that deleting the workload deletes them. Everything
here is pure: the time of submission and the uid of the owner come from the caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.quantity import cpu_milli, format_gpu, memory_bytes
from orchestrator.cluster.resources import INGRESSES, JOBS, SERVICES, STATEFUL_SETS, Resource
from orchestrator.workloads.submission import (
    DEVICES_VARIABLE,
    SHARED_MEMORY_PATH,
    Mount,
    Port,
    Submission,
    Variable,
)

Manifest = dict[str, Any]

CPU_MILLI_PER_GPU: Final = 1000
MEMORY_KIB_PER_GPU: Final = 100 * 1024
BACKOFF_LIMIT: Final = 6
INGRESS_CLASS: Final = "nginx"

_SERVICE_KINDS: Final = {"nodeport": "NodePort", "loadbalancer": "LoadBalancer"}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a submission goes, and when it was made (RFC 3339 with microseconds)."""

    project: str
    namespace: str
    submitted_at: str


def workload_resource(asked: Submission) -> Resource:
    """Return the kind of object that runs the submission."""
    return STATEFUL_SETS if asked.interactive else JOBS


def workload_manifest(asked: Submission, placement: Placement) -> Manifest:
    """Return the Job or StatefulSet of the submission."""
    resource = workload_resource(asked)
    annotations = {
        names.SUBMITTED_AT_ANNOTATION: placement.submitted_at,
        names.USER_ANNOTATION: asked.user,
        names.COMMAND_LINE_ANNOTATION: asked.command_line,
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": _metadata(asked, placement) | {"annotations": annotations},
        "spec": _stateful_set_spec(asked, placement) if asked.interactive else _job_spec(asked, placement),
    }


def service_manifest(asked: Submission, placement: Placement, owner: Mapping[str, Any]) -> Manifest | None:
    """Return the Service in front of the workload, or None when none was asked for."""
    if asked.service_type is None:
        return None
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": _metadata(asked, placement) | {"ownerReferences": [owner]},
        "spec": {
            "type": _SERVICE_KINDS.get(asked.service_type, "ClusterIP"),
            "selector": {names.WORKLOAD_LABEL: asked.name},
            "ports": [_service_port(port, asked.service_type) for port in asked.ports],
        },
    }


def ingress_manifest(asked: Submission, placement: Placement, owner: Mapping[str, Any]) -> Manifest | None:
    """Return the Ingress that leads to the service, or None when none was asked for."""
    if asked.service_type != "ingress":
        return None
    paths = [
        {
            "path": ingress_path(asked, placement.project, port),
            "pathType": "Prefix",
            "backend": {"service": {"name": asked.name, "port": {"number": port.external}}},
        }
        for port in asked.ports
    ]
    return {
        "apiVersion": INGRESSES.api_version,
        "kind": INGRESSES.kind,
        "metadata": _metadata(asked, placement) | {"ownerReferences": [owner]},
        "spec": {"ingressClassName": INGRESS_CLASS, "rules": [{"http": {"paths": paths}}]},
    }


def ingress_path(asked: Submission, project: str, port: Port) -> str:
    """Return `/<project>-<name>`, with the port behind it when there are several."""
    path = f"/{project}-{asked.name}"
    return path if len(asked.ports) == 1 else f"{path}-{port.external}"


def owner_reference(resource: Resource, name: str, uid: str) -> Manifest:
    """Return the reference by which an object is deleted together with its workload."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid}


def _metadata(asked: Submission, placement: Placement) -> Manifest:
    return {"name": asked.name, "namespace": placement.namespace, "labels": _labels(asked)}


def _labels(asked: Submission) -> dict[str, str]:
    return {names.WORKLOAD_LABEL: asked.name, names.TYPE_LABEL: asked.type}


def _job_spec(asked: Submission, placement: Placement) -> Manifest:
    spec: Manifest = {
        "backoffLimit": BACKOFF_LIMIT if asked.backoff_limit is None else asked.backoff_limit,
        # An evicted pod is replaced without counting as a failed attempt.
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
            ]
        },
        "template": _template(asked, placement, restart_policy="Never"),
    }
    optional = {
        "completions": asked.completions,
        "parallelism": asked.parallelism,
        "ttlSecondsAfterFinished": asked.ttl_seconds,
    }
    return spec | {key: value for key, value in optional.items() if value is not None}


def _stateful_set_spec(asked: Submission, placement: Placement) -> Manifest:
    return {
        "replicas": 1,
        "serviceName": asked.name,
        "selector": {"matchLabels": {names.WORKLOAD_LABEL: asked.name}},
        "template": _template(asked, placement, restart_policy="Always"),
    }


def _template(asked: Submission, placement: Placement, restart_policy: str) -> Manifest:
    return {
        "metadata": {"labels": _labels(asked), "annotations": _pod_annotations(asked, placement)},
        "spec": _pod_spec(asked) | {"restartPolicy": restart_policy},
    }


def _pod_annotations(asked: Submission, placement: Placement) -> dict[str, str]:
    annotations = {names.SUBMITTED_AT_ANNOTATION: placement.submitted_at}
    if asked.is_fraction:
        annotations[names.GPU_FRACTION_ANNOTATION] = format_gpu(asked.gpu_milli)
    if asked.min_member is not None:
        annotations[names.MIN_MEMBER_ANNOTATION] = str(asked.min_member)
    if asked.is_preemptible == asked.interactive:  # the default is the opposite
        annotations[names.PREEMPTIBLE_ANNOTATION] = str(asked.is_preemptible).lower()
    return annotations


def _pod_spec(asked: Submission) -> Manifest:
    spec: Manifest = {
        "schedulerName": names.SCHEDULER_NAME,
        "priorityClassName": _priority_class(asked),
        "containers": [_container(asked)],
    }
    volumes, _ = _volumes(asked)
    optional: Manifest = {
        "volumes": volumes,
        "nodeSelector": {names.NODE_TYPE_LABEL: asked.node_type} if asked.node_type else {},
        "hostIPC": asked.host_ipc,
        "hostNetwork": asked.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if asked.host_network else "",
    }
    return spec | {key: value for key, value in optional.items() if value}


def _priority_class(asked: Submission) -> str:
    if not asked.interactive:
        return "muster-train"
    return "muster-interactive-preemptible" if asked.is_preemptible else "muster-interactive"


def _container(asked: Submission) -> Manifest:
    _, mounts = _volumes(asked)
    optional: Manifest = {
        "imagePullPolicy": asked.image_pull_policy,
        "command": list(asked.command),
        "args": list(asked.args),
        "workingDir": asked.working_dir,
        "resources": _resources(asked),
        "ports": [{"containerPort": port.internal} for port in asked.ports],
        "volumeMounts": mounts,
    }
    container: Manifest = {"name": asked.name, "image": asked.image, "env": _environment(asked)}
    return container | {key: value for key, value in optional.items() if value}


def _environment(asked: Submission) -> list[Manifest]:
    variables: dict[str, Manifest] = {"JOB_NAME": {"value": asked.name}}
    if asked.gpu_milli:
        field = f"metadata.annotations['{names.GPU_DEVICES_ANNOTATION}']"
        variables[DEVICES_VARIABLE] = {"valueFrom": {"fieldRef": {"fieldPath": field}}}
        variables["RUNAI_NUM_OF_GPUS"] = {"value": format_gpu(asked.gpu_milli)}
    else:
        # CUDA images say "all", which the NVIDIA runtime would obey on a GPU node.
        variables[DEVICES_VARIABLE] = {"value": "void"}
    variables.update((variable.name, _value(variable)) for variable in asked.environment)
    return [{"name": name} | value for name, value in variables.items()]


def _value(variable: Variable) -> Manifest:
    if variable.secret:
        return {"valueFrom": {"secretKeyRef": {"name": variable.secret, "key": variable.secret_key}}}
    return {"value": variable.value}


def _resources(asked: Submission) -> Manifest:
    limits = {"cpu": asked.cpu_limit, "memory": asked.memory_limit}
    requests = {"cpu": asked.cpu, "memory": asked.memory}
    if asked.gpu_milli:
        requests["cpu"] = requests["cpu"] or _default_cpu(asked)
        requests["memory"] = requests["memory"] or _default_memory(asked)
    if asked.gpu_milli and not asked.is_fraction:
        limits[names.GPU_RESOURCE] = str(asked.gpu_milli // 1000)
    parts = {"requests": requests, "limits": limits}
    filled = {
        part: {key: value for key, value in amounts.items() if value} for part, amounts in parts.items()
    }
    return {part: amounts for part, amounts in filled.items() if amounts}


def _default_cpu(asked: Submission) -> str:
    milli = asked.gpu_milli * CPU_MILLI_PER_GPU // 1000
    if asked.cpu_limit:
        milli = min(milli, cpu_milli(asked.cpu_limit))
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _default_memory(asked: Submission) -> str:
    kib = max(1, asked.gpu_milli * MEMORY_KIB_PER_GPU // 1000)
    if asked.memory_limit and memory_bytes(asked.memory_limit) < kib * 1024:
        return asked.memory_limit
    return f"{kib // 1024}Mi" if kib % 1024 == 0 else f"{kib}Ki"


def _volumes(asked: Submission) -> tuple[list[Manifest], list[Manifest]]:
    sources: list[tuple[Manifest, Mount]] = [
        *(({"hostPath": {"path": mount.source}}, mount) for mount in asked.volumes),
        *(({"persistentVolumeClaim": {"claimName": mount.source}}, mount) for mount in asked.claims),
    ]
    if asked.large_shm:
        sources.append(({"emptyDir": {"medium": "Memory"}}, Mount("", SHARED_MEMORY_PATH)))
    volumes, mounts = [], []
    for index, (source, mount) in enumerate(sources):
        volume_name = f"volume-{index}"
        volumes.append({"name": volume_name} | source)
        read_only = {"readOnly": True} if mount.read_only else {}
        mounts.append({"name": volume_name, "mountPath": mount.path} | read_only)
    return volumes, mounts


def _service_port(port: Port, service_type: str) -> Manifest:
    number = port.internal if service_type == "nodeport" else port.external
    described = {"name": f"{port.external}-port", "port": number, "targetPort": port.internal}
    return described | ({"nodePort": port.external} if service_type == "nodeport" and port.pinned else {})
