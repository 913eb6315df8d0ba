"""The role deepops with a repository of DeepOps' layout: pinned, resumed, idempotent. Upgrades have another test."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import musterlab.cluster
from tests.deployment import kubelets
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.deepops_double import lock, repository

pytestmark = pytest.mark.lab

SITE = """schema: 1
name: here
access:
  become: false
versions:
  kubernetes: "{kubernetes}"
  deepops: "26.07"
  container_toolkit: "1.20.0"
  dra: "off"
deepops:
  repository: {repository}
  commit: "{commit}"
hosts:
  node01:
    address: 127.0.0.1
    os: ubuntu-24.04
    roles: [control_plane, etcd, gpu]
    model: generic
    connection: local
    connection_vars: {{ansible_python_interpreter: {python}}}
not_applicable:
  orchestrator: this test is about Kubernetes
vars:
  deepops_lock: {lock}
  preflight_container_runtime: "" # the host is this machine, which may lack ping
"""
ONE = ("--from", "deepops", "--until", "deepops")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[musterlab.cluster.Lab]:
    started = musterlab.cluster.start("deepops", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield started
    started.stop()


@pytest.mark.rare
def test_kubernetes_comes_by_a_pinned_release_and_a_second_run_changes_nothing(
    site: SiteUnderTest, running: musterlab.cluster.Lab, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    outer, commit = repository(tmp_path, running.kubeconfig, work)
    values: dict[str, Any] = {
        "repository": outer,
        "lock": lock(tmp_path),
        "commit": commit,
        "kubernetes": "1.34.3",
    }
    values["python"] = sys.executable
    site.environment |= {
        "KUBECONFIG": "",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
    }
    kubelets.run(running.kubeconfig, "1.34.3", ["node01"])

    site.write(SITE.format(**values))
    foretold = site.muster("install", "--from", "deepops", "--check")
    assert foretold.returncode == 0, foretold.stderr
    assert "verify: left out: the cluster that would be asked is made by the stage deepops" in foretold.stderr
    own = site.state / "here"
    assert not (own / "deepops-26.07").exists()

    site.write(SITE.format(**values | {"commit": "0" * 40}))
    moved = site.muster("install", *ONE)
    assert moved.returncode == 1
    assert "Check out DeepOps" in moved.stderr

    site.write(SITE.format(**values))
    (work / "broken").touch()
    failed = site.muster("install", *ONE)
    assert failed.returncode == 1
    assert "host    node01\n" in failed.stderr, "its own host and task, not the ones that started it"
    assert "task    Refuse when told to\n" in failed.stderr
    assert "kubespray/cluster.yml:" in failed.stderr
    assert "cause   kubespray accepts only a window of Ansible releases" in failed.stderr
    (work / "broken").unlink()

    done = site.muster("install", *ONE)
    assert done.returncode == 0, done.stderr
    assert (work / "runs").read_text().splitlines() == [
        "install 1.34.3 containerd etcd=host node01 nvidia helm=True",
        "feature-discovery on node01",
        "device-plugin on node01",
    ]
    (log,) = (
        path for path in (own / "logs").rglob("*deepops*") if "TASK [Announce GPUs]" in path.read_text()
    )
    # lines of the inner Ansible; under load a line of the outer Ansible can stand between them
    inside = [line for line in log.read_text().splitlines() if line.startswith("    ")]
    done_at = inside.index("    TASK [Install]")
    assert inside[done_at + 1] == "    changed: [node01]", "a success leaves a log too"
    assert (own / "artifacts" / "admin.conf").read_bytes() == running.kubeconfig.read_bytes()
    assert (own / "artifacts").stat().st_mode & 0o027 == 0
    assert (own / "deepops-26.07" / "config" / "inventory").exists()
    again = site.muster("install", *ONE)
    assert again.returncode == 0, again.stderr
    assert ", 0 changed" in again.stderr

    site.write(SITE.format(**values | {"kubernetes": "1.35.4"}))
    unasked = site.call("install", *ONE)
    assert unasked.returncode == 2
    assert "that is an upgrade, run `muster upgrade`" in " ".join(unasked.stderr.split())
