"""The operator when its infrastructure fails: nothing is allocated twice, nothing is lost, and it recovers."""

import asyncio
import gc
import signal
import warnings
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from musterlab.components import API_SERVER, ETCD
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Lease, Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import LEASES, NAMESPACES, PODS, PROJECTS
from orchestrator.cluster.transport import Transport
from orchestrator.names import (
    GPU_DEVICES_ANNOTATION,
    GPU_RESOURCE,
    LEASE_NAME,
    PRIORITY_CLASSES,
    PROJECT_LABEL,
    SCHEDULER_NAME,
    SYSTEM_NAMESPACE,
)
from tests.cluster.waiting import DEADLINE_SECONDS, running, until
from tests.control.operators import operator, prepare

pytestmark = pytest.mark.lab

NODES = 8
GPUS = NODES * 8
RECOVERY_SECONDS = 15.0
PRESSURE = Path("/proc/pressure/cpu")
TEAMS = ("team-a", "team-b")
_CREATES_IN_FLIGHT = 16


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("resilience", nodes=NODES, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()
    with warnings.catch_warnings():
        # the garbage collector closes a connection whose server was killed while it was made, and warns
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
async def admin(own_lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        yield transport


@pytest.fixture
async def account(own_lab: Lab, tmp_path: Path) -> Path:
    return await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")


class Witness:
    """Watches every pod, and checks at every event that no GPU has two owners and no pod is lost or migrated."""

    def __init__(self, transport: Transport) -> None:
        self.pods = Reflector(transport, PODS, Pod, on_change=self._see)
        self.violations: list[str] = []
        self.evictions: set[str] = set()
        self._owners: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._node_of: dict[str, str] = {}

    def _see(self, change: Change[Pod]) -> None:
        pod = change.object
        uid = pod.metadata.uid
        gpus = [
            (pod.spec.node_name, device)
            for device in pod.metadata.annotations.get(GPU_DEVICES_ANNOTATION, "").split(",")
            if device and pod.spec.node_name
        ]
        if pod.spec.node_name and self._node_of.setdefault(uid, pod.spec.node_name) != pod.spec.node_name:
            self.violations.append(f"{pod.metadata.name} moved to {pod.spec.node_name}")
        for gpu in gpus:
            if change.type == "deleted" or pod.status.phase in ("Succeeded", "Failed"):
                self._owners[gpu].discard(uid)
                continue
            self._owners[gpu].add(uid)
            if len(self._owners[gpu]) > 1:
                self.violations.append(f"{gpu} has owners {sorted(self._owners[gpu])}")
        if any(each.type == "DisruptionTarget" for each in pod.status.conditions):
            self.evictions.add(uid)

    def bound(self, team: str | None = None) -> int:
        return sum(
            bool(pod.spec.node_name) and pod.metadata.deletion_timestamp is None
            for pod in self.pods.objects.values()
            if team is None or pod.metadata.namespace == f"muster-{team}"
        )


@pytest.fixture
async def witness(admin: Transport) -> AsyncIterator[Witness]:
    seen = Witness(admin)
    async with running(seen.pods.run()):
        yield seen
        assert seen.violations == []


async def make_projects(admin: Transport, quota: int = GPUS // 2) -> None:
    for team in TEAMS:
        body = {
            "apiVersion": PROJECTS.api_version,
            "kind": "Project",
            "metadata": {"name": team},
            "spec": {"gpu": {"quota": quota}, "namespace": f"muster-{team}"},
        }
        await admin.create(PROJECTS.path(), body)
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"muster-{team}", "labels": {PROJECT_LABEL: team}},
        }
        await admin.create(NAMESPACES.path(), namespace)


async def submit(admin: Transport, team: str, count: int, prefix: str = "job") -> None:
    """Create jobs of one GPU each, whose controller replaces evicted pods."""
    path = f"/apis/batch/v1/namespaces/muster-{team}/jobs"
    slots = asyncio.Semaphore(_CREATES_IN_FLIGHT)
    container = {"name": "main", "image": "job", "resources": {"limits": {GPU_RESOURCE: 1}}}
    template = {
        "metadata": {"labels": {"muster.dev/type": "train"}},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "priorityClassName": next(iter(PRIORITY_CLASSES)),
            "restartPolicy": "Never",
            "containers": [container],
        },
    }
    policy = {
        "rules": [
            {
                "action": "Ignore",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
            }
        ]
    }

    async def create(number: int) -> None:
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"{prefix}-{number}"},
            "spec": {"template": template, "backoffLimit": 0, "podFailurePolicy": policy},
        }
        async with slots:
            await admin.create(path, body)

    await asyncio.gather(*(create(number) for number in range(count)))


def overbooked_seconds() -> float:
    """Return the seconds so far in which a process on this machine waited for a CPU; 0 where
    Linux does not report it.
    """
    if not PRESSURE.exists():
        return 0.0
    return int(PRESSURE.read_text().splitlines()[0].rpartition("total=")[2]) / 1_000_000


async def recovered(condition: Callable[[], object]) -> None:
    """Wait for the condition, at most 15 s of time in which no other process waits for a CPU."""
    clock = asyncio.get_running_loop().time
    started = clock() - overbooked_seconds()
    await until(condition)
    assert clock() - overbooked_seconds() - started < RECOVERY_SECONDS


async def answers(transport: Transport) -> None:
    """Wait until the API server answers again."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await transport.get(f"{LEASES.path(SYSTEM_NAMESPACE, LEASE_NAME)}", Lease)
            except ClusterError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_an_api_server_that_is_restarted_during_a_batch_of_bindings_costs_nothing_but_time(
    own_lab: Lab, admin: Transport, account: Path, witness: Witness, tmp_path: Path
) -> None:
    await make_projects(admin)
    await submit(admin, "team-a", GPUS)
    with operator(account, tmp_path / "operator.log") as process:
        await until(lambda: witness.bound() >= 3)
        await asyncio.to_thread(own_lab.restart, API_SERVER)
        await answers(admin)
        await recovered(lambda: witness.bound() == GPUS)
        await submit(admin, "team-b", 4)
        await recovered(lambda: witness.bound("team-b") == 4)
        assert process.poll() is None
    assert len(witness.evictions) == 4


async def test_an_etcd_that_stands_still_for_30_s_costs_nothing_but_time(
    own_lab: Lab, admin: Transport, account: Path, witness: Witness, tmp_path: Path
) -> None:
    await make_projects(admin)
    await submit(admin, "team-a", GPUS)
    with operator(account, tmp_path / "operator.log") as process:
        await until(lambda: witness.bound() >= 3)
        own_lab.signal(ETCD, signal.SIGSTOP)
        clock = asyncio.get_running_loop().time
        stopped = clock()
        await until(lambda: clock() - stopped > 30)
        own_lab.signal(ETCD, signal.SIGCONT)
        await answers(admin)
        await recovered(lambda: witness.bound() == GPUS)
        await submit(admin, "team-b", 4)
        await recovered(lambda: witness.bound("team-b") == 4)
        assert process.poll() is None


@pytest.mark.parametrize("events_before_the_kill", [pytest.param(1, marks=pytest.mark.rare), 20])
async def test_a_leader_killed_during_bindings_and_evictions_is_followed_by_the_standby(
    admin: Transport, account: Path, witness: Witness, tmp_path: Path, events_before_the_kill: int
) -> None:
    await make_projects(admin)
    await submit(admin, "team-a", GPUS)
    async with AsyncExitStack() as stack:
        leader = stack.enter_context(operator(account, tmp_path / "one.log", "one"))
        await until(lambda: witness.bound() == GPUS)
        stack.enter_context(operator(account, tmp_path / "two.log", "two"))
        await submit(admin, "team-b", GPUS // 2)
        await until(lambda: len(witness.evictions) + witness.bound("team-b") >= events_before_the_kill)
        leader.send_signal(signal.SIGKILL)
        await asyncio.to_thread(leader.wait, DEADLINE_SECONDS)
        await recovered(lambda: witness.bound("team-b") == GPUS // 2 and witness.bound("team-a") == GPUS // 2)
        submitted = await jobs(admin)
        # The Job controller replaces a pod only some seconds after the last one ended.
        await until(lambda: known(witness) >= submitted)


async def test_a_leader_that_is_stopped_and_wakes_up_after_its_time_does_no_harm(
    admin: Transport, account: Path, witness: Witness, tmp_path: Path
) -> None:
    await make_projects(admin)
    await submit(admin, "team-a", GPUS)
    async with AsyncExitStack() as stack:
        leader = stack.enter_context(operator(account, tmp_path / "one.log", "one"))
        await until(lambda: witness.bound() >= 3)
        stack.enter_context(operator(account, tmp_path / "two.log", "two"))
        leader.send_signal(signal.SIGSTOP)
        try:
            await recovered(lambda: witness.bound() == GPUS)
            await submit(admin, "team-b", GPUS // 2)
        finally:
            leader.send_signal(signal.SIGCONT)
        await recovered(lambda: witness.bound("team-b") == GPUS // 2 and witness.bound("team-a") == GPUS // 2)
        assert leader.poll() is None


async def jobs(admin: Transport) -> set[str]:
    page = await admin.get("/apis/batch/v1/jobs")
    return {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in page["items"]}


def known(witness: Witness) -> set[str]:
    """Return the jobs that have a pod, even a pending one."""
    return {
        f"{pod.metadata.namespace}/{pod.metadata.labels['batch.kubernetes.io/job-name']}"
        for pod in witness.pods.objects.values()
        if pod.metadata.deletion_timestamp is None
    }
