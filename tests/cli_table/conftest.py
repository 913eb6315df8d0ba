"""A site as in TR-4858: two DGX-1 with 16 GPUs, four teams; the containers truly run."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from tests.cli_table.table import Site
from tests.control.operators import must, operator, prepare

QUOTAS: Mapping[str, int] = {"team-a": 4, "team-b": 2, "team-c": 2, "team-d": 8}
"""Of the paper's sections 4.8 to 4.10; other scenarios name their own."""
DIRECTORIES = ("--directory", "/mnt:rw", "--directory", "/tmp:rw")  # noqa: S108 - of the nodes
"""What the jobs of the paper mount."""

_KINDS = "jobs,statefulsets,deployments,services,ingresses,persistentvolumeclaims"


@pytest.fixture(scope="session")
def real_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two real nodes, the orchestrator running, a project for each team."""
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
    """A terminal with `runai`, `muster` and `kubectl`, on a cluster that runs no job."""
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
    for team in QUOTAS:
        terminal.must(f"kubectl delete {_KINDS} --all -n muster-{team} --wait=false")
    terminal.must("kubectl delete pods -A -l muster.dev/workload --grace-period=0 --force")
    return terminal


@pytest.fixture
def with_quotas(site: Site) -> Callable[[Mapping[str, int]], None]:
    """Give the projects other quotas; what becomes less comes first, so that they fit the cluster at every moment."""

    def change(quotas: Mapping[str, int]) -> None:
        projects = json.loads(site.must("kubectl get projects -o json"))["items"]
        present = {each["metadata"]["name"]: int(each["spec"]["gpu"]["quota"]) for each in projects}
        wanted = {**QUOTAS, **quotas}
        for team in sorted(wanted, key=lambda each: wanted[each] - present[each]):
            if wanted[team] != present[team]:
                site.must(f"muster project update {team} --gpu {wanted[team]}")

    return change
