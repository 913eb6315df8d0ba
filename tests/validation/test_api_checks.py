"""Requests to the API server, through `muster validate`: a wrong answer never passes."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.validation.api_targets import (
    CLASSES,
    DEPLOYMENT,
    DEVICE_QUERY,
    GROUP,
    JOBS,
    LEASE,
    NO_PAGE,
    NODES,
    POD,
    POD1,
    PODS,
    PROJECTS,
    SLICES,
    V1,
    Answers,
    AnswersRequests,
    allocated,
    answering,
    claim,
    deployment,
    device,
    job_pod,
    job_pods,
    lease,
    metadata,
    node,
    pod,
    pod1,
    published,
    resource_slice,
    storage_class,
)
from tests.validation.fake_target import FakeTarget
from tests.validation.replay import assert_second_judge_agrees, both, run_command, settings
from validation.judge.events import GpuSeen, GpusSeen, RequestAnswered
from validation.report import log, record
from validation.report.record import CheckResult
from validation.report.redact import redact
from validation.report.verify import verify
from validation.run.requesting import send_requests
from validation.scenario.images import ImageMap
from validation.scenario.loaded import SHIPPED
from validation.targets.recorder import Recorder

CLUSTER = [SHIPPED / "cluster"]
ALL = (resource_slice("n1"), resource_slice("n2"))
VERSION, DRIVER, CLAIM = "dra/api/version", "dra/api/driver", "dra/api/claim"
POD1_ENDS = "dra/api/pod"
OPERATOR, STORAGE = "installation/api/operator", "installation/api/storage-class"
CLIENT = "other-client/api/client"


def checks(directory: Path, target: Callable[[], Any]) -> dict[str, CheckResult]:
    _, report = run_command(CLUSTER, settings(directory, target, profile="current"))
    assert report is not None
    assert_second_judge_agrees(directory)
    return {step.id: step for step in report.steps}


def test_a_cluster_that_has_all_of_it_passes(tmp_path: Path) -> None:
    outcome = both(tmp_path, CLUSTER, AnswersRequests, profile="current")
    assert (outcome.command, outcome.pytest) == (1, 1), "the rest of the catalogue did not run"
    assert {step.id: step.verdict for step in outcome.report.steps} == dict.fromkeys(
        (VERSION, DRIVER, CLAIM, POD1_ENDS, STORAGE, OPERATOR, CLIENT), "PASS"
    )
    proven = {entry.id for entry in outcome.report.requirements if entry.verdict == "PASS"}
    assert proven == {
        "dra.version",
        "dra.driver",
        "dra.claim",
        "dra.pod",
        "installation.operator",
        "installation.storage-class",
        "submission.other-clients",
    }
    assert outcome.report.steps[0].reason == "v1.36.3, resource.k8s.io in v1, v1beta1"
    assert verify(outcome.directory).problems == []
    for page in ("report.md", "report.html"):
        assert "v1.36.3, resource.k8s.io in v1, v1beta1" in (outcome.directory / page).read_text()


@pytest.mark.parametrize(
    ("others", "check", "verdict", "words"),
    [
        ({("GET", "/version"): (200, {"gitVersion": "v1.32.9"})}, VERSION, "FAIL", "v1.32.9, which is older"),
        ({("GET", "/version"): (200, {"gitVersion": "v1.9.1"})}, VERSION, "FAIL", "older than 1.33"),
        ({("GET", "/version"): (200, {"gitVersion": "devel"})}, VERSION, "FAIL", "does not say of which version"),
        ({("GET", "/version"): (200, "<html>")}, VERSION, "FAIL", "/version is not answered with an object"),
        ({("GET", "/version"): (0, "refused")}, VERSION, "ERROR", "GET /version: refused"),
        ({("GET", GROUP): NO_PAGE}, VERSION, "FAIL", "dynamic resource allocation is not enabled"),
        ({("GET", GROUP): (200, {"versions": [{"version": "v1alpha3"}]})}, VERSION, "FAIL", "no version that has"),
        ({("GET", GROUP): (403, {"message": "no"})}, VERSION, "ERROR", "is answered with 403: no"),
        (published(resource_slice("n1")), DRIVER, "FAIL", "n2: gpu.nvidia.com publishes no device of it: install"),
        (published(resource_slice("n1"), resource_slice("n2", 7)), DRIVER, "FAIL", "n2: gpu.nvidia.com publishes 7 G"),
        (published(resource_slice("n1"), resource_slice("n2", resourceSliceCount=2)), DRIVER, "FAIL", "n2: not all s"),
        (published(*ALL, resource_slice("n2", 7, generation=2)), DRIVER, "FAIL", "publishes 7 GPUs, the label"),
        (published(*ALL, resource_slice("n2", 7, generation=0)), DRIVER, "PASS", "2 nodes, 16 GPUs"),
        (published(ALL[0], resource_slice("n2", 3, "mig")), DRIVER, "PASS", "2 nodes, 8 GPUs"),
        (published(ALL[0], resource_slice("n2", 1, "tpu")), DRIVER, "INCONCLUSIVE", "type of device: n2 has 'tpu'"),
        (published(ALL[0], resource_slice("n2", 1, ["gpu"])), DRIVER, "INCONCLUSIVE", "n2 has \"['gpu']\""),
        (published(resource_slice("n1", 1, "tpu")), DRIVER, "FAIL", "n2: gpu.nvidia.com publishes no device of it"),
        (published(ALL[0], resource_slice("n2", 0)), DRIVER, "FAIL", "n2: gpu.nvidia.com publishes no device of it"),
        ({("GET", NODES): (200, {"items": []})}, DRIVER, "INCONCLUSIVE", "no node has the label nvidia.com/gpu.pres"),
        ({("GET", NODES): (200, {"items": [node("n1", "9")]})}, DRIVER, "FAIL", "nvidia.com/gpu.count says 9"),
        ({("GET", SLICES): NO_PAGE}, DRIVER, "FAIL", "resource.k8s.io/v1 is served from Kubernetes 1.34 on"),
        ({("POST", V1): NO_PAGE}, CLAIM, "FAIL", "resource.k8s.io/v1 is served from Kubernetes 1.34 on"),
        ({("POST", V1): (422, {"message": "unknown field"})}, CLAIM, "FAIL", "with 422: unknown field"),
        ({("POST", V1): (200, claim("gpu-claim"))}, CLAIM, "FAIL", "is answered with 200"),
        ({("GET", f"{V1}/gpu-claim"): NO_PAGE}, CLAIM, "FAIL", "with 404: the server could not find"),
        ({("GET", f"{V1}/gpu-claim"): (200, claim("gpu-claim", count=2))}, CLAIM, "FAIL", "that is read does not"),
        ({("GET", f"{V1}/gpu-claim"): (200, claim("c") | {"metadata": {}})}, CLAIM, "FAIL", "of another namespace"),
        ({("POST", "/api/v1/namespaces"): (409, {"message": "exists"})}, CLAIM, "ERROR", "namespaces/dra-test, then"),
        ({("DELETE", f"{V1}/gpu-claim"): (403, {})}, CLAIM, "ERROR", "gpu-claim could not be deleted"),
        ({("DELETE", "/api/v1/namespaces/dra-test"): (0, "lost")}, CLAIM, "ERROR", "namespaces/dra-test could not be"),
        ({("GET", DEPLOYMENT): NO_PAGE}, OPERATOR, "FAIL", "run `muster operator-yaml`"),
        ({("GET", DEPLOYMENT): (200, deployment(0, 0))}, OPERATOR, "INCONCLUSIVE", "--real-nodes"),
        ({("GET", DEPLOYMENT): (200, deployment(2, 1))}, OPERATOR, "FAIL", "not all of 2 replicas"),
        ({("GET", DEPLOYMENT): (200, deployment(2, 2, observed=0))}, OPERATOR, "FAIL", "not all of 2 replicas"),
        ({("GET", DEPLOYMENT): (200, {"spec": {}})}, OPERATOR, "FAIL", "does not say how many replicas"),
        ({("GET", LEASE): NO_PAGE}, OPERATOR, "FAIL", "no operator has ever led"),
        ({("GET", LEASE): (200, lease(""))}, OPERATOR, "FAIL", "is not held by one of its pods"),
        ({("GET", LEASE): (200, lease("laptop_1"))}, OPERATOR, "FAIL", "is not held by one of its pods"),
        ({("GET", PODS): (200, {"items": [pod("False")]})}, OPERATOR, "FAIL", "is not held by one of its pods"),
        ({("GET", PODS): (200, {"items": [pod(phase="Failed")]})}, OPERATOR, "FAIL", "is not held by one of its pods"),
        ({("GET", PODS): (200, {"items": [pod(deletionTimestamp="2026")]})}, OPERATOR, "FAIL", "is not held by"),
        ({("GET", CLASSES): (200, {"items": []})}, STORAGE, "FAIL", "0 storage classes are the default, not 1"),
        ({("GET", CLASSES): (200, {"items": [storage_class("b"), storage_class("a")]})}, STORAGE, "FAIL", ": a, b"),
        ({("GET", CLASSES): (200, {"items": [storage_class("b", default="false")]})}, STORAGE, "FAIL", "0 storage"),
        ({("GET", CLASSES): (200, {"items": [storage_class("b", "nfs")]})}, STORAGE, "FAIL", "is of nfs, not of"),
        (job_pods(), CLIENT, "FAIL", "the Job client has 0 pods, not 1"),
        (job_pods(job_pod(), job_pod()), CLIENT, "FAIL", "the Job client has 2 pods, not 1"),
        (job_pods(job_pod("Pending", nodeName="")), CLIENT, "FAIL", "is Pending, not Running on a node"),
        (job_pods(job_pod("Failed")), CLIENT, "FAIL", "is Failed, not Running on a node"),
        (job_pods(job_pod(owner="uid-of-another")), CLIENT, "FAIL", "the pod is not of the Job client that was"),
        (job_pods(job_pod(schedulerName="default-scheduler")), CLIENT, "FAIL", "is not scheduled by muster"),
        (job_pods(job_pod(devices="")), CLIENT, "FAIL", "has not one GPU by muster"),
        (job_pods(job_pod(devices="3,4")), CLIENT, "FAIL", "has not one GPU by muster"),
        ({("POST", JOBS): (403, {"message": "no"})}, CLIENT, "ERROR", "is answered with 403: no"),
        ({("POST", PROJECTS): NO_PAGE}, CLIENT, "FAIL", "is answered with 404"),
        ({("DELETE", f"{JOBS}/client"): (403, {})}, CLIENT, "ERROR", "jobs/client could not be deleted"),
    ],
)  # fmt: skip
def test_another_answer_is_not_green(
    others: Answers, check: str, verdict: str, words: str, tmp_path: Path
) -> None:
    results = checks(tmp_path / "r", answering(others))
    assert (results[check].verdict, words in results[check].reason) == (verdict, True), results[check].reason
    # both checks create the namespace and the ResourceClaim
    same = {CLAIM, POD1_ENDS} if check == CLAIM else {check}
    assert {step.verdict for name, step in results.items() if name not in same} == {"PASS"}


CLAIMED, RUNS, POD1_AT = ("GET", f"{V1}/gpu-claim"), ("POST", POD1), ("GET", f"{POD1}/pod1")
LOGS = [("GET", f"{POD1}/pod1/log?container=ctr{number}") for number in (0, 1)]
NO_CLAIM: dict[str, Any] = {"claims": []}


@pytest.mark.parametrize(
    ("others", "verdict", "words"),
    [
        ({CLAIMED: (200, allocated(device(), device(device="gpu-4")))}, "FAIL", "2 devices were allocated"),
        ({CLAIMED: (200, claim("gpu-claim"))}, "FAIL", "0 devices were allocated to gpu-claim while pod1"),
        ({CLAIMED: (200, allocated(device(driver="gpu.example.com")))}, "FAIL", "is no device of gpu.nvidia.com"),
        ({CLAIMED: (200, allocated(device(pool="n2")))}, "FAIL", "is not on the node of pod1"),
        ({CLAIMED: (200, allocated(reservedFor=[{"resource": "pods", "name": "pod1", "uid": "of-another"}]))},
         "FAIL", "gpu-claim was not reserved for pod1 alone"),
        ({RUNS: (403, {"message": "not here"})}, "ERROR", "is answered with 403: not here"),
        ({RUNS: (422, {"message": "no claims"})}, "FAIL", "is answered with 422: no claims"),
        ({POD1_AT: (200, pod1("Succeeded", 0, 1))}, "FAIL", "ctr1 of pod1, which is Succeeded, did not end with exit"),
        ({POD1_AT: (200, pod1("Succeeded", 0))}, "FAIL", "ctr1 of pod1, which is Succeeded, did not end with exit"),
        ({POD1_AT: (200, pod1("Running", 0, 0))}, "FAIL", "pod1 is Running, not Succeeded"),
        ({CLAIMED: (200, claim("gpu-claim")), POD1_AT: (200, pod1("Pending", 0, 0))},
         "FAIL", "pod1 is Pending, for no device is allocated to gpu-claim: `kubectl get resourceslices` lists"),
        ({POD1_AT: (200, pod1("Succeeded", containers=[{"name": "ctr0", "resources": NO_CLAIM}]))},
         "FAIL", "the containers of pod1 do not both use the claim"),
        ({POD1_AT: (200, pod1("Succeeded", resourceClaims=[]))}, "FAIL", "pod1 does not use gpu-claim"),
        ({POD1_AT: (200, pod1("Succeeded") | {"metadata": metadata("pod2")})}, "FAIL", "not the pod that was created"),
        ({LOGS[0]: (200, "Failed to launch vectorAdd kernel")}, "FAIL", "ctr0 did not print `Test PASSED`"),
        ({LOGS[1]: (200, DEVICE_QUERY.replace("1", "8"))}, "FAIL", "ctr1 did not print `Detected 1 CUDA Capable"),
        ({LOGS[1]: (200, DEVICE_QUERY.replace("PASS", "FAIL"))}, "FAIL", "ctr1 did not print `Result = PASS`"),
        ({LOGS[1]: (0, "the kubelet is away")}, "ERROR", "the kubelet is away"),
        ({("DELETE", f"{POD1}/pod1"): (403, {})}, "ERROR", "pods/pod1 could not be deleted"),
    ],
)  # fmt: skip
def test_a_pod_without_the_gpu_of_its_claim_is_not_green(
    others: Answers, verdict: str, words: str, tmp_path: Path
) -> None:
    results = checks(tmp_path / "r", answering(others))
    assert (results[POD1_ENDS].verdict, words in results[POD1_ENDS].reason) == (verdict, True), results[
        POD1_ENDS
    ]
    assert {step.verdict for name, step in results.items() if name != POD1_ENDS} == {"PASS"}


class SeenByKubelets(AnswersRequests):
    """A target on which a node's agent reports pod1 while it runs."""

    node, indices = "n1", (3,)

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        if (method, path) == POD1_AT and self.recorder is not None:
            gpus = tuple(GpuSeen(index, ("dra-test/pod1",)) for index in self.indices)
            self.recorder.record(GpusSeen(self.recorder.now_ms(), self.node, "", gpus))
        return super().send(method, path, body)


@pytest.mark.parametrize(
    ("node", "indices", "verdict"),
    [("n1", (3,), "PASS"), ("n1", (3, 4), "FAIL"), ("n2", (3,), "FAIL")],
)
def test_the_kubelet_must_give_the_pod_one_gpu_of_its_node(
    node: str, indices: tuple[int, ...], verdict: str, tmp_path: Path
) -> None:
    results = checks(tmp_path / "r", type("Seen", (SeenByKubelets,), {"node": node, "indices": indices}))
    assert results[POD1_ENDS].verdict == verdict, results[POD1_ENDS].reason
    if verdict == "FAIL":
        assert results[POD1_ENDS].reason == f"the kubelet of {node} gave pod1 {len(indices)} GPUs"


class IsSlow(AnswersRequests):
    """Answers with delays: the old namespace disappears, a GPU is allocated, and the pod ends, each after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.early = {
            ("POST", "/api/v1/namespaces"): (
                409,
                {"message": 'object is being deleted: namespaces "dra-test"'},
            ),
            CLAIMED: (200, claim("gpu-claim")),
            POD1_AT: (200, pod1("Running")),
        }

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        status, answer = super().send(method, path, body)
        is_first = self.requests.count((method, path, body)) < 3 and len(self.requests) > 10
        if is_first and (method, path) in self.early:
            status, early = self.early[method, path]
            answer = json.dumps(early)
        return status, answer


def test_a_late_answer_is_waited_for_and_recorded_once(tmp_path: Path) -> None:
    target = IsSlow()
    results = checks(tmp_path / "r", lambda: target)
    assert results[POD1_ENDS].verdict == "PASS", results[POD1_ENDS].reason
    assert sum(path == POD1_AT[1] for method, path, _ in target.requests if method == "GET") >= 3
    lines = (tmp_path / "r" / log.NAME).read_text().splitlines()
    events = [json.loads(line).get("event", {}) for line in lines]
    paths = [event["path"] for event in events if event.get("check") == "pod" and event["method"] == "GET"]
    assert len(paths) == len(set(paths)) == 4
    assert "Vector addition" not in (tmp_path / "r" / log.NAME).read_text()


class NobodyWatches(FakeTarget):
    """A target without a recorder that could send requests."""

    def __init__(self) -> None:
        super().__init__()
        self.send = None  # type: ignore[method-assign,assignment]


def test_without_a_client_nothing_is_green(tmp_path: Path) -> None:
    results = checks(tmp_path / "r", NobodyWatches)
    assert {step.verdict for step in results.values()} == {"ERROR"}
    assert "the cluster is not watched" in results[VERSION].reason


def test_the_cluster_must_be_as_large_as_the_scenario_says(tmp_path: Path) -> None:
    class HasNoGpus(AnswersRequests):
        async def start(self, cluster: Any) -> bool:
            return await super().start(type(cluster)(cluster.profile, 0, 0))

    results = checks(tmp_path / "r", HasNoGpus)
    assert {step.verdict for step in results.values()} == {"ERROR"}
    assert results[VERSION].reason == "less evidence than the check needs: 0 of 2 nodes, 0 of 16 gpus"


def sent(others: Answers, directory: Path) -> list[tuple[str, str, str]]:
    """Return the requests about ResourceClaims, in order."""
    target = answering(others)()
    run_command(CLUSTER, settings(directory, lambda: target, profile="current"))
    changes = [request for request in target.requests if request[0] != "GET"]
    begins = [number for number, (_, path, _) in enumerate(changes) if path == "/api/v1/namespaces"]
    return changes[: begins[1]]  # then the check of the pod begins


def test_created_objects_are_deleted_by_their_uid_and_the_last_first(tmp_path: Path) -> None:
    *created, claimed, namespace = sent({}, tmp_path / "r")
    assert [(method, path) for method, path, _ in created] == [
        ("POST", "/api/v1/namespaces"),
        ("POST", V1),
    ]
    assert [path for _, path, _ in (claimed, namespace)] == [
        f"{V1}/gpu-claim",
        "/api/v1/namespaces/dra-test",
    ]
    assert json.loads(namespace[2])["preconditions"] == {"uid": "uid-dra-test"}


def test_a_foreign_namespace_is_not_changed(tmp_path: Path) -> None:
    requests = sent({("POST", "/api/v1/namespaces"): (409, {"message": "exists"})}, tmp_path / "r")
    assert [(method, path) for method, path, _ in requests] == [("POST", "/api/v1/namespaces")]


def test_after_a_failure_the_objects_created_before_are_deleted(tmp_path: Path) -> None:
    requests = sent({("POST", V1): (0, "lost")}, tmp_path / "r")
    assert [(method, path) for method, path, _ in requests] == [
        ("POST", "/api/v1/namespaces"),
        ("POST", V1),
        ("DELETE", "/api/v1/namespaces/dra-test"),
    ]


async def test_an_interrupted_check_deletes_its_objects() -> None:
    target, recorder = AnswersRequests(), Recorder()
    is_reached, may_go_on = threading.Event(), threading.Event()

    def send(method: str, path: str, body: str) -> tuple[int, str]:
        if path == V1:
            is_reached.set()
            may_go_on.wait(10)
        return target.send(method, path, body)

    recorder.send = send
    result = CheckResult(CLAIM, "dra", "api", "", "", "")
    task = asyncio.create_task(send_requests(recorder, "claim", result, 0))
    assert await asyncio.to_thread(is_reached.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_go_on.set()
    assert [path for method, path, _ in target.requests if method == "DELETE"] == [
        "/api/v1/namespaces/dra-test"
    ]
    assert result.volatile.window is not None


async def test_the_images_of_the_site_are_sent_and_the_printed_ones_recorded() -> None:
    target, recorder = AnswersRequests(), Recorder()
    recorder.send = target.send
    images = ImageMap({"gcr.io/run-ai-demo/quickstart:latest": "registry.site/quickstart:1"})
    await send_requests(recorder, "client", CheckResult(CLIENT, "other-client", "api", "", "", ""), 0, images)
    (sent_job,) = [body for method, path, body in target.requests if (method, path) == ("POST", JOBS)]
    assert '"image":"registry.site/quickstart:1"' in sent_job
    (recorded,) = [e.body for e in recorder.events if isinstance(e, RequestAnswered) and e.path == JOBS]
    assert '"image":"gcr.io/run-ai-demo/quickstart"' in recorded


def test_an_edited_answer_is_refused(tmp_path: Path) -> None:
    checks(tmp_path / "r", answering({("GET", LEASE): (200, lease("laptop_1"))}))
    path = tmp_path / "r" / log.NAME
    path.write_bytes(path.read_bytes().replace(b"laptop_1", POD.encode()))
    assert verify(tmp_path / "r").problems == [f"{log.NAME}: was changed after the run"]


def test_a_redacted_report_has_the_verdicts_and_neither_address_nor_registry(tmp_path: Path) -> None:
    checks(tmp_path / "r", answering({("GET", LEASE): (200, lease("laptop_1"))}))
    assert all(
        word in (tmp_path / "r" / log.NAME).read_bytes()
        for word in (b"10.9.8.7", b"registry.site", b"laptop", b"basement", b"n1-gpu", b'\\"n1\\"')
    )
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = (tmp_path / "public" / log.NAME).read_bytes()
    hidden = (b"10.9.8.7", b"registry.site", b"laptop", b"basement", b"n1-gpu", b'\\"n1\\"')
    assert not any(word in content for word in hidden)
    assert b'\\"nodeName\\": \\"host-1\\"' in content
    before = record.read(tmp_path / "r")
    assert [(s.id, s.verdict, s.reason) for s in redacted.steps] == [
        (s.id, s.verdict, s.reason) for s in before.steps
    ]
    assert verify(tmp_path / "public").problems == []
