"""The Project, muster's own kind; see `objects`."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from orchestrator.cluster import resources
from orchestrator.cluster.wire import Condition, Object, Wire


class GpuModelSpec(Wire, frozen=True):
    """GPUs of one model, in devices: guaranteed portion of the quota, and maximum. None: not set."""

    quota: Decimal | None = None
    limit: Decimal | None = None


class GpuSpec(Wire, frozen=True):
    """GPUs of a project, in devices: guarantee, maximum, and weight beyond the quota.

    `models` has the guarantee and maximum of single models, by the node label `nvidia.com/gpu.product`.
    """

    quota: Decimal = Decimal(0)
    limit: Decimal | None = None
    over_quota_weight: Decimal | None = None
    models: dict[str, GpuModelSpec] = {}


class AmountSpec(Wire, frozen=True):
    """CPU or memory of a project, as Kubernetes quantities: guarantee, and maximum.

    `quota` or `limit` None is unlimited. `over_quota_weight` is the weight in the division beyond all quotas; None:
    equal weights.
    """

    quota: str | int | None = None
    limit: str | int | None = None
    over_quota_weight: int | None = None


class NodeAffinity(Wire, frozen=True):
    """Names of the nodes that a project's workloads may use, by type; empty means any."""

    train: list[str] = []
    interactive: list[str] = []


class ObjectCounts(Wire, frozen=True):
    """Maximum number of objects of each kind in a project's namespace; None: the operator's default."""

    pods: int | None = None
    jobs: int | None = None


BASELINE: Final = "baseline"
"""The Pod Security level of projects that do not set one."""


class Directory(Wire, frozen=True):
    """A directory that pods may mount, of the nodes or of an NFS server.

    If it is read-only, pods may also mount paths below it. If it is writable, they may mount only the directory itself.
    """

    path: str
    nfs_server: str | None = None
    writable: bool = False

    @property
    def source(self) -> str:
        """`/path` of nodes, `server:/path` of an NFS server."""
        return f"{self.nfs_server}:{self.path}" if self.nfs_server else self.path


class SecuritySpec(Wire, frozen=True):
    """Additional rights of a project's pods; None and [] are the defaults of the CRD."""

    pod_security: str | None = None
    directories: list[Directory] = []
    priority_classes: list[str] = []
    max_termination_grace_seconds: int | None = None
    ingress_domain: str | None = None
    scheduler_name: str | None = None
    control_plane: bool = False


class Subject(Wire, frozen=True):
    """A member of a project; `kind` is User or Group."""

    kind: str
    name: str


class ProjectSpec(Wire, frozen=True):
    """An administrator's settings of a project. Durations are text like 12h or 10m.

    `preempt_min_runtime` is the time after the start of a workload in which no other workload of the project can
    preempt it. `reclaim_min_runtime` is the same for other projects. None uses the department's value.

    `non_preemptible_on_unhealthy` is Keep (also None) or Move. `namespace` is the project's namespace; None: the
    namespace that the operator creates. `storage` is the maximum of its PVCs together, a quantity; None: unlimited.
    `image_pull_secrets` are secrets of the namespace that all its pods use.
    """

    parent: str | None = None
    namespace: str | None = None
    objects: ObjectCounts = ObjectCounts()
    storage: str | int | None = None
    gpu: GpuSpec = GpuSpec()
    cpu: AmountSpec = AmountSpec()
    memory: AmountSpec = AmountSpec()
    priority: int = 0
    node_affinity: NodeAffinity = NodeAffinity()
    interactive_time_limit: str | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None
    non_preemptible_on_unhealthy: str | None = None
    security: SecuritySpec = SecuritySpec()
    members: list[Subject] = []
    image_pull_secrets: list[str] = []


class ProjectStatus(Wire, frozen=True):
    """muster's report about a project; GPUs in devices."""

    namespace: str = ""
    allocated_gpu: Decimal = Decimal(0)
    fair_share_gpu: Decimal = Decimal(0)
    pending_workloads: int = 0
    conditions: list[Condition] = []


class Project(Object, frozen=True):
    """A project: a team's part of the cluster."""

    resource = resources.PROJECTS

    spec: ProjectSpec = ProjectSpec()
    status: ProjectStatus = ProjectStatus()
