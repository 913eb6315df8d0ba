"""On which nodes a pod can run because of its volumes."""

from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.labels import LabelRequirement
from orchestrator.observe.node_terms import Terms, both
from orchestrator.observe.reader import Reader
from orchestrator.observe.snapshot import Hints
from orchestrator.observe.volumes import StorageObject, Volumes, claims_of
from orchestrator.planner import plan
from orchestrator.planner.placements import Placement
from tests.observe.objects import (
    claim,
    decoded,
    mounting,
    namespace,
    node,
    pod,
    project,
    storage_class,
    volume,
)


def is_in(key: str, *values: str) -> LabelRequirement:
    return LabelRequirement(key, "In", values)


def known(*objects: StorageObject) -> Volumes:
    volumes = Volumes()
    for each in objects:
        volumes.note(each, is_there=True)
    return volumes


def test_a_pod_mounts_claims_by_name_and_those_that_are_made_for_it() -> None:
    spec = {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "token", "projected": {"sources": []}},
        ]
    }
    assert claims_of(pod("job-1", spec=spec)) == [
        ("muster-team-a", "shared"),
        ("muster-team-a", "job-1-scratch"),
    ]


@pytest.mark.parametrize(
    ("objects", "terms"),
    [
        pytest.param([], (), id="no claim"),
        pytest.param([claim("data")], (), id="no volume, no class"),
        pytest.param([claim("data", volume="v")], (), id="a volume that is not known"),
        pytest.param([claim("data", volume="v"), volume("v")], (), id="a volume for every node"),
        pytest.param(
            [
                claim("data", volume="v"),
                volume("v", {"host": ("n-1",)}, {"zone": ("a", "b"), "rack": ("1",)}),
            ],
            ((is_in("host", "n-1"),), (is_in("zone", "a", "b"), is_in("rack", "1"))),
            id="a volume for some",
        ),
        pytest.param(
            [claim("data", "disk"), storage_class("disk", zone=("a",))],
            ((is_in("zone", "a"),),),
            id="a class for some nodes",
        ),
        pytest.param(
            [claim("data", "disk"), storage_class("disk", "Immediate", zone=("a",))],
            (),
            id="a class that asks no scheduler",
        ),
    ],
)
def test_the_requirements_of_a_claim_on_a_node(objects: list[StorageObject], terms: Terms) -> None:
    assert known(*objects).terms(pod("job", spec=mounting("data"))) == terms
    assert known(*reversed(objects)).terms(pod("job", spec=mounting("data"))) == terms
    assert known(*objects).terms(pod("job")) == ()


def test_all_claims_of_a_pod_have_to_be_reached() -> None:
    volumes = known(
        claim("a", volume="va"), volume("va", {"zone": ("1",)}, {"zone": ("2",)}),
        claim("b", volume="vb"), volume("vb", {"rack": ("x",)}),
    )  # fmt: skip
    assert volumes.terms(pod("job", spec=mounting("a", "b"))) == (
        (is_in("zone", "1"), is_in("rack", "x")),
        (is_in("zone", "2"), is_in("rack", "x")),
    )
    assert both((), ((is_in("a", "b"),),)) == both(((is_in("a", "b"),),), ()) == ((is_in("a", "b"),),)


def affine(name: str) -> Pod:
    """Return a pod with node affinity to n-1 or n-2, which mounts the PersistentVolumeClaim `data`."""
    term = {"matchExpressions": [{"key": "host", "operator": "In", "values": ["n-1", "n-2"]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    return pod(name, gpus=1, spec={"affinity": affinity, **mounting("data")})


def test_a_pod_runs_where_its_volume_is_also_when_that_is_learnt_later() -> None:
    reader = Reader()
    nodes = [node(f"n-{each}", labels={"host": f"n-{each}"}) for each in range(3)]
    for each in (*nodes, namespace("muster-team-a", "team-a"), project("team-a", quota=4), affine("job")):
        reader.note(Change("added", each))

    def chosen() -> list[str]:
        return [each.node for each in plan(reader.read().snapshot).bindings]

    assert chosen() == ["n-1"]
    before = reader.read().snapshot.workloads
    reader.note(Change("added", claim("data", volume="v")))
    assert reader.read().snapshot.workloads[0] is before[0], "it asks nothing yet"
    reader.note(Change("added", volume("v", {"host": ("n-2", "n-0")})))
    assert chosen() == ["n-2"]
    reader.note(Change("deleted", volume("v")))
    assert chosen() == ["n-1"]


def test_a_pod_that_is_skipped_is_not_decided_on_and_says_why() -> None:
    reader = Reader()
    for each in (node("n-1"), namespace("muster-team-a", "team-a"), project("team-a", quota=4)):
        reader.note(Change("added", each))
    reader.note(Change("added", pod("job", gpus=1)))
    reading = reader.read(hints=Hints(put_off={"uid-job": "no volume"}))
    assert reading.snapshot.workloads == ()
    assert reading.unreadable_pods == {"uid-job": "no volume"}
    reading = reader.read()
    assert [each.name for each in reading.snapshot.workloads] == ["job"]
    assert reading.unreadable_pods == {}


def test_objects_are_read_as_the_api_server_sends_them() -> None:
    made = decoded(type(storage_class("x")), metadata={"name": "plain"}, provisioner="p")
    assert made.volume_binding_mode == "Immediate"
    assert made.allowed_topologies == []


def sole(name: str, created: str, *claims: str, **spec: Any) -> Pod:
    return pod(name, gpus=1, creationTimestamp=created, spec={**mounting(*claims), **spec})


def test_a_claim_for_one_pod_is_given_to_the_pod_that_has_a_node_then_to_the_oldest() -> None:
    reader = Reader()
    nodes = [node("n-1"), node("n-2")]
    for each in (*nodes, namespace("muster-team-a", "team-a"), project("team-a", quota=8)):
        reader.note(Change("added", each))
    old = sole("old", "2026-01-01T00:00:00Z", "data")
    young = sole("young", "2026-01-02T00:00:00Z", "data")
    reader.note(Change("added", young))
    reader.note(Change("added", old))

    def waiting() -> dict[str, str]:
        return dict(reader.read().unreadable_pods)

    def chosen() -> list[str]:
        return [each.pod for each in plan(reader.read().snapshot).bindings]

    assert chosen() == ["uid-old", "uid-young"]
    reader.note(Change("added", claim("data", volume="v", access_modes=["ReadWriteMany"])))
    assert waiting() == {}
    reader.note(Change("modified", claim("data", volume="v", access_modes=["ReadWriteOncePod"])))
    reason = "only one pod can use the claim data (ReadWriteOncePod), and the pod {} it"
    assert waiting() == {"uid-young": reason.format("old is older and waits for")}
    assert chosen() == ["uid-old"]
    # A pod of another scheduler runs with the claim
    foreign = sole(
        "theirs", "2026-01-03T00:00:00Z", "data", schedulerName="default-scheduler", nodeName="n-1"
    )
    reader.note(Change("added", foreign))
    assert waiting() == dict.fromkeys(["uid-old", "uid-young"], reason.format("theirs uses"))
    ended = msgspec.structs.replace(
        foreign, status=msgspec.structs.replace(foreign.status, phase="Succeeded")
    )
    reader.note(Change("modified", ended))
    reader.pods.bind("uid-young", Placement("n-2", (0,)))
    assert waiting() == {"uid-old": reason.format("young uses")}
    reader.note(Change("deleted", young))
    assert waiting() == {}
    assert chosen() == ["uid-old"]


def test_a_successor_with_a_claim_for_one_pod_does_not_wait_for_its_terminating_predecessor() -> None:
    reader = Reader()
    for each in (
        node("n-1"),
        namespace("muster-team-a", "team-a"),
        project("team-a", quota=8),
        claim("data", volume="v", access_modes=["ReadWriteOncePod"]),
        pod("old", gpus=1, owner="job", node="n-1", phase="Running", spec=mounting("data")),
        pod("new", gpus=1, owner="job", spec=mounting("data")),
        pod("other", gpus=1, owner="another", spec=mounting("data")),
    ):
        reader.note(Change("added", each))
    assert set(reader.read().unreadable_pods) == {"uid-new", "uid-other"}
    reader.pods.evict("uid-old")
    assert set(reader.read().unreadable_pods) == {"uid-other"}
