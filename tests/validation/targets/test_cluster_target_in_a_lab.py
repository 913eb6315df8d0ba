"""`muster validate --target cluster` on an existing cluster, with muster installed as on a site."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import musterlab.cluster
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Lease, LeaseSpec, Metadata, Node, Pod, Project
from orchestrator.cluster.resources import LEASES, NODES, PODS, PROJECTS
from orchestrator.cluster.transport import Transport
from orchestrator.names import LEASE_NAME, NODE_TYPE_LABEL, SYSTEM_NAMESPACE
from tests.control.operators import must, muster, operator, prepare

pytestmark = pytest.mark.lab

VALIDATE = ("validate", "--target", "cluster", "--part", "gangs")


@pytest.fixture
def existing(tmp_path: Path) -> Iterator[musterlab.cluster.Lab]:
    running = musterlab.cluster.start("existing", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield running
    running.stop()


def validated(kubeconfig: Path, out: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = muster(kubeconfig, *VALIDATE, "--out", str(out))
    return done, json.loads((out / "report.json").read_text())


async def test_a_cluster_is_refused_until_it_is_ready_then_validated_and_left_as_it_was(
    existing: musterlab.cluster.Lab, tmp_path: Path
) -> None:
    bare, report = validated(existing.kubeconfig, tmp_path / "bare")
    assert (bare.returncode, report["verdict"]) == (1, "ERROR")
    assert "does not know projects.muster.dev: run `muster operator-yaml`" in bare.stdout

    account = await prepare(existing.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(existing.kubeconfig)) as transport:
        left_behind = Lease(
            metadata=Metadata(name=LEASE_NAME, namespace=SYSTEM_NAMESPACE),
            spec=LeaseSpec(holder_identity="gone", renew_time="2026-01-01T00:00:00.000000Z"),
        )
        await transport.create(LEASES.path(SYSTEM_NAMESPACE), left_behind)
        idle, report = validated(existing.kubeconfig, tmp_path / "idle")
        assert (idle.returncode, report["verdict"]) == (1, "ERROR")
        assert "no operator runs" in idle.stdout
        await transport.delete(LEASES.path(SYSTEM_NAMESPACE, LEASE_NAME))

    with operator(account, tmp_path / "operator.log"):
        good, report = validated(existing.kubeconfig, tmp_path / "good")
        assert (good.returncode, report["verdict"]) == (0, "PASS"), good.stdout
        async with Transport(load_access(existing.kubeconfig)) as transport:
            assert (await transport.list(PROJECTS.path(), Project)).items == []
            assert (await transport.list(PODS.path(), Pod)).items == []

        chosen = ("--target", "cluster", "--scenario", "muster-affinity", "--out", str(tmp_path / "groups"))
        muster(existing.kubeconfig, "validate", *chosen)
        report = json.loads((tmp_path / "groups" / "report.json").read_text())
        verdicts = {step["id"]: step["verdict"] for step in report["steps"] if step["required"]}
        assert set(verdicts.values()) == {"PASS"}, verdicts
        assert "muster-affinity/invariant/node-affinity" in verdicts
        async with Transport(load_access(existing.kubeconfig)) as transport:
            nodes = (await transport.list(NODES.path(), Node)).items
            assert [node.metadata.labels.get(NODE_TYPE_LABEL) for node in nodes] == [None, None]

        must(existing.kubeconfig, "project", "create", "others", "-g", "1")
        must(existing.kubeconfig, "submit", "theirs", "-i", "quickstart", "-g", "1", "-p", "others")
        busy, report = validated(existing.kubeconfig, tmp_path / "busy")
        assert (busy.returncode, report["verdict"]) == (1, "ERROR")
        assert "validate on an idle cluster" in busy.stdout
        assert "theirs" in must(existing.kubeconfig, "list", "-p", "others"), "nothing of theirs was touched"
