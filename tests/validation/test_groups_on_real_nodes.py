"""Group tests by `muster validate` over SSH: the hosts sum by PyTorch's gloo in pods of four real kubelets.

MUSTER_TORCH names a folder with PyTorch's packages for this Python (`pip install --target FOLDER torch`, 4 GB).
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from tests.deployment.sshd import sshd
from tests.musterlab.gpu_pods import create, kubectl, read, wait_until_ready
from tests.validation import pod_launcher
from tests.validation.replay import assert_second_judge_agrees
from tests.validation.test_hosts_over_ssh import Host, Site, steps
from tests.validation.training_image import build_python
from validation.judge.events import ToolRan
from validation.layers.groups import COMMAND
from validation.report import log
from validation.report.verify import verify

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_nodes,
    pytest.mark.rare,
    pytest.mark.skipif(
        not os.environ.get("MUSTER_TORCH"), reason="MUSTER_TORCH names no folder with PyTorch's packages"
    ),
]

TORCH = os.environ.get("MUSTER_TORCH", "")
IMAGE = "docker.io/library/only-python:1"
NAMES = ("dgx1-1", "dgx1-2", "dgx1-3", "dgx1-4")
PROGRAM = """\
import os, signal, sys, time
root, index, hosts, seconds = sys.argv[1], *map(int, sys.argv[2:])
signal.alarm(seconds)
import torch, torch.distributed as distributed
distributed.init_process_group("gloo", init_method=root, rank=index, world_size=hosts)
def reduced(value, count, kind):
    numbers = torch.full([count], value, dtype=kind)
    distributed.all_reduce(numbers)
    return numbers
rounds, count = 5, 1 << 20
wrong = bool((reduced(index + 1, count, torch.int32) != hosts * (hosts + 1) // 2).any())
started = time.monotonic()
for _ in range(rounds):
    reduced(1, count, torch.int32)
lasted = reduced(time.monotonic() - started, 1, torch.float64).item() / hosts
wrong = int(reduced(int(wrong), 1, torch.int32).item())
rate = max(1, int(2 * (hosts - 1) / hosts * 4 * count * rounds / lasted / 10**6))
print(f"all-reduce: {hosts} hosts, {hosts} GPUs, {4 * count} bytes, {rate} MB/s, {wrong} wrong", flush=True)
distributed.barrier()
distributed.destroy_process_group()
os._exit(0)  # threads of gloo could still use what the interpreter deletes
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    modules = sorted(Path(TORCH).glob("torch/**/*.so"))
    running = start(
        "groups",
        nodes=0,
        real_nodes=len(NAMES),
        detach=False,
        state_dir=tmp_path / "l",
        image_archives=[build_python(tmp_path, IMAGE, modules)],
    )
    try:
        yield running
    finally:
        running.stop()


def pod(name: str, node: str) -> dict[str, Any]:
    """Return a pod on a node that waits, with PyTorch's packages."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python3", "-c", "import time; time.sleep(10**6)", marker(name)],
        "env": [{"name": "PYTHONPATH", "value": "/torch"}, {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"}],
        "volumeMounts": [{"name": "torch", "mountPath": "/torch", "readOnly": True}],
    }
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "torch", "hostPath": {"path": TORCH}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def marker(name: str) -> str:
    """Return an argument of the pod's process that no other process of this machine has."""
    return f"{name}-of-group-tests-{os.getpid()}"


def cut(address: Mapping[str, str], name: str, *others: str) -> None:
    """Let the kernel refuse all packets between the pod and the others, without a wait for an answer."""
    for other in others:
        refuse(name, address[other])
        refuse(other, address[name])


def refuse(name: str, address: str) -> None:
    """Let the kernel refuse all packets of the pod to the address."""
    wanted = marker(name).encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in words and words[0].endswith(b"python3"):
            command = ["nsenter", "-t", process.name, "-n", "ip", "route", "add", "unreachable", address]
            subprocess.run(command, check=True)
            return
    raise AssertionError(f"no process of {name}")


def number_of_groups(out: Path) -> int:
    """Return the number of tests of groups in a record."""
    events = [e for e in log.read_log(out).events if isinstance(e, ToolRan) and e.tool == "nccl-nodes"]
    return len({match[1] for event in events if (match := COMMAND.search(event.command))})


def test_sick_links_between_pods_of_real_kubelets_are_named(lab: Lab, tmp_path: Path) -> None:
    nodes = sorted(node["metadata"]["name"] for node in read(lab, "nodes")["items"])
    create(lab, *(pod(name, node) for name, node in zip(NAMES, nodes, strict=True)))
    wait_until_ready(lab, *NAMES)
    address = {name: read(lab, "pod", name)["status"]["podIP"] for name in NAMES}
    launching = tmp_path / "launching"
    launching.mkdir()
    known = {
        "kubectl": [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}"],
        "program": PROGRAM,
        "hosts": {name: {"pod": name, "address": address[name]} for name in NAMES},
    }
    with ExitStack() as stack:
        hosts = {name: Host(tmp_path / "hosts" / name, name) for name in NAMES}
        servers = {}
        for name, host in hosts.items():
            (tmp_path / name).mkdir()
            servers[name] = stack.enter_context(sshd(tmp_path / name, str(host.programs)))
        site = Site(tmp_path, hosts, servers)
        for name in NAMES:
            site.content["hosts"][name] |= {"model": "generic", "gpus": 8}

        def run(record: str) -> tuple[str, str]:
            (launching / record).mkdir()
            (launching / record / "launcher.json").write_text(json.dumps(known))
            for name, host in hosts.items():
                words = f"{sys.executable} {pod_launcher.__file__} {launching / record} {name}"
                host.install("python3", f'shift 2; exec {words} "$@"')
            site.validate(tmp_path / record, "--host-test", "nccl-nodes")
            assert verify(tmp_path / record).problems == []
            assert_second_judge_agrees(tmp_path / record)
            return steps(tmp_path / record)["nccl-nodes"]

        verdict, reason = run("whole")
        assert (verdict, number_of_groups(tmp_path / "whole")) == ("INCONCLUSIVE", 1), (
            reason
        )  # generic has no figure
        cut(address, "dgx1-2", "dgx1-3")
        verdict, reason = run("pair")
        assert verdict == "FAIL", reason
        assert reason.startswith("dgx1-2 with dgx1-3 joins no group of hosts: "), reason
        assert number_of_groups(tmp_path / "pair") == 7
        cut(address, "dgx1-3", "dgx1-1", "dgx1-4")
        verdict, reason = run("sick")
        assert verdict == "FAIL", reason
        assert reason.startswith("dgx1-3 joins no group of hosts: "), reason
        assert number_of_groups(tmp_path / "sick") == 6
    kubectl(lab, "delete", "pod", *NAMES)
