"""Pods that request GPUs on a real node, and the answers of the driver's library in their containers."""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from musterlab import binaries, kube_scheduler
from musterlab.build import KUBE_SCHEDULER
from musterlab.cluster import Lab
from musterlab.realnodes import images
from orchestrator.progress import Reporter

_QUERY = """
import ctypes
library = ctypes.CDLL("libnvidia-ml.so.1")
assert library.nvmlInit_v2() == 0
count, device, uuid = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
assert library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
for index in range(count.value):
    assert library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    assert library.nvmlDeviceGetUUID(device, uuid, 96) == 0
    print(uuid.value.decode())
"""
_PYTHON = Path("/usr/bin/python3").resolve()
_LOADER = Path("/lib64/ld-linux-x86-64.so.2").resolve()
_MACHINE = "/opt"
"""Where containers see the machine's /usr, because the lab's images have no C library and no Python."""


@contextmanager
def kube_scheduler_of(lab: Lab, directory: Path) -> Iterator[None]:
    """Run Kubernetes' own scheduler in the lab, for pods of no other scheduler, such as those of DaemonSets."""
    program = binaries.find(Reporter(lambda _line: None), KUBE_SCHEDULER).paths[kube_scheduler.NAME]
    command = kube_scheduler.configure(lab, directory, program)
    with (directory / "scheduler.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def answers_queries() -> bool:
    """Return whether this machine has the programs that the containers use."""
    return all(path.is_file() and path.is_relative_to("/usr") for path in (_PYTHON, _LOADER))


def pod(name: str, containers: Iterable[dict[str, Any]], **spec: object) -> dict[str, Any]:
    """Return a pod of sleeping containers with these resources."""
    shell = {
        "image": images.SHELL,
        "command": ["sleep", "3600"],
        "volumeMounts": [{"name": "usr", "mountPath": f"{_MACHINE}/usr", "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}],
            "containers": [
                {"name": f"c{number}", **shell, "resources": resources}
                for number, resources in enumerate(containers)
            ],
            **spec,
        },
    }


def kubectl(lab: Lab, *arguments: str, given: str = "") -> str:
    """Run kubectl as an administrator; return its output."""
    command = [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def read(lab: Lab, *arguments: str) -> Any:
    """Return the decoded output of `kubectl get`."""
    return json.loads(kubectl(lab, "get", *arguments, "-o", "json"))


def create(lab: Lab, *objects: dict[str, Any]) -> None:
    """Create objects in the namespace default."""
    kubectl(
        lab, "create", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )


def wait_until_ready(lab: Lab, *names: str) -> None:
    """Wait until all containers of these pods run."""
    kubectl(lab, "wait", "--for=condition=Ready", *(f"pod/{name}" for name in names), "--timeout=120s")


def uuids_seen(lab: Lab, name: str, container: str = "c0") -> list[str]:
    """Return the GPUs that the driver's library shows in a container, in order."""
    libraries = f"{_MACHINE}{_LOADER.parent}:/usr/lib64"
    program = [f"{_MACHINE}{_LOADER}", "--library-path", libraries, f"{_MACHINE}{_PYTHON}", "-"]
    inside = ["env", f"PYTHONHOME={_MACHINE}/usr", *program]
    return sorted(kubectl(lab, "exec", "-i", name, "-c", container, "--", *inside, given=_QUERY).split())


def devices_seen(lab: Lab, name: str, container: str = "c0", namespace: str = "default") -> list[str]:
    """Return the devices that a DRA driver gave a container, such as `gpu-3`: from device files, or from the
    environment.
    """
    shown = kubectl(lab, "exec", "-n", namespace, name, "-c", container, "--", "sh", "-c", "ls /dev; env")
    files = re.findall(r"^nvidia(\d+)$", shown, re.MULTILINE)
    variables = re.findall(r"^GPU_DEVICE_\d+=gpu-(\d+)$", shown, re.MULTILINE)
    return [f"gpu-{number}" for number in sorted(map(int, files or variables))]
