"""The snapshot file: short forms are read, exact snapshots are written, and written files are read back as the same
snapshots.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.cluster.quantity import parse_time
from orchestrator.devices import model as devices
from orchestrator.errors import UsageError
from orchestrator.labels import LabelRequirement, Operator
from orchestrator.planner import model
from orchestrator.simulation import forms
from orchestrator.simulation.extra_fields import uncovered
from orchestrator.simulation.reader import ONLY_IN_STATES, load
from orchestrator.simulation.writer import dump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = """
nodes:
  - {name: dgx1-1, gpus: 8}
projects:
  team-a: {quota: 4}
workloads:
  - {name: a-1, project: team-a, gpus: 2, on: dgx1-1}
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[str], model.Snapshot]:
    """Return a function that loads a text as a file called `small.yaml`."""

    def read(text: str) -> model.Snapshot:
        path = tmp_path / "small.yaml"
        path.write_text(text)
        return load(path)

    return read


def test_a_small_file_needs_little(loaded: Callable[[str], model.Snapshot]) -> None:
    snapshot = loaded(SMALL)
    assert snapshot.nodes == (
        model.Node(name="dgx1-1", gpu_count=8, cpu_milli=80_000, memory_bytes=512 << 30, pod_slots=110),
    )
    assert snapshot.projects == (
        model.Project(name="team-a", quota_gpu_milli=4000, over_quota_weight=4000, created_at_us=1),
    )
    (workload,) = snapshot.workloads
    assert workload == model.Workload(
        id="team-a/a-1",
        name="a-1",
        project="team-a",
        priority=50,
        preemptible=True,
        created_at_us=1,
        started_at_us=1,
        pods=(
            model.Pod(
                id="team-a/a-1/0",
                name="a-1-0",
                request=model.Request(gpu_count=2),
                state=model.PodState.ALLOCATED,
                node="dgx1-1",
                devices=(0, 1),
            ),
        ),
    )


def test_interactive_work_has_its_own_defaults(loaded: Callable[[str], model.Snapshot]) -> None:
    (workload,) = loaded(SMALL.replace("gpus: 2,", "gpus: 2, interactive: true,")).workloads
    assert (workload.priority, workload.preemptible, workload.interactive) == (100, False, True)


def test_pods_that_are_counted_run_on_the_nodes_that_are_named_and_the_rest_waits(
    loaded: Callable[[str], model.Snapshot],
) -> None:
    (workload,) = loaded(SMALL.replace("on: dgx1-1", "pods: 3, on: [dgx1-1, dgx1-1]")).workloads
    assert [(pod.state.value, pod.devices) for pod in workload.pods] == [
        ("allocated", (0, 1)),
        ("allocated", (2, 3)),
        ("pending", ()),
    ]


def test_devices_are_chosen_around_those_that_are_named(loaded: Callable[[str], model.Snapshot]) -> None:
    workloads = loaded(
        SMALL
        + "  - {name: a-2, project: team-a, gpus: 0.5, on: dgx1-1}\n"
        + "  - {name: a-3, project: team-a, gpus: 0.5, on: dgx1-1}\n"
        + "  - {name: a-4, project: team-a, gpus: 2, on: dgx1-1, devices: [0, 2]}\n"
    ).workloads
    assert [each.pods[0].devices for each in workloads] == [(1, 3), (4,), (4,), (0, 2)]


def test_parts_of_several_devices_are_chosen_by_portion_and_by_memory(
    loaded: Callable[[str], model.Snapshot],
) -> None:
    text = SMALL.replace("gpus: 8}", "gpus: 3, gpuMemoryMib: 16384}").replace(
        "gpus: 2, on: dgx1-1", "gpus: 0.5, sharedDevices: 2, on: dgx1-1"
    )
    more = "  - {name: a-2, project: team-a, gpuMemoryMib: 8192, sharedDevices: 3, on: dgx1-1}\n"
    first, second = loaded(text + more).workloads
    assert (first.pods[0].devices, second.pods[0].devices) == ((0, 1), (0, 1, 2))
    assert second.pods[0].request.gpu_memory_mib == 8192


def test_gpus_of_other_schedulers_are_not_chosen(loaded: Callable[[str], model.Snapshot]) -> None:
    text = SMALL.replace("gpus: 8}", "gpus: 8, foreign: {gpus: 7, pods: 1}}")
    with pytest.raises(UsageError, match="not enough free GPUs"):
        loaded(text)


def test_a_pod_has_only_its_differences_from_its_workload(loaded: Callable[[str], model.Snapshot]) -> None:
    text = SMALL.replace("on: dgx1-1", "cpu: 4, pods: [{name: x, gpus: 0}, {on: dgx1-1, memory: 1Gi}]")
    first, second = loaded(text).workloads[0].pods
    assert (first.name, first.request) == ("x", model.Request(cpu_milli=4000))
    assert second.request == model.Request(gpu_count=2, cpu_milli=4000, memory_bytes=1 << 30)


def test_nominations_and_left_over_workloads_are_read(loaded: Callable[[str], model.Snapshot]) -> None:
    snapshot = loaded(
        SMALL
        + """  - name: a-2
    project: team-a
    gpus: 1
    pods:
      - {nominated: {node: dgx1-1, devices: [2]}}
      - {state: releasing, on: dgx1-1, nominated: {node: dgx1-1}}
      - {}
leftOver: [team-a/a-2]
"""
    )
    pods = snapshot.workloads[1].pods
    places = [(pod.state.value, pod.nominated_node, pod.nominated_devices) for pod in pods]
    assert places == [("pending", "dgx1-1", (2,)), ("releasing", "dgx1-1", ()), ("pending", None, ())]
    assert snapshot.left_over == ("team-a/a-2",)


def test_constraints_taints_and_times_are_read(loaded: Callable[[str], model.Snapshot]) -> None:
    snapshot = loaded("""
nodes:
  - {name: n, gpus: 1, type: a, schedulable: false, labels: {zone: x}, taints: [{key: k, effect: NoExecute}]}
projects:
  top: {quota: 4, weight: 2}
  team-a: {quota: 0.5, limit: 1, parent: top, created: "2026-01-01T00:00:00.5Z"}
workloads:
  - name: w
    project: team-a
    gpus: 0.25
    nodeSelector: {zone: x}
    nodeTerms: [[{key: zone, operator: In, values: [x, y]}]]
    tolerations: [{key: k, operator: Exists}]
""")
    node, pod = snapshot.nodes[0], snapshot.workloads[0].pods[0]
    assert (node.node_type, node.schedulable, node.taints) == (
        "a",
        False,
        (model.Taint("k", "", "NoExecute"),),
    )
    assert pod.constraints == model.Constraints(
        (("zone", "x"),),
        ((LabelRequirement("zone", "In", ("x", "y")),),),
        (model.Toleration("k", "Exists"),),
    )
    top, team = snapshot.projects
    assert (top.over_quota_weight, team.quota_gpu_milli, team.limit_gpu_milli) == (2000, 500, 1000)
    assert (team.parent, team.created_at_us) == ("top", parse_time("2026-01-01T00:00:00.5Z"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nodes: [{name: a, gpu: 1}]", "1: unknown key `gpu` (at nodes.0.gpu)"),
        ("nodes:\n- name: a\n  gpus: many", "3: Expected `int`, got `str` (at nodes.0.gpus)"),
        ("nodes:\n- name: a\n- name: a", "3: node a is there twice, first in line 2"),
        ("nodes:\n- {name: a, memory: much}", "2: 'much' is no Kubernetes quantity"),
        ("projects: {}", "1: Object missing required field `nodes`"),
        ("nodes: []\nprojects:\n  t: {quota: 1.2345}", "3: 1.2345 GPUs has more than three places"),
        ("nodes: []\nprojects:\n  t: {quota: 1, parent: s}", "3: there is no project `s`"),
        ("nodes: []\nnodes: []", "2: key `nodes` is there twice"),
        ("nodes: [", ""),
        ("kind: Pod\nnodes: []", "1: Invalid enum value 'Pod'"),
        ("", "1: the file is empty"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(
    text: str, complaint: str, loaded: Callable[[str], model.Snapshot]
) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(text)
    assert f"small.yaml:{complaint}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("workload", "complaint"),
    [
        ("{name: w, project: b, gpus: 1}", "there is no project `b`; there are: team-a"),
        ("{name: a-1, project: team-a}", "workload team-a/a-1 is there twice, first in line 7"),
        ("{name: w, project: team-a, gpus: 2.5}", "ask for whole GPUs, or for a part of one"),
        ("{name: w, project: team-a, gpus: 7, on: dgx1-1}", "dgx1-1 has not enough free GPUs for `w`"),
        ("{name: w, project: team-a, on: dgx1-9}", "there is no node `dgx1-9`"),
        ("{name: w, project: team-a, pods: 0}", "0 pods are no workload"),
        (f"{{name: w, project: team-a, pods: {10**40}}}", "a workload has at most 100000 pods"),
        ("{name: w, project: team-a, pods: 1, on: [dgx1-1, dgx1-1]}", "`on` names 2 nodes for 1 pods"),
        ("{name: w, project: team-a, on: dgx1-1, pods: [{}]}", "`on` goes with a number of pods"),
        ("{name: w, project: team-a, devices: [1]}", "`devices` goes with one pod that is `on` a node"),
        ("{name: w, project: team-a, pods: [{state: allocated}]}", "that is allocated must be `on` a node"),
        (
            "{name: w, project: team-a, pods: [{state: pending, on: dgx1-1}]}",
            "pending must not be `on` a node",
        ),
        (
            "{name: w, project: team-a, gpus: 1, nodeTerms: [[{key: zone, operator: Later}]]}",
            "Invalid enum value 'Later'",
        ),
        (
            "{name: w, project: team-a, gpus: 1, tolerations: [{key: sla, operator: Lt, value: '90'}]}",
            "Invalid enum value 'Lt'",
        ),
        ("{name: w, project: team-a, created: yesterday}", "'yesterday' is no RFC 3339 timestamp"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(
    workload: str, complaint: str, loaded: Callable[[str], model.Snapshot]
) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(f"{SMALL}  - {workload}\n")
    assert "small.yaml:8: " in str(caught.value)
    assert complaint in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.yaml")
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="binary:1: byte 0"):
        load(path)


def test_the_schema_describes_every_field_of_the_model() -> None:
    schema = forms.json_schema()
    text = str(schema)
    assert schema["$defs"]["WorkloadForm"]["additionalProperties"] is False
    assert schema["$defs"]["ProjectForm"]["properties"]["quota"] == {
        "anyOf": [{"type": "number"}, {"type": "null"}]
    }
    for kind, covered in forms.COVERED.items():
        for each in uncovered(kind, covered):
            first, *others = each.name.split("_")
            assert f"'{first}{''.join(word.capitalize() for word in others)}'" in text


def amounts(most: int = 10**15) -> st.SearchStrategy[int]:
    return st.integers(0, most)


def rest(kind: type) -> dict[str, st.SearchStrategy[Any]]:
    """Return a strategy for each field that has no short form."""
    hints = typing.get_type_hints(kind)
    return {
        each.name: st.sampled_from(OF_CLAIMS[kind, each.name])
        if (kind, each.name) in OF_CLAIMS
        else st.from_type(hints[each.name])
        for each in uncovered(kind, forms.COVERED[kind])
    }


CLAIM = devices.Claim(
    "uid",
    "team-a",
    "claim",
    devices.ClaimSpec(
        requests=(
            devices.RequestChoice(
                "gpu",
                (
                    devices.Request(
                        "gpu/large",
                        "gpu",
                        "gpu.example.com",
                        selectors=("true",),
                        count=2,
                        tolerations=(devices.DeviceToleration("key", seconds=3),),
                        capacity=(("memory", 1 << 64),),
                    ),
                ),
                is_prioritized=True,
            ),
        ),
        constraints=(devices.Constraint("numa", distinct=True, requests=("gpu",)),),
        config=(devices.Configuration("{}", ("gpu",)),),
    ),
)
ALLOCATION = devices.Allocation(
    results=(devices.DeviceResult("gpu", ("d", "pool", "gpu-0"), share_id="x", consumed=(("memory", 7),)),),
    config=(devices.ResultConfiguration(True, devices.Configuration("{}")),),
    nodes=devices.NodeTerm(fields=(LabelRequirement("metadata.name", "In", ("a",)),)),
)
# The slices of a driver compare by identity, and have a test of their own.
OF_CLAIMS: dict[tuple[type, str], list[Any]] = {
    (model.Request, "claim_specs"): [(), (CLAIM.spec,)],
    (model.Pod, "extended_claim"): [None, CLAIM],
    (model.Snapshot, "dynamic"): [
        devices.NO_DYNAMIC_RESOURCES,
        devices.DynamicResources(
            classes=(devices.DeviceClass("gpu", ("true",), (devices.Configuration("{}"),)),),
            claims=(devices.ObservedClaim(CLAIM, ALLOCATION, ("pod",)),),
        ),
    ],
}


def possible(value: Any, name: str = "") -> Any:
    """Return the value as a cluster can have it: numbers within bounds, label requirements with as many values as
    needed, and taints and tolerations with keys and values of labels.
    """
    if isinstance(value, LabelRequirement):
        count = {"In": 2, "NotIn": 1, "Gt": 1, "Lt": 1}.get(value.operator, 0)
        return LabelRequirement("zone", value.operator, ("17", "a")[:count])
    if isinstance(value, model.Taint | model.Toleration):
        exists = isinstance(value, model.Toleration) and value.operator == "Exists"
        key = "" if exists and not value.key else "key"
        return dataclasses.replace(value, key=key, value="" if exists else "a" * bool(value.value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and name != "dynamic":
        own = dataclasses.fields(value)
        fields = {each.name: possible(getattr(value, each.name), each.name) for each in own}
        return dataclasses.replace(value, **fields)
    if isinstance(value, tuple):
        return tuple(possible(each, name) for each in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(int(name in {"min_member", "max_skew", "min_domains", "port"}), min(abs(value), 100))
    return value


NAMES = st.text("abc-.0123456789", min_size=1, max_size=5)
TEXTS = st.text(max_size=4)
OPERATORS = st.sampled_from(["Equal", "Exists"])
GPUS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"gpu_count": st.integers(0, 16)}),
    st.fixed_dictionaries({"gpu_portion_milli": st.integers(1, 999)}),
)
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
LABELS = st.dictionaries(
    st.from_regex(r"([a-z][-a-z]{0,2}[a-z]/)?[A-Z]([-_.a-z0-9]{0,3}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"([0-9A-Z]([-_.a-z]{0,3}[a-z0-9])?)?", fullmatch=True),
    max_size=2,
)


@st.composite
def requests(draw: st.DrawFn) -> model.Request:
    return model.Request(
        **draw(GPUS),
        cpu_milli=draw(amounts()),
        memory_bytes=draw(amounts()),
        **{name: draw(each) for name, each in rest(model.Request).items()},
    )


@st.composite
def constraints(draw: st.DrawFn) -> model.Constraints:
    requirement = st.builds(
        LabelRequirement,
        TEXTS,
        st.sampled_from(typing.get_args(Operator)),
        st.lists(TEXTS, max_size=2).map(tuple),
    )
    term = st.lists(requirement, max_size=2).map(tuple)
    return model.Constraints(
        node_selector=tuple(sorted(draw(LABELS).items())),
        node_terms=draw(st.lists(term, max_size=2).map(tuple)),
        tolerations=draw(
            st.lists(st.builds(model.Toleration, TEXTS, OPERATORS, TEXTS, EFFECTS), max_size=2).map(tuple)
        ),
        **{name: draw(each) for name, each in rest(model.Constraints).items()},
    )


@st.composite
def pods(draw: st.DrawFn, pod_id: str) -> model.Pod:
    node, nominated = draw(st.none() | NAMES), draw(st.none() | NAMES)
    indices = st.lists(st.integers(0, 15), max_size=3).map(tuple)
    running = st.sampled_from([model.PodState.ALLOCATED, model.PodState.RELEASING])
    state = model.PodState.PENDING if node is None else draw(running)
    others = {name: draw(each) for name, each in rest(model.Pod).items()}
    for name, states in ONLY_IN_STATES.items():
        if state not in states:
            del others[name]
    return model.Pod(
        id=pod_id,
        name=draw(NAMES),
        request=draw(requests()),
        constraints=draw(constraints()),
        state=state,
        node=node,
        devices=() if node is None else draw(indices),
        nominated_node=nominated,
        nominated_devices=() if nominated is None else draw(indices),
        **others,
    )


@st.composite
def workloads(draw: st.DrawFn, number: int) -> model.Workload:
    return model.Workload(
        id=f"uid-{number}",
        name=draw(NAMES),
        project=draw(NAMES),
        priority=draw(st.integers(-100, 200)),
        preemptible=draw(st.booleans()),
        created_at_us=draw(amounts()),
        pods=tuple(draw(pods(f"{number}.{each}")) for each in range(draw(st.integers(1, 3)))),
        min_member=draw(st.integers(1, 5)),
        interactive=draw(st.booleans()),
        started_at_us=draw(amounts()),
        **{name: draw(each) for name, each in rest(model.Workload).items()},
    )


@st.composite
def snapshots(draw: st.DrawFn) -> model.Snapshot:
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    nodes = tuple(
        model.Node(
            name=name,
            gpu_count=draw(st.integers(0, 16)),
            cpu_milli=draw(amounts()),
            memory_bytes=draw(amounts()),
            pod_slots=draw(st.integers(0, 500)),
            labels=draw(LABELS),
            taints=tuple(draw(st.lists(st.builds(model.Taint, TEXTS, TEXTS, EFFECTS), max_size=2))),
            schedulable=draw(st.booleans()),
            node_type=draw(TEXTS),
            foreign=draw(requests()),
            foreign_pods=draw(st.integers(0, 5)),
            **{key: draw(each) for key, each in rest(model.Node).items()},
        )
        for name in names
    )
    teams = draw(st.lists(NAMES, unique=True, max_size=3))
    projects = tuple(
        model.Project(
            name=name,
            quota_gpu_milli=draw(amounts(10**8)),
            limit_gpu_milli=draw(st.none() | amounts(10**8)),
            over_quota_weight=draw(amounts(10**8)),
            parent=draw(st.sampled_from([None, *teams])),
            created_at_us=draw(amounts()),
            gpu_models=tuple(
                model.GpuModelBounds(each, *draw(st.tuples(*[st.none() | amounts(10**8)] * 2)))
                for each in sorted(draw(st.sets(NAMES, max_size=2)))
            ),
            **{key: draw(each) for key, each in rest(model.Project).items()},
        )
        for name in teams
    )
    snapshot: model.Snapshot = possible(
        model.Snapshot(
            nodes=nodes,
            projects=projects,
            workloads=tuple(draw(workloads(number)) for number in range(draw(st.integers(0, 3)))),
            **{key: draw(each) for key, each in rest(model.Snapshot).items()},
        )
    )
    return snapshot


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(snapshot=snapshots())
def test_written_snapshots_are_read_back_exactly(snapshot: model.Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(dump(snapshot), encoding="utf-8")
    assert load(path) == snapshot


def test_slices_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    published = devices.ResourceSlice(
        "slice",
        "gpu.example.com",
        "node-1",
        generation=3,
        nodes=devices.NodeChoice(node_name="node-1"),
        counter_sets=(devices.CounterSet("set", (("memory", 4),)),),
        devices=(
            devices.Device(
                "gpu-0",
                attributes={
                    "uuid": devices.Attribute("string", ("GPU-0",)),
                    "index": devices.Attribute("int", (1,)),
                },
                capacity={"memory": devices.Capacity(32 << 60, devices.RequestPolicy(default_nano=1 << 60))},
                taints=(devices.DeviceTaint("key", "value", "NoSchedule"),),
                shareable=True,
            ),
        ),
    )
    snapshot = model.Snapshot((), (), (), dynamic=devices.DynamicResources((published,)))
    path = tmp_path / "slices.yaml"
    path.write_text(dump(snapshot), encoding="utf-8")
    (read,) = load(path).dynamic.slices
    assert dataclasses.asdict(read) == dataclasses.asdict(published)


def test_a_file_is_plain_yaml_for_all_readers(loaded: Callable[[str], model.Snapshot]) -> None:
    document = yaml.safe_load(dump(loaded(SMALL)))
    assert (document["apiVersion"], document["kind"]) == ("muster.dev/v1alpha1", "Snapshot")
    assert document["nodes"] == [{"name": "dgx1-1", "gpus": 8}]
