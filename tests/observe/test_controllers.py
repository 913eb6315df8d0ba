"""Table of controllers of each kind and the gang that the operator reads from them."""

from typing import Any

import pytest

from orchestrator.manifests.render import documents, render
from orchestrator.observe.controllers import KINDS, MAX_MEMBERS, MAX_PARTS, Gang, Part
from orchestrator.roles import CONTROLLERS as RULES
from tests.observe.bringing import controller, replicated_job

JOB = "jobset.sigs.k8s.io/replicatedjob-name"
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


def jobs(*parts: Part) -> Gang:
    return Gang(label=JOB, parts=parts)


@pytest.mark.parametrize(
    ("spec", "gang"),
    [
        (
            {"replicatedJobs": [replicated_job("driver"), replicated_job("workers", 2, 4)]},
            jobs(Part("driver", 1, "driver"), Part("workers", 8, "workers")),
        ),
        (
            {"replicatedJobs": [replicated_job("w", None, 4, completions=3)]},
            jobs(Part("w", 3, "w")),
        ),
        (
            {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "replicatedJobs": [replicated_job("a"), replicated_job("b", 2)],
            },
            jobs(Part("a", 1, "a"), Part("b", 2, "b", later=True)),
        ),
        (
            {
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                "replicatedJobs": [
                    replicated_job("a"),
                    replicated_job("b", dependsOn=[{"name": "a", "status": "Complete"}]),
                ],
            },
            jobs(Part("a", 1, "a"), Part("b", 1, "b", later=True)),
        ),
        (
            # Until the first pod of each Job has a node, JobSet's webhook refuses the Job's other pods.
            {"replicatedJobs": [replicated_job("w", 3, 8, annotations=EXCLUSIVE)]},
            jobs(Part("w", 3, "w")),
        ),
        ({"replicatedJobs": [replicated_job("w", 0, 8)]}, Gang()),
        ({"replicatedJobs": []}, Gang()),
        ({}, Gang()),
        (
            {"replicatedJobs": [replicated_job(f"j{number}", 2, 2) for number in range(MAX_PARTS + 1)]},
            Gang(4 * (MAX_PARTS + 1)),
        ),
        ({"replicatedJobs": [replicated_job("w", 1, 10**18)]}, jobs(Part("w", MAX_MEMBERS, "w"))),
        ({"replicatedJobs": [replicated_job("w", -3, 4)]}, Gang()),
    ],
)
def test_the_gang_of_a_jobset(spec: dict[str, Any], gang: Gang) -> None:
    assert controller("JobSet", "js", spec).gang == gang


def test_an_exclusive_jobset_whose_nodes_are_labelled_beforehand_starts_whole() -> None:
    labelled = {**EXCLUSIVE, "alpha.jobset.sigs.k8s.io/node-selector": "true"}
    spec = {"replicatedJobs": [replicated_job("w", 3, 8)]}
    assert controller("JobSet", "js", spec, annotations=EXCLUSIVE).gang == jobs(Part("w", 3, "w"))
    assert controller("JobSet", "js", spec, annotations=labelled).gang == jobs(Part("w", 24, "w"))


LEADER_FIRST = Gang(
    label="leaderworkerset.sigs.k8s.io/worker-index",
    parts=(Part("leader", 1, "0"), Part("workers", 3, None, later=True)),
)


@pytest.mark.parametrize(
    ("spec", "annotations", "gang"),
    [
        ({"replicas": 2, "leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderCreated"}, {}, Gang(4)),
        ({"leaderWorkerTemplate": {}}, {}, Gang(1)),
        ({"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"}, {}, LEADER_FIRST),
        (
            {"leaderWorkerTemplate": {"size": 4}},
            {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"},
            LEADER_FIRST,
        ),
    ],
)
def test_the_gang_of_a_group_of_a_leader_worker_set(
    spec: dict[str, Any], annotations: dict[str, str], gang: Gang
) -> None:
    assert controller("LeaderWorkerSet", "lws", spec, annotations=annotations).gang == gang


def test_the_gang_of_a_ray_cluster_is_its_head_and_the_fewest_workers() -> None:
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": {}},
        "workerGroupSpecs": [
            {"groupName": "gpu", "replicas": 4, "minReplicas": 2, "maxReplicas": 8, "numOfHosts": 2},
            {"groupName": "cpu", "replicas": 1},
            {"groupName": "off", "minReplicas": 3, "suspend": True},
        ],
    }
    gang = controller("RayCluster", "rc", spec).gang
    assert gang is not None
    assert [(part.name, part.minimum) for part in gang.parts] == [
        ("headgroup", 1),
        ("gpu", 4),
        ("cpu", 0),
        ("off", 0),
    ]
    assert [gang.part_of({"ray.io/group": name}) for name in ("headgroup", "gpu")] == ["headgroup", "gpu"]
    assert gang.part_of({"job-name": "submitter"}) == "others"


def replicas(**counts: int | None) -> dict[str, Any]:
    return {role: {} if count is None else {"replicas": count} for role, count in counts.items()}


def at_least(count: int) -> dict[str, Any]:
    return {"schedulingPolicy": {"minAvailable": count}}


@pytest.mark.parametrize(
    ("kind", "spec", "minimum"),
    [
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=1, Worker=3)}, 4),
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=None, Worker=3)}, 4),
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Worker=8), "runPolicy": at_least(2)}, 2),
        ("PyTorchJob", {"pytorchReplicaSpecs": replicas(Worker=8), "elasticPolicy": {"minReplicas": 3}}, 3),
        ("TFJob", {"tfReplicaSpecs": replicas(Chief=1, PS=2, Worker=4)}, 7),
        ("XGBoostJob", {"xgbReplicaSpecs": replicas(Master=1, Worker=2)}, 3),
        ("PaddleJob", {"paddleReplicaSpecs": replicas(Worker=4), "elasticPolicy": {"minReplicas": 2}}, 2),
        ("JAXJob", {"jaxReplicaSpecs": replicas(Worker=4)}, 4),
        ("MPIJob", {"mpiReplicaSpecs": replicas(Launcher=1, Worker=4)}, 5),
        (
            "MPIJob",
            {
                "mpiReplicaSpecs": replicas(Launcher=1, Worker=4),
                "launcherCreationPolicy": "WaitForWorkersReady",
            },
            4,
        ),
        (
            "MPIJob",
            {
                "mpiReplicaSpecs": replicas(Launcher=1, Worker=4),
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": at_least(5),
            },
            4,
        ),
        ("MPIJob", {}, 1),
    ],
)
def test_the_gang_of_a_job_of_kubeflow(kind: str, spec: dict[str, Any], minimum: int) -> None:
    assert controller(kind, "job", spec).gang == Gang(minimum)


@pytest.mark.parametrize("kind", ["Deployment", "TrainJob", "RayJob"])
def test_others_imply_no_gang_of_their_own(kind: str) -> None:
    assert controller(kind, "x").gang is None


@pytest.mark.parametrize("spec", [{"replicatedJobs": "three"}, {"replicatedJobs": [{"replicas": "two"}]}, []])
def test_a_specification_that_cannot_be_read_costs_the_gang_and_not_the_object(spec: Any) -> None:
    read = controller("JobSet", "js", spec or {"replicatedJobs": 3})
    assert (read.metadata.name, read.gang) == ("js", None)
    assert read.problem


def test_the_operator_and_viewers_may_read_every_kind_of_the_table() -> None:
    allowed = {(rule.group, plural) for rule in RULES for plural in rule.resources}
    assert allowed == {(each.group, each.plural) for each in KINDS if each.group != "apps"}
    for role in ("muster-operator", "muster-viewer"):
        (rules,) = (
            each["rules"]
            for each in documents(render("c"))
            if each["kind"] == "ClusterRole" and each["metadata"]["name"] == role
        )
        readable = {
            (group, plural)
            for rule in rules
            for group in rule["apiGroups"]
            for plural in rule["resources"]
            if {"list", "watch"} <= set(rule["verbs"])
        }
        assert {(each.group, each.plural) for each in KINDS} <= readable
