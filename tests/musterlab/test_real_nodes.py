"""Nodes with a kubelet and containerd: real containers run, and nothing is left on the machine."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from musterlab import supervisor
from musterlab.cluster import Lab, find, start
from musterlab.errors import LabConflict
from musterlab.realnodes import images

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

Eventually = Callable[[Callable[[], bool], str], None]
ProcessesOf = Callable[[Path], list[str]]
MusterLab = Callable[..., subprocess.CompletedProcess[str]]

QUICKSTART = "gcr.io/run-ai-demo/quickstart"
WAIT = "--timeout=180s"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a lab with two real nodes and a simulated one."""
    lab = start("mixed", nodes=1, real_nodes=2, detach=False, state_dir=tmp_path_factory.mktemp("labs"))
    yield lab
    lab.stop()


def try_kubectl(lab: Lab, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)


def kubectl(lab: Lab, *arguments: str, given: str | None = None) -> str:
    done = try_kubectl(lab, *arguments, given=given)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def run(
    lab: Lab, name: str, node: str, image: str = QUICKSTART, *, in_gang: bool = False, **spec: object
) -> None:
    container = {"name": "main", "image": image, **spec}
    tolerated = [{"key": "muster.dev/lab-node", "operator": "Exists"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"gang": "yes"} if in_gang else {}},
        "spec": {
            **({"hostname": name, "subdomain": "gang"} if in_gang else {}),
            "nodeName": node,
            "containers": [container],
            "tolerations": tolerated,
            "terminationGracePeriodSeconds": 1,
        },
    }
    kubectl(lab, "create", "-f", "-", given=json.dumps(pod))


def run_and_wait(
    lab: Lab, name: str, node: str, image: str = QUICKSTART, *, in_gang: bool = False, **spec: object
) -> None:
    run(lab, name, node, image, in_gang=in_gang, **spec)
    kubectl(lab, "wait", "--for=condition=Ready", f"pod/{name}", WAIT)


def test_both_kinds_of_nodes_are_told_apart_by_label_and_taint(mixed: Lab) -> None:
    nodes = json.loads(kubectl(mixed, "get", "nodes", "-o", "json"))["items"]
    described = {
        node["metadata"]["name"]: (
            node["metadata"]["labels"]["muster.dev/lab-node"],
            node["status"]["allocatable"]["nvidia.com/gpu"],
            node["metadata"]["labels"]["nvidia.com/gpu.product"],
            [taint["key"] for taint in node["spec"].get("taints", [])],
        )
        for node in nodes
    }
    product = "Tesla-V100-SXM2-32GB"
    assert described == {
        "dgx1-1": ("simulated", "8", product, ["muster.dev/lab-node"]),
        "dgx1-real-1": ("real", "8", product, []),
        "dgx1-real-2": ("real", "8", product, []),
    }


def test_a_container_runs_and_can_be_read_and_entered(mixed: Lab, eventually: Eventually) -> None:
    run_and_wait(mixed, "trained", "dgx1-real-1", env=[{"name": "RUNAI_NUM_OF_GPUS", "value": "2"}])
    eventually(lambda: "Epoch 1/" in kubectl(mixed, "logs", "trained"), "the program writes to its log")
    assert "Running on 2 GPU(s)" in kubectl(mixed, "logs", "trained")
    assert kubectl(mixed, "exec", "trained", "--", "cat", "/proc/1/comm") == "quickstart\n"
    assert kubectl(mixed, "exec", "trained", "--", "bash", "-c", "echo $HOSTNAME") == "trained\n"
    assert try_kubectl(mixed, "exec", "trained", "--", "sh", "-c", "exit 7").returncode == 7


def test_a_port_of_a_container_can_be_reached_through_the_api_server(
    mixed: Lab, eventually: Eventually
) -> None:
    arguments = ["--NotebookApp.base_url=team-a-notes"]
    run_and_wait(
        mixed, "notebook", "dgx1-real-1", "jupyter/base-notebook", args=["start-notebook.sh", *arguments]
    )
    kubectl(mixed, "exec", "notebook", "--", "sh", "-c", "until nc 127.0.0.1 8888 </dev/null; do :; done")
    command = [str(mixed.kubectl_directory / "kubectl"), f"--kubeconfig={mixed.kubeconfig}"]
    with subprocess.Popen(
        [*command, "port-forward", "notebook", ":8888"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as forward:
        assert forward.stdout is not None
        match = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
        assert match is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=120)
        connection.request("GET", "/team-a-notes/")
        assert b"notebook" in connection.getresponse().read()
        connection.close()
        forward.terminate()
    assert "?token=" in kubectl(mixed, "logs", "notebook")


def test_pods_of_different_nodes_reach_each_other_by_name_and_the_api_server(mixed: Lab) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gang"},
        "spec": {"clusterIP": "None", "selector": {"gang": "yes"}, "publishNotReadyAddresses": True},
    }
    kubectl(mixed, "create", "-f", "-", given=json.dumps(service))
    listens = ["httpd", "-f", "-p", "29500"]
    run_and_wait(mixed, "rank-0", "dgx1-real-2", images.SHELL, command=listens, in_gang=True)
    run_and_wait(mixed, "rank-1", "dgx1-real-1", images.SHELL, command=["sleep", "600"], in_gang=True)
    script = (
        "until nc rank-0.gang 29500 </dev/null; do :; done; nslookup nowhere.example && exit 1; "
        "nc $KUBERNETES_SERVICE_HOST 443 </dev/null && echo reached"
    )
    assert kubectl(mixed, "exec", "rank-1", "--", "timeout", "180", "sh", "-c", script).endswith("reached\n")


def test_only_the_simulated_node_pretends(mixed: Lab) -> None:
    run_and_wait(mixed, "pretended", "dgx1-1", "no/such-image")
    assert try_kubectl(mixed, "exec", "pretended", "--", "true").returncode != 0


def test_an_image_that_is_not_there_is_an_error_of_the_pod(mixed: Lab, eventually: Eventually) -> None:
    run(mixed, "imageless", "dgx1-real-1", "no/such-image")

    def reason() -> str:
        path = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"
        return kubectl(mixed, "get", "pod", "imageless", "-o", path)

    eventually(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"), "the pull fails")


@pytest.mark.parametrize("image", [name for each in images.IMAGES for name in each.names])
def test_every_image_runs_under_each_of_its_names(image: str, mixed: Lab) -> None:
    name = re.sub(r"[^a-z0-9]+", "-", image)
    run_and_wait(mixed, name, "dgx1-real-2", image, command=["sleep", "600"])


def test_the_kubelet_measures_running_containers(mixed: Lab, eventually: Eventually) -> None:
    run_and_wait(mixed, "measured", "dgx1-real-2", command=["sh", "-c", "while :; do :; done"])

    def cpu() -> int:
        text = kubectl(mixed, "get", "--raw", "/api/v1/nodes/dgx1-real-2/proxy/stats/summary")
        pods = {each["podRef"]["name"]: each for each in json.loads(text)["pods"]}
        usage: int = pods.get("measured", {}).get("cpu", {}).get("usageNanoCores", 0)
        return usage

    eventually(lambda: cpu() > 0, "the use of the processor is told")
    kubectl(mixed, "delete", "pod", "measured", "--now")


def test_a_node_that_was_switched_off_comes_back_with_its_gpus_and_pods(
    mixed: Lab, eventually: Eventually
) -> None:
    run_and_wait(mixed, "survivor", "dgx1-real-2")
    mixed.restart("dgx1-real-2", seconds=120)

    def restarts() -> str:
        return kubectl(
            mixed, "get", "pod", "survivor", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"
        )

    # a busy node can start it more than once
    eventually(lambda: int(restarts() or 0) >= 1, "the container was started again")
    kubectl(mixed, "wait", "--for=condition=Ready", "pod/survivor", WAIT)
    allocatable = "jsonpath={.status.allocatable.nvidia\\.com/gpu}"
    eventually(
        lambda: kubectl(mixed, "get", "node", "dgx1-real-2", "-o", allocatable) == "8",
        "it has its GPUs again",
    )


def test_a_kubelet_that_ends_by_itself_is_started_again(mixed: Lab, eventually: Eventually) -> None:
    folders = [each for each in supervisor.cgroups(mixed.state_directory) if "dgx1-real-1" in each.name]

    def kubelets() -> set[int]:
        return pids_of("kubelet", folders)

    (first,) = kubelets()
    os.kill(first, signal.SIGTERM)
    eventually(lambda: len(kubelets() - {first}) == 1, "another kubelet runs")
    run_and_wait(mixed, "later", "dgx1-real-1")
    assert mixed.status().state == "running"


def test_the_memory_of_a_node_counts_all_that_runs_on_it(mixed: Lab) -> None:
    (node,) = (each for each in mixed.status().processes if each.name == "dgx1-real-1")
    assert node.rss_bytes > 100 * 2**20


class Machine:
    """The things on this machine that a lab with real nodes could leave, at this moment."""

    def __init__(self) -> None:
        self.mounts = sorted(Path("/proc/mounts").read_text().splitlines())
        self.interfaces = sorted(name for _, name in socket.if_nameindex())
        self.settings = {
            name: (Path("/proc/sys") / name).read_text()
            for name in (
                "net/ipv4/ip_forward",
                "vm/overcommit_memory",
                "kernel/panic",
                "kernel/panic_on_oops",
            )
        }
        self.directories = sorted(
            str(path)
            for parent in ("/var/lib", "/var/log", "/run", "/etc/cni", "/opt")
            for path in Path(parent).glob("*")
        )


def processes_in(cgroups: list[Path]) -> list[str]:
    marks = {folder.name for folder in cgroups}
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            text = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [str(path) for mark in marks if mark in text]
    return found


RARE_VICTIMS = ("containerd", "network", "shim")  # the lab notices their end as that of a node


@pytest.mark.parametrize(
    "victim",
    [
        *("nothing", "supervisor", "node"),
        *(pytest.param(name, marks=pytest.mark.rare) for name in RARE_VICTIMS),
    ],
)
def test_nothing_is_left_on_the_machine_after_any_kill(
    victim: str, tmp_path: Path, muster_lab: MusterLab, eventually: Eventually, processes_of: ProcessesOf
) -> None:
    before = Machine()
    options = ["--name", "gone", "--state-dir", str(tmp_path)]
    up = muster_lab("up", *options, "--real-nodes", "1")
    assert up.returncode == 0, up.stderr
    assert "1 of 1 nodes are Ready" in up.stderr
    lab = find("gone", tmp_path)
    run_and_wait(lab, "left", "dgx1-real-1")
    folders = supervisor.cgroups(lab.state_directory)
    assert folders
    assert all(folder.is_dir() for folder in folders)
    assert processes_in(folders)
    if victim != "nothing":
        os.kill(pid_of(victim, lab, folders), signal.SIGKILL)
    if victim == "supervisor":
        eventually(lambda: processes_in(folders) == [], "all processes of the node end with the supervisor")
        again = muster_lab("up", *options, "--real-nodes", "1")
        assert again.returncode == 0, again.stderr
    elif victim in ("node", "containerd", "network"):
        eventually(lambda: lab.status().state == "degraded", "the end is seen")
        with pytest.raises(LabConflict, match="ended, see"):
            start("gone", nodes=0, real_nodes=1, state_dir=tmp_path)
    down = muster_lab("down", *options)
    assert down.returncode == 0, down.stderr
    assert processes_in(folders) == []
    assert processes_of(tmp_path) == []
    assert not [folder for folder in folders if folder.exists()]
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: vars(Machine()) == vars(before), "the machine is as it was before")


def pid_of(victim: str, lab: Lab, folders: list[Path]) -> int:
    if victim == "supervisor":
        return lab.status().supervisor_pid
    if victim in ("node", "network"):
        name = {"node": "dgx1-real-1"}.get(victim, victim)
        return next(each.pid for each in lab.status().processes if each.name == name)
    program = {"containerd": "containerd", "shim": "containerd-shim"}[victim]
    return next(iter(pids_of(program, folders)))


def pids_of(program: str, folders: list[Path]) -> set[int]:
    found = set()
    for path in processes_in(folders):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if Path(path).with_name("comm").read_text().strip() == program:
                found.add(int(Path(path).parent.name))
    return found


def test_two_labs_with_real_nodes_run_side_by_side(mixed: Lab, tmp_path: Path) -> None:
    other = start("other", nodes=0, real_nodes=1, detach=False, state_dir=tmp_path)
    try:
        run_and_wait(other, "here", "dgx1-real-1")
        assert try_kubectl(mixed, "get", "pod", "here").returncode != 0
        address = kubectl(other, "get", "pod", "here", "-o", "jsonpath={.status.podIP}")
        assert address.startswith("10.80.1.")
    finally:
        other.stop()
    assert mixed.status().state == "running"


def test_a_machine_that_lacks_something_is_told_so_in_one_line(tmp_path: Path, muster_lab: MusterLab) -> None:
    result = muster_lab(
        "up", "--real-nodes", "1", "--state-dir", str(tmp_path), environment={"PATH": "/nowhere"}
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "it lacks a static busybox (Debian: busybox-static)" in line
    assert list(tmp_path.iterdir()) == []
