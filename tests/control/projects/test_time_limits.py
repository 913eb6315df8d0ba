"""The interactive workloads that are warned and stopped, and when: a table, and the requests."""

from typing import Any

import pytest

from orchestrator.cluster.objects import Namespace, Pod, Project, StatefulSet
from orchestrator.cluster.quantity import parse_time
from orchestrator.cluster.transport import Transport
from orchestrator.control.projects.time_limits import Caches, TimeLimits, limited
from orchestrator.views.status import workload_status
from tests.cluster.fake_api_server import Answer, access_to, serving
from tests.observe.objects import decoded, namespace

STARTED = "2026-11-21T10:00:00Z"
STARTED_US = parse_time(STARTED)
SECOND_US = 1_000_000


def project(limit: str | None) -> Project:
    spec: dict[str, Any] = {"gpu": {"quota": 1}, **({} if limit is None else {"interactiveTimeLimit": limit})}
    return decoded(Project, metadata={"name": "team-a", "uid": "uid-team-a"}, spec=spec)


def pod(
    kind: str = "StatefulSet",
    *,
    phase: str = "Running",
    labels: dict[str, str] | None = None,
    **metadata: Any,
) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "desk", "uid": "uid-desk", "controller": True}
    return decoded(
        Pod,
        metadata={
            "name": "desk-0",
            "namespace": "muster-team-a",
            "uid": "uid-pod",
            "labels": {"muster.dev/type": "interactive"} if labels is None else labels,
            "ownerReferences": [owner],
            **metadata,
        },
        status={"phase": phase, "startTime": STARTED},
    )


def found(limit: str | None, one: Pod, home: Namespace | None = None) -> list[tuple[int, int]]:
    """Return the seconds from the start to the warning, and to the end."""
    return [
        ((each.warns_at_us - STARTED_US) // SECOND_US, (each.ends_at_us - STARTED_US) // SECOND_US)
        for each in limited([project(limit)], [home or namespace("muster-team-a", "team-a")], [one])
    ]


@pytest.mark.parametrize(
    ("limit", "one", "expected"),
    [
        ("4h", pod(), [(13_500, 14_400)]),
        ("10m", pod(), [(540, 600)]),
        ("5s", pod(), [(5, 5)]),
        ("10m", pod("Job"), [(540, 600)]),
        ("10m", pod("ReplicaSet"), []),
        ("10m", pod(ownerReferences=[]), []),
        ("10m", pod(labels={"muster.dev/type": "train"}), []),
        ("10m", pod(phase="Pending"), []),
        ("10m", pod(phase="Succeeded"), []),
        ("10m", pod(deletionTimestamp=STARTED), []),
        ("10m", pod(namespace="other"), []),
        ("0s", pod(), []),
        (None, pod(), []),
    ],
)
def test_limited_jobs_and_the_end_of_their_time(
    limit: str | None, one: Pod, expected: list[tuple[int, int]]
) -> None:
    assert found(limit, one) == expected


@pytest.mark.parametrize(
    ("seconds", "kind", "warned", "spec"),
    [
        (539, "StatefulSet", False, None),
        (540, "StatefulSet", True, None),
        (600, "StatefulSet", True, {"replicas": 0}),
        (600, "Job", True, {"activeDeadlineSeconds": 1}),
    ],
)
async def test_it_is_warned_first_and_stopped_at_the_limit(
    seconds: int, kind: str, warned: bool, spec: dict[str, int] | None
) -> None:
    path = {
        "StatefulSet": "/apis/apps/v1/namespaces/muster-team-a/statefulsets/desk",
        "Job": "/apis/batch/v1/namespaces/muster-team-a/jobs/desk",
    }[kind]
    warnings: list[str] = []
    async with serving() as server, Transport(access_to(server)) as transport:
        server.on("PATCH", path, Answer({}))
        limits = TimeLimits(
            transport,
            Caches({"p": project("10m")}, {"n": namespace("muster-team-a", "team-a")}, {"d": pod(kind)}),
            now_us=lambda: STARTED_US + seconds * SECOND_US,
            warn=lambda _pod, message: warnings.append(message),
            is_leader=lambda: True,
        )
        await limits.check()
        requests = server.requests
    assert bool(warnings) is warned
    assert all("stopped at 2026-11-21T10:10:00Z" in each for each in warnings)
    assert [each.body["spec"] for each in requests] == ([] if spec is None else [spec])
    assert all(each.body["metadata"]["uid"] == "uid-desk" for each in requests)


@pytest.mark.parametrize(
    ("replicas", "pods", "expected"),
    [(0, [], "TimedOut"), (1, [], "Pending"), (1, [pod()], "Running")],
)
def test_a_stopped_job_is_shown_as_timed_out_until_it_is_resumed(
    replicas: int, pods: list[Pod], expected: str
) -> None:
    workload = decoded(
        StatefulSet,
        metadata={"name": "desk", "annotations": {"muster.dev/timed-out-at": STARTED}},
        spec={"replicas": replicas},
    )
    assert workload_status(workload, pods) == expected
