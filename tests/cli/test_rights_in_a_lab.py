"""The rights of the shipped roles on a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    JOBS,
    NAMESPACES,
    NODES,
    PROJECTS,
    ROLE_BINDINGS,
)
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply, install
from tests.cli.test_sbatch import ACCEPTED, EXPECTED, SCRIPTS
from tests.cluster.waiting import DEADLINE_SECONDS
from tests.control.operators import MUSTER, must_all, muster, until_granted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from musterlab.cluster import Lab

pytestmark = pytest.mark.lab

PROJECT = "rights"
NAMESPACE = f"muster-{PROJECT}"
ROLES = {"ann": "muster-researcher", "vic": "muster-viewer", "pia": "muster-project-admin"}


@pytest.fixture(scope="module")
def kubeconfig(shared_lab: Lab) -> Iterator[Path]:
    """Yield a project whose namespace has a researcher, a viewer and an administrator; cleo administers the cluster."""
    asyncio.run(_prepare(shared_lab.kubeconfig))
    yield shared_lab.kubeconfig
    asyncio.run(_clean(shared_lab.kubeconfig))


async def _prepare(kubeconfig: Path) -> None:
    async with Transport(load_access(kubeconfig)) as transport:
        await install(transport, "tests", replicas=0)
        project = {**_object(PROJECTS.kind, PROJECTS.api_version, PROJECT), "spec": {"gpu": {"quota": 0}}}
        made = await apply(transport, project)
        owner = {
            "apiVersion": PROJECTS.api_version,
            "kind": PROJECTS.kind,
            "name": PROJECT,
            "uid": made["metadata"]["uid"],
        }
        labels = {"muster.dev/project": PROJECT}
        namespace = _object(NAMESPACES.kind, "v1", NAMESPACE, labels=labels, ownerReferences=[owner])
        await apply(transport, namespace)
        for user, role in ROLES.items():
            await apply(transport, _binding(ROLE_BINDINGS.kind, user, role))
        await apply(transport, _binding(CLUSTER_ROLE_BINDINGS.kind, "cleo", "muster-cluster-admin"))
        await until_granted(transport, "cleo", "create", PROJECTS)
        for user in ROLES:
            await until_granted(transport, user, "list", JOBS, NAMESPACE)


async def _clean(kubeconfig: Path) -> None:
    async with Transport(load_access(kubeconfig)) as transport:
        await transport.delete(PROJECTS.path(name=PROJECT))
        await transport.delete(NAMESPACES.path(name=NAMESPACE))
        await transport.delete(CLUSTER_ROLE_BINDINGS.path(name="rights-cleo"))


def _object(kind: str, version: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


def _binding(kind: str, user: str, role: str) -> dict[str, Any]:
    where = {"namespace": NAMESPACE} if kind == ROLE_BINDINGS.kind else {}
    group = "rbac.authorization.k8s.io"
    return {
        **_object(kind, f"{group}/v1", f"rights-{user}", **where),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def run(kubeconfig: Path, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as another user, whom the administrator of the lab may impersonate."""
    who = ("--as", user, "--as-group", "system:authenticated")
    return muster(kubeconfig, *who, "-p", PROJECT, *words)


def listed(kubeconfig: Path, user: str) -> set[tuple[str, ...]]:
    """Return names and states of the jobs that the user sees."""
    lines = run(kubeconfig, user, "list", "--no-headers").stdout.splitlines()
    return {tuple(line.split()[:2]) for line in lines}


@pytest.mark.parametrize("user", sorted(ROLES))
def test_whoami_names_the_role_that_was_given(user: str, kubeconfig: Path) -> None:
    answer = json.loads(run(kubeconfig, user, "whoami", "-o", "json").stdout)
    assert (answer["user"], answer["roles"].get(PROJECT), answer["clusterAdmin"]) == (
        user,
        ROLES[user],
        False,
    )


def test_whoami_knows_the_administrators_of_the_cluster(kubeconfig: Path) -> None:
    assert json.loads(run(kubeconfig, "cleo", "whoami", "-o", "json").stdout)["clusterAdmin"] is True


def test_a_researcher_submits_suspends_resumes_and_deletes_and_a_viewer_sees_it(kubeconfig: Path) -> None:
    for words in (
        ("submit", "mine", "-i", "image", "-g", "1"),
        ("suspend", "mine"),
        ("suspend", "mine"),
        ("submit", "note", "-i", "image", "--interactive"),
        ("suspend", "note"),
    ):
        done = run(kubeconfig, "ann", *words)
        assert (done.returncode, done.stderr) == (0, "")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (answer := listed(kubeconfig, "vic")) != {("mine", "Suspended"), ("note", "Suspended")}:
        assert time.monotonic() < deadline, f"their pods are gone by now, but {answer}"
    assert run(kubeconfig, "ann", "resume", "--all").returncode == 0
    done = run(kubeconfig, "vic", "delete", "mine")
    assert (done.returncode, done.stdout) == (1, "")
    for word in ("delete jobs", NAMESPACE, "muster-researcher"):
        assert word in done.stderr
    assert run(kubeconfig, "ann", "delete", "--all").returncode == 0


@pytest.mark.parametrize(
    ("user", "words", "role"),
    [
        ("nobody", ("list",), "muster-viewer"),
        ("vic", ("submit", "x", "-i", "image"), "muster-researcher"),
        ("ann", ("template", "create", "x", "--set", "gpu=1"), "muster-project-admin"),
        ("pia", ("top", "node"), "muster-viewer, bound in the whole cluster,"),
    ],
)
def test_a_denial_names_the_role_that_would_allow_it(
    user: str, words: tuple[str, ...], role: str, kubeconfig: Path
) -> None:
    done = run(kubeconfig, user, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert role in done.stderr


def test_the_templates_of_the_cluster_reach_every_researcher(kubeconfig: Path) -> None:
    words = ("--of-cluster", "--default", "--require", "node-type", "-p", PROJECT)
    made = muster(kubeconfig, "template", "create", "site", *words)
    assert (made.returncode, made.stderr) == (0, "")
    try:
        assert run(kubeconfig, "ann", "list", "templates", "--no-headers").stdout.split()[0] == "site"
        done = run(kubeconfig, "ann", "submit", "x", "-i", "image")
        assert done.returncode == 2
        assert "--node-type is missing: the template site requires it" in done.stderr
    finally:
        assert muster(kubeconfig, "template", "delete", "site", "--of-cluster").returncode == 0


def test_a_researcher_submits_scripts_of_slurm(kubeconfig: Path) -> None:
    """A real API server takes each job of `slurm/expected.yaml` as it is."""
    asyncio.run(_submit_scripts(kubeconfig))


async def _submit_scripts(kubeconfig: Path) -> None:
    kind = _object("Node", "v1", "slurm", labels={"run.ai/type": "dgx-a100"})
    who = f"--as ann --as-group system:authenticated -p {PROJECT}"
    async with Transport(load_access(kubeconfig)) as transport:
        await apply(transport, kind)
        try:
            await asyncio.to_thread(
                must_all, kubeconfig, *(f"{who} sbatch {SCRIPTS / name}" for name in ACCEPTED)
            )
            for name in ACCEPTED:
                expected = EXPECTED[name]
                job = await transport.get(JOBS.path(NAMESPACE, expected["name"]), dict[str, Any])
                spec = job["spec"]
                (container,) = spec["template"]["spec"]["containers"]
                assert spec.get("completions", 1) == (expected["job"]["completions"] or 1)
                limits = container["resources"].get("limits", {})
                assert limits.get("nvidia.com/gpu") == expected["resources"].get("nvidia.com/gpu")
        finally:
            await transport.delete(NODES.path(name="slurm"))
            jobs = [EXPECTED[name]["name"] for name in ACCEPTED]
            await asyncio.to_thread(run, kubeconfig, "ann", "delete", *jobs)


def test_names_are_completed_from_a_real_server(kubeconfig: Path) -> None:
    assert run(kubeconfig, "ann", "submit", "complete-me", "-i", "image").returncode == 0
    line = f"muster delete -p {PROJECT} com"
    environment = {"COMP_WORDS": line, "COMP_CWORD": "4", "_MUSTER_COMPLETE": "bash_complete"}
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), **environment}
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (
        offered := completed(environment)
    ):  # a completion must be quick: with a slow server it offers nothing
        assert time.monotonic() < deadline
    assert offered == ["plain,complete-me"]
    assert run(kubeconfig, "ann", "delete", "complete-me").returncode == 0


def completed(environment: dict[str, str]) -> list[str]:
    """Return the completions that the shell gets."""
    done = subprocess.run(MUSTER, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()
