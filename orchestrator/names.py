"""All names of muster's objects, labels and annotations in Kubernetes. Every layer except the planner imports them."""

from typing import Final

GROUP: Final = "muster.dev"
SCHEDULER_NAME: Final = "muster"
SYSTEM_NAMESPACE: Final = "muster-system"
NAMESPACE_PREFIX: Final = "muster-"

TEMPLATES_NAMESPACE: Final = "muster-system-templates"
"""The namespace of the templates of the cluster, which all users may read; it has nothing else."""

LOWEST_KUBERNETES: Final = "1.30.0"
"""The oldest supported release of Kubernetes: the first with ValidatingAdmissionPolicies in v1. These keep projects
apart. A test compares it with the installer's matrix and the lab's build of that release.
"""

LEASE_NAME: Final = "muster-operator"
"""The Lease in the system namespace by which the replicas of the operator elect their leader."""

GPU_RESOURCE: Final = "nvidia.com/gpu"
GPU_DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's driver for dynamic resource allocation, which publishes GPUs in slices."""

CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Kubernetes' own finalizer on a ResourceClaim that has devices."""

PROJECT_LABEL: Final = f"{GROUP}/project"
"""On a namespace: the project whose workloads live there, so that selectors find it.

The label alone proves nothing: see `orchestrator.observe.namespaces`.
"""

POD_SECURITY_LABEL: Final = f"{GROUP}/pod-security"
"""On a project's namespace: the level of the Pod Security Standards that its pods must meet. The policies read it."""

READ_ONLY_DIRECTORIES_ANNOTATION: Final = f"{GROUP}/read-only-directories"
"""On a project's namespace: comma separated directories, `/path` of nodes or `server:/path`, that pods may mount
read only. Pods may also mount every path below these directories.
"""

WRITABLE_DIRECTORIES_ANNOTATION: Final = f"{GROUP}/writable-directories"
"""On a project's namespace: directories of the same form that pods may mount for writing.

Pods may not mount paths below these directories.
"""

CLOSED_DIRECTORIES_ANNOTATION: Final = f"{GROUP}/closed-directories"
"""On a project's namespace: directories of the same form in which other projects write.

Pods may not mount paths below these directories.
"""

PRIORITY_CLASSES_ANNOTATION: Final = f"{GROUP}/priority-classes"
"""On a project's namespace: comma separated PriorityClasses that its pods may have besides muster's own."""

MAX_TERMINATION_GRACE_ANNOTATION: Final = f"{GROUP}/max-termination-grace-seconds"
"""On a project's namespace: the longest termination grace period that its pods may have."""

INGRESS_DOMAIN_ANNOTATION: Final = f"{GROUP}/ingress-domain"
"""On a project's namespace: the domain under which the hosts of its Ingresses must be."""

INGRESS_CLASS_ANNOTATION: Final = f"{GROUP}/ingress-class"
"""On a project's namespace: the IngressClass of its jobs' Ingresses, if it is not the default."""

INGRESS_HOST_ANNOTATION: Final = f"{GROUP}/ingress-host"
"""On a project's namespace: the host of its jobs' Ingresses, if the operator has a domain.

All Ingresses of the namespace must then have hosts.
"""

SCHEDULER_ANNOTATION: Final = f"{GROUP}/scheduler"
"""On a project's namespace: the scheduler that pods with GPUs must name, instead of muster's."""

CONTROL_PLANE_ANNOTATION: Final = f"{GROUP}/control-plane"
"""On a project's namespace: `true` says that its pods may tolerate the taint of the nodes of the control plane."""

DEVICE_RESOURCES_ANNOTATION: Final = f"{GROUP}/device-resources"
"""On a project's namespace: comma separated extended resources of DeviceClasses."""

EXPOSED_LABEL: Final = f"{GROUP}/exposed"
"""On pods: `true` says that a NodePort or a load balancer leads to them, so that all clients may reach them."""

NETWORK_POLICY_NAMES: Final = ("muster-default", "muster-default-exposed")
"""The NetworkPolicies in a project's namespace: for all pods, and for exposed pods."""

WORKLOAD_LABEL: Final = f"{GROUP}/workload"
"""On a workload, its pods, service and ingress: the name under which it was submitted."""

TYPE_LABEL: Final = f"{GROUP}/type"
"""On a workload and its pods: `train` or `interactive`."""

GPU_FRACTION_ANNOTATION: Final = f"{GROUP}/gpu-fraction"
"""On a pod: its fraction of one GPU, a decimal string above 0 and below 1, at most three digits after the point."""

GPU_MEMORY_ANNOTATION: Final = f"{GROUP}/gpu-memory"
"""On a pod: the memory of one GPU that it asks for, a quantity such as 4G; instead of a fraction."""

GPU_FRACTION_DEVICES_ANNOTATION: Final = f"{GROUP}/gpu-fraction-devices"
"""On a pod with a fraction or GPU memory: the number of GPUs. The pod requests the fraction or memory on each of
these GPUs. If absent, the number is 1.
"""

GPU_PART_RESOURCE: Final = f"{GROUP}/gpu-part"
"""An extended resource that no node has. Each container with a GPU fraction has 1 of it in its limits.

If a ResourceClaim is made after the pod, the kubelet gives its devices only to containers that request an extended
resource.
"""

GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""On a node: the memory of each of its GPUs in MiB, written by GPU feature discovery."""

GPU_DEVICES_ANNOTATION: Final = f"{GROUP}/gpu-devices"
"""On a pod, written in the same request that binds it: comma separated indices of its GPUs on the node."""

GPU_MEMORY_LIMITS_ANNOTATION: Final = f"{GROUP}/gpu-memory-limits"
"""On a pod with a GPU fraction, written in the request that binds it: lines `GPU-<uuid> <bytes>`, the limits of the
library in its containers.
"""

GPU_UUIDS_ANNOTATION: Final = f"{GROUP}/gpu-uuids"
"""On a pod with a GPU fraction of a device plugin: comma separated UUIDs of its GPUs.

It is written in the request that binds the pod. The containers have the value as NVIDIA_VISIBLE_DEVICES.
"""

GPU_RESERVATIONS_ANNOTATION: Final = f"{GROUP}/gpu-reservations"
"""On a pod with GPU_UUIDS_ANNOTATION, in the order of its UUIDs: the uids of the reservations that hold these GPUs."""

RESERVATION_LABEL: Final = f"{GROUP}/gpu-reservation"
"""`true` on pods of the system namespace that hold a GPU of a device plugin for pods with fractions of this GPU."""

RESERVATION_PRIORITY_CLASS: Final = "muster-reservation"
"""The PriorityClass of reservation pods.

A kubelet short of disk, memory or processes ends pods with a lower priority first.
"""

RESERVATION_PRIORITY: Final = 1_000_000

GPU_MEMORY_DIRECTORY: Final = "/var/lib/muster/gpu-memory"
"""On nodes: where an agent puts the library that limits device memory, for the containers of jobs to mount."""

ADMITTED_ANNOTATION: Final = f"{GROUP}/admitted"
"""On a pod, written in the request that binds it: the pod's own uid.

A template cannot contain the uid, so the annotation distinguishes pods that muster bound from pods of other schedulers.
"""

NOMINATED_DEVICES_ANNOTATION: Final = f"{GROUP}/nominated-devices"
"""On a nominated pod, beside `status.nominatedNodeName` and written in the same request: comma separated indices of the
GPUs that are reserved for it. The binding empties it.
"""

SUCCESSOR_NOMINATION_ANNOTATION: Final = f"{GROUP}/successor-nomination"
"""On a pod that muster evicts: the nomination of its successor, the pod that its controller makes next.

`node:0,1` is the successor's node and the indices of its GPUs there. The nomination counts only after the API server
itself reports the eviction.
"""

MIN_MEMBER_ANNOTATION: Final = f"{GROUP}/min-member"
"""On a pod (from its owner's template): the gang minimum, the minimum number of running pods of the workload."""

PREEMPTIBLE_ANNOTATION: Final = f"{GROUP}/preemptible"
"""On a pod: `true` or `false`. Absent: train is preemptible, interactive is not."""

SUBMITTED_AT_ANNOTATION: Final = f"{GROUP}/submitted-at"
"""On a workload and its pods: RFC 3339 with microseconds.

It orders workloads that were created within the same second.
"""

QUEUED_SINCE_ANNOTATION: Final = f"{GROUP}/queued-since"
"""On a workload that was requeued: the time, as above. The queue order uses it if it is later than the creation."""

PRIORITY_ANNOTATION: Final = f"{GROUP}/priority"
"""On a workload: one of PRIORITY_CLASSES, which replaces the priority of its pods. The pods of a job cannot change it.
"""

EDIT_OF_ANNOTATION: Final = f"{GROUP}/edit-of"
"""On the suspended copy of a Job that is being replaced: `NAME:UID:SUSPENDED` of that Job. See `client/editing.py`."""

EDIT_AFTER_ANNOTATION: Final = f"{GROUP}/edit-after"
"""On such a copy: the Job's value of AFTER_ANNOTATION, under another name so that the operator ignores it."""

USER_ANNOTATION: Final = f"{GROUP}/user"
"""On a workload: its user, for display."""

COMMAND_LINE_ANNOTATION: Final = f"{GROUP}/command-line"
"""On a workload: the command line that created it, for display."""

SNAPSHOT_ON_SUCCESS_ANNOTATION: Final = f"{GROUP}/snapshot-on-success"
"""On a Job: `true` says that the volumes of its pods are kept as snapshots when it has succeeded."""

SNAPSHOTS_ANNOTATION: Final = f"{GROUP}/snapshots"
"""On a Job that has succeeded, written by the operator: the snapshots of its volumes, comma separated names."""

AFTER_ANNOTATION: Final = f"{GROUP}/after"
"""On a suspended Job: its unmet dependencies, comma separated `JOB:STATE:UID`.

The operator removes each dependency that is met. When it removes the last one, it starts the Job.
"""

TIMED_OUT_ANNOTATION: Final = f"{GROUP}/timed-out-at"
"""On a StatefulSet or Job that was stopped because it ran longer than its project allows: the time of the stop, RFC
3339.
"""

SUSPENDED_REPLICAS_ANNOTATION: Final = f"{GROUP}/suspended-replicas"
"""On a suspended StatefulSet: the number of replicas that it had."""

TEMPLATE_LABEL: Final = f"{GROUP}/template"
"""On a ConfigMap: `true` says that it is a template for submit."""

DEFAULT_TEMPLATE_ANNOTATION: Final = f"{GROUP}/default"
"""On a template: `true` says that every submit uses it."""

TOPOLOGY_REQUIRED_ANNOTATION: Final = f"{GROUP}/topology-required"
"""On a pod: the topology level. All pods of its workload run in one domain of this level. The value is a node label
or the last part of its name.
"""

TOPOLOGY_PREFERRED_ANNOTATION: Final = f"{GROUP}/topology-preferred"
"""On a pod: the preferred level. The scheduler tries it first; if the workload does not fit, it ignores the level."""

SUB_GROUPS_ANNOTATION: Final = f"{GROUP}/sub-groups"
"""On a pod: the tree of gangs of its workload as JSON, see `orchestrator.observe.sub_groups`."""

SUB_GROUP_ANNOTATION: Final = f"{GROUP}/sub-group"
"""On a pod: its leaf in the tree of SUB_GROUPS_ANNOTATION. If absent, the index in an indexed Job decides."""

COMPLETION_INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
"""On a pod of an indexed Job: its index, as Kubernetes writes it."""

NODE_TYPE_LABEL: Final = "run.ai/type"
"""On a node: its type.

Projects and `--node-type` choose nodes by type. The label has the name of Run:ai, because sites have it already.
"""

TRAIN: Final = "train"
INTERACTIVE: Final = "interactive"

PRIORITY_CLASSES: Final = {
    "muster-train": 50,
    "muster-interactive-preemptible": 75,
    "muster-interactive": 100,
    "muster-inference": 125,
}

SETTINGS_CONFIG_MAP: Final = "muster-settings"
"""The ConfigMap in the operator's namespace with the leader's settings."""

SKIPPED_CONFIG_MAP: Final = "muster-skipped"
"""The ConfigMap in the operator's namespace in which the leader lists the skipped objects, which no decision counts."""

FIRST_DECISIONS_CONFIG_MAP: Final = "muster-first-decisions"
"""The ConfigMap in the operator's namespace that lists the workloads on which the running decision decides for the
first time.
"""

MEMBERS_BINDING: Final = "muster-members"
"""The RoleBinding in a project's namespace that gives its members the role of researcher."""

OBJECTS_QUOTA: Final = "muster-objects"
"""The ResourceQuota in a project's namespace that counts its pods and Jobs, and the storage that its PVCs request."""

DEFAULT_ACCOUNT: Final = "default"
"""The service account of pods that name no account. Kubernetes creates it in every namespace."""

OPERATOR_ACCOUNT: Final = "muster-operator"
"""The operator's ServiceAccount in the system namespace."""

OPERATOR_BINDING: Final = "muster-operator"
"""The RoleBinding in a project's namespace that lets the operator write there."""

WRITER_ROLE: Final = "muster-operator-writer"
"""The ClusterRole that `OPERATOR_BINDING` gives the operator in a project's namespace."""

UNHEALTHY_KEY: Final = f"{GROUP}/unhealthy"
"""Label or taint of an unhealthy node.

It gets no new pods, and its running pods are migrated. The value can be the reason.
"""

DRAINED: Final = "drained"
"""The value of UNHEALTHY_KEY on a drained node. `muster node drain` sets it, and `muster node uncordon` removes it."""

UNHEALTHY_GPUS_ANNOTATION: Final = f"{GROUP}/unhealthy-gpus"
"""On a node: comma separated indices of its GPUs that must not be used."""

FAILED_GPUS_ANNOTATION: Final = f"{GROUP}/failed-gpus"
"""On a node, written only by its agent: comma separated indices of the GPUs that have failed.

These GPUs and those of UNHEALTHY_GPUS_ANNOTATION must not be used.
"""

LOST_GPUS_ANNOTATION: Final = f"{GROUP}/lost-gpus"
"""On a node, written only by its agent: the indices of those failed GPUs that do not answer the driver any more."""

IMAGE_VARIABLE: Final = "MUSTER_IMAGE"
"""Environment variable of the operator: the image of the operator, which reservation pods run too."""

LAST_OBJECT_VARIABLE: Final = "MUSTER_LAST_OBJECT"
"""Environment variable of the operator: path of the file with the object that it handles.

The file outlives the container.
"""

AGENT_ACCOUNT: Final = "muster-agent"
"""The agent's ServiceAccount and DaemonSet in the agents' namespace."""

AGENT_NAMESPACE: Final = "muster-system-agent"
"""The namespace of the agents. Agents see all processes of their node, and pods in the operator's namespace may not."""

WEB_ACCOUNT: Final = "muster-web"
"""The ServiceAccount, Deployment and Service of the pages, in the system namespace."""

EVICTION_REASON_ANNOTATION: Final = f"{GROUP}/eviction-reason"
"""On a pod that muster evicts, before its containers get the signal to end: the preemptor, and the rule."""

CHECKPOINT_GRACE_ANNOTATION: Final = f"{GROUP}/checkpoint-grace-seconds"
"""On a pod: seconds that it needs after an eviction to save a checkpoint. Replaces its termination grace period."""

SELECTED_NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
"""On a PVC whose storage class waits for the first consumer: the node for which its provisioner must create the
volume.
"""

HOST_FAULT_CONDITION: Final = f"{GROUP}/HostFault"
"""On a node, written by its agent: `True` says that the host has a fault, so no new pod with GPUs is placed there.
`Unknown` says that the agent cannot read a fact of the host.
"""

STUCK_CONDITION: Final = f"{GROUP}/Stuck"
"""Condition of a bound pod, written by the operator: its node is not ready, or it has not ended after its grace period.

The reason and the message distinguish the cases.
"""

OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
"""Kubernetes' own taint on a node that is not ready because it is switched off.

Kubernetes then deletes its pods without the kubelet.
"""

DISRUPTED_CONDITION: Final = "DisruptionTarget"
"""Condition of a pod that ends because of a disruption: an eviction, a drain or a lost node.

The Job controller reads it.
"""

EVICTION_REASON: Final = "EvictionByEvictionAPI"
"""Reason of the `DisruptionTarget` condition that the API server puts on a pod before it evicts it."""

LAB_ANNOTATIONS: Final = {
    f"{GROUP}/lab-run-seconds": r"[0-9]{1,9}(\.[0-9]{1,9})?",
    f"{GROUP}/lab-stop-seconds": r"[0-9]{1,9}(\.[0-9]{1,9})?",
    f"{GROUP}/lab-exit-code": r"[0-9]{1,3}",
}
"""Annotations of a pod that the simulated nodes of a lab read, with the form of their values. Other nodes ignore them.
Users may set them."""
