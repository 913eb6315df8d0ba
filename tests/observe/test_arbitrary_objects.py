"""Reader and planner handle any object that the API server accepts: a healthy pod is bound, and each pending pod has a
reason.
"""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.cluster.objects import (
    Job,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Project,
    StorageClass,
)
from orchestrator.cluster.reflector import Change
from orchestrator.names import (
    CHECKPOINT_GRACE_ANNOTATION,
    COMPLETION_INDEX_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    GPU_FRACTION_ANNOTATION,
    GPU_FRACTION_DEVICES_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GPU_MEMORY_LABEL,
    MIN_MEMBER_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    SUB_GROUP_ANNOTATION,
    SUB_GROUPS_ANNOTATION,
    SUBMITTED_AT_ANNOTATION,
    TOPOLOGY_PREFERRED_ANNOTATION,
    TOPOLOGY_REQUIRED_ANNOTATION,
    UNHEALTHY_GPUS_ANNOTATION,
    UNHEALTHY_KEY,
)
from orchestrator.observe.budgets import Budgets
from orchestrator.observe.reader import Reader
from orchestrator.planner import plan
from orchestrator.planner.model import PodState
from orchestrator.planner.settings import Settings as PlannerSettings
from tests.observe.objects import decoded, namespace, node, pod, project
from tests.poison_objects import nested

LONG = "9" * 5000
TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "1",
            "-1",
            "+2",
            "--5",
            "3,1,1",
            "0,1",
            "0.5",
            "1e3",
            "1k",
            "NaN",
            "Infinity",
            "²",
            "\u0661",
            "x",
        ]
    ),
    st.sampled_from(
        [LONG, "-" + LONG, "0," * 3000, "1." + LONG, "rack", "true", "\x1b[31m", "{}", "[]", "null"]
    ),
    st.text(max_size=12),
    st.integers(-(2**65), 2**65).map(str),
)
QUANTITIES = st.one_of(
    st.sampled_from(
        ["0", "1", "8", "500m", "1k", "1Ki", "2E", "7Ei", "9223372036854775807", "1e3", "100u", "12e6"]
    ),
    st.integers(0, 2**63 - 1).map(str),
)
TREES = st.one_of(
    TEXTS,
    st.sampled_from([nested(10), nested(16), nested(17), nested(500), '[{"name":"a","size":-1}]']),
    st.sampled_from(['[{"name":"a"},{"name":"b","minimum":0}]', '[{"name":"a","size":999999999999}]']),
)
TIMES = st.sampled_from(
    ["2026-11-21T10:00:05Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
SECONDS = st.one_of(st.none(), st.integers(0, 2**63 - 1))
NAMES = st.sampled_from(["a", "b", "c"])
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [
            CHECKPOINT_GRACE_ANNOTATION,
            COMPLETION_INDEX_ANNOTATION,
            GPU_DEVICES_ANNOTATION,
            GPU_FRACTION_ANNOTATION,
            GPU_FRACTION_DEVICES_ANNOTATION,
            GPU_MEMORY_ANNOTATION,
            MIN_MEMBER_ANNOTATION,
            PREEMPTIBLE_ANNOTATION,
            SUB_GROUP_ANNOTATION,
            SUBMITTED_AT_ANNOTATION,
            TOPOLOGY_PREFERRED_ANNOTATION,
            TOPOLOGY_REQUIRED_ANNOTATION,
        ]
    ),
    TEXTS,
    max_size=3,
)
REQUIREMENTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["slot", "zone", "metadata.name"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Other"]),
        "values": st.lists(TEXTS, max_size=3),
    }
)
TERMS = st.one_of(
    st.lists(st.fixed_dictionaries({"matchExpressions": st.lists(REQUIREMENTS, max_size=3)}), max_size=3),
    st.just([{"matchExpressions": [{"key": "slot", "operator": "Gt", "values": ["1"]}]}] * 1000),
)
RESOURCES = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "cpu", "memory"]), QUANTITIES, max_size=3)


@st.composite
def metadata(draw: st.DrawFn, /, name: str = "", **more: Any) -> dict[str, Any]:
    name = name or draw(NAMES)
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": draw(TIMES), **more}


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    owner = draw(st.sampled_from(["", "j", "j"]))
    annotations = draw(ANNOTATIONS)
    if draw(st.booleans()):
        annotations[SUB_GROUPS_ANNOTATION] = draw(TREES)
    references = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}]
    container = {"name": "main", "resources": {"requests": draw(RESOURCES), "limits": draw(RESOURCES)}}
    selector = {"nodeSelectorTerms": draw(TERMS)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    return decoded(
        Pod,
        metadata=draw(
            metadata(
                namespace="muster-team-a",
                annotations=annotations,
                labels={"muster.dev/type": draw(TEXTS), "muster.dev/workload": draw(TEXTS)},
                ownerReferences=references if owner else [],
                deletionTimestamp=draw(st.one_of(st.none(), TIMES)),
            )
        ),
        spec={
            "schedulerName": draw(st.sampled_from(["muster", "muster", "other"])),
            "nodeName": draw(st.sampled_from(["", "", "odd", "nowhere"])),
            "containers": [container] * draw(st.integers(1, 2)),
            "initContainers": [{**container, "restartPolicy": draw(st.sampled_from(["", "Always"]))}],
            "overhead": draw(RESOURCES),
            "affinity": draw(st.sampled_from([None, affinity])),
            "nodeSelector": draw(st.dictionaries(TEXTS, TEXTS, max_size=2)),
            "tolerations": [{"key": draw(TEXTS), "operator": draw(TEXTS)}]
            * draw(st.sampled_from([0, 1, 200])),
            "priority": draw(st.integers(-(2**31), 2**31 - 1)),
            "activeDeadlineSeconds": draw(SECONDS),
            "terminationGracePeriodSeconds": draw(SECONDS),
            "volumes": [
                {"name": each, "persistentVolumeClaim": {"claimName": each}}
                for each in draw(st.lists(NAMES, max_size=3, unique=True))
            ],
        },
        status={"phase": draw(st.sampled_from(["", "Pending", "Running"])), "startTime": draw(TIMES)},
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    amounts = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "cpu", "memory", "pods"]), QUANTITIES)
    labels = {"slot": draw(TEXTS), GPU_MEMORY_LABEL: draw(TEXTS), "nvidia.com/gpu.product": draw(TEXTS)}
    if draw(st.booleans()):
        labels[UNHEALTHY_KEY] = draw(TEXTS)
    return decoded(
        Node,
        metadata=draw(metadata("odd", labels=labels, annotations={UNHEALTHY_GPUS_ANNOTATION: draw(TEXTS)})),
        spec={"unschedulable": draw(st.booleans()), "taints": [{"key": draw(TEXTS), "effect": draw(TEXTS)}]},
        status={
            "allocatable": draw(amounts),
            "capacity": draw(amounts),
            "conditions": [
                {
                    "type": "Ready",
                    "status": draw(st.sampled_from(["True", "False"])),
                    "lastTransitionTime": draw(TIMES),
                }
            ],
        },
    )


@st.composite
def projects(draw: st.DrawFn) -> Project:
    numbers = st.one_of(st.integers(0, 2**63), st.floats(0, 1e300), st.none())
    amounts = st.fixed_dictionaries({"quota": st.one_of(QUANTITIES, TEXTS), "limit": QUANTITIES})
    quota = draw(st.one_of(st.integers(0, 2**63), st.floats(0, 1e300)))
    gpu = {"quota": quota, "limit": draw(numbers), "overQuotaWeight": draw(numbers)}
    return decoded(
        Project,
        metadata=draw(metadata()),
        spec={
            "parent": draw(st.one_of(st.none(), NAMES)),
            "gpu": {**gpu, "models": draw(st.dictionaries(TEXTS, st.just({"quota": 1}), max_size=2))},
            "cpu": draw(amounts),
            "memory": draw(amounts),
            "priority": draw(st.integers(-(2**31), 2**31 - 1)),
            "reclaimMinRuntime": draw(st.one_of(st.none(), TEXTS)),
        },
    )


@st.composite
def storage(draw: st.DrawFn) -> Any:
    labels = [{"key": draw(TEXTS), "values": draw(st.lists(TEXTS, max_size=3))}]
    kind = draw(st.sampled_from(["claim", "volume", "class"]))
    if kind == "claim":
        spec = {"storageClassName": draw(NAMES), "volumeName": draw(st.sampled_from(["", "a", "b"]))}
        return decoded(PersistentVolumeClaim, metadata=draw(metadata(namespace="muster-team-a")), spec=spec)
    if kind == "volume":
        required = {"required": {"nodeSelectorTerms": draw(TERMS)}}
        return decoded(PersistentVolume, metadata=draw(metadata()), spec={"nodeAffinity": required})
    return decoded(
        StorageClass,
        metadata=draw(metadata()),
        provisioner="p",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": labels}] * draw(st.integers(0, 3)),
    )


@st.composite
def budgets(draw: st.DrawFn) -> PodDisruptionBudget:
    return decoded(
        PodDisruptionBudget,
        metadata=draw(metadata(namespace="muster-team-a", generation=draw(st.integers(0, 2**63 - 1)))),
        spec={"selector": {"matchExpressions": draw(st.lists(REQUIREMENTS, max_size=2))}},
        status={"disruptionsAllowed": draw(st.integers(0, 2**31 - 1)), "observedGeneration": 1},
    )


def others() -> st.SearchStrategy[Any]:
    job = st.builds(
        lambda at: decoded(Job, metadata={"name": "j", "uid": "uid-j", "creationTimestamp": at}), TIMES
    )
    label = st.builds(
        lambda text: decoded(
            Namespace, metadata={"name": "other", "uid": "uid-o", "labels": {"muster.dev/project": text}}
        ),
        TEXTS,
    )
    return st.one_of(job, label)


@given(
    st.lists(pods(), max_size=4),
    st.lists(st.one_of(nodes(), projects(), storage(), others()), max_size=5),
    st.lists(budgets(), max_size=2),
    st.sampled_from([(), ("example.com/rack", "slot")]),
)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
def test_beside_any_objects_a_healthy_pod_is_bound_and_pending_pods_know_why(
    odd_pods: list[Pod], things: list[Any], odd_budgets: list[PodDisruptionBudget], levels: tuple[str, ...]
) -> None:
    reader = Reader(PlannerSettings(topology_levels=levels))
    healthy = pod("healthy", namespace="muster-well", gpus=1)
    beside = [namespace("muster-team-a", "a"), namespace("muster-well", "well"), project("well", quota=8)]
    # The other pods may fill their nodes, so the healthy pod has a node that takes no other pod.
    taint = {"key": "well", "effect": "NoSchedule"}
    tolerant = decoded(
        Pod,
        metadata={"name": "healthy", "namespace": "muster-well", "uid": healthy.metadata.uid},
        spec={
            "schedulerName": "muster",
            "tolerations": [{"key": "well", "operator": "Exists"}],
            "nodeSelector": {"well": "yes"},
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    )
    well = node("well", labels={"well": "yes"}, taints=[taint])
    for each in (*things, *beside, well, *odd_pods, tolerant):
        reader.note(Change("added", each))
    by_uid = {each.metadata.uid: each for each in (*odd_pods, tolerant)}
    reading = reader.read(
        now_us=1_800_000_000_000_000, budgets=Budgets().read(odd_budgets, by_uid, set(), {})
    )
    decided = plan(reading.snapshot)
    assert tolerant.metadata.uid in {each.pod for each in decided.bindings}
    assert not any("a mistake in muster" in each.why for each in reading.skipped), reading.skipped
    bound = {each.pod for each in decided.bindings}
    for workload in reading.snapshot.workloads:
        for each in workload.pods:
            if each.state is PodState.PENDING and each.id not in bound:
                assert workload.id in decided.pending, f"{each.name} waits, and nothing says why"
    known = {each.id for workload in reading.snapshot.workloads for each in workload.pods}
    for uid, each in by_uid.items():
        waits = each.spec.scheduler_name == "muster" and not each.metadata.deletion_timestamp
        if waits and not each.spec.node_name:
            assert uid in known or uid in reading.unreadable_pods
