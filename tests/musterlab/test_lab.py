"""The real control plane. It needs its programs: see `musterlab.binaries`."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from musterlab.cluster import Lab, find, start
from musterlab.errors import LabConflict, LabNotFound, PortTaken
from orchestrator.cluster.errors import Forbidden
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.resources import JOBS, NAMESPACES, NODES, PODS
from orchestrator.cluster.transport import Transport

pytestmark = pytest.mark.lab

Eventually = Callable[[Callable[[], bool], str], None]
ProcessesOf = Callable[[Path], list[str]]
MusterLab = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
async def transport(running_lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(running_lab.kubeconfig)) as opened:
        yield opened


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def pods_of(transport: Transport, job: str) -> list[Pod]:
    selector = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
    return (await transport.list(PODS.path("default"), Pod, params=selector)).items


async def until(transport: Transport, job: str, reached: Callable[[list[Pod]], bool]) -> list[Pod]:
    async with asyncio.timeout(120):
        while not reached(pods := await pods_of(transport, job)):  # noqa: ASYNC110 - polls a server
            await asyncio.sleep(0.05)
    return pods


async def create_job(transport: Transport, name: str, node: str | None, **annotations: str) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    if node is not None:
        spec["nodeName"] = node
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }
    await transport.create(JOBS.path("default"), job)


async def bind(transport: Transport, pod: Pod, node: str) -> None:
    name = pod.metadata.name
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await transport.create(PODS.path("default", name, "binding"), body)


async def test_the_nodes_are_ready_and_labelled(transport: Transport) -> None:
    nodes = (await transport.list(NODES.path(), Node)).items
    assert sorted(node.metadata.name for node in nodes) == ["dgx1-1", "dgx1-2"]
    for node in nodes:
        assert node.metadata.labels["nvidia.com/gpu.product"] == "Tesla-V100-SXM2-32GB"
        assert node.status.allocatable["nvidia.com/gpu"] == "8"
        assert node.spec.taints == []
        assert {each.status for each in node.status.conditions if each.type == "Ready"} == {"True"}


async def test_a_pod_of_a_job_runs_once_it_is_bound_and_is_removed_once_deleted(transport: Transport) -> None:
    await create_job(transport, "bound", None)
    (pod,) = await until(transport, "bound", lambda pods: len(pods) == 1)
    assert pod.status.phase == "Pending"
    await bind(transport, pod, "dgx1-1")
    (pod,) = await until(transport, "bound", lambda pods: pods[0].status.phase == "Running")
    assert pod.spec.node_name == "dgx1-1"
    assert all(container.ready for container in pod.status.container_statuses)
    await transport.delete(JOBS.path("default", "bound"))
    await until(transport, "bound", lambda pods: not pods)


async def test_a_pod_ends_by_itself_only_if_it_asks_to(transport: Transport) -> None:
    await create_job(transport, "endless", "dgx1-1")
    await create_job(transport, "short", "dgx1-1", **{"muster.dev/lab-run-seconds": "0.1"})
    annotations = {"muster.dev/lab-run-seconds": "0.1", "muster.dev/lab-exit-code": "3"}
    await create_job(transport, "failing", "dgx1-1", **annotations)
    await until(transport, "short", lambda pods: [pod.status.phase for pod in pods] == ["Succeeded"])
    (failed,) = await until(
        transport, "failing", lambda pods: [pod.status.phase for pod in pods] == ["Failed"]
    )
    terminated = failed.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 3
    await until(transport, "endless", lambda pods: [pod.status.phase for pod in pods] == ["Running"])
    for name in ("endless", "short", "failing"):
        await transport.delete(JOBS.path("default", name))
        await until(transport, name, lambda pods: not pods)


async def test_a_write_without_a_certificate_is_refused(running_lab: Lab) -> None:
    authority = ssl.create_default_context(cafile=str(running_lab.state_directory / "pki" / "ca.crt"))
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stranger"}}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=authority)) as session,
        session.post(running_lab.server + NAMESPACES.path(), json=body) as answer,
    ):
        assert answer.status == 401


async def test_kwok_may_not_do_more_than_kubelets_may(running_lab: Lab) -> None:
    async with Transport(load_access(running_lab.state_directory / "kwok.kubeconfig")) as transport:
        assert (await transport.list(NODES.path(), Node)).items
        with pytest.raises(Forbidden):
            await transport.create(
                NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "stranger"}}
            )


async def test_etcd_does_not_answer_clients_of_the_api_server(running_lab: Lab) -> None:
    processes = json.loads((running_lab.state_directory / "processes.json").read_text())
    url = next(
        argument.partition("=")[2]
        for argument in processes[0]["command"]
        if argument.startswith("--listen-client-urls=")
    )
    pki = running_lab.state_directory / "pki"

    async def status_for(user: str) -> int:
        context = ssl.create_default_context(cafile=str(pki / "etcd-ca.crt"))
        context.load_cert_chain(pki / f"{user}.crt", pki / f"{user}.key")
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.get(url + "/version") as answer,
        ):
            return answer.status

    assert await status_for("etcd-client") == 200
    with pytest.raises(aiohttp.ClientError):
        await status_for("admin")


def test_up_again_reports_the_running_lab(running_lab: Lab, muster_lab: MusterLab) -> None:
    state_dir = str(running_lab.state_directory.parent)
    result = muster_lab("up", "--name", "shared", "--state-dir", state_dir, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["server"] == running_lab.server


@pytest.mark.parametrize("different", [["--nodes", "3"], ["--profile", "dgx-h100"], ["--port", "1"]])
def test_up_with_other_nodes_or_port_is_refused(
    different: list[str], running_lab: Lab, muster_lab: MusterLab
) -> None:
    result = muster_lab(
        "up", "--name", "shared", "--state-dir", str(running_lab.state_directory.parent), *different
    )
    assert result.returncode == 1
    assert "lab 'shared' runs" in result.stderr
    assert "muster lab down --name shared" in result.stderr
    assert running_lab.status().state == "running"


def test_env_gives_a_shell_kubectl_and_kubeconfig(running_lab: Lab, muster_lab: MusterLab) -> None:
    printed = muster_lab(
        "env", "--name", "shared", "--state-dir", str(running_lab.state_directory.parent)
    ).stdout
    script = printed + "kubectl config current-context; kubectl get nodes -o name"
    result = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["muster-lab-shared", "node/dgx1-1", "node/dgx1-2"]


def test_everything_is_closed_to_other_users(running_lab: Lab) -> None:
    directory = running_lab.state_directory
    assert directory.stat().st_mode & 0o777 == 0o700
    assert running_lab.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert {path.stat().st_mode & 0o777 for path in (directory / "pki").iterdir()} == {0o600}


async def test_two_labs_run_side_by_side_and_know_nothing_of_each_other(
    tmp_path: Path, processes_of: ProcessesOf
) -> None:
    async with AsyncExitStack() as stack:
        labs = [
            await stack.enter_async_context(
                Lab.attached([("dgx-h100", count)], tmp_path, name=f"lab-{count}")
            )
            for count in (1, 2)
        ]
        counts = []
        for lab in labs:
            async with Transport(load_access(lab.kubeconfig)) as transport:
                counts.append(len((await transport.list(NODES.path(), Node)).items))
        assert counts == [1, 2]
        labs[0].stop()
        assert processes_of(labs[0].state_directory) == []
        assert labs[1].status().state == "running"
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_up_and_down_through_the_command_line_leave_nothing(
    tmp_path: Path, muster_lab: MusterLab, processes_of: ProcessesOf
) -> None:
    options = ["--name", "brief", "--state-dir", str(tmp_path)]
    up = muster_lab("up", *options, "--nodes", "1")
    assert up.returncode == 0, up.stderr
    assert "1 of 1 nodes are Ready" in up.stderr
    described = json.loads(muster_lab("status", *options, "--json").stdout)
    assert described["state"] == "running"
    assert len(described["processes"]) == 4
    assert len(processes_of(tmp_path / "brief")) == 5
    assert muster_lab("down", *options).returncode == 0
    assert processes_of(tmp_path / "brief") == []
    assert list(tmp_path.iterdir()) == []
    assert "there is no lab 'brief'" in muster_lab("status", *options).stderr
    assert muster_lab("down", *options).returncode == 0


def test_a_process_that_died_is_named_with_its_log(
    tmp_path: Path, muster_lab: MusterLab, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    options = ["--name", "wounded", "--state-dir", str(tmp_path)]
    lab = start("wounded", nodes=1, detach=True, state_dir=tmp_path)
    kwok = next(process for process in lab.status().processes if process.name == "kwok")
    os.kill(kwok.pid, signal.SIGKILL)
    eventually(lambda: lab.status().state == "degraded", "the end is seen")
    result = muster_lab("status", *options)
    assert result.returncode == 1
    (line,) = (line for line in result.stdout.splitlines() if "exited" in line)
    assert "kwok" in line
    assert str(kwok.log) in line
    with pytest.raises(LabConflict, match="kwok ended"):
        start("wounded", nodes=1, state_dir=tmp_path)
    lab.stop()
    assert processes_of(tmp_path) == []


def test_a_killed_supervisor_leaves_no_process_and_up_starts_again(
    tmp_path: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    lab = start("fallen", nodes=1, detach=True, state_dir=tmp_path)
    os.kill(lab.status().supervisor_pid, signal.SIGKILL)
    eventually(lambda: processes_of(tmp_path) == [], "no process is left")
    assert lab.status().state == "dead"
    again = start("fallen", nodes=2, detach=True, state_dir=tmp_path)
    assert again.status().state == "running"
    again.stop()
    assert list(tmp_path.iterdir()) == []


# SIGTERM ends the process as SIGKILL does
KILLED_BY = [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.rare)]


@pytest.mark.parametrize("number", KILLED_BY)
def test_an_attached_lab_dies_with_its_owner(
    number: signal.Signals, tmp_path: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from musterlab.cluster import Lab
async def main():
    async with Lab.attached(state_dir=Path(sys.argv[1]), name="owned"):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        assert find("owned", tmp_path).status().state == "running"
        owner.send_signal(number)
    eventually(lambda: list(tmp_path.iterdir()) == [], "the state directory is removed")
    eventually(lambda: processes_of(tmp_path) == [], "no process is left")


@pytest.mark.parametrize("number", KILLED_BY)
def test_an_up_that_is_killed_half_way_leaves_nothing(
    number: signal.Signals, tmp_path: Path, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    code = "from musterlab.command import lab; lab()"
    arguments = ["up", "--name", "half", "--state-dir", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE) as up:
        assert up.stderr is not None
        assert b"starting etcd" in up.stderr.readline()
        eventually(lambda: len(processes_of(tmp_path / "half")) >= 3, "the first processes run")
        up.send_signal(number)
    eventually(lambda: list(tmp_path.iterdir()) == [], "the state directory is removed")
    eventually(lambda: processes_of(tmp_path / "half") == [], "no process is left")


def test_a_port_that_was_asked_for_is_used(tmp_path: Path) -> None:
    lab = None
    while lab is None:
        port = free_port()
        # another program of this machine can take the port after it was found free
        with contextlib.suppress(PortTaken):
            lab = start("ported", nodes=0, port=port, state_dir=tmp_path)
    assert lab.server == f"https://127.0.0.1:{port}"
    lab.stop()


def test_a_port_that_is_taken_is_one_clear_error(tmp_path: Path, muster_lab: MusterLab) -> None:
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        port = occupied.getsockname()[1]
        result = muster_lab("up", "--name", "late", "--state-dir", str(tmp_path), "--port", str(port))
        with pytest.raises(PortTaken, match=str(port)):
            start("late", port=port, state_dir=tmp_path)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"port {port} on 127.0.0.1 is in use" in line
    assert list(tmp_path.iterdir()) == []


def test_a_lab_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(LabNotFound, match="there is no lab 'nowhere'"):
        find("nowhere", tmp_path)
