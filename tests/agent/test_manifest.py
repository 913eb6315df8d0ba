"""The agents in the operator YAML: their nodes, their rights, and the options without agents."""

from typing import Any

import pytest

from orchestrator.manifests.render import documents, render
from orchestrator.submit.protection import PolicyMode


def objects(**options: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(body["kind"], body["metadata"]["name"]): body for body in documents(render("c", **options))}


def pod_spec(**options: Any) -> dict[str, Any]:
    spec: dict[str, Any] = objects(**options)["DaemonSet", "muster-agent"]["spec"]["template"]["spec"]
    return spec


def test_it_reads_the_kernels_log_and_devices_of_the_node_and_writes_nothing() -> None:
    spec = pod_spec()
    (container,) = spec["containers"]
    assert container["args"] == ["agent", "--host-root=/host"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]},
        "readOnlyRootFilesystem": True,
    }
    assert [(mount["mountPath"], mount["readOnly"]) for mount in container["volumeMounts"]] == [
        ("/var/lib/kubelet/pod-resources", True),
        ("/host/sys/class", True),
        ("/host/sys/devices", True),
    ]


def test_where_another_system_owns_the_hosts_it_has_no_capability_and_mounts_one_directory() -> None:
    spec = pod_spec(reads_hosts=False)
    (container,) = spec["containers"]
    assert container["args"] == ["agent"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert [volume["hostPath"]["path"] for volume in spec["volumes"]] == ["/var/lib/kubelet/pod-resources"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert spec["hostPID"] is True
    assert "hostNetwork" not in spec


def test_only_with_a_drivers_directory_it_is_privileged() -> None:
    spec = pod_spec(driver_root="/opt/driver", reads_hosts=False)
    (container,) = spec["containers"]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert container["args"] == ["agent", "--driver-root=/driver"]
    assert [volume["hostPath"]["path"] for volume in spec["volumes"]] == [
        "/var/lib/kubelet/pod-resources",
        "/opt/driver",
    ]
    assert not [entry for entry in container["env"] if entry["name"].startswith("NVIDIA_")]


def test_it_runs_on_nodes_that_say_they_have_gpus_for_any_taints() -> None:
    spec = pod_spec(runtime_class="nvidia")
    rule = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [term["matchExpressions"][0]["key"] for term in rule["nodeSelectorTerms"]]
    assert "nvidia.com/gpu.present" in keys
    assert all(len(term["matchExpressions"]) == 1 for term in rule["nodeSelectorTerms"])
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize("options", [{"agent": False}, {"replicas": 0}])
def test_without_agents_there_is_nothing_of_them_but_the_kind_and_its_bounds(options: dict[str, Any]) -> None:
    kinds = {kind for kind, name in objects(**options) if "agent" in name}
    assert kinds == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert ("CustomResourceDefinition", "gpunodes.muster.dev") in objects(**options)


def test_where_nothing_bounds_it_the_agent_writes_no_node() -> None:
    for mode, verbs in ((PolicyMode.DENY, {"get", "patch"}), (PolicyMode.OFF, {"get"})):
        rules = objects(policies=mode)["ClusterRole", "muster-agent"]["rules"]
        written = [rule["verbs"] for rule in rules if "nodes/status" in rule["resources"]]
        assert written == ([["patch"]] if "patch" in verbs else [])
        assert {verb for rule in rules if "nodes" in rule["resources"] for verb in rule["verbs"]} == verbs


def test_only_where_limits_hold_an_init_container_of_its_own_may_write_the_library_on_the_node() -> None:
    assert "initContainers" not in pod_spec()
    spec = pod_spec(limits_gpu_memory=True, reads_hosts=False)
    (library,) = spec["initContainers"]
    assert library["args"] == ["agent", "--put-library=/library"]
    assert library["volumeMounts"] == [{"name": "library", "mountPath": "/library"}]
    assert library["securityContext"] == pod_spec(reads_hosts=False)["containers"][0]["securityContext"]
    assert "env" not in library
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "library"]
    assert volume["hostPath"] == {"path": "/var/lib/muster/gpu-memory", "type": "DirectoryOrCreate"}
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["pod-resources"]


def test_only_the_operator_says_how_much_a_pod_may_have() -> None:
    spec = objects()["ValidatingAdmissionPolicy", "muster-pods"]["spec"]
    (rule,) = [rule for rule in spec["validations"] if "rule operator-annotations" in rule.get("message", "")]
    assert "'muster.dev/gpu-memory-limits'" in rule["expression"]
    (pods,) = [rule for rule in spec["matchConstraints"]["resourceRules"] if "pods" in rule["resources"]]
    assert pods["operations"] == ["CREATE", "UPDATE"]
