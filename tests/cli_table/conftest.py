"""A site as in TR-4858: two DGX-1 with 16 GPUs, four teams, and real containers."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.resources import (
    CLAIMS,
    DEPLOYMENTS,
    INGRESSES,
    JOBS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.names import WORKLOAD_LABEL
from tests.cli_table.table import Site
from tests.control.operators import must, operator, prepare

QUOTAS: Mapping[str, int] = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
"""The quotas in sections 4.8 to 4.10 of the paper. Other scenarios name their own quotas."""
DIRECTORIES = ("--directory", "/mnt:rw", "--directory", "/tmp:rw")  # noqa: S108 - of the nodes
"""The directories that the paper's jobs mount."""

_KINDS = (JOBS, STATEFUL_SETS, DEPLOYMENTS, SERVICES, INGRESSES, CLAIMS)


# with the scope "package", which is a session where no __init__.py is, two nodes ran for nothing for five minutes
@pytest.fixture(scope="module")
def real_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a lab with two real nodes, a running orchestrator, and a project for each team."""
    lab = start("cli", nodes=0, real_nodes=2, detach=False, state_dir=tmp_path_factory.mktemp("labs"))
    directory = tmp_path_factory.mktemp("operator")
    try:
        account = asyncio.run(prepare(lab.kubeconfig, directory / "kubeconfig"))
        with operator(account, directory / "log"):
            for team, quota in QUOTAS.items():
                must(lab.kubeconfig, "project", "create", team, "--gpu", str(quota), *DIRECTORIES)
            yield lab
    finally:
        lab.stop()


@pytest.fixture
def site(real_lab: Lab, tmp_path: Path) -> Site:
    """Return a terminal with `runai`, `muster` and `kubectl`, on a cluster without jobs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("runai", "muster"):
        (programs / name).symlink_to(Path(sys.executable).parent / "muster")
    shutil.copy(real_lab.kubeconfig, tmp_path / "kubeconfig")
    terminal = Site(
        {
            "PATH": f"{programs}:{real_lab.kubectl_directory}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "TERM": "dumb",
        },
        tmp_path,
    )
    asyncio.run(_delete_jobs(real_lab))
    return terminal


async def _delete_jobs(lab: Lab) -> None:
    """Delete everything in the projects. Five starts of kubectl for each test took half a second of processor time."""
    async with Transport(load_access(lab.kubeconfig)) as transport:
        for team in QUOTAS:
            for resource in _KINDS:
                await transport.delete(resource.path(f"muster-{team}"))
        pods = await transport.list(PODS.path(), Pod, params={"labelSelector": WORKLOAD_LABEL})
        for pod in pods.items:
            with suppress(NotFound):
                path = PODS.path(pod.metadata.namespace, pod.metadata.name)
                await transport.delete(path, grace_seconds=0)


@pytest.fixture
def with_quotas(site: Site) -> Callable[[Mapping[str, int]], None]:
    """Return a function that sets the quotas of projects. It reduces quotas first, so that the sum always fits the
    cluster.
    """

    def change(quotas: Mapping[str, int]) -> None:
        projects = json.loads(site.must("kubectl get projects -o json"))["items"]
        present = {each["metadata"]["name"]: int(each["spec"]["gpu"]["quota"]) for each in projects}
        wanted = {**QUOTAS, **quotas}
        for team in sorted(wanted, key=lambda each: wanted[each] - present[each]):
            if wanted[team] != present[team]:
                site.must(f"muster project update {team} --gpu {wanted[team]}")

    return change
