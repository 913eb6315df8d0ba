"""Kubernetes' own scheduler in a lab: for pods that do not name another scheduler, such as the pods of muster's
Deployment.

A lab does not start it by itself. Its default limit of 50 requests per second is lifted.
"""

import asyncio
import json
from pathlib import Path
from typing import Final

from musterlab import binaries, build, components, pki
from musterlab.cluster import Lab
from orchestrator.progress import Reporter

NAME: Final = "kube-scheduler"
REQUESTS_PER_SECOND: Final = 10_000
"""The scheduler's `qps` and `burst`. The value is above the capacity of any API server, so it is no limit."""
_USER: Final = "system:kube-scheduler"
"""The user of the scheduler. Each API server creates the rights of this user at its start."""


async def find(reporter: Reporter) -> Path:
    """Find the program, or build it from the lab's go.mod.

    Raises:
        BinariesError: no source has it and it cannot be built.
    """
    programs = await asyncio.to_thread(binaries.find, reporter, build.KUBE_SCHEDULER)
    return programs.paths[NAME]


def configure(lab: Lab, directory: Path, program: Path) -> tuple[str, ...]:
    """Write a kubeconfig and the scheduler's configuration into `directory`; return the command that runs the
    scheduler.

    The certificate is for `system:kube-scheduler`. All settings but the limit of requests and leader election are the
    scheduler's defaults.
    """
    certificates = lab.state_directory / "pki"
    pki.Authority.load(certificates, "ca").issue(NAME, user=_USER)
    account = directory / f"{NAME}.kubeconfig"
    components.write_kubeconfig(account, certificates, NAME, lab.server, NAME)
    configuration = directory / f"{NAME}.yaml"
    configuration.write_text(json.dumps(_configuration(account)))
    return (str(program), f"--config={configuration}", "--secure-port=0")


def _configuration(account: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(account),
            "qps": REQUESTS_PER_SECOND,
            "burst": REQUESTS_PER_SECOND,
        },
    }
