"""Two operators that a workload kills: all other workloads are bound, and this one is set aside by name."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import ConfigMap, Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import JOBS, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.first_decisions import KEY, MAX_DEATHS, PATH
from orchestrator.control.decide.object_guard import KEY as OBJECTS_KEY
from orchestrator.names import LAST_OBJECT_VARIABLE
from tests.cluster.waiting import running, until
from tests.control.operators import must, prepare
from tests.trust.objects import job, template

pytestmark = pytest.mark.lab

NAMESPACE = "muster-team-a"
DYING = [sys.executable, "-P", "-m", "tests.control.decide.dying_operator", "operator"]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start(f"dying-{os.getpid()}", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


class Replica:
    """An operator that is restarted when it ends, as by the kubelet."""

    def __init__(self, kubeconfig: Path, name: str, log: Path) -> None:
        self.deaths = 0
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "POD_NAME": name,
            "PYTHONPATH": str(ROOT),
            LAST_OBJECT_VARIABLE: str(log.with_name(f"{name}-last-object")),
        }
        self._log = log

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            with self._log.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *DYING, env=self._environment, stdout=output, stderr=output
                )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
            self.deaths += 1


@asynccontextmanager
async def watched(lab: Lab) -> AsyncIterator[tuple[Transport, Reflector[Pod]]]:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        pods = Reflector(transport, PODS, Pod)
        async with running(pods.run()):
            await pods.synced()
            yield transport, pods


def pod_of(pods: Reflector[Pod], name: str) -> Pod | None:
    return next((pod for pod in pods.objects.values() if pod.metadata.labels.get("job-name") == name), None)


def is_bound(pods: Reflector[Pod], name: str) -> bool:
    pod = pod_of(pods, name)
    return pod is not None and bool(pod.spec.node_name)


def reason(pods: Reflector[Pod], name: str) -> str:
    pod = pod_of(pods, name)
    conditions = [] if pod is None else pod.status.conditions
    return next((each.message for each in conditions if each.type == "PodScheduled"), "")


async def submit(transport: Transport, *names: str) -> None:
    content = template(schedulerName="muster")
    await asyncio.gather(*(transport.create(JOBS.path(NAMESPACE), job(name, content)) for name in names))


async def test_a_workload_that_kills_the_operator_is_set_aside_and_all_others_are_bound(
    own_lab: Lab, tmp_path: Path
) -> None:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    log = tmp_path / "operator.log"
    replicas = [Replica(account, f"operator-{number}", log) for number in range(2)]
    async with watched(own_lab) as (transport, pods), running(replicas[0].run()), running(replicas[1].run()):
        await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "8")
        await submit(transport, "before")
        await until(lambda: is_bound(pods, "before"), seconds=60)
        await submit(transport, "poison", "beside-1", "beside-2", "beside-3")
        await until(lambda: sum(replica.deaths for replica in replicas) == 1, seconds=30)
        await submit(transport, "after")
        await until(lambda: is_bound(pods, "after"), seconds=60)
        await until(lambda: all(is_bound(pods, f"beside-{number}") for number in (1, 2, 3)), seconds=120)
        await until(lambda: "is set aside" in reason(pods, "poison"), seconds=120)
        deaths = sum(replica.deaths for replica in replicas)
        assert deaths == MAX_DEATHS
        await submit(transport, "last")
        await until(lambda: is_bound(pods, "last"), seconds=30)
        status = ""
        async with asyncio.timeout(30):
            while not ("poison" in status and "set aside" in status):
                status = await asyncio.to_thread(must, own_lab.kubeconfig, "cluster", "status")
        record = json.loads((await transport.get(PATH, ConfigMap)).data[KEY])
        assert len(record["excluded"]) == 1
        assert sum(replica.deaths for replica in replicas) == deaths


@pytest.mark.rare
async def test_a_pod_that_kills_the_operator_while_it_is_read_is_set_aside(
    own_lab: Lab, tmp_path: Path
) -> None:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    replicas = [Replica(account, f"operator-{number}", tmp_path / "operator.log") for number in range(2)]
    async with watched(own_lab) as (transport, pods), running(replicas[0].run()), running(replicas[1].run()):
        await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "8")
        await submit(transport, "before")
        await until(lambda: is_bound(pods, "before"), seconds=60)
        await submit(transport, "unreadable", "poison", "beside")
        await until(lambda: is_bound(pods, "beside"), seconds=200)
        await until(lambda: "is set aside" in reason(pods, "poison"), seconds=120)
        data = (await transport.get(PATH, ConfigMap)).data
        (dead,) = json.loads(data[OBJECTS_KEY])
        assert dead["object"]["name"].startswith("unreadable-")
        # a replica that starts slowly counts its death after the other replica has read the pod
        assert MAX_DEATHS <= len(dead["deaths"]) <= MAX_DEATHS + 1
        assert len(json.loads(data[KEY])["excluded"]) == 1, "both records are in one ConfigMap"
        status = ""
        async with asyncio.timeout(30):
            while "unreadable" not in status:
                status = await asyncio.to_thread(must, own_lab.kubeconfig, "cluster", "status")
        assert "the operator ended each time it read it" in status
