"""The form of a snapshot file. `reader` and `writer` turn it into the planner's snapshot and back.

GPUs are decimals (`2`, `0.5`), CPU and memory are Kubernetes quantities (`4`, `500m`, `512Gi`), times are RFC 3339
text or microseconds since the epoch. A missing field has the default in its description.
"""

from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from orchestrator.labels import Operator
from orchestrator.planner import model
from orchestrator.simulation.extra_fields import completed

API_VERSION: Final = "muster.dev/v1alpha1"
KIND: Final = "Snapshot"
NODE_CPU: Final = "80"
NODE_MEMORY: Final = "512Gi"
NODE_PODS: Final = 110
TRAIN_PRIORITY: Final = 50
INTERACTIVE_PRIORITY: Final = 100

COVERED: Final[dict[type, frozenset[str]]] = {
    model.Request: frozenset({"gpu_count", "gpu_portion_milli", "cpu_milli", "memory_bytes", "scalars"}),
    model.Constraints: frozenset({"node_selector", "node_terms", "tolerations"}),
    model.Node: frozenset(
        {
            *("name", "gpu_count", "cpu_milli", "memory_bytes", "pod_slots", "labels", "taints"),
            *("schedulable", "node_type", "foreign", "foreign_pods", "scalars"),
        }
    ),
    model.Project: frozenset(
        {
            *("name", "quota_gpu_milli", "limit_gpu_milli", "over_quota_weight", "parent", "created_at_us"),
            "gpu_models",
        }
    ),
    model.Pod: frozenset(
        {
            *("id", "name", "request", "constraints", "state", "node", "devices"),
            *("nominated_node", "nominated_devices"),
        }
    ),
    model.Workload: frozenset(
        {
            *("id", "name", "project", "priority", "preemptible", "created_at_us", "pods", "min_member"),
            *("interactive", "started_at_us"),
        }
    ),
    model.Snapshot: frozenset({"nodes", "projects", "workloads"}),
}
"""The fields of the model for which the classes below have short forms; `extra_fields` adds all others."""


class Form(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all parts of the file."""


class TaintForm(Form, frozen=True, kw_only=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class TolerationForm(Form, frozen=True, kw_only=True):
    """A toleration of a pod. Operator Exists without a key tolerates every taint."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class RequirementForm(Form, frozen=True, kw_only=True):
    """One expression on a node's labels."""

    key: str
    operator: Operator
    values: list[str] = []


class RequestForm(Form, frozen=True, kw_only=True):
    """The request of a pod, and its constraints. By default the pod requests nothing and can run on any node.

    `gpus` are whole devices or, below 1, a fraction of one device. `requests` are quantities of other resources by
    name. `nodeTerms` is a list of terms: a node must meet all expressions of at least one term.
    """

    gpus: Decimal | UnsetType = UNSET
    cpu: int | str | UnsetType = UNSET
    memory: int | str | UnsetType = UNSET
    requests: dict[str, int | str] | UnsetType = UNSET
    node_selector: dict[str, str] | UnsetType = UNSET
    node_terms: list[list[RequirementForm]] | UnsetType = UNSET
    tolerations: list[TolerationForm] | UnsetType = UNSET


class ForeignForm(Form, frozen=True, kw_only=True):
    """The use by pods of other schedulers on a node, and their number."""

    gpus: Decimal | UnsetType = UNSET
    cpu: int | str | UnsetType = UNSET
    memory: int | str | UnsetType = UNSET
    requests: dict[str, int | str] | UnsetType = UNSET
    pods: int = 0


class NodeForm(Form, frozen=True, kw_only=True):
    """A node: its allocatable amounts. Default: the CPUs and memory of a DGX-1 and 110 pods, but no GPUs.

    `allocatable` is that of Kubernetes: quantities by resource name. The node has nothing of other resources that are
    not named. GPUs, CPU, memory and pods may be there instead of in their own fields.
    """

    name: str
    gpus: int | UnsetType = UNSET
    cpu: int | str | UnsetType = UNSET
    memory: int | str | UnsetType = UNSET
    pods: int | UnsetType = UNSET
    allocatable: dict[str, int | str] = {}
    labels: dict[str, str] = {}
    taints: list[TaintForm] = []
    schedulable: bool = True
    type: str = ""
    foreign: ForeignForm = ForeignForm()


class GpuModelForm(Form, frozen=True, kw_only=True):
    """The quota and the limit of a project for GPUs of one model. Default: no quota of its own; no limit."""

    quota: Decimal | None = None
    limit: Decimal | None = None


class ProjectForm(Form, frozen=True, kw_only=True):
    """A project: its quota, its limit, and its over-quota weight (default: its quota).

    Null as quota or limit means unlimited. `models` are bounds for GPUs of single models, by the node label
    `nvidia.com/gpu.product`. `created` defaults to the order in the file.
    """

    quota: Decimal | None
    limit: Decimal | None = None
    models: dict[str, GpuModelForm] = {}
    weight: Decimal | None = None
    parent: str | None = None
    created: int | str | None = None


class NominatedForm(Form, frozen=True, kw_only=True):
    """The nomination of a pending pod or, on a terminating pod, of its successor: a node and reserved GPUs."""

    node: str
    devices: list[int] = []


class PodForm(RequestForm, frozen=True, kw_only=True):
    """One pod of a workload. Missing fields of its request are those of the workload.

    `on` is its node; `devices` are GPU indices on the node, by default chosen when the file is read. `nominated` is the
    nomination of an earlier decision. `status` is Kubernetes' PodStatus.
    """

    id: str | None = None
    name: str | None = None
    state: Literal["pending", "allocated", "releasing"] | None = None
    on: str | None = None
    devices: list[int] | None = None
    nominated: NominatedForm | None = None
    status: dict[str, Any] | UnsetType = UNSET


class WorkloadForm(RequestForm, frozen=True, kw_only=True):
    """A workload: the request of each of its pods, and the number or a list of the pods.

    If `pods` is a number, `on` is the node of all pods, or a list of nodes for the first pods; other pods are pending.
    Defaults: one pod; `created` in the order of the file; `priority` 50, interactive 100; interactive workloads are not
    preemptible. `template` is Kubernetes' PodTemplateSpec. It replaces requests and constraints.
    """

    name: str
    project: str
    id: str | None = None
    pods: int | list[PodForm] = 1
    on: str | list[str] | None = None
    devices: list[int] | None = None
    min_member: int = 1
    interactive: bool = False
    preemptible: bool | None = None
    priority: int | None = None
    created: int | str | None = None
    started: int | str | None = None
    template: dict[str, Any] | UnsetType = UNSET


class SnapshotForm(Form, frozen=True, kw_only=True):
    """Everything that a decision of the scheduler depends on: nodes, projects by name, and workloads."""

    api_version: Literal["muster.dev/v1alpha1"] = API_VERSION
    kind: Literal["Snapshot"] = KIND
    nodes: list[NodeForm]
    projects: dict[str, ProjectForm] = {}
    workloads: list[WorkloadForm] = []


@cache
def file_form() -> type[SnapshotForm]:
    """Return the form of a whole file, with every field of the planner's model."""
    request: dict[type, frozenset[str]] = {model.Request: COVERED[model.Request]}
    requested = request | {model.Constraints: COVERED[model.Constraints]}
    foreign: Any = completed(ForeignForm, request)
    node: Any = completed(NodeForm, {model.Node: COVERED[model.Node]}, ("foreign", foreign, ForeignForm()))
    project: Any = completed(ProjectForm, {model.Project: COVERED[model.Project]})
    pod: Any = completed(PodForm, {model.Pod: COVERED[model.Pod], **requested})
    workload: Any = completed(
        WorkloadForm, {model.Workload: COVERED[model.Workload], **requested}, ("pods", int | list[pod], 1)
    )
    return completed(
        SnapshotForm,
        {model.Snapshot: COVERED[model.Snapshot]},
        ("nodes", list[node], msgspec.NODEFAULT),
        ("projects", dict[str, project], {}),
        ("workloads", list[workload], []),
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a snapshot file."""
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    described: dict[str, Any] = _with_numbers(msgspec.json.schema(file_form()))
    return schema | described


def _with_numbers(part: Any) -> Any:
    """Return the schema with numbers instead of decimals: a snapshot file has them as numbers."""
    if isinstance(part, list):
        return [_with_numbers(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("format") == "decimal":
        return {"type": "number", **{key: part[key] for key in part if key not in {"type", "format"}}}
    return {key: _with_numbers(value) for key, value in part.items()}
