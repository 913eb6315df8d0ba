"""Labs of one real node with GPUs, and the reports on the GPUs to jobs and agents."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from musterlab import programs, supervisor
from musterlab.cluster import Lab, start
from musterlab.gpus.models import Gpus
from musterlab.realnodes import images
from orchestrator.agent.pod_resources import list_devices
from tests.control.operators import must_all
from tests.musterlab.gpu_pods import answers_queries, kubectl

Eventually = Callable[[Callable[[], bool], str], None]

NODE: Final = "dgx1-real-1"
PARTS: Final = "muster-team-b"
ONE_GPU: Final[dict[str, Any]] = {"limits": {"nvidia.com/gpu": "1"}}


def check_queries() -> None:
    """Skip the test if containers cannot use this machine's Python."""
    if not answers_queries():
        pytest.skip("this machine's Python and C library are not below /usr, for containers to borrow")


def check_nvidias_dra_driver() -> None:
    """Skip the test without NVIDIA's DRA driver; the reason names the missing program."""
    if not Gpus("v100", 8, "dra").has_nvidias_dra_driver:
        pytest.skip(f"needs NVIDIA's DRA driver: {programs.missing((programs.DRA_DRIVER,))}")


def lab_with(gpus: Gpus, directory: Path) -> Iterator[Lab]:
    """Yield a lab of one real node, and check that nothing is left after its end."""
    running = start("gpus", nodes=0, real_nodes=1, detach=False, state_dir=directory, gpus=gpus)
    folders = supervisor.cgroups(running.state_directory)
    yield running
    running.stop()
    assert list(directory.iterdir()) == []
    assert [folder for folder in folders if folder.exists()] == []
    assert [line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line] == []


def pod_resources(lab: Lab, directory: Path) -> set[tuple[str, str, str]]:
    """Return pod, container and device, from the kubelet's API for agents."""
    near = directory / "near"  # the path of a socket must be short
    near.symlink_to(lab.state_directory / "realnodes" / NODE / "kubelet" / "pod-resources")
    answer = asyncio.run(list_devices(near / "kubelet.sock"))
    return {(held.holder.pod, held.holder.container, held.device) for held in answer}


def submit_parts(lab: Lab, **jobs: str) -> None:
    """Submit jobs to the project for GPU fractions, and wait until their pods run."""
    command = f"-p team-b -i {images.SHELL} --command -- sleep 3600"
    must_all(lab.kubeconfig, *(f"submit {name} {options} {command}" for name, options in jobs.items()))
    kubectl(lab, "wait", "--for=condition=Ready", "pod", "--all", "-n", PARTS, "--timeout=120s")
