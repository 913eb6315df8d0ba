"""A value in Kubernetes' or muster's types that no cluster can have is refused with its name, file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from orchestrator.errors import UsageError
from orchestrator.simulation.reader import load

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
ON: Final = {"on": "n1"}


def container(**fields: Any) -> dict[str, Any]:
    """Return the specification of a pod with one container and one GPU."""
    return {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": 1}}, **fields}]}


def template(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return the fields of a workload with a pod template."""
    return {"template": {"metadata": metadata or {}, "spec": {**container(), **spec}}}


def ports(*each: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"template": {"spec": {**container(ports=list(each)), **spec}}}


def apart(**term: Any) -> dict[str, Any]:
    terms = {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}, **term}]}
    return template(affinity={"podAntiAffinity": terms})


def selecting(**expression: Any) -> dict[str, Any]:
    return apart(labelSelector={"matchExpressions": [{"key": "app", **expression}]})


def on_nodes(**expression: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", **expression}]}]
    return template(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def spread(**fields: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}
    return template(topologySpreadConstraints=[constraint])


def status(**fields: Any) -> dict[str, Any]:
    return {"pods": [{**ON, "status": {"phase": "Pending", **fields}}], **template()}


def state(**states: Any) -> dict[str, Any]:
    return status(containerStatuses=[{"name": "c", "state": states}])


def pods(*each: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"pods": list(each), **fields}


WORKLOADS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "no time": ("startTime: 'yesterday' is no RFC 3339", status(startTime="yesterday")),
    "no zone": ("'2026-11-27T10:00:00' is no RFC", status(startTime="2026-11-27T10:00:00")),
    "running since": ("startedAt: 'nope' is no", state(running={"startedAt": "nope"})),
    "ended at": ("finishedAt: 'zz' is no", state(terminated={"exitCode": 1, "finishedAt": "zz"})),
    "condition": (
        "lastTransitionTime: 'now' is",
        status(conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": "now"}]),
    ),
    "conditions": (
        "type: 'Ready' is there twice",
        status(conditions=[{"type": "Ready", "status": "True"}] * 2),
    ),
    "two states": (
        "running: waiting is there too",
        state(waiting={"reason": "x"}, running={"startedAt": "2026-11-27T10:00:00Z"}),
    ),
    "restarts": (
        "restartCount: '-5' is not between 0",
        status(containerStatuses=[{"name": "c", "restartCount": -5}]),
    ),
    "container": ("no container `zzz`", status(containerStatuses=[{"name": "zzz"}])),
    "init container": ("no container `c`", status(initContainerStatuses=[{"name": "c"}])),
    "made at": ("creationTimestamp: 'x' is", template({"creationTimestamp": "x"})),
    "namespace": ("namespace: muster-b is not that", template({"namespace": "muster-b"})),
    "label": ("app: 'a b' is no value of a label", template({"labels": {"app": "a b"}})),
    "label key": ("'-x' is no key of a label", template({"labels": {"-x": "y"}})),
    "selector of nodes": ("'a b' is no value", template(nodeSelector={"zone": "a b"})),
    "port": ("hostPort: '65536' is not between", ports({"containerPort": 80, "hostPort": 65536})),
    "negative port": ("hostPort: '-1' is not", ports({"containerPort": 80, "hostPort": -1})),
    "no port": ("containerPort: '0' is not between 1", ports({"containerPort": 0})),
    "address": (
        "hostIP: 'banana' is no IP",
        ports({"containerPort": 80, "hostPort": 80, "hostIP": "banana"}),
    ),
    "port twice": (
        "hostPort: 80 is there twice",
        ports(*[{"containerPort": at, "hostPort": 80} for at in (1, 2)]),
    ),
    "host network": ("hostPort is missing: with hostNetwork", ports({"containerPort": 80}, hostNetwork=True)),
    "deadline": ("activeDeadlineSeconds: '-1' is not", template(activeDeadlineSeconds=-1)),
    "no deadline": ("activeDeadlineSeconds: '0' is not", template(activeDeadlineSeconds=0)),
    "priority": ("priority: '3000000000' is not", template(priority=3_000_000_000)),
    "In": ("values is missing: In needs", selecting(operator="In", values=[])),
    "NotIn": ("values is missing: NotIn needs", selecting(operator="NotIn")),
    "Exists": ("values: Exists has none", selecting(operator="Exists", values=["x"])),
    "DoesNotExist": ("values: DoesNotExist has none", selecting(operator="DoesNotExist", values=["x"])),
    "Near": ("operator: 'Near' is not implemented", selecting(operator="Near", values=["x"])),
    "Gt of pods": ("operator: 'Gt' is not implemented", selecting(operator="Gt", values=["1"])),
    "no operator": ("operator is missing", selecting(values=["x"])),
    "no key": ("key is missing", selecting(key="", operator="Exists")),
    "odd key": ("'a b' is no key of a label", selecting(key="a b", operator="Exists")),
    "odd value": ("'a b' is no value of a label", selecting(operator="In", values=["a b"])),
    "odd label": ("'a b' is no value", apart(labelSelector={"matchLabels": {"app": "a b"}})),
    "odd topology": ("topologyKey: 'a b' is no key", apart(topologyKey="a b")),
    "odd namespace": ("'A_b' is no name of a namespace", apart(namespaces=["A_b"])),
    "same key": (
        "mismatchLabelKeys: app is there twice",
        apart(matchLabelKeys=["app"], mismatchLabelKeys=["app"]),
    ),
    "no selector": ("matchLabelKeys: it goes with a", apart(labelSelector=None, matchLabelKeys=["app"])),
    "Gt of words": ("values: Gt needs one whole number", on_nodes(operator="Gt", values=["many"])),
    "Gt of a sign": ("values: Gt needs one whole number", on_nodes(operator="Gt", values=["-3"])),
    "Lt of two": ("values: Lt needs one whole number", on_nodes(operator="Lt", values=["1", "2"])),
    "In of nodes": ("values is missing: In needs", on_nodes(operator="In")),
    "no skew": ("maxSkew: '0' is not between 1", spread(maxSkew=0)),
    "negative skew": ("maxSkew: '-3' is not between 1", spread(maxSkew=-3)),
    "no domains": ("minDomains: '0' is not between 1", spread(minDomains=0)),
    "domains anyway": ("minDomains: it goes with", spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway")),
    "keys of a spread": ("matchLabelKeys: it goes with a", spread(matchLabelKeys=["app"])),
    "weight": (
        "weight: '101' is not between 1 and 100",
        template(
            affinity={"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]}}
        ),
    ),
    "traits": ("`traits` goes with no `template`", pods({"traits": {"namespace": "x"}}, **template())),
    "run time": ("`maxRuntimeSeconds` goes with no", pods({"maxRuntimeSeconds": 5}, **template())),
    "neverStarted": (
        "`neverStarted` goes with no `status`",
        pods({**ON, "neverStarted": True, "status": {"phase": "Running"}}),
    ),
    "pending and stuck": ("`stuck` goes with a pod that is releasing", pods({"stuck": True}, gpus=1)),
    "running and stuck": ("`stuck` goes with a pod that is releasing", pods({**ON, "stuck": True}, gpus=1)),
    "pending never started": ("`neverStarted` goes with a pod", pods({"neverStarted": True}, gpus=1)),
    "pending and replaced": (
        "`replaced` goes with a pod that is releasing",
        pods({"replaced": True}, gpus=1),
    ),
    "no pods": ("0 pods are no workload", pods(gpus=1)),
    "minMember": ("minMember: -1 is not between 1", {"gpus": 1, "minMember": -1}),
    "no member": ("minMember: 0 is not between 1", {"gpus": 1, "minMember": 0}),
    "huge gang": ("minMember: 10000000000000000000... is not", {"gpus": 1, "minMember": 10**40}),
    "started": ("started: -1 is not between 0", {"gpus": 1, "started": -1}),
    "created": ("created: -1 is not between 0", {"gpus": 1, "created": -1}),
    "own priority": ("priority: 3000000000 is not", {"gpus": 1, "priority": 3_000_000_000}),
    "device": ("devices: -1 is not between 0", pods({**ON, "devices": [-1]}, gpus=1)),
    "short terms": (
        "values is missing: In needs",
        {"gpus": 1, "nodeTerms": [[{"key": "z", "operator": "In"}]]},
    ),
    "short selector": ("'a b' is no value", {"gpus": 1, "nodeSelector": {"zone": "a b"}}),
    "toleration": ("effect", {"gpus": 1, "tolerations": [{"key": "k", "effect": "Never"}]}),
    "short toleration": (
        "operator: a toleration without a key",
        {"gpus": 1, "tolerations": [{"value": "x"}]},
    ),
    "traits of pods": (
        "maxSkew: 0 is not between 1",
        pods(
            {"traits": {"spread": [{"topologyKey": "z", "maxSkew": 0, "selector": {"namespaces": []}}]}},
            gpus=1,
        ),
    ),
    "selector of traits": (
        "values: Exists has none",
        pods(
            {
                "traits": {
                    "antiAffinity": [
                        {
                            "topologyKey": "z",
                            "selector": {
                                "namespaces": [],
                                "requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}],
                            },
                        }
                    ]
                }
            },
            gpus=1,
        ),
    ),
}
REJECTION: Final = {"node": "n1", "workload": "a/w", "pod": "a/w/0", "reason": "OutOfcpu"}
FILES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "now": ("nowUs: -1 is not between 0", {"nowUs": -1}),
    "far": ("nowUs: 10000000000000000000... is not", {"nowUs": 10**40}),
    "rejected on": ("there is no node `zz`", {"rejections": [{**REJECTION, "node": "zz"}]}),
    "rejected": ("there is no workload `w`: write", {"rejections": [{**REJECTION, "workload": "w"}]}),
    "rejected at": ("atUs: -1 is not between 0", {"rejections": [{**REJECTION, "atUs": -1}]}),
    "rejected how": ("Invalid enum value 'Bogus'", {"rejections": [{**REJECTION, "kind": "Bogus"}]}),
    "left over": ("there is no workload `b/w`", {"leftOver": ["b/w"]}),
    "work": ("maxWork: -1 is not between 0", {"settings": {"maxWork": -1}}),
    "taint": (
        "Invalid enum value 'Never'",
        {"nodes": [{"name": "n1", "taints": [{"key": "k", "effect": "Never"}]}]},
    ),
    "odd taint": (
        "key: 'a b' is no key of a taint",
        {"nodes": [{"name": "n1", "taints": [{"key": "a b"}]}]},
    ),
    "label": ("'a b' is no value", {"nodes": [{"name": "n1", "labels": {"zone": "a b"}}]}),
    "foreign": ("pods: -1 is not between 0", {"nodes": [{"name": "n1", "foreign": {"pods": -1}}]}),
}


def message_of(path: Path, workload: dict[str, Any], **top: Any) -> str:
    file = {
        "nodes": [{"name": "n1", "gpus": 2, "labels": {"zone": "e"}}],
        "projects": {"a": {"quota": 2}, "b": {"quota": 0}},
        "workloads": [{"name": "w", "project": "a", **workload}],
        **top,
    }
    path.write_text(yaml.safe_dump(file, sort_keys=False))
    with pytest.raises(UsageError) as refused:
        load(path)
    return str(refused.value)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_value_of_a_workload_that_no_cluster_has_is_refused_with_its_line(
    name: str, tmp_path: Path
) -> None:
    words, workload = WORKLOADS[name]
    message = message_of(tmp_path / "file.yaml", workload)
    assert words in message
    assert int(message.split(":")[1]) > 10  # the line is that of the workload, after nodes and projects


@pytest.mark.parametrize("name", FILES)
def test_a_value_outside_of_workloads_that_no_cluster_has_is_refused(name: str, tmp_path: Path) -> None:
    words, top = FILES[name]
    assert words in message_of(tmp_path / "file.yaml", {"gpus": 1}, **top)


def test_a_file_written_from_a_cluster_may_name_deleted_objects(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    workload = {"name": "w", "project": "a", "id": "uid-1", "gpus": 1}
    file = {
        "nodes": [{"name": "n1", "gpus": 1}],
        "projects": {"a": {"quota": 1}},
        "workloads": [workload],
        "rejections": [{**REJECTION, "node": "gone"}],
        "leftOver": ["uid-2"],
    }
    path.write_text(yaml.safe_dump(file))
    assert load(path).rejections[0].node == "gone"


def test_values_of_a_cluster_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    workloads = [
        {
            "name": "w1",
            "project": "a",
            **ports({"containerPort": 80, "hostPort": 80, "hostIP": "::1"}, hostNetwork=True),
        },
        {"name": "w2", "project": "a", **apart(namespaces=["muster-b"], matchLabelKeys=["app"])},
        {"name": "w3", "project": "a", "priority": -5, **on_nodes(operator="Gt", values=["3"])},
        {"name": "w4", "project": "a", **template({"namespace": "muster-a"}, activeDeadlineSeconds=60)},
        {"name": "w5", "project": "a", **state(waiting={"reason": "ErrImagePull"}, running=None)},
    ]
    file = {
        "nodes": [{"name": "n1", "gpus": 2}],
        "projects": {"a": {"quota": 2}},
        "workloads": workloads,
        "settings": {"staleGraceSeconds": -1},
    }
    path.write_text(yaml.safe_dump(file))
    assert len(load(path).workloads) == 5
