"""The operator against a real API server, with only the rights that its manifest grants."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.errors import Forbidden, Invalid
from orchestrator.cluster.kubeconfig import Access, load_access
from orchestrator.cluster.objects import Lease, Pod, Project
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import LEASES, NODES, PODS, PROJECTS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply, install
from orchestrator.manifests.render import documents, render
from orchestrator.names import GPU_DEVICES_ANNOTATION, SYSTEM_NAMESPACE
from tests.cluster.waiting import DEADLINE_SECONDS, running, until
from tests.control.operators import must, must_all, muster, operator, prepare

pytestmark = pytest.mark.lab

SECTION_4_8 = """
a-1-1-jupyter -g 1 --interactive -p team-a
a-1-g -g 1 -p team-a
a-2-gg -g 2 -p team-a
b-1-g06 -g 0.6 --interactive -p team-b
b-2-g04 -g 0.4 --interactive -p team-b
b-3-g -g 1 -p team-b
b-4-gg -g 2 -p team-b
c-1-g05 -g 0.5 --interactive -p team-c
c-2-g03 -g 0.3 --interactive -p team-c
c-3-g02 -g 0.2 --interactive -p team-c
c-4-gg -g 2 -p team-c
c-5-g -g 1 -p team-c
d-1-gggg -g 4 -p team-d
""".strip().splitlines()
QUOTAS = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}


@pytest.fixture
async def admin(own_lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        yield transport


@pytest.fixture
async def account(own_lab: Lab, tmp_path: Path) -> Path:
    """Install the orchestrator; return a kubeconfig for the operator's own account."""
    return await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")


@pytest.fixture(scope="module")
def installed(lab_access: Access) -> Access:
    """Return access to the shared lab, in which the orchestrator is installed."""

    async def install_once() -> None:
        async with Transport(lab_access) as transport:
            await install(transport, "tests", replicas=0)

    asyncio.run(install_once())
    return lab_access


def held(pods: Reflector[Pod]) -> dict[str, float]:
    """Return the GPUs of each project, computed from the pods alone."""
    totals = dict.fromkeys(QUOTAS, 0.0)
    for pod in pods.objects.values():
        if pod.spec.node_name and pod.metadata.deletion_timestamp is None:
            fraction = pod.metadata.annotations.get("muster.dev/gpu-fraction")
            whole = pod.spec.containers[0].resources.limits.get("nvidia.com/gpu", 0)
            totals[pod.metadata.namespace.removeprefix("muster-")] += float(fraction or whole)
    return {team: round(gpus, 3) for team, gpus in totals.items()}


def waiting(pods: Reflector[Pod]) -> list[str]:
    return sorted(
        pod.metadata.labels["muster.dev/workload"] for pod in pods.objects.values() if not pod.spec.node_name
    )


RANDOM_MOMENT = int.from_bytes(os.urandom(1), "big") % 12 + 1


async def fill(kubeconfig: Path) -> None:
    """Create the projects and the thirteen workloads of §4.8."""
    projects = [f"project create {team} -g {quota}" for team, quota in QUOTAS.items()]
    jobs = [f"submit {line} -i quickstart" for line in SECTION_4_8]
    await asyncio.to_thread(must_all, kubeconfig, *projects, *jobs)


@pytest.mark.parametrize(
    "events_before_the_kill",
    [
        pytest.param(1, marks=pytest.mark.rare),
        4,
        pytest.param(RANDOM_MOMENT, id="random", marks=pytest.mark.rare),
    ],
)
async def test_a_scheduler_killed_during_section_4_9_comes_to_the_same_allocation(
    own_lab: Lab, admin: Transport, account: Path, tmp_path: Path, events_before_the_kill: int
) -> None:
    log = tmp_path / "operator.log"
    seen: list[Change[Pod]] = []
    pods = Reflector(admin, PODS, Pod, on_change=seen.append)
    async with running(pods.run()):
        with operator(account, log) as first:
            await fill(own_lab.kubeconfig)
            await until(lambda: held(pods) == dict.fromkeys(QUOTAS, 4.0))
            seen.clear()
            more = [f"submit {name} -i quickstart -g 2 -p team-d" for name in ("d-2-gg", "d-3-gg")]
            await asyncio.to_thread(must_all, own_lab.kubeconfig, *more)
            await until(lambda: len(seen) >= events_before_the_kill)
            first.kill()
            first.wait()
        with operator(account, log):
            await until(
                lambda: (
                    held(pods) == {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
                    and waiting(pods) == ["b-4-gg", "c-4-gg"]
                ),
            )


async def test_an_evicted_job_is_served_before_a_younger_one_although_it_has_no_pod_yet(
    own_lab: Lab, admin: Transport, account: Path, tmp_path: Path
) -> None:
    pods = Reflector(admin, PODS, Pod)

    def bound() -> list[str]:
        return sorted(
            each.metadata.labels["muster.dev/workload"]
            for each in pods.objects.values()
            if each.spec.node_name
            and each.metadata.deletion_timestamp is None
            and each.status.phase != "Failed"
        )

    async def run(*lines: str) -> None:
        await asyncio.to_thread(must_all, own_lab.kubeconfig, *lines)

    with operator(account, tmp_path / "operator.log"):
        async with running(pods.run()):
            await run("project create team-p -g 2", "project create team-q -g 14")
            await run(
                *(
                    f"submit {name} -i quickstart -g {gpus} -p team-{name[0]}"
                    for name, gpus in (("p-1", 2), ("p-2", 2), ("q-1", 8), ("q-2", 4))
                )
            )
            await until(lambda: bound() == ["p-1", "p-2", "q-1", "q-2"])
            await run("submit q-3 -i quickstart -g 2 -p team-q")
            await until(lambda: bound() == ["p-1", "q-1", "q-2", "q-3"])
            await run("submit p-3 -i quickstart -g 2 -p team-p", "delete q-3 -p team-q")
            await until(lambda: "p-2" in bound() or "p-3" in bound())
            assert bound() == ["p-1", "p-2", "q-1", "q-2"]


async def test_applying_the_operator_yaml_twice_changes_nothing(own_lab: Lab, tmp_path: Path) -> None:
    manifest = tmp_path / "muster-operator-tests.yaml"
    manifest.write_text(must(own_lab.kubeconfig, "operator-yaml", "--cluster", "tests"))
    kubectl = [
        str(own_lab.kubectl_directory / "kubectl"),
        "--kubeconfig",
        str(own_lab.kubeconfig),
        "apply",
        "-f",
    ]
    first = await asyncio.to_thread(
        subprocess.run, [*kubectl, str(manifest)], check=True, capture_output=True, text=True
    )
    second = await asyncio.to_thread(
        subprocess.run, [*kubectl, str(manifest)], check=True, capture_output=True, text=True
    )
    assert first.stdout.count("created") == len(documents(render("tests")))
    assert [line for line in second.stdout.splitlines() if not line.endswith(" unchanged")] == []


async def test_installing_twice_leaves_every_object_as_it_was(lab_access: Access) -> None:
    objects = documents(render("tests", replicas=0))
    async with Transport(lab_access) as transport:
        await install(transport, "tests", replicas=0)
        before: list[str] = [""]
        after: list[str] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while before != after:  # at first the controllers of Kubernetes still write their status
                before = [(await apply(transport, each))["metadata"]["resourceVersion"] for each in objects]
                after = [(await apply(transport, each))["metadata"]["resourceVersion"] for each in objects]


async def test_the_operators_account_may_do_nothing_beyond_its_manifest(
    shared_lab: Lab, tmp_path: Path
) -> None:
    account = await prepare(shared_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(account)) as transport:
        attempts: dict[str, Callable[[], Awaitable[object]]] = {
            "delete a node": lambda: transport.delete(NODES.path(None, "dgx1-1")),
            "create a pod": lambda: transport.create(PODS.path("default"), {"metadata": {"name": "x"}}),
            "read secrets": lambda: transport.get("/api/v1/secrets"),
            "change a project": lambda: transport.patch(PROJECTS.path(None, "x"), {"spec": {}}),
            "take another lease": lambda: transport.get(LEASES.path(SYSTEM_NAMESPACE, "other")),
        }
        for what, attempt in attempts.items():
            assert await _refused(attempt), f"the operator's account may {what}"


async def _refused(attempt: Callable[[], Awaitable[object]]) -> bool:
    try:
        await attempt()
    except Forbidden:
        return True
    return False


async def test_the_standby_takes_over_when_the_leader_is_told_to_stop(
    own_lab: Lab, admin: Transport, account: Path, tmp_path: Path
) -> None:
    holder: list[str] = []

    async def watch_the_holder() -> None:
        def note(change: Change[Lease]) -> None:
            holder.append((change.object.spec.holder_identity or "").partition("_")[0])

        await Reflector(admin, LEASES, Lease, namespace=SYSTEM_NAMESPACE, on_change=note).run()

    async with running(watch_the_holder()):
        with operator(account, tmp_path / "one.log", "one") as leader:
            await until(lambda: holder and holder[-1] == "one")
            with operator(account, tmp_path / "two.log", "two"):
                leader.send_signal(signal.SIGTERM)
                await asyncio.to_thread(leader.wait, DEADLINE_SECONDS)
                await until(lambda: holder[-1] == "two")
                await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "1")
    assert leader.returncode == 0


async def test_a_project_gets_its_namespace_members_and_figures(
    own_lab: Lab, admin: Transport, account: Path, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "operator.log"):
        create = ("project", "create", "team-a", "-g", "4", "--member", "user:ada")
        await asyncio.to_thread(must, own_lab.kubeconfig, *create)
        projects = Reflector(admin, PROJECTS, Project)
        pods = Reflector(admin, PODS, Pod)
        async with running(projects.run()), running(pods.run()):
            for name, gpus in (("one", "3"), ("two", "8"), ("three", "8")):
                submit = ("submit", name, "-i", "quickstart", "-g", gpus, "-p", "team-a")
                await asyncio.to_thread(must, own_lab.kubeconfig, *submit)

            def figures() -> tuple[float, float, int]:
                status = next(iter(projects.objects.values())).status
                return float(status.allocated_gpu), float(status.fair_share_gpu), status.pending_workloads

            await until(lambda: projects.is_synced and figures() == (11.0, 16.0, 1))

            def devices() -> dict[str, str | None]:
                return {
                    pod.metadata.labels["muster.dev/workload"]: pod.metadata.annotations.get(
                        GPU_DEVICES_ANNOTATION
                    )
                    for pod in pods.objects.values()
                }

            await until(lambda: devices().get("one") and devices().get("two"))
            assert len((devices()["one"] or "").split(",")) == 3
            assert devices()["two"] == "0,1,2,3,4,5,6,7"
            await until(
                lambda: any(
                    each.reason == "Unschedulable"
                    and each.message.startswith(
                        "AtFairShare: asks for 8 GPUs; 5 are free and team-a holds 11"
                    )
                    for pod in pods.objects.values()
                    for each in pod.status.conditions
                ),
            )
        bindings = await admin.get(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/muster-team-a/rolebindings/muster-members"
        )
        assert bindings["subjects"] == [
            {"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}
        ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"gpu": {"quota": -1}}, "greater than or equal to 0"),
        ({"gpu": {"quota": 0.0005}}, "at most three decimal places"),
        ({"gpu": {"quota": 4, "limit": 2}}, "limit is below quota"),
        ({"parent": "team-x", "gpu": {"quota": 4}}, "cannot be its own parent"),
        ({}, "spec.gpu"),
        ({"gpu": {"quota": 4}, "cpu": {"quota": 64, "limit": "63999m"}}, "limit is below quota"),
        ({"gpu": {"quota": 4}, "memory": {"quota": "4Q"}}, "spec.memory.quota"),
        ({"gpu": {"quota": 4}, "cpu": {"limit": -1}}, "spec.cpu.limit"),
        ({"gpu": {"quota": 4}, "preemptMinRuntime": "soon"}, "spec.preemptMinRuntime"),
        ({"gpu": {"quota": 4}, "namespace": "kube-system"}, "reserved"),
        ({"gpu": {"quota": 4}, "namespace": "default"}, "reserved"),
        ({"gpu": {"quota": 4}, "namespace": "muster-system"}, "reserved"),
        ({"gpu": {"quota": 4}, "namespace": "muster-team-y"}, "namespaces of other projects"),
        ({"gpu": {"quota": 4}, "reclaimMinRuntime": "600000h"}, "spec.reclaimMinRuntime"),
        ({"gpu": {"quota": 4}, "memory": {"limit": "10E"}}, "an amount is at most 8P"),
        ({"gpu": {"quota": 4, "models": {"A100": {"limit": 0.0005}}}}, "at most three decimal places"),
    ],
)
async def test_the_api_server_itself_refuses_a_project_that_cannot_be_meant(
    installed: Access, spec: dict[str, Any], said: str
) -> None:
    body = {
        "apiVersion": PROJECTS.api_version,
        "kind": "Project",
        "metadata": {"name": "team-x"},
        "spec": spec,
    }
    async with Transport(installed) as transport:
        with pytest.raises(Invalid, match=said):
            await transport.create(PROJECTS.path(), body)


@pytest.mark.parametrize("name", ["system", "system-templates"])
async def test_the_api_server_itself_refuses_a_project_whose_namespace_is_musters_own(
    installed: Access, name: str
) -> None:
    body = {"metadata": {"name": name}, "spec": {"gpu": {"quota": 1}}}
    async with Transport(installed) as transport:
        with pytest.raises(Invalid, match="muster's own"):
            await transport.create(
                PROJECTS.path(), {"apiVersion": PROJECTS.api_version, "kind": PROJECTS.kind, **body}
            )


async def test_quotas_beyond_the_cluster_are_refused_and_nothing_is_made(
    own_lab: Lab, admin: Transport, account: Path, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "operator.log"):
        await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "10")
        done = await asyncio.to_thread(muster, own_lab.kubeconfig, "project", "create", "team-b", "-g", "7")
    assert done.returncode != 0
    assert "the quotas add up to 17 GPUs, the cluster has 16" in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert [each.metadata.name for each in (await admin.list(PROJECTS.path(), Project)).items] == ["team-a"]
