"""The kinds of controllers of other projects, and the gang size that each of them implies. Pure.

A controller's `Gang` are the pods that must run together: a number of pods, or groups by a label of the pods. Some
controllers create a group only after other groups run or have ended. The gang does not require such a group, called
`later`, because it would wait forever.

    JobSet            every replicated job with all pods of all its Jobs; those that wait for others (`dependsOn`,
                      `InOrder`) are later
    LeaderWorkerSet   each group is a gang: leader and workers; workers that are created after the leader are later
    RayCluster        the head, and of each group of workers `minReplicas`
    PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob
                      `runPolicy.schedulingPolicy.minAvailable`, else all replicas, or the minimum of elastic workers
    MPIJob            the same; a launcher that is created when the workers are ready is not required
    TrainJob, RayJob  the gang of the JobSet or RayCluster that it creates
    any other         one pod: Deployment, StatefulSet, Job

The fields are those of `cluster.controller_objects`. The labels and rules come from the same trees:
jobset: labels in api/jobset/v1alpha2/jobset_types.go; pkg/webhooks/pod_webhook.go refuses the other pods of a Job with
exclusive placement until the first one has a node.
lws: labels in leaderworkerset_types.go; pkg/controllers/pod_controller.go makes the workers' StatefulSet, owned by the
leader's pod, when that is ready (LeaderReady) or has a node (exclusive topology).
kuberay: labels in ray-operator/controllers/ray/utils/constant.go; `CalculateMinReplicas` in util.go; a RayJob owns its
RayCluster and the Job that submits to it (rayjob_controller.go).
mpi-operator: pkg/controller/mpi_job_controller.go makes the launcher, as a Job, when `launcherCreationPolicy` says.
trainer v2 (8c0f505): pkg/runtime/framework/plugins/jobset/jobset.go, a TrainJob owns a JobSet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from orchestrator.cluster.controller_objects import (
    JobSetSpec,
    KubeflowSpec,
    LeaderWorkerSetSpec,
    RayClusterSpec,
    ReplicaSpec,
    ReplicatedJob,
    Specified,
)
from orchestrator.cluster.wire import Object, OwnerReference

MAX_MEMBERS: Final = 1_000_000
MAX_PARTS: Final = 100
"""Maximum number of parts of a gang. A gang with more parts counts as one number of pods, without parts."""

JOBSET_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_EXCLUSIVE_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NODE_SELECTOR_ANNOTATION: Final = "alpha.jobset.sigs.k8s.io/node-selector"
LWS_GROUP_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_EXCLUSIVE_ANNOTATION: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
RAY_GROUP_LABEL: Final = "ray.io/group"
RAY_HEAD_GROUP: Final = "headgroup"

OTHERS: Final = "others"
"""The part of pods that belong to no other part; none of them is required."""


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of a gang whose label has this `value`; None: all other values. At least `minimum` of them must run."""

    name: str
    minimum: int
    value: str | None
    later: bool = False


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods that must run together: `minimum` pods, or the minimum of each part; parts differ by `label`."""

    minimum: int = 1
    label: str = ""
    parts: tuple[Part, ...] = ()

    def part_of(self, labels: Mapping[str, str]) -> str:
        """Return the name of the part of a pod with these labels; empty if the gang has no parts."""
        if not self.parts:
            return ""
        value = labels.get(self.label)
        return next((part.name for part in self.parts if part.value is None or part.value == value), OTHERS)


ALONE: Final = Gang()


class Controller(Object, frozen=True):
    """A controller of a kind in `KINDS`. `problem`: the reason of an unreadable gang, which counts as one pod."""

    kind: str = ""
    gang: Gang | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ControllerKind:
    """One kind of controller.

    `gang` returns the gang from the specification (JSON) and the annotations; None: the kind implies no gang. `parents`
    are the kinds of owners that are followed upward; None: all. `group_label`: the pods of each value of this label are
    a separate workload.
    """

    group: str
    plural: str
    kind: str
    gang: Callable[[bytes, Mapping[str, str]], Gang] | None = None
    parents: tuple[tuple[str, str], ...] | None = ()
    group_label: str = ""


def key_of(reference: OwnerReference) -> tuple[str, str]:
    """Return API group and kind of the referenced object."""
    return _key(reference.api_version, reference.kind)


@lru_cache(maxsize=1024)
def _key(api_version: str, kind: str) -> tuple[str, str]:
    return api_version.rpartition("/")[0], kind


def climbs(kind: tuple[str, str], parent: tuple[str, str]) -> bool:
    """Return whether the pods below an object of `kind` belong to the workload of its owner, of kind `parent`."""
    if parent in ROOTS:
        return False
    known = CONTROLLERS.get(kind)
    return known is None or known.parents is None or parent in known.parents


def decode(raw: bytes | msgspec.Raw, kind: ControllerKind) -> Controller:
    """Return the controller. Raises msgspec.DecodeError if its metadata cannot be read."""
    metadata = _OBJECT.decode(raw).metadata
    if kind.gang is None:
        return Controller(metadata=metadata, kind=kind.kind)
    try:
        gang = kind.gang(bytes(_SPECIFIED.decode(raw).spec), metadata.annotations)
    except msgspec.DecodeError as error:
        return Controller(metadata=metadata, kind=kind.kind, problem=str(error))
    return Controller(metadata=metadata, kind=kind.kind, gang=gang)


def _jobset(spec: bytes, annotations: Mapping[str, str]) -> Gang:
    form = _JOBSET.decode(spec)
    in_order = form.startup_policy is not None and form.startup_policy.startup_policy_order == "InOrder"
    parts = tuple(
        Part(job.name, members, job.name, later=bool(job.depends_on) or (in_order and number > 0))
        for number, job in enumerate(form.replicated_jobs)
        if (members := _replicated(job, annotations))
    )
    return _of_parts(JOBSET_JOB_LABEL, parts)


def _replicated(job: ReplicatedJob, annotations: Mapping[str, str]) -> int:
    """Return the number of pods of a replicated job that are created before one of them has a node."""
    spec = job.template.spec
    pods = 1 if spec.parallelism is None else spec.parallelism
    pods = pods if spec.completions is None else min(pods, spec.completions)
    is_exclusive = _is_exclusive(annotations) or _is_exclusive(job.template.metadata.annotations)
    if pods > 0 and is_exclusive:
        pods = 1
    return _bounded(pods) * _bounded(job.replicas)


def _is_exclusive(annotations: Mapping[str, str]) -> bool:
    return JOBSET_EXCLUSIVE_ANNOTATION in annotations and JOBSET_NODE_SELECTOR_ANNOTATION not in annotations


def _leader_worker_set(spec: bytes, annotations: Mapping[str, str]) -> Gang:
    form = _LEADER_WORKER_SET.decode(spec)
    size = _bounded(1 if form.leader_worker_template.size is None else form.leader_worker_template.size)
    if form.startup_policy != "LeaderReady" and LWS_EXCLUSIVE_ANNOTATION not in annotations:
        return Gang(max(1, size))
    leader, workers = Part("leader", 1, "0"), Part("workers", size - 1, None, later=True)
    return _of_parts(LWS_WORKER_LABEL, (leader, workers) if size > 1 else (leader,))


def _ray_cluster(spec: bytes, _annotations: Mapping[str, str]) -> Gang:
    form = _RAY_CLUSTER.decode(spec)
    parts = [Part(RAY_HEAD_GROUP, 1, RAY_HEAD_GROUP)]
    parts += [
        Part(
            group.group_name,
            0 if group.suspend else _bounded(group.min_replicas or 0) * _bounded(group.num_of_hosts),
            group.group_name,
        )
        for group in form.worker_group_specs
    ]
    return _of_parts(RAY_GROUP_LABEL, tuple(parts))


def _kubeflow(field: str) -> Callable[[bytes, Mapping[str, str]], Gang]:
    def gang(spec: bytes, _annotations: Mapping[str, str]) -> Gang:
        form = _KUBEFLOW.decode(spec)
        replicas: Mapping[str, ReplicaSpec] = getattr(form, field)
        counts = {
            role: _bounded(1 if replica.replicas is None else replica.replicas)
            for role, replica in replicas.items()
        }
        elastic = None if form.elastic_policy is None else form.elastic_policy.min_replicas
        if elastic is not None and "Worker" in counts:
            counts["Worker"] = min(counts["Worker"], _bounded(elastic))
        if form.launcher_creation_policy == "WaitForWorkersReady":
            counts.pop("Launcher", None)
        together = sum(counts.values())
        policy = form.run_policy.scheduling_policy
        if policy is not None and policy.min_available is not None:
            at_once = together if form.launcher_creation_policy == "WaitForWorkersReady" else MAX_MEMBERS
            together = min(_bounded(policy.min_available), at_once)
        return Gang(max(1, together))

    return gang


def _of_parts(label: str, parts: tuple[Part, ...]) -> Gang:
    names = {part.name for part in parts}
    if len(names) < len(parts) or OTHERS in names or len(parts) > MAX_PARTS:
        return Gang(max(1, sum(part.minimum for part in parts if not part.later)))
    return Gang(label=label, parts=parts) if parts else ALONE


def _bounded(count: int) -> int:
    return max(0, min(count, MAX_MEMBERS))


def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


_OBJECT: Final = _decoder(Object)
_SPECIFIED: Final = _decoder(Specified)
_JOBSET: Final = _decoder(JobSetSpec)
_LEADER_WORKER_SET: Final = _decoder(LeaderWorkerSetSpec)
_RAY_CLUSTER: Final = _decoder(RayClusterSpec)
_KUBEFLOW: Final = _decoder(KubeflowSpec)

_TRAIN_JOB: Final = ("trainer.kubeflow.org", "TrainJob")
_RAY_JOB: Final = ("ray.io", "RayJob")

ROOTS: Final = frozenset(
    {
        ("batch", "CronJob"),
        ("ray.io", "RayCronJob"),
        ("ray.io", "RayService"),
    }
)
"""Kinds that create several workloads: each child of such an owner is a workload of its own."""

KINDS: Final = (
    ControllerKind("apps", "deployments", "Deployment", parents=None),
    ControllerKind("jobset.x-k8s.io", "jobsets", "JobSet", _jobset, (_TRAIN_JOB,)),
    ControllerKind(
        "leaderworkerset.x-k8s.io",
        "leaderworkersets",
        "LeaderWorkerSet",
        _leader_worker_set,
        group_label=LWS_GROUP_LABEL,
    ),
    ControllerKind("ray.io", "rayclusters", "RayCluster", _ray_cluster, (_RAY_JOB,)),
    ControllerKind("ray.io", "rayjobs", "RayJob"),
    ControllerKind("kubeflow.org", "pytorchjobs", "PyTorchJob", _kubeflow("pytorch_replica_specs")),
    ControllerKind("kubeflow.org", "tfjobs", "TFJob", _kubeflow("tf_replica_specs")),
    ControllerKind("kubeflow.org", "mpijobs", "MPIJob", _kubeflow("mpi_replica_specs")),
    ControllerKind("kubeflow.org", "xgboostjobs", "XGBoostJob", _kubeflow("xgb_replica_specs")),
    ControllerKind("kubeflow.org", "paddlejobs", "PaddleJob", _kubeflow("paddle_replica_specs")),
    ControllerKind("kubeflow.org", "jaxjobs", "JAXJob", _kubeflow("jax_replica_specs")),
    ControllerKind("trainer.kubeflow.org", "trainjobs", "TrainJob"),
)
CONTROLLERS: Final = {(kind.group, kind.kind): kind for kind in KINDS}
"""The kinds by API group and kind. The version comes from the owner reference."""
