"""Expensive selectors slow down only their own project: the operator stays small, and binds jobs of another project in
time.

The test runs by itself with `pytest -m lab tests/trust/test_expensive_selectors_in_a_lab.py`. If the test is root and
has a memory controller, the operator runs in a cgroup of 512 MiB.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import (
    DEVICE_CLASSES,
    JOBS,
    PODS,
    RESOURCE_CLAIMS,
)
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import running, until
from tests.control.operators import memory_cgroup, must_all, muster, operator, prepare, resident_peak
from tests.trust.expensive_selectors import (
    DRIVER,
    SHAPES,
    claim,
    claims,
    device_class,
    prioritized,
    publish_nodes,
)
from tests.trust.objects import HOME, THEIRS, job, template

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMES_IN_A_ROW = 20
pytestmark = [pytest.mark.lab, pytest.mark.rare]

MIB = 1 << 20
MAX_RESIDENT = 300 * MIB
LIMIT = 512 * MIB
MAX_SECONDS = 5.0
NODE_COUNT = 8
OF_ONE_SHAPE = 12


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start(f"cel-{os.getpid()}", nodes=0, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


class Cluster:
    """Creates ResourceClaims and jobs in the cluster, and counts the ResourceClaims that the API server accepts and
    refuses.
    """

    def __init__(self, transport: Transport, pods: Reflector[Pod]) -> None:
        self._transport = transport
        self._pods = pods
        self.refused: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()

    async def publish(self) -> None:
        await publish_nodes(self._transport, NODE_COUNT)
        for shape in ("loops", "long-texts", "texts-below-the-bound", "patterns"):
            expressions = [SHAPES[shape](seed) for seed in range(32)]
            await self._transport.create(DEVICE_CLASSES.path(), device_class(f"class-{shape}", *expressions))

    async def create_claim(self, body: dict[str, Any], shape: str, namespace: str = HOME) -> bool:
        """Create a ResourceClaim and a Job that names it. Return False, without a Job, if the API server refuses the
        claim.
        """
        name = body["metadata"]["name"]
        try:
            await self._transport.create(RESOURCE_CLAIMS.path(namespace), body)
        except ClusterError:
            self.refused[shape] += 1
            return False
        self.accepted[shape] += 1
        content = template(
            container={"resources": {"claims": [{"name": "gpu"}]}},
            schedulerName="muster",
            resourceClaims=[{"name": "gpu", "resourceClaimName": name}],
        )
        await self._transport.create(JOBS.path(namespace), job(name, content))
        return True

    def pods_of(self, name: str) -> list[Pod]:
        return [pod for pod in self._pods.objects.values() if pod.metadata.labels.get("job-name") == name]

    async def bound_within(self, name: str, *, with_claim: bool) -> float:
        """Create a job in team-b, and return the seconds until its pod is bound."""
        started = time.monotonic()
        if with_claim:
            body = claim(name, {"name": "gpu", "exactly": {"deviceClassName": DRIVER}})
            await self.create_claim(body, "healthy", THEIRS)
        else:
            content = template(schedulerName="muster")
            await self._transport.create(JOBS.path(THEIRS), job(name, content))
        await until(lambda: any(pod.spec.node_name for pod in self.pods_of(name)), seconds=30)
        return time.monotonic() - started

    async def delete(self, name: str) -> None:
        await self._transport.delete(f"{JOBS.path(THEIRS, name)}?propagationPolicy=Background")

    def reasons(self, shape: str) -> set[str]:
        return {
            condition.message
            for pod in self._pods.objects.values()
            if pod.metadata.labels.get("job-name", "").startswith(f"{shape}-")
            for condition in pod.status.conditions
            if condition.type == "PodScheduled"
        }


async def test_expensive_selectors_cost_only_their_owner(own_lab: Lab, tmp_path: Path) -> None:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    log = tmp_path / "operator.log"
    with memory_cgroup(LIMIT) as members, operator(account, log) as process:
        if members is not None:
            members.write_text(str(process.pid))
        async with Transport(load_access(own_lab.kubeconfig)) as transport:
            pods = Reflector(transport, PODS, Pod)
            cluster = Cluster(transport, pods)
            async with running(pods.run()):
                await pods.synced()
                await cluster.publish()
                projects = [f"project create {name} -g 8" for name in ("team-a", "team-b")]
                await asyncio.to_thread(must_all, own_lab.kubeconfig, *projects)
                times = {"before": [await cluster.bound_within("before", with_claim=True)]}
                await cluster.delete("before")
                for shape in SHAPES:
                    one, *more = claims(shape, OF_ONE_SHAPE if shape.endswith("bound") else 2)
                    await cluster.create_claim(one, shape)
                    times[shape] = [await cluster.bound_within(f"one-{shape}", with_claim=False)]
                    for body in more:
                        await cluster.create_claim(body, shape)
                    await cluster.create_claim(prioritized(shape, f"{shape}-p"), shape)
                for shape in ("loops", "long-texts", "texts-below-the-bound", "patterns"):
                    exactly = {"deviceClassName": f"class-{shape}"}
                    await cluster.create_claim(
                        claim(f"of-class-{shape}", {"name": "gpu", "exactly": exactly}), "class"
                    )
                times["all"] = [
                    await cluster.bound_within(f"last-{number}", with_claim=number % 5 == 0)
                    for number in range(TIMES_IN_A_ROW)
                ]
                peak = resident_peak(process.pid)
                explained = await asyncio.to_thread(
                    muster, own_lab.kubeconfig, "explain", "loops-0", "-p", "team-a"
                )
                report = {
                    "peak_mib": peak // MIB,
                    "times": {shape: [round(one, 2) for one in listed] for shape, listed in times.items()},
                    "refused": dict(cluster.refused),
                    "accepted": dict(cluster.accepted),
                    "reasons": {shape: sorted(cluster.reasons(shape))[:2] for shape in SHAPES},
                }
                print(json.dumps(report, indent=1))
        assert process.poll() is None, "the operator ended"
    assert max(seconds for listed in times.values() for seconds in listed) < MAX_SECONDS
    assert peak < MAX_RESIDENT
    assert sum(cluster.accepted.values()) > 50
    assert "longer than the maximum" in " ".join(cluster.reasons("loops"))
    assert "longer than the maximum" in explained.stdout
    assert "the decision failed" not in log.read_text()
