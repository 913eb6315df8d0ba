"""The operator as it runs on a site: a separate process with its own ServiceAccount."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import LEASES, PODS, Resource
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import install, service_account_kubeconfig
from orchestrator.names import OPERATOR_ACCOUNT, SYSTEM_NAMESPACE
from tests import forks
from tests.cluster.waiting import DEADLINE_SECONDS

MUSTER = [sys.executable, "-P", "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())"]


def muster(kubeconfig: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the real command line against the lab. The caller checks the exit code."""
    return forks.run(arguments, {**os.environ, "KUBECONFIG": str(kubeconfig)}, timeout)


def must(kubeconfig: Path, *arguments: str) -> str:
    """Run the real command line, and return its output. It must succeed."""
    done = muster(kubeconfig, *arguments)
    assert done.returncode == 0, f"muster {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def must_all(kubeconfig: Path, *lines: str) -> None:
    """Run several command lines, which must succeed."""
    for line in lines:
        must(kubeconfig, *shlex.split(line))


async def prepare(kubeconfig: Path, output: Path) -> Path:
    """Install the orchestrator; return a kubeconfig for the operator's own account."""
    async with Transport(load_access(kubeconfig)) as transport:
        await install(transport, "tests", replicas=0)
        account = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{OPERATOR_ACCOUNT}"
        await until_granted(transport, account, "create", LEASES, SYSTEM_NAMESPACE)
        await until_granted(transport, account, "list", PODS)
        return await service_account_kubeconfig(transport, kubeconfig, output)


async def may(
    transport: Transport, user: str, verb: str, resource: Resource, namespace: str = "", *, sub: str = ""
) -> bool:
    """Return whether the API server allows a user a request, in the whole cluster or in a namespace."""
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural}
    attributes |= {"subresource": sub, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes},
    }
    answer = await transport.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    allowed: bool = answer["status"]["allowed"]
    return allowed


async def until_granted(
    transport: Transport, user: str, verb: str, resource: Resource, namespace: str = ""
) -> None:
    """Wait until the API server grants a new right: it learns of roles and bindings by watches of its own."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await may(transport, user, verb, resource, namespace):  # noqa: ASYNC110 - polls a server
            await asyncio.sleep(0.02)


@contextmanager
def operator(
    kubeconfig: Path, log: Path, identity: str = "operator-0", *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one operator process with these options during the block. It is stopped at the end, if it still runs."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "POD_NAME": identity}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*MUSTER, "operator", *options], env=environment, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=DEADLINE_SECONDS)


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path | None]:
    """Make a cgroup with this memory limit, in bytes; yield the file that adds processes, None
    if that is not possible.
    """
    for top, limit_file in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        folder = top / f"muster-tests-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / limit_file).write_text(str(limit))
        except OSError:
            continue
        try:
            yield folder / "cgroup.procs"
        finally:
            folder.rmdir()
        return
    yield None


def resident_peak(pid: int) -> int:
    """Return the peak memory of the process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
