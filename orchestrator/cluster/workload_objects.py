"""Jobs, stateful sets, deployments and replica sets as muster reads them; see `objects`."""

from __future__ import annotations

from orchestrator.cluster import resources
from orchestrator.cluster.pods import PodTemplate
from orchestrator.cluster.wire import Condition, LabelSelector, Object, Wire


class JobSpec(Wire, frozen=True):
    """The specification of a job: at most `parallelism` pods run at the same time, until `completions` pods have
    succeeded.
    """

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    suspend: bool = False
    ttl_seconds_after_finished: int | None = None
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class JobStatus(Wire, frozen=True):
    """The state of a job."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: str = ""
    completion_time: str = ""
    conditions: list[Condition] = []


class Job(Object, frozen=True):
    """A job."""

    resource = resources.JOBS

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ReplicasSpec(Wire, frozen=True):
    """Common fields of stateful sets, deployments and replica sets; no `replicas` means one."""

    replicas: int | None = None
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()
    service_name: str = ""


class ReplicasStatus(Wire, frozen=True):
    """Common fields of stateful sets, deployments and replica sets."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = []


class StatefulSet(Object, frozen=True):
    """A stateful set."""

    resource = resources.STATEFUL_SETS

    spec: ReplicasSpec = ReplicasSpec()
    status: ReplicasStatus = ReplicasStatus()


class Deployment(Object, frozen=True):
    """A deployment."""

    resource = resources.DEPLOYMENTS

    spec: ReplicasSpec = ReplicasSpec()
    status: ReplicasStatus = ReplicasStatus()


class ReplicaSet(Object, frozen=True):
    """A replica set."""

    resource = resources.REPLICA_SETS

    spec: ReplicasSpec = ReplicasSpec()
    status: ReplicasStatus = ReplicasStatus()
