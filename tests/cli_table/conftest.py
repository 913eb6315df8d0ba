"""A site as in TR-4858: two DGX-1 with 16 GPUs, four teams, and real containers."""

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
"""The quotas in sections 4.8 to 4.10 of the paper. Other scenarios name their own quotas."""
DIRECTORIES = ("--directory", "/mnt:rw", "--directory", "/tmp:rw")  # noqa: S108 - of the nodes
"""The directories that the paper's jobs mount."""

_KINDS = "jobs,statefulsets,deployments,services,ingresses,persistentvolumeclaims"


@pytest.fixture(scope="session")
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
    for team in QUOTAS:
        terminal.must(f"kubectl delete {_KINDS} --all -n muster-{team} --wait=false")
    terminal.must("kubectl delete pods -A -l muster.dev/workload --grace-period=0 --force")
    return terminal


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
