"""The two schedulers that are compared in a lab: muster's operator, and Kubernetes' own kube-scheduler.

Each is a process in a session of its own. If this process dies, the kernel kills it. No limit of requests per second
slows the two down (see `musterlab.kube_scheduler`).
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import musterlab.kube_scheduler
from musterbench.stopwatch import BenchmarkFailed
from musterlab import pdeathsig_exec
from musterlab.cluster import Lab
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import install, service_account_kubeconfig
from orchestrator.names import SCHEDULER_NAME

MUSTER: Final = (
    sys.executable, "-P", "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())",
)  # fmt: skip
_VERSION_SECONDS: Final = 30
_STOP_SECONDS: Final = 30
_MAX_LOG_TAIL: Final = 500


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A program that binds the pods whose `schedulerName` is `scheduler_name`. `version` is its own name for its
    version.
    """

    name: str
    version: str
    scheduler_name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the scheduler for the length of the block. Raises BenchmarkFailed if it ends earlier."""
        killed_with_us = (sys.executable, "-I", "-S", str(pdeathsig_exec.__file__), str(os.getpid()))
        with self.log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *killed_with_us,
                *self.command,
                env={**os.environ, **self.environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
            if process.returncode is not None:
                raise self.ended(process.returncode)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()

    def ended(self, status: int) -> BenchmarkFailed:
        """Return the error with the exit status and the end of the log."""
        return BenchmarkFailed(f"{self.name} ended with {status}: {self.log_tail()}")

    def log_tail(self) -> str:
        """Return the end of the log, on one line."""
        return " ".join(self.log.read_text(errors="replace").split())[-_MAX_LOG_TAIL:]


async def muster(lab: Lab, transport: Transport, directory: Path) -> Scheduler:
    """Install muster in the lab without its Deployment. The operator runs here, with the rights of its account."""
    await install(transport, "bench", replicas=0)
    account = directory / "operator.kubeconfig"
    await service_account_kubeconfig(transport, lab.kubeconfig, account)
    return Scheduler(
        name="muster",
        version=await _output(*MUSTER, "--version"),
        scheduler_name=SCHEDULER_NAME,
        command=(*MUSTER, "operator"),
        log=directory / "muster.log",
        environment={"KUBECONFIG": str(account), "POD_NAME": "bench"},
    )


async def kube_scheduler(lab: Lab, directory: Path, program: Path) -> Scheduler:
    """Configure kube-scheduler, whose program `musterlab.kube_scheduler` finds."""
    return Scheduler(
        name=musterlab.kube_scheduler.NAME,
        version=await _output(str(program), "--version"),
        scheduler_name="default-scheduler",
        command=musterlab.kube_scheduler.configure(lab, directory, program),
        log=directory / f"{musterlab.kube_scheduler.NAME}.log",
    )


async def _output(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(_VERSION_SECONDS):
        output, _ = await process.communicate()
    if process.returncode:
        raise BenchmarkFailed(f"{command[0]} {command[-1]} ended with {process.returncode}")
    return output.decode().strip()
