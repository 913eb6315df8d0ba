"""A lab as the target: a real control plane with simulated nodes, and the operator as a process beside it."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from musterlab.cluster import Lab
from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Lease
from orchestrator.cluster.resources import LEASES
from orchestrator.cluster.transport import Transport
from orchestrator.control.install import service_account_kubeconfig
from orchestrator.names import LEASE_NAME, SYSTEM_NAMESPACE
from validation.errors import TargetError
from validation.scenario.schema import Cluster
from validation.targets.installation import install
from validation.targets.process import end, start_with_pdeathsig

OPERATOR_PYTHONPATH = "MUSTER_OPERATOR_PYTHONPATH"
"""Environment variable: directories in front of PYTHONPATH for the operator alone, so that another one can
be tried.
"""

READY_SECONDS = 60.0
STOP_SECONDS = 10.0


class LabTarget:
    """Starts a lab for the first scenario, keeps it for those that need the same, and stops it at the end."""

    kind = "lab"
    disposable = True

    def __init__(self, run_directory: Path, progress: Callable[[str], None]) -> None:
        self._run_directory = run_directory
        self._progress = progress
        self._stack = contextlib.AsyncExitStack()
        self._shape: Cluster | None = None
        self._lab: Lab | None = None
        self._transport: Transport | None = None
        self._operator: asyncio.subprocess.Process | None = None
        self._timings: dict[str, str] = {}

    async def start(self, cluster: Cluster) -> bool:
        """Start the lab and the operator in it, unless one of that shape runs already."""
        if self._shape == cluster:
            return False
        await self.stop()
        self._shape = cluster
        begin = time.monotonic()
        attached = Lab.attached(nodes=((cluster.profile, cluster.nodes),), progress=self._progress)
        self._lab = await self._stack.enter_async_context(attached)
        self._timings["lab ready after"] = f"{time.monotonic() - begin:.1f} s"
        self._transport = await self._stack.enter_async_context(
            Transport(load_access(self._lab.kubeconfig), user_agent="muster-validate")
        )
        self._progress("installing the orchestrator")
        try:
            await install(self._lab.kubeconfig, self._run_directory / "install", self._progress)
            self._timings["orchestrator installed after"] = f"{time.monotonic() - begin:.1f} s"
            await self._start_operator()
        except ClusterError as error:
            raise TargetError(f"the orchestrator cannot be installed in the lab: {error}") from error
        self._timings["operator leads after"] = f"{time.monotonic() - begin:.1f} s"
        return True

    @property
    def kubeconfig(self) -> Path:
        """The lab's."""
        return self._running().kubeconfig

    @property
    def transport(self) -> Transport:
        """With an administrator's access."""
        if self._transport is None:
            raise TargetError("the lab is not started")
        return self._transport

    @property
    def operator_log(self) -> Path:
        """Where the operator's output goes."""
        return self._run_directory / "operator.log"

    def describe(self) -> dict[str, Any]:
        """The lab in the report."""
        described = {"kind": self.kind, "nodes are": "simulated (kwok); no container runs", **self._timings}
        if self._shape is not None:
            described["profile"] = self._shape.profile
        if os.environ.get(OPERATOR_PYTHONPATH):
            described["operator"] = "not the installed one: replaced through the environment"
        return described

    def problem(self) -> str:
        """Whether the operator or a process of the lab has ended."""
        if self._operator is not None and self._operator.returncode is not None:
            return (
                f"the operator ended with exit code {self._operator.returncode}, see {self.operator_log.name}"
            )
        if self._lab is not None:
            ended = [process.name for process in self._lab.status().ended]
            if ended:
                return f"the lab lost {', '.join(ended)}"
        return ""

    async def stop(self) -> None:
        """Stop the operator and the lab."""
        self._shape = None
        self._lab = None
        self._transport = None
        await self._stack.aclose()
        self._operator = None

    def _running(self) -> Lab:
        if self._lab is None:
            raise TargetError("the lab is not started")
        return self._lab

    async def _start_operator(self) -> None:
        private = Path(tempfile.mkdtemp(prefix="muster-validate-"))
        self._stack.callback(shutil.rmtree, private, ignore_errors=True)
        access = await service_account_kubeconfig(
            self.transport, self._running().kubeconfig, private / "operator.kubeconfig"
        )
        environment = {**os.environ, "KUBECONFIG": str(access)}
        replacement = environment.get(OPERATOR_PYTHONPATH)
        if replacement:
            if not any((Path(part) / "orchestrator").is_dir() for part in replacement.split(os.pathsep)):
                raise TargetError(
                    f"{OPERATOR_PYTHONPATH}={replacement}: there is no directory `orchestrator` in it"
                )
            inherited = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = os.pathsep.join([replacement, *([inherited] if inherited else [])])
        self._run_directory.mkdir(parents=True, exist_ok=True)
        self._operator = await start_with_pdeathsig(
            ["operator"], log=self.operator_log, environment=environment
        )
        self._stack.push_async_callback(end, self._operator, grace_seconds=STOP_SECONDS)
        await self._until_it_leads()

    async def _until_it_leads(self) -> None:
        """The lease has no event that we watch, so it is read until it is held, the operator ends or time
        is up.
        """
        operator = self._operator
        deadline = time.monotonic() + READY_SECONDS
        while operator is not None and time.monotonic() < deadline:
            with contextlib.suppress(NotFound):
                lease = await self.transport.get(LEASES.path(SYSTEM_NAMESPACE, LEASE_NAME), Lease)
                if lease.spec.holder_identity:
                    return
            try:
                await asyncio.wait_for(asyncio.shield(operator.wait()), 0.1)
            except TimeoutError:
                continue
            raise TargetError(
                f"the operator did not start: {self.problem()}: {_last_line(self.operator_log)}"
            )
        raise TargetError(f"the operator holds no lease after {READY_SECONDS:g} s, see {self.operator_log}")


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
