from __future__ import annotations

import pkgutil
from decimal import Decimal
from importlib import import_module

import msgspec
import pytest

import orchestrator.cluster
from orchestrator.cluster.objects import Job, Node, Object, Pod, Project, Service
from orchestrator.cluster.resources import resource_of
from orchestrator.cluster.transport import encode


def kinds() -> list[type[Object]]:
    """Return every kind that the cluster layer reads and writes, whatever other tests have imported."""
    for module in pkgutil.iter_modules(orchestrator.cluster.__path__, "orchestrator.cluster."):
        import_module(module.name)
    return [kind for kind in Object.__subclasses__() if kind.__module__.startswith("orchestrator.cluster.")]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_is_read_from_nothing_and_written_with_its_name(kind: type[Object]) -> None:
    thing = msgspec.json.decode(b"{}", type=kind)
    written = msgspec.json.decode(encode(thing))
    assert resource_of(written.pop("apiVersion"), written.pop("kind")) is kind.resource
    assert kind.resource.kind == kind.__name__
    assert written == {}


def test_a_pod_is_read_as_an_old_server_writes_it_with_null_times() -> None:
    pod = msgspec.json.decode(
        b"""{"metadata": {"name": "a", "creationTimestamp": null, "unknown": 1,
             "ownerReferences": [
               {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}}}],
             "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
               {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}}}},
            "status": {"podIP": "10.0.0.1",
             "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}],
             "containerStatuses": [{"name": "c", "restartCount": 2,
               "state": {"terminated": {"exitCode": 137, "startedAt": null, "finishedAt": null}}}]}}""",
        type=Pod,
    )
    assert pod.metadata.creation_timestamp == ""
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.name == "j"
    assert pod.spec.containers[0].resources.limits["nvidia.com/gpu"] == 1
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    required = pod.spec.affinity.node_affinity.required
    assert required is not None
    assert required.node_selector_terms[0].match_expressions[0].key == "k"
    assert pod.status.conditions[0].last_transition_time == ""
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert (terminated.exit_code, terminated.finished_at) == (137, "")
    assert pod.status.pod_ip == "10.0.0.1"


@pytest.mark.parametrize("quota", ["0.1", '"0.1"'])
def test_a_projects_gpus_are_exact_whether_number_or_text(quota: str) -> None:
    text = f'{{"spec": {{"gpu": {{"quota": {quota}, "overQuotaWeight": 2}}}}}}'
    project = msgspec.json.decode(text, type=Project)
    assert project.spec.gpu.quota == Decimal("0.1")
    assert project.spec.gpu.over_quota_weight == 2


def test_names_with_unusual_capitals_are_read() -> None:
    service = msgspec.json.decode(
        b'{"spec": {"clusterIP": "1.2.3.4", "externalIPs": ["5.6.7.8"]}}', type=Service
    )
    assert (service.spec.cluster_ip, service.spec.external_ips) == ("1.2.3.4", ["5.6.7.8"])
    pod = msgspec.json.decode(b'{"status": {"hostIP": "1.2.3.4"}}', type=Pod)
    assert pod.status.host_ip == "1.2.3.4"


def test_objects_cannot_be_changed() -> None:
    node = Node()
    with pytest.raises(AttributeError):
        node.spec = node.spec  # type: ignore[misc]
    assert msgspec.structs.replace(Job(), metadata=node.metadata) == Job()
