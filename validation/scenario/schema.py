"""The schema of a scenario file. Quantities of GPUs are exact decimals (`0.3`, `4`), durations are text
(`30s`).
"""

import re
from decimal import Decimal
from typing import Literal

import msgspec

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m)$")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000}


class Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names the scenario. `errata` are ids from the errata.yaml beside the file."""

    id: str
    title: str
    source: str
    errata: list[str] = []
    description: str = ""


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The cluster that the scenario needs. `profile` names the lab's simulated nodes."""

    profile: str
    nodes: int
    gpus_per_node: int


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A project with its guaranteed quota in GPUs. It is created or, if an earlier scenario created it, changed.

    A quota of None deletes the project, which must have no jobs by then. The other fields are given at the creation:

    - the `weight` for GPUs beyond the quotas; none: the quota
    - the time limit of interactive jobs
    - the `nodeTypes` of the scenario for its jobs
    """

    quota: Decimal | None
    weight: Decimal | None = None
    interactive_time_limit: str = ""
    train_node_types: list[str] = []
    interactive_node_types: list[str] = []


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The exact state after the step has settled. Only the named workloads are pending, and only the named ones are
    evicted.

    `ended` are jobs that reached their time limit: they still exist, without a pod.

    If `allocated`, `total` or `running` is missing, it follows from the existing jobs that are not pending. If
    `sameGpu` or `gpusInUse` is missing, it is not compared. `orElse` are alternative states that are also correct. They
    have no `ended` and no `orElse`.
    """

    allocated: dict[str, Decimal] | None = None
    total: Decimal | None = None
    pending: list[str] = []
    running: int | None = None
    evicted: list[str] = []
    ended: list[str] = []
    same_gpu: list[list[str]] = []
    gpus_in_use: int | None = None
    or_else: "list[Expect]" = []


class Elsewhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expectation of a step on a site of another size, if the printed expectation cannot be scaled.

    `run` replaces the step's commands; `[]` leaves them out.
    """

    expect: Expect
    run: list[str] | None = None


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A drain: the nodes of these jobs, with this number of GPUs, are cordoned, and all pods of projects on them are
    evicted.
    """

    nodes_of: list[str]
    gpus: Decimal


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Commands, then the work of an administrator, then the expected state after both.

    An amount of GPUs in the `title` is written `{16}`: it is scaled to the size of the site.

    - `defaultProject`: `muster project set` with this project runs first. Commands may then name no project.
    - `refused`: commands about projects that must fail, and change nothing.
    - `drain`: drains nodes. `uncordon`: all drained nodes take pods again.
    - `restartOperator`: kills the operator after a pod was evicted for the commands, and before its GPUs are taken.
    - `within`: maximum time to the expected state. `hold` is the time that it must then last.
    """

    id: str
    title: str
    source: str
    expect: Expect
    default_project: str = ""
    run: list[str] = []
    drain: Drain | None = None
    uncordon: bool = False
    restart_operator: bool = False
    refused: list[str] = []
    within: str = "60s"
    hold: str = "3s"
    errata: list[str] = []
    elsewhere: Elsewhere | None = None


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job of the scenario whose result is judged (`validation.workloads`), and which must exist at most `within`
    after the last step.

    It must have trained on this number of `devices` of a kind. `mounts` is the number of mounts over which its data
    must have come, 0 for any. With the `result` digests, the job must have used all GPUs of the cluster.
    """

    project: str
    workload: str
    source: str
    device: Literal["gpu", "cpu"] = "gpu"
    devices: int = 1
    mounts: int = 0
    within: str = "30m"
    result: Literal["training", "digests"] = "training"


class Utilization(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The required utilization of all GPUs while the jobs of the last step hold them.

    It is measured in a window, which begins `warmUp` after the last step.
    """

    source: str
    window: str = "10m"
    warm_up: str = "5m"
    minimum_percent: int = 95
    minimum_percent_of_a_gpu: int = 90


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One `*.scenario.yaml`. With `continues`, it runs on the state that the named scenario leaves.

    - `views`: lists that the orchestrator shows, judged in the state after the last step.
    - `nodeTypes`: groups of the nodes while it runs. The nodes are divided into equal groups in the order of their
      names.
    - `layers`: checks of the hosts below Kubernetes (`validation.layers.checks`), without any other field.
    - `api`: requests to the API server (`validation.judge.api.api_checks`), with a `cluster` and no other field.
    """

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["Scenario"]
    metadata: Metadata
    steps: list[Step] = []
    continues: str = ""
    cluster: Cluster | None = None
    node_types: list[str] = []
    projects: dict[str, Project] = {}
    training: Training | None = None
    views: list[str] = []
    utilization: Utilization | None = None
    layers: list[str] = []
    api: list[str] = []
    claims: dict[str, list[str]] = {}


class Erratum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passage of the reference document that is wrong or contradicts itself, and the value that the scenario expects
    instead.

    `excuses` are the fields in which a step that names the erratum may differ from the oracle.
    """

    id: str
    section: str
    says: str
    contradicted_by: str
    asserted: str
    why: str
    excuses: list[Literal["allocated", "total", "running", "pending"]] = []


def duration_ms(text: str) -> int:
    """Return the milliseconds of `500ms`, `30s` or `2m`. Raises ValueError.

    Example: `duration_ms("30s")` returns `30000`.
    """
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"`{text}` is not a duration such as 500ms, 30s or 2m")
    return int(Decimal(match[1]) * _UNIT_MS[match[2]])


def milli(gpus: Decimal) -> int:
    """Return the thousandths of a GPU. Raises ValueError for more than three places or less than zero."""
    scaled = gpus * 1000
    if scaled != int(scaled) or scaled < 0:
        raise ValueError(f"`{gpus}` is not a number of GPUs with at most three places")
    return int(scaled)
