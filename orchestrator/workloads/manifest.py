"""What `submit` creates: a Submission as Kubernetes objects.

A train workload is a Job, an interactive one a StatefulSet of one pod (named `<name>-0`). Claims, secrets, Service
and Ingress stand beside the workload and belong to it, so that deleting the workload deletes them. Everything
here is pure: the time of submission and the uid of the owner come from the caller.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.quantity import cpu_milli, format_gpu, memory_bytes
from orchestrator.cluster.resources import CLAIMS, INGRESSES, JOBS, SECRETS, SERVICES, STATEFUL_SETS, Resource
from orchestrator.workloads import git_sync, rendezvous
from orchestrator.workloads.environment import environment, escaped
from orchestrator.workloads.network import ingress_manifest, service_manifest
from orchestrator.workloads.security import container_security_context, pod_security_context
from orchestrator.workloads.storage import HOME_PATH, claim_manifests, volumes_and_mounts
from orchestrator.workloads.submission import Submission
from orchestrator.workloads.values import Toleration

Manifest = dict[str, Any]

CPU_MILLI_PER_GPU: Final = 1000
MEMORY_KIB_PER_GPU: Final = 100 * 1024
BACKOFF_LIMIT: Final = 6
LONGEST_COMMAND_LINE: Final = 4096
"""Characters of the command line that are kept for display; variables may make one as long as a book."""


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
        **dict(asked.annotations),
        names.SUBMITTED_AT_ANNOTATION: placement.submitted_at,
        names.USER_ANNOTATION: asked.user,
        names.COMMAND_LINE_ANNOTATION: _for_display(asked.command_line),
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": _metadata(asked, placement) | {"annotations": annotations},
        "spec": _stateful_set_spec(asked, placement) if asked.interactive else _job_spec(asked, placement),
    }


def manifests_beside(
    asked: Submission,
    placement: Placement,
    owner: Mapping[str, Any] | None,
    taken_paths: Collection[str] = (),
) -> list[tuple[Resource, Manifest]]:
    """Return what stands beside the workload, in the order in which it is made.

    `owner` is None where nobody knows the workload's uid yet. `taken_paths` are paths of other ingresses.
    """
    metadata = _metadata(asked, placement)
    if owner is not None:
        metadata = metadata | {"ownerReferences": [owner]}
    found: list[tuple[Resource, Manifest | None]] = [
        *((CLAIMS, claim) for claim in claim_manifests(asked, metadata)),
        (SECRETS, git_sync.secret_manifest(asked, metadata)),
        (SERVICES, rendezvous.headless_service(asked, metadata)),
        (SERVICES, service_manifest(asked, metadata)),
        (INGRESSES, ingress_manifest(asked, placement.project, metadata, taken_paths)),
    ]
    return [(resource, body) for resource, body in found if body is not None]


def owner_reference(resource: Resource, name: str, uid: str) -> Manifest:
    """Return the reference by which an object is deleted together with its workload."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid}


def _for_display(command_line: str) -> str:
    if len(command_line) <= LONGEST_COMMAND_LINE:
        return command_line
    return command_line[: LONGEST_COMMAND_LINE - 4] + " ..."


def _metadata(asked: Submission, placement: Placement) -> Manifest:
    return {"name": asked.name, "namespace": placement.namespace, "labels": _labels(asked)}


def _labels(asked: Submission) -> dict[str, str]:
    return {**dict(asked.labels), names.WORKLOAD_LABEL: asked.name, names.TYPE_LABEL: asked.type}


def _job_spec(asked: Submission, placement: Placement) -> Manifest:
    spec: Manifest = {
        "backoffLimit": BACKOFF_LIMIT if asked.backoff_limit is None else asked.backoff_limit,
        # An evicted pod is replaced without counting as a failed attempt.
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": names.DISRUPTED_CONDITION, "status": "True"}],
                }
            ]
        },
        "template": _template(asked, placement, restart_policy="Never"),
    }
    optional = {
        "completionMode": "Indexed" if asked.rendezvous else None,
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
    annotations = {**dict(asked.annotations), names.SUBMITTED_AT_ANNOTATION: placement.submitted_at}
    if asked.is_fraction:
        annotations[names.GPU_FRACTION_ANNOTATION] = format_gpu(asked.gpu_milli)
    if asked.gpu_memory:
        annotations[names.GPU_MEMORY_ANNOTATION] = asked.gpu_memory
    if asked.gpu_devices is not None:
        annotations[names.GPU_FRACTION_DEVICES_ANNOTATION] = str(asked.gpu_devices)
    if asked.topology_required is not None:
        annotations[names.TOPOLOGY_REQUIRED_ANNOTATION] = asked.topology_required
    if asked.topology_preferred is not None:
        annotations[names.TOPOLOGY_PREFERRED_ANNOTATION] = asked.topology_preferred
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
    clone = git_sync.init_container(asked)
    optional: Manifest = {
        "initContainers": [clone] if clone else [],
        "volumes": _volumes(asked)[0],
        "nodeSelector": {names.NODE_TYPE_LABEL: asked.node_type} if asked.node_type else {},
        "tolerations": [_toleration(each) for each in asked.tolerations],
        "subdomain": asked.name if asked.rendezvous else "",
        "hostIPC": asked.host_ipc,
        "hostNetwork": asked.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if asked.host_network else "",
        "securityContext": pod_security_context(asked),
    }
    return spec | {key: value for key, value in optional.items() if value}


def _priority_class(asked: Submission) -> str:
    if not asked.interactive:
        return "muster-train"
    return "muster-interactive-preemptible" if asked.is_preemptible else "muster-interactive"


def _toleration(each: Toleration) -> Manifest:
    found: Manifest = {"key": each.key, "operator": "Exists" if each.value is None else "Equal"}
    if each.value is not None:
        found["value"] = each.value
    return found | ({"effect": each.effect} if each.effect else {})


def _container(asked: Submission) -> Manifest:
    home: list[Manifest] = [{"name": "HOME", "value": HOME_PATH}] if asked.home_directory else []
    optional: Manifest = {
        "imagePullPolicy": asked.image_pull_policy,
        "command": [escaped(word) for word in asked.command],
        "args": [escaped(word) for word in asked.args],
        "workingDir": asked.working_dir,
        "resources": _resources(asked),
        "ports": [{"containerPort": port.internal} for port in asked.ports],
        "volumeMounts": _volumes(asked)[1],
        "securityContext": container_security_context(asked),
        "stdin": asked.stdin,
        "stdinOnce": asked.stdin and asked.stdin_once,
        "tty": asked.tty,
    }
    variables = environment(asked, [*rendezvous.variables(asked), *home])
    container: Manifest = {"name": asked.name, "image": asked.image, "env": variables}
    return container | {key: value for key, value in optional.items() if value}


def _volumes(asked: Submission) -> tuple[list[Manifest], list[Manifest]]:
    volumes, mounts = volumes_and_mounts(asked)
    more_volumes, more_mounts = git_sync.volume_and_mount(asked)
    return volumes + more_volumes, mounts + more_mounts


def _resources(asked: Submission) -> Manifest:
    limits = {"cpu": asked.cpu_limit, "memory": asked.memory_limit} | dict(asked.extended_resources)
    requests = {"cpu": asked.cpu, "memory": asked.memory}
    if asked.wants_gpu:
        requests["cpu"] = requests["cpu"] or _default_cpu(asked)
        requests["memory"] = requests["memory"] or _default_memory(asked)
    if asked.gpu_milli and not asked.is_fraction:
        limits[names.GPU_RESOURCE] = str(asked.gpu_milli // 1000)
    parts = {"requests": requests, "limits": limits}
    filled = {
        part: {key: value for key, value in amounts.items() if value} for part, amounts in parts.items()
    }
    return {part: amounts for part, amounts in filled.items() if amounts}


def _gpu_milli_for_defaults(asked: Submission) -> int:
    """GPU memory has no size in GPUs before it is placed: it gets what one GPU gets."""
    return (asked.gpu_milli or 1000) * (asked.gpu_devices or 1)


def _default_cpu(asked: Submission) -> str:
    milli = _gpu_milli_for_defaults(asked) * CPU_MILLI_PER_GPU // 1000
    if asked.cpu_limit:
        milli = min(milli, cpu_milli(asked.cpu_limit))
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _default_memory(asked: Submission) -> str:
    kib = max(1, _gpu_milli_for_defaults(asked) * MEMORY_KIB_PER_GPU // 1000)
    if asked.memory_limit and memory_bytes(asked.memory_limit) < kib * 1024:
        return asked.memory_limit
    return f"{kib // 1024}Mi" if kib % 1024 == 0 else f"{kib}Ki"
