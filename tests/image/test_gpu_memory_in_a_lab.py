"""GPU fractions with memory limits as shipped: the agent's DaemonSet of the image, and jobs of `muster submit`.

The node is real and has the double of NVML, with NVIDIA's device plugin or (rare) its DRA driver. The jobs mount the
driver's files themselves, because NVIDIA's runtime, which mounts them for fractions of a plugin's GPUs, is missing.
"""

import asyncio
import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from musterlab.cluster import Lab, start
from musterlab.components import KIND_LABEL
from musterlab.gpus.live import NodeGpus, Process
from musterlab.gpus.models import Gpus
from musterlab.realnodes import driver, images
from orchestrator import names
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.quantity import parse_time
from orchestrator.cluster.resources import LEASES, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import service_account_kubeconfig
from tests.agent.test_agent_on_a_real_node import process_of
from tests.cluster.waiting import poll
from tests.control.operators import must, must_all, operator, until_granted
from tests.gpumemory.conftest import ROOT, build_double, uuid
from tests.musterlab.gpu_labs import check_nvidias_dra_driver
from tests.musterlab.gpu_pods import answers_queries, kube_scheduler_of, kubectl, read

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

MIB: Final = 1 << 20
TOTAL_MIB: Final = 32_510
HALF_MIB: Final = 16_255
NODE: Final = "dgx1-real-1"
SIMULATED: Final = "dgx1-1"
"""Another node, to which jobs migrate. No container runs there."""
GOES_THERE: Final = f"--toleration {KIND_LABEL}"
NAMESPACE: Final = "muster-team-a"
AGENT: Final = ("-n", names.AGENT_NAMESPACE, f"daemonset/{names.AGENT_ACCOUNT}")
LOADER: Final = Path("/lib64/ld-linux-x86-64.so.2").resolve()
PYTHON: Final = Path("/usr/bin/python3").resolve()
OPTIONS: Final = ("--gpu-memory-limits=enforce",)
WORKS: Final = "trap 'exit 1' TERM; sleep 3600 & wait"
"""A command that ends immediately on SIGTERM."""
SEEN: Final = """
import ctypes
from tests.gpumemory.cuda import Cuda
library = ctypes.CDLL("libnvidia-ml.so.1")
assert library.nvmlInit_v2() == 0
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
memory, device = Memory(), ctypes.c_void_p()
assert library.nvmlDeviceGetHandleByUUID(b"{uuid}", ctypes.byref(device)) == 0
assert library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
cuda = Cuda({index})
print(memory.total, cuda.info()[1], cuda.answer_to({half}), cuda.answer_to({half} + 1), cuda.answer_to({half}))
"""
HOLDS: Final = """
from tests.gpumemory.cuda import Cuda
cuda = Cuda({index})
cuda.allocate({half})
print("has it", flush=True)
import sys
sys.stdin.readline()
assert cuda.free_bytes() == 0
"""

Eventually = Callable[[Callable[[], bool], str], None]


@dataclass
class Site:
    """A node with agents and an operator that limit the memory of GPU fractions; `machine` is shared by the jobs."""

    lab: Lab
    gpus: NodeGpus
    machine: Path
    by_claims: bool

    def muster(self, *arguments: str) -> str:
        return must(self.lab.kubeconfig, *arguments)

    def submit(self, name: str, *options: str) -> str:
        return (
            f"submit {name} -p team-a -i {images.SHELL} -v /usr:/opt/usr:ro -v {ROOT}:{ROOT}:ro "
            f"-v {driver.ROOT}:{driver.ROOT}:ro -v {self.machine}:{self.machine} {' '.join(options)} "
            f"--command -- sh -c {shlex.quote(WORKS)}"
        )

    def pod(self, job: str) -> dict[str, Any]:
        """Return the pod of a job that is not terminating."""
        pods = read(self.lab, "pods", "-n", NAMESPACE, "-l", f"{names.WORKLOAD_LABEL}={job}")["items"]
        there = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return there[0] if there else {}

    def wait_until_ready(self, *jobs: str) -> None:
        for job in jobs:
            selector = ("pod", "-n", NAMESPACE, "-l", f"{names.WORKLOAD_LABEL}={job}", "--timeout=120s")
            kubectl(self.lab, "wait", *selector, "--for=create")
            kubectl(self.lab, "wait", *selector, "--for=condition=Ready")

    def command(self, job: str) -> list[str]:
        """Return the command that runs this machine's Python in a job's container, with the libraries of the driver's
        directory.
        """
        libraries = f"{self.machine}/lib:{driver.ROOT}/usr/lib64:/opt{LOADER.parent}"
        variables = (f"PYTHONPATH={ROOT}", "PYTHONHOME=/opt/usr", f"CUDA_DOUBLE_STATE={self.machine}/state")
        double = ("CUDA_DOUBLE_DEVICES=8", f"CUDA_DOUBLE_MEMORY={TOTAL_MIB * MIB}")
        inside = ("env", *variables, *double, f"/opt{LOADER}", "--library-path", libraries, f"/opt{PYTHON}")
        kubectl_ = (str(self.lab.kubectl_directory / "kubectl"), f"--kubeconfig={self.lab.kubeconfig}")
        pod = self.pod(job)["metadata"]["name"]
        return [*kubectl_, "exec", "-i", "-n", NAMESPACE, pod, "--", *inside, "-P", "-c"]

    def run(self, job: str, program: str) -> str:
        """Return the output of a program in the container of a job."""
        done = subprocess.run(
            [*self.command(job), program], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=["device-plugin", pytest.param("dra", marks=pytest.mark.rare)])
def site(
    request: pytest.FixtureRequest, archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    if not answers_queries():
        pytest.skip("this machine's Python and C library are not below /usr, for containers to borrow")
    if request.param == "dra":
        check_nvidias_dra_driver()
    directory = tmp_path_factory.mktemp("m")
    machine = directory / "machine"
    machine.mkdir()
    build_double(machine / "lib")
    with ExitStack() as stack:
        lab = start(
            "memory", nodes=1, real_nodes=1, detach=False, state_dir=directory / "l", image_archives=[archive],
            gpus=Gpus("v100", 8, request.param),
        )  # fmt: skip
        stack.callback(lab.stop)
        kubectl(lab, "cordon", SIMULATED)
        kubectl(lab, "label", "node", NODE, "nvidia.com/gpu.present=true")  # as the installer does
        gpus = NodeGpus(lab)
        gpus.set("all", {"memory_total": TOTAL_MIB * MIB, "memory_reserved": 0})
        if request.param == "dra":
            gpus.restart_plugin()  # the plugin publishes the GPUs that it found at its start
        stack.enter_context(kube_scheduler_of(lab, directory))
        rendered = must(
            lab.kubeconfig, "operator-yaml", "--cluster", "lab", "--replicas=0", "--agent",
            f"--agent-driver-root={driver.ROOT}", *OPTIONS,
        )  # fmt: skip
        kubectl(lab, "apply", "-f", "-", given=rendered)
        kubectl(lab, "wait", "--for=condition=Established", "crd/projects.muster.dev", "--timeout=60s")
        account = asyncio.run(operators_access(lab, directory / "operator.kubeconfig"))
        stack.enter_context(operator(account, directory / "operator.log", "operator-0", *OPTIONS))
        allowed = (f"/usr:ro {ROOT}:ro {driver.ROOT}:ro {machine}:rw").split()
        must(
            lab.kubeconfig, "project", "create", "team-a", "-g", "4",
            *(option for source in allowed for option in ("--directory", source)),
        )  # fmt: skip
        yield Site(lab, gpus, machine, request.param == "dra")


async def operators_access(lab: Lab, path: Path) -> Path:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.OPERATOR_ACCOUNT}"
        await until_granted(transport, account, "create", LEASES, names.SYSTEM_NAMESPACE)
        await until_granted(transport, account, "list", PODS)
        return await service_account_kubeconfig(transport, lab.kubeconfig, path)


@pytest.fixture(scope="module")
def eventually() -> Eventually:
    """Return a function that polls the cluster until a condition is true."""
    return poll


@pytest.fixture(scope="module")
def halves(site: Site, eventually: Eventually) -> Site:
    """Submit two jobs with half of one GPU each."""
    eventually(lambda: len(gpu_states(site)) == 8, "the agent writes the eight GPUs")
    must_all(site.lab.kubeconfig, site.submit("left", "-g 0.5"), site.submit("right", "-g 0.5"))
    site.wait_until_ready("left", "right")
    return site


def gpu_states(site: Site) -> list[dict[str, Any]]:
    objects = read(site.lab, "gpunodes")["items"]
    return list(objects[0]["spec"].get("gpus", ())) if objects else []


def test_the_daemon_set_brings_the_library_and_the_agent_tells_of_the_gpus(
    site: Site, eventually: Eventually
) -> None:
    kubectl(site.lab, "rollout", "status", *AGENT, "--timeout=120s")
    eventually(lambda: len(gpu_states(site)) == 8, "the agent writes the eight GPUs")
    assert [gpu["uuid"] for gpu in gpu_states(site)] == [state.uuid for state in site.gpus.states()]
    assert {gpu["memoryMib"] for gpu in gpu_states(site)} == {TOTAL_MIB}
    script = (
        "import os, urllib.request; "
        "print(urllib.request.urlopen(f'http://{os.environ[\"POD_IP\"]}:9410/metrics').read().decode())"
    )
    on_the_node = ("pods", "-n", names.AGENT_NAMESPACE, "--field-selector", f"spec.nodeName={NODE}")
    (agent,) = (pod["metadata"]["name"] for pod in read(site.lab, *on_the_node)["items"])
    metrics = kubectl(site.lab, "exec", "-n", names.AGENT_NAMESPACE, agent, "--", "python3", "-c", script)
    assert f'muster_gpu_memory_total_bytes{{gpu="7",uuid="{uuid(7)}"}} {TOTAL_MIB * MIB}' in metrics
    assert 'muster_agent_source_up{source="kubelet"} 1' in metrics


def test_half_of_a_gpu_is_half_one_byte_beyond_fails_and_the_neighbour_continues(halves: Site) -> None:
    devices = {
        halves.pod(job)["metadata"]["annotations"]["muster.dev/gpu-devices"] for job in ("left", "right")
    }
    (index,) = map(int, devices)
    half = HALF_MIB * MIB
    written = halves.pod("left")["metadata"]["annotations"][names.GPU_MEMORY_LIMITS_ANNOTATION]
    assert written == f"{uuid(index)} {half}\n"
    claims = read(halves.lab, "resourceclaims", "-n", NAMESPACE)["items"]
    assert len(claims) == (2 if halves.by_claims else 0)
    neighbour = subprocess.Popen(
        [*halves.command("right"), HOLDS.format(index=index, half=half)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ,
    )  # fmt: skip
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "has it\n"
    seen = halves.run("left", SEEN.format(uuid=uuid(index), index=index, half=half))
    assert seen.split() == [str(half), str(half), "0", "2", "0"]
    neighbour.communicate("go on\n", timeout=60)
    assert neighbour.returncode == 0


def test_only_the_operator_says_how_much_a_pod_may_have(halves: Site) -> None:
    pod = halves.pod("left")["metadata"]["name"]
    change = json.dumps(
        {"metadata": {"annotations": {names.GPU_MEMORY_LIMITS_ANNOTATION: "* 99999999999\n"}}}
    )
    patch = ("patch", "pod", pod, "-n", NAMESPACE, "--type=merge", "-p", change)
    somebody = "--as=system:serviceaccount:kube-system:replicaset-controller"
    command = [str(halves.lab.kubectl_directory / "kubectl"), f"--kubeconfig={halves.lab.kubeconfig}"]
    kubectl(halves.lab, "create", "clusterrole", "patches-pods", "--verb=get,patch", "--resource=pods")
    kubectl(
        halves.lab, "create", "clusterrolebinding", "patches-pods", "--clusterrole=patches-pods",
        "--serviceaccount=kube-system:replicaset-controller",
    )  # fmt: skip
    done = subprocess.run([*command, somebody, *patch], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "rule operator-annotations" in done.stderr


@pytest.mark.rare
def test_a_pod_with_more_is_told_evicted_and_recorded_with_both_figures(
    halves: Site, eventually: Eventually
) -> None:
    before = halves.pod("left")
    (status,) = before["status"]["containerStatuses"]
    index = before["metadata"]["annotations"]["muster.dev/gpu-devices"]
    machines = process_of(status["containerID"].partition("://")[2])
    processes = [Process(pid_on_the_node(machines), "python", 20_000)]
    halves.gpus.use(index, 50, processes)
    eventually(
        lambda: halves.pod("left").get("metadata", {}).get("uid") not in (None, before["metadata"]["uid"]),
        "the job has another pod",
    )
    halves.gpus.use(index, 0, [])
    events = read(halves.lab, "events", "-n", NAMESPACE)["items"]
    of_pod = [event for event in events if event["involvedObject"]["uid"] == before["metadata"]["uid"]]
    warned = [event["message"] for event in of_pod if event["reason"] == "GpuMemoryExceeded"]
    assert any("20000 MiB" in message and f"its fraction is {HALF_MIB} MiB" in message for message in warned)
    (record,) = json.loads(halves.muster("why-evicted", "left", "-p", "team-a", "--json"))
    assert (record["rule"], record["project"], record["gpus"]) == ("memory", "team-a", "0.5")
    assert "20000 MiB" in record["message"]
    assert f"its fraction is {HALF_MIB} MiB" in record["message"]
    halves.wait_until_ready("left", "right")


@pytest.mark.rare
def test_a_gpu_falls_off_the_bus_and_its_jobs_are_told_and_moved_and_nothing_else(
    halves: Site, eventually: Eventually
) -> None:
    """The plugin chose the GPU of a job; the agent learns it from the kubelet.

    The plugin offers no other GPU of the node then; with ResourceClaims, the job may restart beside its old pod.
    """
    ends = ("delete left -p team-a", "delete right -p team-a")
    must_all(
        halves.lab.kubeconfig, *ends, halves.submit("one", f"-g 1 {GOES_THERE}"), halves.submit("two", "-g 2")
    )
    halves.wait_until_ready("one", "two")
    eventually(
        lambda: len(holders(halves, "two")) == 2 and len(holders(halves, "one")) == 1,
        "the kubelet's answer is written",
    )
    before, other = halves.pod("one"), halves.pod("two")
    (lost,) = holders(halves, "one")
    print(f"by {'claims' if halves.by_claims else 'the device plugin'}", end=": ")
    kubectl(halves.lab, "uncordon", SIMULATED)
    lost_at = time.time()
    halves.gpus.lose(str(lost))

    def is_moved() -> bool:
        pod = halves.pod("one")
        return bool(pod) and pod["metadata"]["uid"] != before["metadata"]["uid"] and "nodeName" in pod["spec"]

    eventually(is_moved, "the job has another place")
    moved = halves.pod("one")
    failed = read(halves.lab, "node", NODE)["metadata"]["annotations"]
    assert failed["muster.dev/failed-gpus"] == str(lost)
    (record,) = json.loads(halves.muster("why-evicted", "one", "-p", "team-a", "--json"))
    print(f"{parse_time(record['at']) / 1e6 - lost_at:.1f} s from the loss to the eviction")
    assert (record["rule"], record["pod"]) == ("unhealthy", before["metadata"]["name"])
    assert f"GPU {lost} of {NODE} is unhealthy" in record["message"]
    events = read(halves.lab, "events", "-n", NAMESPACE)["items"]
    assert ("MovedOffUnhealthy", before["metadata"]["uid"]) in [
        (event["reason"], event["involvedObject"]["uid"]) for event in events
    ]
    after = halves.pod("two")
    assert after["metadata"]["uid"] == other["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    if halves.by_claims:
        placed = (moved["spec"]["nodeName"], moved["metadata"]["annotations"][names.GPU_DEVICES_ANNOTATION])
        assert placed != (NODE, str(lost))
        return
    assert failed["muster.dev/lost-gpus"] == str(lost)
    assert moved["spec"]["nodeName"] == SIMULATED
    events = read(halves.lab, "events", "-n", "default", "--field-selector", f"involvedObject.name={NODE}")
    assert any(f"GPU {lost} of it does not answer" in event["message"] for event in events["items"])
    must_all(halves.lab.kubeconfig, halves.submit("three", f"-g 1 {GOES_THERE}"))
    eventually(lambda: bool(halves.pod("three").get("spec", {}).get("nodeName")), "a new job is placed")
    assert halves.pod("three")["spec"]["nodeName"] == SIMULATED


def holders(site: Site, job: str) -> list[int]:
    """Return the GPUs that the kubelet gave to the pod of a job, as the agent reports them."""
    name = site.pod(job)["metadata"]["name"]
    return [
        gpu["index"] for gpu in gpu_states(site) if any(one["pod"] == name for one in gpu.get("holders", ()))
    ]


def pid_on_the_node(machines: int) -> int:
    """Return the process id on the node, which has its own process namespace, of a container's process."""
    status = Path(f"/proc/{machines}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return int(line.split()[2])
