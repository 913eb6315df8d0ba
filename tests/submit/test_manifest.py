from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator import names
from orchestrator.cluster.objects import Ingress, Job, Service, StatefulSet
from orchestrator.submit.manifest import (
    Placement,
    dependent_manifests,
    owner_reference,
    workload_manifest,
    workload_resource,
)
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import GitSource, Mount, Port, RunAs, Variable

PLACEMENT = Placement("team-a", "muster-team-a", "2026-01-01T00:00:00.000001Z")


def submission(**values: Any) -> Submission:
    base: dict[str, Any] = {"name": "hyper1", "image": "image", "user": "ann", "gpu_milli": 1000}
    return Submission(**(base | values))


def made(**values: Any) -> dict[str, Any]:
    return workload_manifest(submission(**values), PLACEMENT)


def template(**values: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(**values)["spec"]["template"]
    return found


def container(**values: Any) -> dict[str, Any]:
    (found,) = template(**values)["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def beside(request: Submission, taken: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the dependent objects of the workload by kind, and claims by name."""
    owner = owner_reference(workload_resource(request), request.name, "uid-1")
    found = [body for _, body in dependent_manifests(request, PLACEMENT, owner, taken)]
    assert all(each["metadata"]["ownerReferences"] == [owner] for each in found)
    assert all(each["metadata"]["namespace"] == "muster-team-a" for each in found)
    return {
        each["metadata"]["name"] if each["kind"] == "PersistentVolumeClaim" else each["kind"]: each
        for each in found
    }


def test_a_train_workload_is_a_job_whose_evictions_are_no_failures() -> None:
    job = made()
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert job["spec"]["backoffLimit"] == 6
    assert job["spec"]["podFailurePolicy"] == {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    }
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_an_interactive_workload_is_a_stateful_set_of_one_that_selects_its_pod() -> None:
    workload = made(interactive=True)
    assert (workload["apiVersion"], workload["kind"]) == ("apps/v1", "StatefulSet")
    assert workload["spec"]["replicas"] == 1
    selector = workload["spec"]["selector"]["matchLabels"]
    assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    assert workload["spec"]["template"]["spec"]["restartPolicy"] == "Always"


def test_labels_and_annotations_have_all_that_the_scheduler_needs() -> None:
    metadata = made(command_line="muster submit hyper1")["metadata"]
    assert metadata["labels"] == {names.WORKLOAD_LABEL: "hyper1", names.TYPE_LABEL: "train"}
    assert metadata["annotations"] == {
        names.SUBMITTED_AT_ANNOTATION: PLACEMENT.submitted_at,
        names.USER_ANNOTATION: "ann",
        names.COMMAND_LINE_ANNOTATION: "muster submit hyper1",
    }
    pod = template()
    assert pod["metadata"]["labels"] == metadata["labels"]
    assert pod["metadata"]["annotations"] == {names.SUBMITTED_AT_ANNOTATION: PLACEMENT.submitted_at}
    assert pod["spec"]["schedulerName"] == "muster"


@pytest.mark.parametrize(
    ("values", "priority_class", "annotation"),
    [
        ({}, "muster-train", None),
        ({"preemptible": True}, "muster-train", None),
        ({"preemptible": False}, "muster-train", "false"),
        ({"interactive": True}, "muster-interactive", None),
        ({"interactive": True, "preemptible": False}, "muster-interactive", None),
        ({"interactive": True, "preemptible": True}, "muster-interactive-preemptible", "true"),
    ],
)
def test_preemptibility_is_written_only_where_it_is_not_the_default(
    values: dict[str, Any], priority_class: str, annotation: str | None
) -> None:
    pod = template(**values)
    assert pod["spec"]["priorityClassName"] == priority_class
    assert priority_class in names.PRIORITY_CLASSES
    assert pod["metadata"]["annotations"].get(names.PREEMPTIBLE_ANNOTATION) == annotation


@pytest.mark.parametrize(
    ("gpu_milli", "limit", "fraction", "cpu", "memory"),
    [
        (1000, "1", None, "1", "100Mi"),
        (4000, "4", None, "4", "400Mi"),
        (500, None, "0.5", "500m", "50Mi"),
        (333, None, "0.333", "333m", "34099Ki"),
        (1, None, "0.001", "1m", "102Ki"),
    ],
)
def test_whole_gpus_are_a_limit_and_a_part_is_an_annotation(
    gpu_milli: int, limit: str | None, fraction: str | None, cpu: str, memory: str
) -> None:
    resources = container(gpu_milli=gpu_milli)["resources"]
    assert resources.get("limits", {}).get("nvidia.com/gpu") == limit
    assert resources["requests"] == {"cpu": cpu, "memory": memory}
    annotations = template(gpu_milli=gpu_milli)["metadata"]["annotations"]
    assert annotations.get(names.GPU_FRACTION_ANNOTATION) == fraction


def test_default_requests_are_within_the_requested_limits() -> None:
    resources = container(gpu_milli=2000, cpu_limit_milli=500, memory_limit_bytes=64 << 20)["resources"]
    assert resources["requests"] == {"cpu": "500m", "memory": "64Mi"}


def test_requests_that_were_asked_for_are_kept() -> None:
    resources = container(cpu_milli=4000, memory_bytes=8 << 30, memory_limit_bytes=16 << 30)["resources"]
    assert resources["requests"] == {"cpu": "4", "memory": "8Gi"}
    assert resources["limits"] == {"memory": "16Gi", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize("gpus", [{"gpu_milli": 500}, {"gpu_milli": 0, "gpu_memory_bytes": 8 << 30}])
def test_a_container_with_a_part_learns_its_device_from_the_annotation_that_the_bind_writes(
    gpus: dict[str, int],
) -> None:
    environment = {each["name"]: each for each in container(**gpus)["env"]}
    source = environment["NVIDIA_VISIBLE_DEVICES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == f"metadata.annotations['{names.GPU_UUIDS_ANNOTATION}']"
    if gpus == {"gpu_milli": 500}:
        assert environment["RUNAI_NUM_OF_GPUS"]["value"] == "0.5"
    assert environment["JOB_NAME"]["value"] == "hyper1"


def test_of_whole_gpus_the_device_plugin_tells_the_container() -> None:
    """The kubelet adds the pod's variables after those of the device plugin, so a variable of the pod would replace its
    list.
    """
    environment = {each["name"]: each.get("value") for each in container(gpu_milli=2000)["env"]}
    assert environment == {"JOB_NAME": "hyper1", "RUNAI_NUM_OF_GPUS": "2"}


def test_a_workload_without_gpus_sees_none_even_if_its_image_says_all() -> None:
    environment = {each["name"]: each.get("value") for each in container(gpu_milli=0)["env"]}
    assert environment == {"JOB_NAME": "hyper1", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert "resources" not in container(gpu_milli=0)


def test_variables_of_the_user_come_last_and_win() -> None:
    given = (
        Variable("JOB_NAME", "mine"),
        Variable("A", "1"),
        Variable("A", "2"),
        Variable("S", secret="s", secret_key="k"),
    )
    environment = {each["name"]: each for each in container(environment=given)["env"]}
    assert environment["JOB_NAME"]["value"] == "mine"
    assert environment["A"]["value"] == "2"
    assert environment["S"]["valueFrom"] == {"secretKeyRef": {"name": "s", "key": "k"}}


def test_mounts_and_volumes_belong_together() -> None:
    values: dict[str, Any] = {
        "volumes": (Mount("/mnt", "/data", read_only=True),),
        "claims": (Mount("test", "/claim"),),
        "large_shm": True,
    }
    volumes = {each["name"]: each for each in template(**values)["spec"]["volumes"]}
    mounts = {each["mountPath"]: each for each in container(**values)["volumeMounts"]}
    assert volumes[mounts["/data"]["name"]]["hostPath"] == {"path": "/mnt"}
    assert mounts["/data"]["readOnly"] is True
    assert volumes[mounts["/claim"]["name"]]["persistentVolumeClaim"] == {"claimName": "test"}
    assert volumes[mounts["/dev/shm"]["name"]]["emptyDir"] == {"medium": "Memory"}  # noqa: S108


def test_a_gang_is_written_on_the_pods() -> None:
    values = {"completions": 4, "parallelism": 4, "min_member": 4}
    assert template(**values)["metadata"]["annotations"][names.MIN_MEMBER_ANNOTATION] == "4"
    assert {key: made(**values)["spec"][key] for key in ("completions", "parallelism")} == {
        "completions": 4,
        "parallelism": 4,
    }


def test_the_rest_of_the_flags_reach_their_fields() -> None:
    values: dict[str, Any] = {
        "node_type": "dgx1",
        "host_ipc": True,
        "host_network": True,
        "working_dir": "/workload",
        "image_pull_policy": "Never",
        "image_pull_secrets": ("ngc", "harbor"),
        "backoff_limit": 0,
        "ttl_seconds": 5,
    }
    spec = template(**values)["spec"]
    assert spec["nodeSelector"] == {names.NODE_TYPE_LABEL: "dgx1"}
    assert (spec["hostIPC"], spec["hostNetwork"]) == (True, True)
    assert spec["imagePullSecrets"] == [{"name": "ngc"}, {"name": "harbor"}]
    assert (container(**values)["workingDir"], container(**values)["imagePullPolicy"]) == (
        "/workload",
        "Never",
    )
    assert made(**values)["spec"]["backoffLimit"] == 0
    assert made(**values)["spec"]["ttlSecondsAfterFinished"] == 5


@pytest.mark.parametrize(
    ("service_type", "kind", "port"),
    [
        ("portforward", "ClusterIP", {"name": "8080-port", "port": 8080, "targetPort": 80}),
        ("ingress", "ClusterIP", {"name": "8080-port", "port": 8080, "targetPort": 80}),
        ("loadbalancer", "LoadBalancer", {"name": "8080-port", "port": 8080, "targetPort": 80}),
        ("nodeport", "NodePort", {"name": "8080-port", "port": 80, "targetPort": 80, "nodePort": 8080}),
    ],
)
def test_the_service_has_the_type_and_ports_that_were_asked_for(
    service_type: str, kind: str, port: dict[str, Any]
) -> None:
    request = submission(interactive=True, service_type=service_type, ports=(Port(8080, 80),))
    service = beside(request)["Service"]
    assert service["spec"]["type"] == kind
    assert service["spec"]["ports"] == [port]
    labels = workload_manifest(request, PLACEMENT)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


@pytest.mark.parametrize(
    ("ports", "paths"),
    [
        ((Port(8888, 8888),), ["/team-a-hyper1", "/hyper1"]),
        (
            (Port(80, 80), Port(90, 91)),
            ["/team-a-hyper1-80", "/hyper1-80", "/team-a-hyper1-90", "/hyper1-90"],
        ),
    ],
)
def test_an_ingress_has_a_path_and_an_alias_for_each_port(ports: tuple[Port, ...], paths: list[str]) -> None:
    request = submission(interactive=True, service_type="ingress", ports=ports)
    ingress = beside(request)["Ingress"]
    assert ingress["spec"]["ingressClassName"] == "nginx"
    found = ingress["spec"]["rules"][0]["http"]["paths"]
    assert [each["path"] for each in found] == paths
    assert [each["backend"]["service"]["port"]["number"] for each in found] == [
        each.external for each in ports for _ in ("path", "alias")
    ]


def test_an_alias_that_others_have_is_left_to_them() -> None:
    request = submission(interactive=True, service_type="ingress", ports=(Port(80, 80),))
    found = beside(request, taken=("/hyper1",))["Ingress"]["spec"]["rules"][0]["http"]["paths"]
    assert [each["path"] for each in found] == ["/team-a-hyper1"]


def test_without_a_service_type_nothing_stands_beside_the_workload() -> None:
    assert beside(submission()) == {}


def test_the_made_objects_can_be_read_by_the_rest_of_muster() -> None:
    request = submission(interactive=True, service_type="ingress", ports=(Port(80, 80),))
    job = msgspec.convert(made(), Job)
    assert job.spec.template.spec.containers[0].resources.limits == {"nvidia.com/gpu": "1"}
    assert msgspec.convert(made(interactive=True), StatefulSet).spec.service_name == "hyper1"
    assert msgspec.convert(beside(request)["Service"], Service).spec.ports[0].port == 80
    assert msgspec.convert(beside(request)["Ingress"], Ingress).spec.rules[0].http is not None


def test_the_command_line_of_a_long_submission_is_shortened_for_display() -> None:
    manifest = workload_manifest(
        Submission("x", "image", "ann", command_line="muster submit " + "x" * 200_000), PLACEMENT
    )
    command_line = manifest["metadata"]["annotations"]["muster.dev/command-line"]
    assert len(command_line) <= 4096
    assert command_line.startswith("muster submit xxx")
    assert command_line.endswith(" ...")


def test_pods_of_a_restricted_project_give_up_the_rights_of_the_level() -> None:
    place = Placement("team-a", "muster-team-a", "2026-01-01T00:00:00.000001Z", is_restricted=True)
    request = submission(
        run_as=RunAs(uid=1000), capabilities=("NET_BIND_SERVICE",), git=GitSource("https://a/b")
    )
    pod = workload_manifest(request, place)["spec"]["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert [each["securityContext"] for each in (*pod["containers"], *pod["initContainers"])] == [
        {"allowPrivilegeEscalation": False, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    ]
    assert "securityContext" not in template()


@pytest.mark.parametrize(
    ("service_type", "exposed"),
    [("nodeport", "true"), ("loadbalancer", "true"), ("ingress", None), ("portforward", None)],
)
def test_pods_that_nodes_lead_to_are_open_to_all_clients(service_type: str, exposed: str | None) -> None:
    found = made(service_type=service_type, ports=(Port(8888, 8888),), interactive=True)
    assert found["spec"]["template"]["metadata"]["labels"].get(names.EXPOSED_LABEL) == exposed
