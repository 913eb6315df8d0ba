"""The conditions for an existing cluster before a scenario begins, and the drain of its nodes."""

from typing import Any

import msgspec
import pytest

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Page
from orchestrator.names import GPU_RESOURCE, RESERVATION_LABEL
from tests.validation.judge import events
from validation.errors import TargetError
from validation.targets import cluster
from validation.targets.cluster import ClusterTarget

Body = dict[str, Any]


def pod(name: str, namespace: str = "muster-system", phase: str = "Running", **labels: str) -> Body:
    container = {"name": "main", "resources": {"limits": {GPU_RESOURCE: "1"}}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": "gpu01", "containers": [container]},
        "status": {"phase": phase},
    }


RESERVATION = pod("gpu-reservation-b30d", **{RESERVATION_LABEL: "true"})
OF_A_USER = pod("gpu-reservation-b30d", "team", **{RESERVATION_LABEL: "true"})


class Answers:
    """An API server that answers with these lists of pods, and then repeats the last list."""

    def __init__(self, *lists: list[Body], claims: list[Body] | None = None) -> None:
        self.lists = list(lists)
        self.claims = claims
        """The ResourceClaims; None: the server does not have the kind."""

    async def get(self, path: str, kind: type[Any] | None = None) -> Any:
        if self.claims is None:
            raise NotFound(path)
        if kind is not None:
            return msgspec.convert(
                {"versions": [{"groupVersion": "resource.k8s.io/v1", "version": "v1"}]}, kind
            )
        return {"items": self.claims}

    async def list(self, _path: str, kind: type[Pod]) -> Page[Pod]:
        pods = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        return Page([msgspec.convert(pod, kind) for pod in pods], "")


async def check(*lists: list[Body], claims: list[Body] | None = None) -> list[str]:
    said: list[str] = []
    target = ClusterTarget(None, frozenset(), said.append)
    target._transport = Answers(*lists, claims=claims)  # type: ignore[assignment]
    await target._check_idle()
    return said


async def test_a_reservation_that_no_fraction_uses_is_waited_for() -> None:
    said = await check([RESERVATION], [RESERVATION], [])
    assert said == ["waiting until the operator deletes gpu-reservation-b30d"] * 2


@pytest.mark.parametrize("other", [pod("job", "team"), OF_A_USER], ids=["a job", "a label of a user"])
async def test_another_pod_with_gpus_is_not_waited_for(other: Body) -> None:
    with pytest.raises(TargetError, match=f"pod team/{other['metadata']['name']} uses GPUs"):
        await check([RESERVATION, other], [])


async def test_a_reservation_is_an_error_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "IDLE_SECONDS", -1.0)
    with pytest.raises(TargetError, match="pod muster-system/gpu-reservation-b30d uses GPUs"):
        await check([RESERVATION])


def claim(*drivers: str) -> Body:
    results = [{"driver": driver, "pool": "gpu01", "device": "gpu-0"} for driver in drivers]
    allocated = {"allocation": {"devices": {"results": results}}} if drivers else {}
    return {"metadata": {"name": "mine", "namespace": "team"}, "status": allocated}


async def test_a_claim_with_a_gpu_is_not_validated_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await check([], claims=[claim(), claim("dra.example.com")]) == []
    monkeypatch.setattr(cluster, "IDLE_SECONDS", -1.0)
    with pytest.raises(TargetError, match="ResourceClaim team/mine holds a GPU"):
        await check([], claims=[claim(), claim("gpu.nvidia.com")])


async def test_a_pod_that_ended_has_no_gpus() -> None:
    assert await check([pod("job", "team", "Succeeded")]) == []


class Evictions:
    """An API server on which an evicted pod still runs at the first look, and then ends in one of three ways."""

    def __init__(self, last: Body | None) -> None:
        self.requests: list[str] = []
        self._last = last

    async def create(self, path: str, _body: Body) -> None:
        self.requests.append(f"evict {path.split('/')[-2]}")

    async def get(self, path: str, kind: type[Pod]) -> Pod:
        name = path.rpartition("/")[2]
        first = self.requests[-1] == f"evict {name}"
        self.requests.append(f"read {name}")
        found = pod(name) if first else self._last
        if found is None:
            raise NotFound("it is gone")
        answer = msgspec.convert(found, kind)
        return msgspec.structs.replace(
            answer, metadata=msgspec.structs.replace(answer.metadata, uid=answer.metadata.uid or name)
        )


@pytest.mark.parametrize(
    "last",
    [
        None,
        pod("q-1", phase="Failed"),
        pod("q-1", phase="Succeeded"),
        {**pod("x"), "metadata": {"uid": "other"}},
    ],
    ids=["deleted", "failed", "succeeded", "replaced"],
)
async def test_a_drained_pod_has_ended_before_the_next_one_is_evicted(last: Body | None) -> None:
    target = ClusterTarget(None, frozenset(), lambda _line: None)
    server = Evictions(last)
    target._transport = server  # type: ignore[assignment]
    pods = [events.pod(0, name, pod=name, uid=name, submitted_us=at) for name, at in (("q-2", 2), ("q-1", 1))]
    await target.drain(pods)
    ends = ["evict q-1", "read q-1", "read q-1", "evict q-2", "read q-2", "read q-2"]
    assert server.requests == ends
