"""Kubernetes' own types in a snapshot file: allocatable of nodes, templates of workloads, statuses of pods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from orchestrator.cli.main import main
from orchestrator.errors import UsageError
from orchestrator.planner.model import PodState, Waiting
from orchestrator.simulation.reader import load
from orchestrator.simulation.run import settle
from orchestrator.simulation.writer import dump

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.planner import model

CASES: Final = Path(__file__).parent / "kubernetes"

EXPECTED: Final[dict[str, tuple[list[str], dict[str, tuple[Waiting, str]]]]] = {
    "02-rdma": (["rdma/0 on n1"], {"a/rdma": (Waiting.FRAGMENTED, "not 1 rdma/hca")}),
    "02-scratch-and-hugepages": (
        ["scratch/0 on n1", "scratch/1 on n2"],
        {
            "a/scratch": (Waiting.FRAGMENTED, "2 nodes have the GPUs but not 300 GiB of ephemeral-storage"),
            "a/huge": (Waiting.TOO_LARGE, "4 GiB of hugepages-2Mi"),
        },
    ),
    "02-victim-holds-the-nic": (
        ["want/0 on n1", "young/0 on n1"],
        {"b/old": (Waiting.AT_FAIR_SHARE, "2 GPUs")},
    ),
    "02-pods-of-the-node": (["w/0 on n1"], {"a/w": (Waiting.FRAGMENTED, "no pod slot")}),
    "03-apart-and-spread": (
        [
            "serve/0 on n1",
            "serve/1 on n2",
            "spread/0 on n1",
            "spread/1 on n2",
            "spread/2 on n1",
            "spread/3 on n2",
        ],
        {
            "a/serve": (
                Waiting.POD_CONSTRAINTS,
                "2 nodes have the GPUs but its required pod anti-affinity (kubernetes.io/hostname) keeps the pod away",
            )
        },
    ),
    "03-other-projects-keep-away": (
        ["alone/0 on n1", "noisy/0 on n3"],
        {
            "b/noisy": (
                Waiting.POD_CONSTRAINTS,
                "but the required pod anti-affinity of other pods (topology.kubernetes.io/zone) keeps the pod away",
            )
        },
    ),
    "03-gang-in-one-zone": (
        ["gang/0 on n2", "gang/1 on n2", "gang/2 on n3", "gang/3 on n3"],
        {
            "a/beside": (
                Waiting.POD_CONSTRAINTS,
                "1 node has the GPUs but its required pod affinity (topology.kubernetes.io/zone) keeps the pod away",
            )
        },
    ),
    "03-victim-takes-its-anti-affinity-away": (
        ["other/0 on n1", "want/0 on n1"],
        dict.fromkeys(
            ("b/borrowed", "b/second"),
            (Waiting.POD_CONSTRAINTS, "the required pod anti-affinity of other pods"),
        ),
    ),
    "03-host-ports": (
        ["first/0 on n1", "first/1 on n2", "udp/0 on n1"],
        {
            "a/second": (
                Waiting.POD_CONSTRAINTS,
                "2 nodes have the GPUs but its host port 8080 keeps the pod away",
            )
        },
    ),
    "03-first-of-a-group-is-the-older": (
        ["older/0 on n0"],
        {"a/younger": (Waiting.POD_CONSTRAINTS, "its required pod affinity (kubernetes.io/hostname)")},
    ),
    "03-empty-term": ([], {"a/x": (Waiting.NO_NODE_MATCHES, "not matching its node selector or affinity")}),
    "03-host-addresses": (
        ["x/0 on n1", "y/0 on n1"],
        {"a/z": (Waiting.POD_CONSTRAINTS, "its host port 80 keeps the pod away")},
    ),
    "03-keys-of-tenants": (["same/0+1 on n1", "x/0 on n1", "y/0 on n2", "y/1 on n2"], {}),
    "03-match-label-keys": (
        ["new/0 on n1", "new/1 on n2", "old/0 on n1", "old/1 on n1", "old/2 on n1"],
        {},
    ),
    "03-min-domains": (
        ["s/0 on n1", "s/1 on n3"],
        {"a/s": (Waiting.POD_CONSTRAINTS, "its topology spread (topology.kubernetes.io/zone)")},
    ),
    "03-namespace-by-name": (
        ["x/0 on n2", "y/0 on n1", "y/1 on n1", "y/2 on n1", "y/3 on n1"],
        {"a/y": (Waiting.POD_CONSTRAINTS, "its required pod anti-affinity (kubernetes.io/hostname)")},
    ),
    "03-no-selector": (["o/0 on n1", "x/0 on n1"], {}),
    "03-node-affinity-ignored": (
        ["s/0 on n1"],
        {"a/s": (Waiting.POD_CONSTRAINTS, "its topology spread (topology.kubernetes.io/zone)")},
    ),
    "03-own-gang-fits-in-no-zone": (
        [],
        {
            "a/g": (
                Waiting.POD_CONSTRAINTS,
                "its required pod affinity (topology.kubernetes.io/zone) for all pods",
            )
        },
    ),
    "03-ports-of-sidecars": (
        ["x/0 on n1"],
        {"a/x": (Waiting.POD_CONSTRAINTS, "its host port 80 keeps the pod away")},
    ),
    "03-reclaim-keeps-away": (
        ["b1/0 on n1", "keep/0 on n1", "want/0 on n2"],
        {"b/b2": (Waiting.AT_FAIR_SHARE, "4 GPUs")},
    ),
    "03-taints-honored": (["s/0 on n1", "s/1 on n1", "s/2 on n1"], {}),
    "03-taints-ignored": (
        ["s/0 on n1"],
        {"a/s": (Waiting.POD_CONSTRAINTS, "its topology spread (topology.kubernetes.io/zone)")},
    ),
    "06-resize-infeasible": (["old/0 on n1", "x/0 on n1"], {}),
    "07-never-pull": (
        ["want/0 on n1"],
        {"a/p": (Waiting.BACK_OFF, "its containers did not start on n1: ErrImageNeverPull")},
    ),
    "06-sidecar-peak": ([], {"a/sidecar-peak": (Waiting.TOO_LARGE, "100 CPUs")}),
    "06-sidecar-after": (["sidecar-after/0 on n1"], {}),
    "05-rejected-twice": (["other/0 on n2", "reject/2 on n2"], {}),
    "05-two-workloads": (
        ["first/1 on n2", "second/1 on n2"],
        {
            "a/solo": (
                Waiting.AVOIDED,
                "node n1 is avoided: 2 pods in a row failed there before a container ran",
            )
        },
    ),
    "05-recovered": (["mended/2 on n1", "mended/3 on n1"], {}),
    "05-fails-everywhere": (
        ["fine/0 on n1"],
        {
            "a/broken": (
                Waiting.BACK_OFF,
                "3 pods of it failed before a container ran, the last on n2 with Topo",
            )
        },
    ),
    "07-never-started": (
        ["good/0 on n1", "owner/0 on n1"],
        {"a/broken": (Waiting.AT_FAIR_SHARE, "6 GPUs")},
    ),
    "07-does-not-come-back": (
        ["good/0 on n1", "owner/0 on n1"],
        {"a/broken": (Waiting.BACK_OFF, "its containers did not start on n1: ImagePullBackOff")},
    ),
    "07-migrated": (["pulling/0+1 on n2", "want/0 on n1"], {}),
    "07-crash-loop-of-the-runtime": (
        ["good/0 on n1", "owner/0 on n1"],
        {"a/broken": (Waiting.AT_FAIR_SHARE, "2 GPUs")},
    ),
    "07-start-timeout": (
        ["pulling/0 on n1", "want/0 on n1"],
        {
            "a/late": (
                Waiting.BACK_OFF,
                "its containers did not start on n1: ErrImagePull; it is tried again",
            ),
            "a/hopeless": (Waiting.BACK_OFF, "InvalidImageName"),
        },
    ),
    "08-stuck-victim": (["want/0 on n1"], {"b/b2": (Waiting.AT_FAIR_SHARE, "2 GPUs")}),
    "06-resize-and-overhead": (
        ["exact/0 on n1", "resized/0 on n1"],
        {"a/sandboxed": (Waiting.FRAGMENTED, "72.25 CPUs")},
    ),
}
"""For each file the pods that run at the end, and the reason of each pending workload."""

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TEMPLATE: Final = """\
nodes: [{name: n1, gpus: 8}]
projects: {a: {quota: 8}}
workloads:
  - name: w
    project: a
    template:
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[str], model.Snapshot]:
    """Return a function that loads a text as a snapshot file."""

    def read(text: str) -> model.Snapshot:
        path = tmp_path / "file.yaml"
        path.write_text(text)
        return load(path)

    return read


def with_template(template: dict[str, Any]) -> str:
    """Return a snapshot file with one workload of this template, which begins in line 7."""
    lines = yaml.safe_dump(template, default_flow_style=False, sort_keys=False).splitlines()
    return TEMPLATE + "".join(f"      {line}\n" for line in lines)


def with_status(status: dict[str, Any], **pod: Any) -> str:
    """Return a snapshot file with one pod of this status on n1, in line 6."""
    entry = yaml.safe_dump([{"on": "n1", **pod, "status": status}], default_flow_style=True, width=10_000)
    return TEMPLATE.replace("    template:\n", f"    pods: {entry}")


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c"}], **fields}}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_case_comes_to_its_result(name: str) -> None:
    runs, waits = EXPECTED[name]
    result = settle(load(CASES / f"{name}.yaml"))
    assert result.is_stable
    running = [
        f"{pod.id.partition('/')[2]} on {pod.node}"
        for workload in result.after.workloads
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED
    ]
    assert sorted(running) == runs
    assert result.last.pending.keys() == waits.keys()
    for workload, (code, words) in waits.items():
        assert result.last.pending[workload].code is code
        assert words in result.last.pending[workload].message


def test_each_case_is_expected_and_read_back_as_it_was(tmp_path: Path) -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == EXPECTED.keys()
    for path in CASES.glob("*.yaml"):
        snapshot = load(path)
        (tmp_path / "again.yaml").write_text(dump(snapshot))
        assert load(tmp_path / "again.yaml") == snapshot


REFUSED: Final[dict[str, dict[str, Any]]] = {
    "namespaceSelector": spec(
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}}
                ]
            }
        }
    ),
    "preferredDuringScheduling": spec(
        affinity={"nodeAffinity": {"preferredDuringScheduling": [{"weight": 1}]}}
    ),
    "maxSkew": spec(
        topologySpreadConstraints=[{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": -1}]
    ),
    "whenUnsatisfiable": spec(
        topologySpreadConstraints=[{"topologyKey": "z", "whenUnsatisfiable": "Never", "maxSkew": 1}]
    ),
    "nodeTaintsPolicy": spec(
        topologySpreadConstraints=[
            {
                "topologyKey": "z",
                "whenUnsatisfiable": "DoNotSchedule",
                "maxSkew": 1,
                "nodeTaintsPolicy": "Prefer",
            }
        ]
    ),
    "protocol": {
        "spec": {
            "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "IP"}]}]
        }
    },
    "persistentVolumeClaim": spec(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "p"}}]),
    "ephemeral": spec(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]),
    "resourceClaims": spec(resourceClaims=[{"name": "gpu"}]),
    "claims": {"spec": {"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]}},
    "schedulingGates": spec(schedulingGates=[{"name": "g"}]),
    "nodeName": spec(nodeName="n1"),
    "priorityClassName": spec(priorityClassName="high"),
    "schedulerName": spec(schedulerName="default-scheduler"),
    "preemptionPolicy": spec(preemptionPolicy="Never"),
    "operator": spec(tolerations=[{"key": "k", "operator": "Lt", "value": "5"}]),
    "effect": spec(tolerations=[{"key": "k", "operator": "Exists", "effect": "Never"}]),
    "fieldOfTheFuture": spec(fieldOfTheFuture={"x": 1}),
    "ownerReferences": {"metadata": {"ownerReferences": [{"name": "o"}]}, **spec()},
    "muster.dev/gpu-fraction": {"metadata": {"annotations": {"muster.dev/gpu-fraction": "1.5"}}, **spec()},
    "muster.dev/min-member": {"metadata": {"annotations": {"muster.dev/min-member": "2"}}, **spec()},
    "nvidia.com/mig-1g.10gb": {
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}]}
    },
    "nvidia.com/gpu.shared": {
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu.shared": 1}}}]}
    },
    "template.spec.containers": {"spec": {"nodeSelector": {"a": "b"}}},
    "rdma/hca": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"rdma/hca": "-1"}}}]}},
    "cpu": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1Q"}}}]}},
    "example.com/x": {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/x": "1.5"}}}]}
    },
    "example.com/y": {
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/y": 1.5}}}]}
    },
    "memory": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": True}}}]}},
    "hugepages-2Mi": spec(overhead={"hugepages-2Mi": "500m"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_of_a_template_that_is_not_implemented_is_refused_by_name(
    name: str, loaded: Callable[[str], model.Snapshot]
) -> None:
    text = with_template(REFUSED[name])
    with pytest.raises(UsageError) as refused:
        loaded(text)
    message = str(refused.value)
    assert "\n" not in message
    assert name in message
    line = int(message.partition("file.yaml:")[2].partition(":")[0])
    named = name if name != "template.spec.containers" else "template:"
    assert named in text.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ({"phase": "Unknown"}, "phase"),
        ({"phase": "Running", "conditions": [{"type": "example.com/Ready", "status": "True"}]}, "type"),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "Maybe"}]}, "status"),
        ({"phase": "Running", "nominatedNodeName": "n1"}, "nominatedNodeName"),
        ({"phase": "Running", "resourceClaimStatuses": [{"name": "x"}]}, "resourceClaimStatuses"),
        ({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": "two"}]}, "restartCount"),
        ({"phase": "Running", "containerStatuses": [{"name": "c", "stuck": True}]}, "stuck"),
        ({"phase": "Running", "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}, "template"),
    ],
)  # fmt: skip
def test_a_field_of_a_status_that_is_not_implemented_is_refused_by_name(
    status: dict[str, Any], name: str, loaded: Callable[[str], model.Snapshot]
) -> None:
    with pytest.raises(UsageError, match=r"file\.yaml:6: ") as refused:
        loaded(with_status(status))
    assert name in str(refused.value)


def test_irrelevant_and_empty_fields_are_no_matter(loaded: Callable[[str], model.Snapshot]) -> None:
    template = spec(
        schedulerName="muster", restartPolicy="Never", topologySpreadConstraints=[], affinity={"podAffinity": {}},
        volumes=[{"name": "v", "emptyDir": {}}], hostNetwork=True, serviceAccountName="s", nodeName="",
        tolerations=[{"operator": "Exists"}], nodeSelector={"pool": "a"}, priority=7, activeDeadlineSeconds=60,
    )  # fmt: skip
    (workload,) = loaded(with_template(template)).workloads
    assert workload.priority == 7
    assert workload.pods[0].max_runtime_seconds == 60
    assert workload.pods[0].constraints.node_selector == (("pool", "a"),)


def test_a_gpu_fraction_of_a_template_is_read_as_in_a_cluster(
    loaded: Callable[[str], model.Snapshot],
) -> None:
    template = {"metadata": {"annotations": {"muster.dev/gpu-fraction": "0.5"}}, **spec()}
    (workload,) = loaded(with_template(template)).workloads
    assert workload.pods[0].request.gpu_portion_milli == 500


@pytest.mark.parametrize(
    "key", ["gpus: 1", "cpu: 1", "memory: 1Gi", "requests: {a/b: 1}", "nodeSelector: {a: b}"]
)
def test_a_template_replaces_requests_and_constraints(
    key: str, loaded: Callable[[str], model.Snapshot]
) -> None:
    text = with_template(spec())
    with pytest.raises(
        UsageError, match=rf"file\.yaml:\d+: `{key.partition(':')[0]}` goes with no `template`"
    ):
        loaded(text + f"    {key}\n")
    with pytest.raises(UsageError, match="goes with no `template`"):
        loaded(text + f"    pods: [{{{key}}}]\n")


WAITING: Final = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
RUNNING: Final = [{"name": "c", "state": {"running": {"startedAt": "2026-11-27T10:00:00Z"}}}]
CANNOT_RUN: Final = [
    {"name": "c", "state": {"terminated": {"exitCode": 128, "reason": "ContainerCannotRun"}}}
]
CRASH_LOOP: Final = {**WAITING[0], "restartCount": 3, "lastState": CANNOT_RUN[0]["state"]}
ENDED: Final = [{"name": "c", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]


@pytest.mark.parametrize(
    ("status", "never_started"),
    [
        ({"phase": "Pending"}, True),
        ({"phase": "Pending", "containerStatuses": WAITING}, True),
        ({"phase": "Pending", "containerStatuses": CANNOT_RUN}, True),
        ({"phase": "Pending", "containerStatuses": RUNNING}, False),
        ({"phase": "Pending", "initContainerStatuses": RUNNING}, False),
        ({"phase": "Pending", "containerStatuses": [{**WAITING[0], "restartCount": 2}]}, False),
        ({"phase": "Pending", "containerStatuses": [{**WAITING[0], "lastState": ENDED[0]["state"]}]}, False),
        ({"phase": "Running", "containerStatuses": [{**CANNOT_RUN[0], "restartCount": 3}]}, False),
        ({"phase": "Running", "containerStatuses": [CRASH_LOOP]}, True),
        ({"phase": "Running", "containerStatuses": [CRASH_LOOP, {**RUNNING[0], "name": "d"}]}, False),
        ({"phase": "Running"}, False),
        ({"phase": "Running", "containerStatuses": RUNNING}, False),
    ],
)
def test_a_status_says_whether_a_container_has_started(
    status: dict[str, Any], never_started: bool, loaded: Callable[[str], model.Snapshot]
) -> None:
    (workload,) = loaded(with_status(status)).workloads
    assert workload.pods[0].never_started is never_started
    assert workload.pods[0].state is PodState.ALLOCATED


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
        ({"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": []}, "OutOfcpu"),
        ({"phase": "Failed", "containerStatuses": CANNOT_RUN}, "ContainerCannotRun"),
        ({"phase": "Failed", "containerStatuses": ENDED}, None),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "containerStatuses": RUNNING},
            "Unexpected",
        ),
        ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "containerStatuses": ENDED}, "OutOfnvidia"),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": RUNNING}, None),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, None),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}, None),
        ({"phase": "Succeeded", "containerStatuses": ENDED}, None),
    ],
)
def test_a_pod_that_ended_holds_nothing_and_its_rejection_is_read(
    status: dict[str, Any], reason: str | None, loaded: Callable[[str], model.Snapshot]
) -> None:
    snapshot = loaded(with_status(status))
    assert snapshot.workloads == ()
    found = [(each.node, each.workload, each.pod) for each in snapshot.rejections]
    assert found == ([] if reason is None else [("n1", "a/w", "a/w/0")])
    assert all(each.reason.startswith(reason or "") for each in snapshot.rejections)


def test_a_gang_with_a_succeeded_pod_needs_one_pod_less(loaded: Callable[[str], model.Snapshot]) -> None:
    text = with_status({"phase": "Succeeded"}).replace("    pods: [", "    minMember: 2\n    pods: [{}, ")
    (workload,) = loaded(text).workloads
    assert (len(workload.pods), workload.min_member) == (1, 1)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("allocatable: {rdma/hca: -1}", "'-1' is no whole number of things"),
        ("allocatable: {ephemeral-storage: -1}", "ephemeral-storage: '-1' is negative"),
        ("allocatable: {rdma/hca: 1500m}", "rdma/hca: '1500m' is no whole number of things"),
        ("allocatable: {rdma/hca: 1Q}", "'1Q' is no Kubernetes quantity"),
        ("allocatable: {ephemeral-storage: 99999999999999999999}", "more than a Kubernetes quantity"),
        ("allocatable: {rdma/hca: [1]}", "Expected `int | str`"),
        ("gpus: 1, allocatable: {nvidia.com/gpu: 8}", "`nvidia.com/gpu` is there as `gpus` too"),
        ("gpus: 1000000000", "a node has 0 to 1024 of gpus"),
        ("cpu: -1", "of cpu, not -1000"),
    ],
)
def test_an_amount_that_a_node_cannot_have_is_refused(
    node: str, words: str, loaded: Callable[[str], model.Snapshot]
) -> None:
    with pytest.raises(UsageError, match=r"file\.yaml:2: ") as refused:
        loaded(f"nodes:\n  - {{name: n1, {node}}}\n")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("topologyKey", {"affinity": {"podAntiAffinity": {REQUIRED: [{"namespaces": ["n"]}]}}}),
        ("topologyKey", {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": ""}]}}}),
        (
            "maxSkew",
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": None}
                ]
            },
        ),
    ],
)
def test_a_field_that_a_term_needs_is_missing_by_name(
    name: str, fields: dict[str, Any], loaded: Callable[[str], model.Snapshot]
) -> None:
    with pytest.raises(UsageError, match=rf"file.yaml:\d+: {name} is missing"):
        loaded(with_template(spec(**fields)))


def test_the_command_exits_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(with_template(REFUSED["schedulingGates"]))
    assert main(["simulate", str(path), "--until-stable", "--json"]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert "schedulingGates is not implemented" in errors[0]
    assert f"{path}:10:" in errors[0]
