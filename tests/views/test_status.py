from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import Job, Pod, StatefulSet
from orchestrator.views.status import pod_status, workload_status

JSON = dict[str, Any]

EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def pod(
    phase: str = "Pending", *, node: str = "", deleted: bool = False, created: int = 0, **status: Any
) -> Pod:
    metadata: JSON = {"name": f"pod-{created}", "creationTimestamp": f"2026-01-01T00:00:{created:02}Z"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    body = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}
    return msgspec.convert(body, Pod)


def job(*conditions: str, reason: str = "", suspend: bool = False, deleted: bool = False) -> Job:
    metadata = {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleted else {}
    held = [{"type": each, "status": "True", "reason": reason} for each in conditions]
    return msgspec.convert(
        {"metadata": metadata, "spec": {"suspend": suspend}, "status": {"conditions": held}}, Job
    )


def stateful_set(replicas: int = 1) -> StatefulSet:
    return msgspec.convert({"spec": {"replicas": replicas}}, StatefulSet)


def waiting(reason: str) -> JSON:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason}}}]}


def ended(exit_code: int, reason: str = "") -> JSON:
    return {
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": exit_code, "reason": reason}}}
        ]
    }


RUNNING = pod("Running", node="dgx1-1")
PENDING = pod()
CREATING = pod(node="dgx1-1", **waiting("ContainerCreating"))
TERMINATING = pod("Running", node="dgx1-1", deleted=True)
BAD_IMAGE = pod(node="dgx1-1", **waiting("ImagePullBackOff"))


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (PENDING, "Pending"),
        (pod(node="dgx1-1"), "ContainerCreating"),
        (CREATING, "ContainerCreating"),
        (pod(node="dgx1-1", **waiting("PodInitializing")), "ContainerCreating"),
        (pod(node="dgx1-1", **waiting("ErrImagePull")), "ErrImagePull"),
        (BAD_IMAGE, "ImagePullBackOff"),
        (pod("Running", node="dgx1-1", **waiting("CrashLoopBackOff")), "CrashLoopBackOff"),
        (RUNNING, "Running"),
        (pod("Running", node="dgx1-1", **ended(1, "Error")), "Error"),
        (pod("Running", node="dgx1-1", **ended(0, "Completed")), "Running"),
        (TERMINATING, "Terminating"),
        (pod(deleted=True), "Terminating"),
        (pod("Succeeded", node="dgx1-1"), "Succeeded"),
        (pod("Succeeded", node="dgx1-1", deleted=True), "Succeeded"),
        (pod("Failed", **ended(137, "OOMKilled")), "OOMKilled"),
        (pod("Failed", **ended(128, "ContainerCannotRun")), "ContainerCannotRun"),
        (pod("Failed", reason="Evicted"), "Evicted"),
        (pod("Failed"), "Error"),
        (pod("Unknown", node="dgx1-1"), "Unknown"),
        (pod("Failed", reason="Node Lost"), "NodeLost"),
        (pod("Failed", reason=" "), "Error"),
    ],
)
def test_the_word_of_a_pod(one: Pod, word: str) -> None:
    assert pod_status(one) == word


@pytest.mark.parametrize(
    ("workload", "pods", "word"),
    [
        (job(), [], "Pending"),
        (job(), [PENDING], "Pending"),
        (job(), [RUNNING], "Running"),
        (job(), [RUNNING, PENDING], "Running"),
        (job(), [CREATING, PENDING], "ContainerCreating"),
        (job(), [RUNNING, BAD_IMAGE], "ImagePullBackOff"),
        (job("Complete"), [pod("Succeeded")], "Succeeded"),
        (job("Complete"), [], "Succeeded"),
        (job("Failed", reason="BackoffLimitExceeded"), [pod("Failed")], "Failed"),
        (job("Failed", reason="DeadlineExceeded"), [], "TimedOut"),
        (job("FailureTarget"), [RUNNING], "Running"),
        (job(), [pod("Failed", created=1), pod("Running", node="dgx1-1", created=2)], "Running"),
        (job(), [pod("Failed", **ended(1, "Error"))], "Error"),
        (job(), [pod("Failed", conditions=[EVICTED])], "Pending"),
        (job(), [pod("Failed", conditions=[EVICTED], created=1), pod("Failed", created=2)], "Error"),
        (job(), [TERMINATING], "Terminating"),
        (job(), [TERMINATING, PENDING], "Terminating"),
        (job(), [pod("Succeeded")], "Running"),
        (job(suspend=True), [], "Suspended"),
        (job(suspend=True), [TERMINATING], "Terminating"),
        (job(deleted=True), [RUNNING], "Terminating"),
        (stateful_set(), [], "Pending"),
        (stateful_set(), [RUNNING], "Running"),
        (stateful_set(), [TERMINATING], "Terminating"),
        (stateful_set(0), [], "Suspended"),
        (None, [pod("Succeeded")], "Succeeded"),
        (None, [pod("Succeeded"), RUNNING], "Running"),
    ],
)
def test_the_word_of_a_workload(workload: Job | StatefulSet | None, pods: list[Pod], word: str) -> None:
    assert workload_status(workload, pods) == word


def test_a_preempted_job_runs_terminates_waits_and_runs_again() -> None:
    gone = pod("Failed", created=1, conditions=[EVICTED])
    steps = [
        [RUNNING],
        [TERMINATING],
        [gone],
        [gone, pod(created=2)],
        [gone, pod("Running", node="n", created=2)],
    ]
    words = [workload_status(job(), pods) for pods in steps]
    assert words == ["Running", "Terminating", "Pending", "Pending", "Running"]


ANY_POD = st.builds(
    pod,
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
    node=st.sampled_from(["", "dgx1-1"]),
    deleted=st.booleans(),
    created=st.integers(0, 59),
    reason=st.text(max_size=5),
    containerStatuses=st.lists(
        st.builds(lambda text: waiting(text)["containerStatuses"][0], st.text(max_size=5))
        | st.builds(
            lambda code, text: ended(code, text)["containerStatuses"][0],
            st.integers(0, 2),
            st.text(max_size=5),
        ),
        max_size=2,
    ),
)


@given(st.sampled_from([None, job(), job("Complete"), stateful_set()]), st.lists(ANY_POD, max_size=4))
def test_the_word_is_always_one_token(workload: Job | StatefulSet | None, pods: list[Pod]) -> None:
    assert len(workload_status(workload, pods).split()) == 1
