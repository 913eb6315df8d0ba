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
    """What the scenario needs: `profile` names the lab's simulated nodes."""

    profile: str
    nodes: int
    gpus_per_node: int


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A project with its guaranteed quota in GPUs, to be created or, if a scenario before did that, to be changed.

    None: the project of a scenario before is deleted, without jobs by then. All else is said where it is created: with
    what `weight` it gets of what the quotas leave over (none: the quota), after what time its interactive jobs end, and
    on which `nodeTypes` of the scenario its jobs may be.
    """

    quota: Decimal | None
    weight: Decimal | None = None
    interactive_time_limit: str = ""
    train_node_types: list[str] = []
    interactive_node_types: list[str] = []


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What must hold once the step has settled, and nothing else: nobody waits and nobody is evicted but those named.

    `ended` are jobs that had their time: they are still there, without a pod.

    Where `allocated`, `total` or `running` is missing, it is what follows from the jobs that are there and not pending.
    Only `sameGpu` and `gpusInUse` are not compared where they are missing.
    """

    allocated: dict[str, Decimal] | None = None
    total: Decimal | None = None
    pending: list[str] = []
    running: int | None = None
    evicted: list[str] = []
    ended: list[str] = []
    same_gpu: list[list[str]] = []
    gpus_in_use: int | None = None


class Elsewhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a step is scaled to a site of another size, where what is printed cannot be; without `run` that is."""

    expect: Expect
    run: list[str] = []


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The nodes on which these jobs run, with so many GPUs, are cordoned, and all pods of projects there evicted."""

    nodes_of: list[str]
    gpus: Decimal


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Commands, then what an administrator does, then what both must lead to.

    An amount of GPUs in the `title` is written `{16}`: it is scaled to the size of the site.

    `refused` are commands about projects that must fail, and change nothing. With `drain` nodes are drained, and with
    `uncordon` they take pods again; with `restartOperator` the operator is killed once somebody was evicted for the
    commands, and before the room is taken. `within` bounds the time to the expected state, `hold` is how long it must
    then last.
    """

    id: str
    title: str
    source: str
    expect: Expect
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
    """A job of the scenario whose result is judged (`validation.workloads.resnet50`), within a time of its last step.

    It must have trained on so many `devices` of a kind. `mounts` is how many its data must have come over, 0 for any.
    """

    project: str
    workload: str
    source: str
    device: Literal["gpu", "cpu"] = "gpu"
    devices: int = 1
    mounts: int = 0
    within: str = "30m"


class Utilization(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much all GPUs must be used while the jobs of the last step hold them: in a window, which begins when the jobs
    have had `warmUp`.
    """

    source: str
    window: str = "10m"
    warm_up: str = "5m"
    least_percent: int = 95
    least_percent_of_a_gpu: int = 90


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One `*.scenario.yaml`. With `continues`, it runs on the state that the named scenario leaves.

    `views` are lists that the orchestrator shows, judged in the state that the last step leaves. `nodeTypes` are groups
    that the nodes are in while it runs, equal parts of them in the order of their names.
    With `layers`, which are checks of the hosts below Kubernetes (`validation.layers.checks`), it has nothing else.
    With `api`, requests to the API server (`validation.judge.api.api_checks`), it has nothing but a `cluster`.
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
    """A place where the reference document is wrong or contradicts itself, and what is asserted instead.

    `excuses` are the fields in which a step that names it may expect something else than the oracle derives.
    """

    id: str
    section: str
    says: str
    contradicted_by: str
    asserted: str
    why: str
    excuses: list[Literal["allocated", "total", "running", "pending"]] = []


def duration_ms(text: str) -> int:
    """Milliseconds of `500ms`, `30s` or `2m`. Raises ValueError."""
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"`{text}` is not a duration such as 500ms, 30s or 2m")
    return int(Decimal(match[1]) * _UNIT_MS[match[2]])


def milli(gpus: Decimal) -> int:
    """Thousandths of a GPU. Raises ValueError for more than three places or less than zero."""
    scaled = gpus * 1000
    if scaled != int(scaled) or scaled < 0:
        raise ValueError(f"`{gpus}` is not a number of GPUs with at most three places")
    return int(scaled)
