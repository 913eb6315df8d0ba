"""Renders a Submission as Kubernetes objects.

A train workload is a Job, an interactive one a StatefulSet of one pod (named `<name>-0`). PVCs, secrets, Service and
Ingress have the workload as their owner, so that deleting the workload deletes them. All functions are pure: the time
of submission and the uid of the owner come from the caller.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.cluster.quantity import format_bytes, format_cpu
from orchestrator.cluster.resources import CLAIMS, INGRESSES, JOBS, SECRETS, SERVICES, STATEFUL_SETS, Resource
from orchestrator.submit import code, git_sync, memory_limits, protection, rendezvous
from orchestrator.submit.dependencies import annotation_of
from orchestrator.submit.environment import environment, escaped
from orchestrator.submit.network import (
    DEFAULT_INGRESS,
    IngressSettings,
    ingress_manifest,
    service_manifest,
)
from orchestrator.submit.storage import claim_manifests, volumes_and_mounts
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import CODE_PATH, HOME_PATH, RunAs, Toleration

Manifest = dict[str, Any]

CPU_MILLI_PER_GPU: Final = 1000
MEMORY_KIB_PER_GPU: Final = 100 * 1024
BACKOFF_LIMIT: Final = 6
MAX_COMMAND_LINE: Final = 4096
"""Maximum length of the stored command line in characters; values of variables can make it very long."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The namespace of a submission, and its time (RFC 3339 with microseconds).

    `is_restricted`: pods of the namespace must satisfy the level restricted of Pod Security. `limits_gpu_memory`: pods
    with a GPU fraction mount the library that limits GPU memory. `ingress`: the class and host of its Ingresses.
    """

    project: str
    namespace: str
    submitted_at: str
    is_restricted: bool = False
    limits_gpu_memory: bool = False
    ingress: IngressSettings = DEFAULT_INGRESS


def workload_resource(submission: Submission) -> Resource:
    """Return the resource of the workload's object: Job or StatefulSet."""
    return STATEFUL_SETS if submission.interactive else JOBS


def workload_manifest(submission: Submission, placement: Placement) -> Manifest:
    """Return the Job or StatefulSet of the submission."""
    resource = workload_resource(submission)
    annotations = {
        **dict(submission.annotations),
        names.SUBMITTED_AT_ANNOTATION: placement.submitted_at,
        names.USER_ANNOTATION: submission.user,
        names.COMMAND_LINE_ANNOTATION: _for_display(submission.command_line),
    }
    if submission.snapshot_on_success:
        annotations[names.SNAPSHOT_ON_SUCCESS_ANNOTATION] = "true"
    if submission.after:
        annotations[names.AFTER_ANNOTATION] = annotation_of(submission.after)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": _metadata(submission, placement) | {"annotations": annotations},
        "spec": _stateful_set_spec(submission, placement)
        if submission.interactive
        else _job_spec(submission, placement),
    }


def dependent_manifests(
    submission: Submission,
    placement: Placement,
    owner: Mapping[str, Any] | None,
    used_paths: Collection[str] = (),
) -> list[tuple[Resource, Manifest]]:
    """Return the objects beside the Job or StatefulSet, in the order of their creation.

    `owner` is None while the workload's uid is unknown. `used_paths` are paths of other ingresses on the same host.
    """
    metadata = _metadata(submission, placement)
    if owner is not None:
        metadata = metadata | {"ownerReferences": [owner]}
    manifests: list[tuple[Resource, Manifest | None]] = [
        *((CLAIMS, claim) for claim in claim_manifests(submission, metadata)),
        (SECRETS, git_sync.secret_manifest(submission, metadata)),
        (SECRETS, code.secret_manifest(submission, metadata)),
        (SERVICES, rendezvous.headless_service(submission, metadata)),
        (SERVICES, service_manifest(submission, metadata)),
        (INGRESSES, ingress_manifest(submission, placement.project, metadata, used_paths, placement.ingress)),
    ]
    return [(resource, body) for resource, body in manifests if body is not None]


def owner_reference(resource: Resource, name: str, uid: str) -> Manifest:
    """Return the owner reference. Kubernetes then deletes the object together with its workload."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid}


def _for_display(command_line: str) -> str:
    if len(command_line) <= MAX_COMMAND_LINE:
        return command_line
    return command_line[: MAX_COMMAND_LINE - 4] + " ..."


def _metadata(submission: Submission, placement: Placement) -> Manifest:
    return {"name": submission.name, "namespace": placement.namespace, "labels": _labels(submission)}


def _labels(submission: Submission) -> dict[str, str]:
    return {
        **dict(submission.labels),
        names.WORKLOAD_LABEL: submission.name,
        names.TYPE_LABEL: submission.type,
    }


def _exposed(submission: Submission) -> dict[str, str]:
    """Return the label of pods behind a NodePort or load balancer: the default NetworkPolicies allow all traffic to
    them.
    """
    return {names.EXPOSED_LABEL: "true"} if submission.service_type in ("nodeport", "loadbalancer") else {}


def _job_spec(submission: Submission, placement: Placement) -> Manifest:
    retries = BACKOFF_LIMIT if submission.backoff_limit is None else submission.backoff_limit
    spec: Manifest = {
        ("backoffLimitPerIndex" if submission.indexed else "backoffLimit"): retries,
        # An evicted pod is replaced without counting as a failed attempt.
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": names.DISRUPTED_CONDITION, "status": "True"}],
                }
            ]
        },
        "template": _template(submission, placement, restart_policy="Never"),
    }
    optional = {
        "completionMode": "Indexed" if submission.rendezvous or submission.indexed else None,
        "completions": submission.completions,
        "parallelism": submission.parallelism,
        "ttlSecondsAfterFinished": submission.ttl_seconds,
        "suspend": True if submission.after else None,
    }
    return spec | {key: value for key, value in optional.items() if value is not None}


def _stateful_set_spec(submission: Submission, placement: Placement) -> Manifest:
    return {
        "replicas": 1,
        "serviceName": submission.name,
        "selector": {"matchLabels": {names.WORKLOAD_LABEL: submission.name}},
        "template": _template(submission, placement, restart_policy="Always"),
    }


def _template(submission: Submission, placement: Placement, restart_policy: str) -> Manifest:
    return {
        "metadata": {
            "labels": _labels(submission) | _exposed(submission),
            "annotations": _pod_annotations(submission, placement),
        },
        "spec": _pod_spec(submission, placement) | {"restartPolicy": restart_policy},
    }


def _pod_annotations(submission: Submission, placement: Placement) -> dict[str, str]:
    annotations = {**dict(submission.annotations), names.SUBMITTED_AT_ANNOTATION: placement.submitted_at}
    if submission.is_fraction:
        annotations[names.GPU_FRACTION_ANNOTATION] = format_gpu(submission.gpu_milli)
    if submission.gpu_memory_bytes:
        annotations[names.GPU_MEMORY_ANNOTATION] = format_bytes(submission.gpu_memory_bytes)
    if submission.gpu_devices is not None:
        annotations[names.GPU_FRACTION_DEVICES_ANNOTATION] = str(submission.gpu_devices)
    if submission.topology_required is not None:
        annotations[names.TOPOLOGY_REQUIRED_ANNOTATION] = submission.topology_required
    if submission.topology_preferred is not None:
        annotations[names.TOPOLOGY_PREFERRED_ANNOTATION] = submission.topology_preferred
    if submission.min_member is not None:
        annotations[names.MIN_MEMBER_ANNOTATION] = str(submission.min_member)
    # The annotation is needed only if it differs from the default, which is `not interactive`.
    if submission.is_preemptible == submission.interactive:
        annotations[names.PREEMPTIBLE_ANNOTATION] = str(submission.is_preemptible).lower()
    return annotations


def _pod_spec(submission: Submission, placement: Placement) -> Manifest:
    spec: Manifest = {
        "schedulerName": names.SCHEDULER_NAME,
        "priorityClassName": _priority_class(submission),
        "containers": [_container(submission, placement)],
    }
    before = [git_sync.init_container(submission), _unpacking(submission)]
    init_containers = [container for container in before if container is not None]
    if placement.is_restricted:
        for container in (*spec["containers"], *init_containers):
            container["securityContext"] = protection.restricted(container.get("securityContext", {}))
    optional: Manifest = {
        "initContainers": init_containers,
        "volumes": _volumes(submission, placement)[0],
        "nodeSelector": {names.NODE_TYPE_LABEL: submission.node_type} if submission.node_type else {},
        "tolerations": [_toleration(toleration) for toleration in submission.tolerations],
        "subdomain": submission.name if submission.rendezvous else "",
        "imagePullSecrets": [{"name": name} for name in submission.image_pull_secrets],
        "activeDeadlineSeconds": submission.time_limit_seconds,
        "hostIPC": submission.host_ipc,
        "hostNetwork": submission.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if submission.host_network else "",
        "securityContext": _pod_security_context(submission)
        | (protection.RESTRICTED_POD if placement.is_restricted else {}),
    }
    return spec | {key: value for key, value in optional.items() if value}


def _unpacking(submission: Submission) -> Manifest | None:
    escalation = submission.privilege_escalation
    context: Manifest = {} if escalation is None else {"allowPrivilegeEscalation": escalation}
    return code.init_container(submission, context)


def _priority_class(submission: Submission) -> str:
    if not submission.interactive:
        return "muster-train"
    return "muster-interactive-preemptible" if submission.is_preemptible else "muster-interactive"


def _toleration(toleration: Toleration) -> Manifest:
    rendered: Manifest = {
        "key": toleration.key,
        "operator": "Exists" if toleration.value is None else "Equal",
    }
    if toleration.value is not None:
        rendered["value"] = toleration.value
    return rendered | ({"effect": toleration.effect} if toleration.effect else {})


def _container(submission: Submission, placement: Placement) -> Manifest:
    home: list[Manifest] = [{"name": "HOME", "value": HOME_PATH}] if submission.home_directory else []
    optional: Manifest = {
        "imagePullPolicy": submission.image_pull_policy,
        "command": [*_uv_run(submission), *(escaped(word) for word in submission.command)],
        "args": [escaped(word) for word in submission.args],
        "workingDir": submission.working_dir or (None if submission.code is None else CODE_PATH),
        "resources": _resources(submission),
        "ports": [{"containerPort": port.internal} for port in submission.ports],
        "volumeMounts": _volumes(submission, placement)[1],
        "securityContext": _container_security_context(submission),
        "stdin": submission.stdin,
        "stdinOnce": submission.stdin and submission.stdin_once,
        "tty": submission.tty,
    }
    variables = environment(submission, [*rendezvous.variables(submission), *home])
    container: Manifest = {"name": submission.name, "image": submission.image, "env": variables}
    return container | {key: value for key, value in optional.items() if value}


def _uv_run(submission: Submission) -> list[str]:
    """Return the words before a command that uv runs. The options are those of uv 0.13."""
    return [] if submission.python is None else ["uv", "run", "--python", submission.python, "--"]


def _volumes(submission: Submission, placement: Placement) -> tuple[list[Manifest], list[Manifest]]:
    volumes, mounts = volumes_and_mounts(submission)
    more = [git_sync.volume_and_mount(submission), code.volumes_and_mounts(submission)]
    if placement.limits_gpu_memory:
        more.append(memory_limits.volumes_and_mounts(submission))
    for more_volumes, more_mounts in more:
        volumes, mounts = volumes + more_volumes, mounts + more_mounts
    return volumes, mounts


def _pod_security_context(submission: Submission) -> Manifest:
    run_as = submission.run_as or RunAs()
    fields = {
        "runAsUser": run_as.uid,
        "runAsGroup": run_as.gid,
        "supplementalGroups": list(run_as.groups) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _container_security_context(submission: Submission) -> Manifest:
    context: Manifest = {}
    if submission.privilege_escalation is not None:
        context["allowPrivilegeEscalation"] = submission.privilege_escalation
    if submission.capabilities:
        context["capabilities"] = {"add": list(submission.capabilities)}
    return context


def _resources(submission: Submission) -> Manifest:
    cpu_milli, memory_bytes = submission.cpu_milli, submission.memory_bytes
    if submission.wants_gpu:
        # A request for GPU memory counts as whole GPUs.
        gpu_milli = (submission.gpu_milli or 1000) * (submission.gpu_devices or 1)
        cpu_milli = cpu_milli or default_cpu_milli(gpu_milli, submission.cpu_limit_milli)
        memory_bytes = memory_bytes or default_memory_bytes(gpu_milli, submission.memory_limit_bytes)
    requests = _amounts(cpu_milli, memory_bytes)
    limits = _amounts(submission.cpu_limit_milli, submission.memory_limit_bytes)
    limits |= {name: str(count) for name, count in submission.extended_resources}
    if submission.gpu_milli and not submission.is_fraction:
        limits[names.GPU_RESOURCE] = str(submission.gpu_milli // 1000)
    elif submission.wants_gpu:
        limits[names.GPU_PART_RESOURCE] = "1"
    return {part: amounts for part, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _amounts(cpu_milli: int, memory_bytes: int) -> dict[str, str]:
    amounts = {"cpu": format_cpu(cpu_milli)} if cpu_milli else {}
    return amounts | ({"memory": format_bytes(memory_bytes)} if memory_bytes else {})


def default_cpu_milli(gpu_milli: int, limit_milli: int) -> int:
    """Return the CPU request of a pod with these GPUs. It does not exceed the limit, if that is not 0."""
    cpu_milli = gpu_milli * CPU_MILLI_PER_GPU // 1000
    return min(cpu_milli, limit_milli) if limit_milli else cpu_milli


def default_memory_bytes(gpu_milli: int, limit_bytes: int) -> int:
    """Return the memory request of a pod with these GPUs. It does not exceed the limit, if that is not 0."""
    memory_bytes = max(1, gpu_milli * MEMORY_KIB_PER_GPU // 1000) * 1024
    return min(memory_bytes, limit_bytes) if limit_bytes else memory_bytes
