"""The fields of other programs' controllers that determine the gang size, as narrow structs; see `objects`.

JobSetSpec: kubernetes-sigs/jobset 08dfbdf (after v0.10.1), api/jobset/v1alpha2/jobset_types.go.
LeaderWorkerSetSpec: kubernetes-sigs/lws v0.10.0, api/leaderworkerset/v1/leaderworkerset_types.go.
RayClusterSpec: ray-project/kuberay v1.7.0, ray-operator/apis/ray/v1/raycluster_types.go.
KubeflowSpec: the training operator, kubeflow/trainer v1.9.3, pkg/apis/kubeflow.org/v1/*_types.go; for MPIJob v2beta1
kubeflow/mpi-operator v0.8.2, pkg/apis/kubeflow/v2beta1/types.go.

If the API server has a default for a number, the struct has the same default.
"""

from __future__ import annotations

import msgspec

from orchestrator.cluster.wire import Wire


class TemplateMetadata(Wire, frozen=True):
    """The metadata of a template, of which only annotations are read."""

    annotations: dict[str, str] = {}


class JobTemplateSpec(Wire, frozen=True):
    """`batch/v1 JobSpec`, of which only the number of pods is read."""

    parallelism: int | None = None
    completions: int | None = None


class JobTemplate(Wire, frozen=True):
    """`batch/v1 JobTemplateSpec`."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: JobTemplateSpec = JobTemplateSpec()


class DependsOn(Wire, frozen=True):
    """A replicated job that must be ready or complete before another replicated job starts."""

    name: str = ""


class ReplicatedJob(Wire, frozen=True):
    """The number of Jobs of one template."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: list[DependsOn] = []


class StartupPolicy(Wire, frozen=True):
    """The order in which a JobSet creates its Jobs: AnyOrder or InOrder."""

    startup_policy_order: str = "AnyOrder"


class JobSetSpec(Wire, frozen=True):
    """`jobset.x-k8s.io/v1alpha2 JobSet`."""

    replicated_jobs: list[ReplicatedJob] = []
    startup_policy: StartupPolicy | None = None


class LeaderWorkerTemplate(Wire, frozen=True):
    """One group: a leader and `size` - 1 workers."""

    size: int | None = None


class LeaderWorkerSetSpec(Wire, frozen=True):
    """`leaderworkerset.x-k8s.io/v1 LeaderWorkerSet`; the startup policy is LeaderCreated or LeaderReady."""

    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()
    startup_policy: str = "LeaderCreated"


class WorkerGroup(Wire, frozen=True):
    """Workers of one kind in a Ray cluster; each replica is `num_of_hosts` pods."""

    group_name: str = ""
    min_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool | None = None


class RayClusterSpec(Wire, frozen=True):
    """`ray.io/v1 RayCluster`: one head, and groups of workers."""

    worker_group_specs: list[WorkerGroup] = []


class ReplicaSpec(Wire, frozen=True):
    """Pods of one role in a job of Kubeflow."""

    replicas: int | None = None


class SchedulingPolicy(Wire, frozen=True):
    """The minimum number of running pods, if it is set."""

    min_available: int | None = None


class RunPolicy(Wire, frozen=True):
    """The rules for a job of Kubeflow."""

    scheduling_policy: SchedulingPolicy | None = None


class ElasticPolicy(Wire, frozen=True):
    """The minimum number of workers of an elastic job (PyTorchJob, PaddleJob)."""

    min_replicas: int | None = None


class KubeflowSpec(Wire, frozen=True):
    """The jobs of `kubeflow.org`.

    Each kind uses one of the fields `*_replica_specs`, which has the replicas by role.
    """

    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    launcher_creation_policy: str = "AtStartup"
    pytorch_replica_specs: dict[str, ReplicaSpec] = {}
    tf_replica_specs: dict[str, ReplicaSpec] = {}
    mpi_replica_specs: dict[str, ReplicaSpec] = {}
    xgb_replica_specs: dict[str, ReplicaSpec] = {}
    paddle_replica_specs: dict[str, ReplicaSpec] = {}
    jax_replica_specs: dict[str, ReplicaSpec] = {}


class Specified(Wire, frozen=True):
    """Any object, with its specification as undecoded JSON."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
