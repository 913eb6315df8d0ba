"""Affinity between pods, topology spread and host ports, from objects of the cluster to the planner's decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from orchestrator.cluster.objects import Node
from orchestrator.labels import LabelRequirement
from orchestrator.observe.pod_traits import bound_traits, pod_traits
from orchestrator.observe.reader import read
from orchestrator.observe.snapshot import Observed
from orchestrator.observe.unreadable import UnreadableRequest
from orchestrator.planner import plan
from orchestrator.planner.traits import HostPort, PodSelector, PodTerm
from tests.observe.objects import by_uid, decoded, namespace, pod, project

if TYPE_CHECKING:
    from orchestrator.cluster.objects import Pod

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
HOST: Final = "kubernetes.io/hostname"


def node(name: str) -> Node:
    resources = {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return decoded(
        Node,
        metadata={"name": name, "uid": f"uid-{name}", "labels": {HOST: name}},
        status={"allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]},
    )


def apart(*terms: dict[str, Any], kind: str = "podAntiAffinity") -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": HOST, **term} for term in terms]}}}


def with_spec(name: str = "p", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    return pod(name, labels=labels, spec={"containers": containers, **spec})


SELECTED: Final[dict[str, tuple[dict[str, Any], PodSelector]]] = {
    "the namespace of the pod": ({"labelSelector": {}}, PodSelector(("muster-team-a",))),
    "namespaces": ({"labelSelector": {}, "namespaces": ["x", "y"]}, PodSelector(("x", "y"))),
    "every namespace": ({"labelSelector": {}, "namespaceSelector": {}}, PodSelector(None)),
    "a namespace by its name, beside others": (
        {
            "labelSelector": {},
            "namespaces": ["x"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "y"}},
        },
        PodSelector(("x", "y")),
    ),
    "keys of the pod's labels": (
        {
            "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            "matchLabelKeys": ["tier", "absent"],
            "mismatchLabelKeys": ["job"],
        },
        PodSelector(
            ("muster-team-a",),
            (
                LabelRequirement("a", "Exists"),
                LabelRequirement("tier", "In", ("web",)),
                LabelRequirement("job", "NotIn", ("j",)),
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", SELECTED)
def test_a_term_selects_pods_of_its_namespaces(name: str) -> None:
    term, selector = SELECTED[name]
    traits = pod_traits(with_spec(labels={"tier": "web", "job": "j"}, **apart(term)))
    assert traits.anti_affinity == (PodTerm(selector, HOST),)


def test_an_affinity_without_a_selector_matches_no_pod_and_an_anti_affinity_none_either() -> None:
    assert pod_traits(with_spec(**apart({}))).anti_affinity == ()
    (term,) = pod_traits(with_spec(**apart({}, kind="podAffinity"))).affinity
    assert not term.selector.selects("muster-team-a", {})


def test_containers_and_sidecars_take_host_ports_and_init_containers_do_not() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    starters = [
        {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
        {
            "name": "s",
            "restartPolicy": "Always",
            "ports": [{"containerPort": 2, "hostPort": 2, "hostIP": "::1"}],
        },
    ]
    traits = pod_traits(with_spec(containers=[{"name": "c", "ports": ports}], initContainers=starters))
    assert traits.host_ports == (HostPort(2, address="::1"), HostPort(8080))


REFUSED: Final[dict[str, dict[str, Any]]] = {
    "namespaceSelector": apart({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}),
    "operator": apart({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
    "at most 32": apart(*[{"labelSelector": {"matchLabels": {"a": str(index)}}} for index in range(33)]),
    "whenUnsatisfiable": {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "Never"}]},
    "the policy": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": HOST, "labelSelector": {}, "nodeTaintsPolicy": "Prefer"}
        ]
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_constraint_that_is_not_implemented_is_refused_and_widens_for_a_pod_that_runs(name: str) -> None:
    refused = with_spec(**REFUSED[name])
    with pytest.raises(UnreadableRequest if name != "operator" else ValueError, match=name):
        pod_traits(refused)
    for term in bound_traits(refused).anti_affinity:
        assert term.selector.namespaces is None or name == "at most 32"


def test_no_anti_affinity_of_a_running_pod_is_dropped() -> None:
    """Beyond the limit, a term counts as one that keeps every pod out of its domains."""

    def term(number: int) -> dict[str, Any]:
        return {"topologyKey": f"zone-{number % 40}", "labelSelector": {"matchLabels": {"n": str(number)}}}

    affinity = {"podAntiAffinity": {REQUIRED: [term(number) for number in range(50)]}}
    terms = bound_traits(pod("many", spec={"affinity": affinity})).anti_affinity
    read = {(f"zone-{number % 40}", number) for number in range(32)}
    exact = {(term.topology_key, int(term.selector.requirements[0].values[0])) for term in terms[:32]}
    assert exact == read
    assert [(term.topology_key, term.selector) for term in terms[32:]] == [
        (f"zone-{number % 40}", PodSelector(None)) for number in range(32, 50)
    ]


def decide(*pods: Pod) -> dict[str, str]:
    """Return the node of each pending pod that is bound, by the pod's name, in a cluster of two nodes."""
    snapshot = read(
        Observed(
            nodes=by_uid(node("n1"), node("n2")),
            pods=by_uid(*pods),
            namespaces=by_uid(namespace("muster-team-a", "team-a"), namespace("kube-system")),
            projects=by_uid(project("team-a", quota=16)),
        )
    ).snapshot
    return {binding.pod.removeprefix("uid-"): binding.node for binding in plan(snapshot).bindings}


def of_another_scheduler(on: str, **spec: Any) -> Pod:
    return pod(
        "other",
        namespace="kube-system",
        labels={"app": "agent"},
        node=on,
        spec={"schedulerName": "default-scheduler", "containers": [{"name": "c"}], **spec},
    )


def test_the_anti_affinity_of_a_pod_of_another_scheduler_keeps_a_pod_away() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "loud"}}, "namespaceSelector": {}}
    other = of_another_scheduler("n1", **apart(term))
    assert decide(other, with_spec("loud", {"app": "loud"})) == {"loud": "n2"}
    assert decide(other, with_spec("quiet", {"app": "quiet"})) == {"quiet": "n1"}


def test_affinity_and_host_ports_see_a_pod_of_another_scheduler() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "agent"}}, "namespaces": ["kube-system"]}
    assert decide(of_another_scheduler("n2"), with_spec(**apart(term, kind="podAffinity"))) == {"p": "n2"}
    container = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}
    other = of_another_scheduler("n1", containers=[container])
    assert decide(other, with_spec(containers=[container])) == {"p": "n2"}


@pytest.mark.parametrize(
    "spec",
    [
        {
            "affinity": {
                "nodeAffinity": {
                    PREFERRED: [
                        {
                            "weight": 1,
                            "preference": {
                                "matchExpressions": [{"key": HOST, "operator": "In", "values": ["n2"]}]
                            },
                        }
                    ]
                }
            }
        },
        {
            "affinity": {
                "podAntiAffinity": {
                    PREFERRED: [
                        {
                            "weight": 1,
                            "podAffinityTerm": {
                                "topologyKey": HOST,
                                "labelSelector": {"matchLabels": {"app": "agent"}},
                                "namespaces": ["kube-system"],
                            },
                        }
                    ]
                }
            }
        },
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": HOST,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": "mine"}},
                }
            ]
        },
    ],
    ids=["node affinity", "pod anti-affinity", "spread"],
)
def test_a_pod_prefers_a_node_and_takes_another_if_that_is_full(spec: dict[str, Any]) -> None:
    mine = pod("mine", labels={"app": "mine"}, node="n1", gpus=1)
    other = of_another_scheduler("n1")
    assert decide(mine, other, with_spec(**spec))["p"] == "n2"
    assert decide(mine, other, pod("full", node="n2", gpus=8), with_spec(**spec))["p"] == "n1"
