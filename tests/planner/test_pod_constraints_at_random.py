"""Random small worlds with required constraints between pods, with a brute-force check of each decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.planner.model import PodState, Snapshot
from orchestrator.simulation.reader import load
from orchestrator.simulation.run import settle
from tests.planner.constraint_judge import GPU, Judge, Seen

if TYPE_CHECKING:
    from pathlib import Path

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APPS = ("x", "y")

selectors = st.one_of(
    st.sampled_from(APPS).map(lambda app: {"matchLabels": {"app": app}}),
    st.sampled_from(
        [
            {},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}], "matchLabels": {"app": "x"}},
        ]
    ),
)
keys = st.sampled_from([HOST, HOST, ZONE])
namespaces = st.sampled_from(
    [
        {},
        {},
        {},
        {"namespaces": ["muster-b"]},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "muster-a"}}},
        {"matchLabelKeys": ["tier"]},
        {"mismatchLabelKeys": ["tier"]},
    ]
)
terms = st.builds(
    lambda selector, key, more: {"labelSelector": selector, "topologyKey": key, **more},
    selectors,
    keys,
    namespaces,
)
spreads = st.builds(
    lambda selector, key, skew, more: {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        **more,
    },
    selectors,
    keys,
    st.integers(1, 2),
    st.sampled_from(
        [{}, {}, {"minDomains": 2}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}]
    ),
)
required = st.lists(terms, min_size=1, max_size=2).map(
    lambda listed: {"requiredDuringSchedulingIgnoredDuringExecution": listed}
)


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Return a template with up to two kinds of constraints."""
    labels = {"app": draw(st.sampled_from(APPS)), **draw(st.sampled_from([{}, {"tier": "t"}, {"tier": "u"}]))}
    amounts = {GPU: draw(st.integers(0, 1))}
    container: dict[str, Any] = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    spec: dict[str, Any] = {"containers": [container]}
    for kind in draw(
        st.lists(st.sampled_from(["apart", "beside", "spread", "port", "zone"]), max_size=2, unique=True)
    ):
        if kind == "apart":
            spec.setdefault("affinity", {})["podAntiAffinity"] = draw(required)
        elif kind == "beside":
            spec.setdefault("affinity", {})["podAffinity"] = draw(required)
        elif kind == "spread":
            spec["topologySpreadConstraints"] = draw(
                st.lists(spreads, min_size=1, max_size=2, unique_by=lambda each: each["topologyKey"])
            )
        elif kind == "port":
            address = draw(st.sampled_from([{}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}]))
            container["ports"] = [{"containerPort": 80, "hostPort": draw(st.integers(80, 81)), **address}]
        else:
            spec["nodeSelector"] = {ZONE: draw(st.sampled_from(["east", "west"]))}
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "special", "operator": "Exists"}]
    return {"metadata": {"labels": labels}, "spec": spec}


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Return two to four nodes in up to two zones, two projects and up to five workloads, some of them running."""
    nodes: list[dict[str, Any]] = []
    for index in range(draw(st.integers(2, 4))):
        zone = draw(st.sampled_from(["east", "east", "west", "west", None]))
        node: dict[str, Any] = {"name": f"n{index}", "gpus": draw(st.integers(1, 3))}
        if zone:
            node["labels"] = {ZONE: zone}
        if draw(st.integers(0, 5)) == 0:
            node["taints"] = [{"key": "special"}]
        nodes.append(node)
    workloads: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 5))):
        pods = draw(st.integers(1, 3))
        workload: dict[str, Any] = {
            "name": f"w{index}",
            "project": draw(st.sampled_from(["a", "b"])),
            "pods": pods,
            "minMember": draw(st.sampled_from([1, pods])),
            "template": draw(templates()),
            "priority": draw(st.sampled_from([50, 50, 60])),
        }
        if draw(st.integers(0, 2)) == 0 and not any("on" in other for other in workloads):
            workload["on"] = draw(
                st.sampled_from([node["name"] for node in nodes if node["gpus"] >= pods] or [""])
            )
            if not workload["on"]:
                del workload["on"]
        workloads.append(workload)
    quotas = {name: {"quota": draw(st.sampled_from([0, 2, 8]))} for name in ("a", "b")}
    return {"nodes": nodes, "projects": quotas, "workloads": workloads}


def pods_in(world: dict[str, Any], snapshot: Snapshot, state: PodState) -> list[Seen]:
    written = {f"{one['project']}/{one['name']}": one for one in world["workloads"]}
    return [
        Seen(pod.id, written[workload.id], pod.node or "")
        for workload in snapshot.workloads
        for pod in workload.pods
        if pod.state is state
    ]


def check(world: dict[str, Any], path: Path, grace: int) -> None:
    path.write_text(yaml.safe_dump(world))
    judge = Judge(world)
    run = settle(load(path), grace_decisions=grace)
    assert run.is_stable
    for step, before in zip(run.steps, run.snapshots, strict=True):
        bound = {binding.pod: binding.node for binding in step.bindings}
        evicted = {eviction.pod for eviction in step.evictions}
        present = [pod for pod in pods_in(world, before, PodState.ALLOCATED) if pod.id not in evicted]
        new = [
            pod._replace(node=bound[pod.id])
            for pod in pods_in(world, before, PodState.PENDING)
            if pod.id in bound
        ]
        leaving = [
            *pods_in(world, before, PodState.RELEASING),
            *(pod for pod in pods_in(world, before, PodState.ALLOCATED) if pod.id in evicted),
        ]
        assert judge.has_order(new, present, leaving)
    present = pods_in(world, run.after, PodState.ALLOCATED)
    for workload in run.after.workloads:
        waiting = [
            pod for pod in pods_in(world, run.after, PodState.PENDING) if pod.id.startswith(f"{workload.id}/")
        ]
        running = sum(pod.id.startswith(f"{workload.id}/") for pod in present)
        chunk = waiting[: max(1, workload.min_member - running)]
        if chunk:
            placed = judge.can_place(chunk, present)
            assert placed is None, (run.last.pending[workload.id], placed)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds") / "world.yaml"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(), grace=st.integers(0, 2))
def test_no_decision_breaks_a_constraint_and_none_waits_that_could_be_placed(
    world: dict[str, Any], grace: int, path: Path
) -> None:
    check(world, path, grace)
