"""muster's operator as a process beside a lab whose nodes are simulated, with the rights of its own service account."""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from musterlab.cluster import Lab
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import service_account_kubeconfig
from validation.errors import TargetError
from validation.scenario.schema import Cluster
from validation.targets.process import ENTRY, end, start_with_pdeathsig
from validation.targets.sized_profile import profile_of
from validation.targets.upkeep import leader

OPERATOR_PYTHONPATH = "MUSTER_OPERATOR_PYTHONPATH"
"""Environment variable: directories with another version of the operator.

They precede PYTHONPATH for the operator alone.
"""

_CHANGES = "MUSTER_OPERATOR_"
READY_SECONDS = 60.0
STOP_SECONDS = 10.0


def changed_operator() -> str:
    """Return the names of environment variables that change the operator, as a sentence; "" if none is set.

    A run with a changed operator is not an acceptance.
    """
    names = sorted(name for name, value in os.environ.items() if name.startswith(_CHANGES) and value)
    return f"the operator was changed by {', '.join(names)}" if names else ""


class OperatorProcess:
    """The operator of this installation. Its output is written to operator.log in the run's directory."""

    site = "lab"

    def __init__(self, run_directory: Path, progress: Callable[[str], None]) -> None:
        self._log = run_directory / "operator.log"
        self._progress = progress
        self._process: asyncio.subprocess.Process | None = None
        self._environment: Mapping[str, str] = {}
        self._transport: Transport | None = None

    @contextlib.asynccontextmanager
    async def lab(self, cluster: Cluster) -> AsyncIterator[Lab]:
        """Run a lab with simulated nodes.

        Raises ProfileError, and TargetError if MUSTER_OPERATOR_PYTHONPATH has no operator.
        """
        _replacement()
        nodes = ((profile_of(cluster, self._log.parent), cluster.nodes),)
        async with Lab.attached(nodes=nodes, progress=self._progress) as lab:
            yield lab

    @contextlib.asynccontextmanager
    async def running(self, lab: Lab, transport: Transport) -> AsyncIterator[None]:
        """Run the operator. Raises TargetError if it does not lead in time."""
        with tempfile.TemporaryDirectory(prefix="muster-validate-") as private:
            access = Path(private) / "operator.kubeconfig"
            await service_account_kubeconfig(transport, lab.kubeconfig, access)
            self._environment, self._transport = _environment(access), transport
            self._log.parent.mkdir(parents=True, exist_ok=True)
            try:
                await self.start_again("")
                yield
            finally:
                if self._process is not None:
                    await end(self._process, grace_seconds=STOP_SECONDS)
                self._process = self._transport = None

    async def kill(self, _holder: str) -> str:
        """Kill the operator with SIGKILL, as the kernel does when memory is exhausted. Return ""."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        return ""

    async def start_again(self, killed: str) -> None:
        """Start an operator, and wait until it leads in place of the killed one. Raises TargetError."""
        self._process = await start_with_pdeathsig(
            [sys.executable, *ENTRY, "operator"], log=self._log, environment=self._environment
        )
        await self._until_it_leads(self._process, killed)

    async def problem(self) -> str:
        """Return the problem if the operator has ended; else ""."""
        if self._process is None or self._process.returncode is None:
            return ""
        return f"the operator ended with exit code {self._process.returncode}, see {self._log.name}"

    def describe(self) -> dict[str, str]:
        """Return the description of the operator and its cluster for the report."""
        operator = "a process of this installation, beside the cluster"
        if changed_operator():
            operator = "not the installed one: changed through the environment"
        return {"nodes are": "simulated (kwok); no container runs", "operator": operator}

    async def _until_it_leads(self, process: asyncio.subprocess.Process, killed: str) -> None:
        """Poll the lease until another operator than the killed one holds it.

        If the process ends or READY_SECONDS pass, raises TargetError.
        """
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if await leader(self._transport) not in {"", killed}:
                return
            try:
                await asyncio.wait_for(asyncio.shield(process.wait()), 0.1)
            except TimeoutError:
                continue
            raise TargetError(f"the operator did not start: {await self.problem()}: {_last_line(self._log)}")
        raise TargetError(f"the operator holds no lease after {READY_SECONDS:g} s, see {self._log}")


def _replacement() -> str:
    """Return the value of MUSTER_OPERATOR_PYTHONPATH, empty if it is not set.

    Raises TargetError if the directories are set and have no operator.
    """
    replacement = os.environ.get(OPERATOR_PYTHONPATH, "")
    if replacement and not any(
        (Path(part) / "orchestrator").is_dir() for part in replacement.split(os.pathsep)
    ):
        raise TargetError(f"{OPERATOR_PYTHONPATH}={replacement}: there is no directory `orchestrator` in it")
    return replacement


def _environment(access: Path) -> dict[str, str]:
    """Return the operator's environment. Raises TargetError if MUSTER_OPERATOR_PYTHONPATH has no operator."""
    environment = {**os.environ, "KUBECONFIG": str(access)}
    if replacement := _replacement():
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([replacement, *([inherited] if inherited else [])])
    return environment


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
