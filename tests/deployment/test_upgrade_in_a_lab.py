"""An upgrade of Kubernetes: nothing irreversible unasked, first a snapshot of a real etcd, host by host, resumed."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import musterlab.cluster
from tests.deployment import etcdctl_double, kubelets
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.deepops_double import environment, lock, repository

pytestmark = [pytest.mark.lab, pytest.mark.rare]

ROOT = Path(__file__).parents[2]
HOSTS = ("node01", "node02", "node03")
SITE = """schema: 1
name: here
access:
  become: false
versions:
  kubernetes: "{kubernetes}"
  deepops: "26.07"
  dra: "off"
deepops:
  repository: {repository}
  commit: "{commit}"
hosts:
  node01: {{address: 127.0.0.1, os: ubuntu-24.04, roles: [control_plane, etcd], {local}}}
  node02: {{address: 127.0.0.2, os: ubuntu-24.04, roles: [worker], {local}}}
  node03: {{address: 127.0.0.3, os: ubuntu-24.04, roles: [worker], {local}}}
vars:
  deepops_lock: {lock}
  preflight_container_runtime: "" # the hosts are this machine, which may lack ping
  snapshot_etcdctl: {etcdctl}
  snapshot_host_directory: {work}/snapshots
  snapshot_endpoint: {etcd}
  snapshot_ca: {pki}/etcd-ca.crt
  snapshot_certificate: {pki}/etcd-client.crt
  snapshot_key: {pki}/etcd-client.key
  snapshot_member_settings: {work}/etcd.env
"""
MEMBER = """# Environment file for etcd
ETCD_DATA_DIR=/var/lib/etcd
ETCD_NAME=etcd1
ETCD_INITIAL_CLUSTER=etcd1=https://10.0.0.1:2380
ETCD_INITIAL_ADVERTISE_PEER_URLS=https://10.0.0.1:2380
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[musterlab.cluster.Lab]:
    started = musterlab.cluster.start("deepops", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield started
    started.stop()


def content(root: Path) -> Path:
    """Return muster's playbooks with only the stages of this test. Its three hosts are all this machine."""
    shutil.copytree(ROOT / "playbooks", root / "playbooks")
    (root / "roles").symlink_to(ROOT / "roles")
    for name, stages in (("site.yml", ["deepops"]), ("upgrade.yml", ["snapshot", "deepops"])):
        entries = [f"- ansible.builtin.import_playbook: {stage}.yml\n" for stage in stages]
        if name == "upgrade.yml":
            entries[-1] += "  vars:\n    deepops_upgrade: true\n"
        (root / "playbooks" / name).write_text("---\n" + "".join(entries))
    return root


def etcdctl(work: Path) -> str:
    """Return the real etcdctl, or a double if there is none."""
    double = work / "etcdctl"
    double.write_text(f"#!{sys.executable}\n" + Path(etcdctl_double.__file__).read_text())
    double.chmod(0o755)
    return shutil.which("etcdctl") or str(double)


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def values(site: SiteUnderTest, running: musterlab.cluster.Lab, tmp_path: Path) -> dict[str, object]:
    work = tmp_path / "work"
    work.mkdir()
    (work / "etcd.env").write_text(MEMBER)
    outer, commit = repository(tmp_path, running.kubeconfig, work, running.kubectl_directory / "kubectl")
    processes = json.loads((running.state_directory / "processes.json").read_text())
    flags = next(each["command"] for each in processes if each["name"] == "etcd")
    locked = lock(tmp_path)
    environment(site.state / "here" / "deepops-26.07", locked)
    site.environment |= {
        "KUBECONFIG": "",
        "MUSTER_INSTALLER_CONTENT": str(content(tmp_path / "content")),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
    }
    return {
        "repository": outer, "lock": locked, "commit": commit, "kubernetes": "1.34.3", "work": work,
        "local": f"connection: local, connection_vars: {{ansible_python_interpreter: {sys.executable}}}",
        "etcdctl": etcdctl(work), "pki": running.state_directory / "pki",
        "etcd": next(flag.partition("=")[2] for flag in flags if flag.startswith("--listen-client-urls")),
    }  # fmt: skip


def kubectl(running: musterlab.cluster.Lab, *words: str) -> str:
    command = [str(running.kubectl_directory / "kubectl"), "--kubeconfig", str(running.kubeconfig), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def closed_and_marked(running: musterlab.cluster.Lab) -> tuple[set[str], set[str]]:
    """Return the closed hosts, and the hosts with the mark of an unfinished upgrade."""
    nodes = json.loads(kubectl(running, "get", "nodes", *HOSTS, "-o", "json"))["items"]
    return (
        {node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")},
        {
            node["metadata"]["name"]
            for node in nodes
            if "muster.dev/upgrading" in node["metadata"].get("labels", {})
        },
    )


def refuses_what_nobody_meant(site: SiteUnderTest, journal: Path) -> None:
    before = journal.read_text()
    unasked = site.call("install")
    assert unasked.returncode == 2
    assert "Kubernetes 1.34.3 runs, the site file names 1.35.4: that is an upgrade" in said(unasked.stderr)
    planned = site.call("upgrade", "--plan")
    assert "snapshot  run: before the cluster is changed" in planned.stdout
    assert "Kubernetes 1.34.3 -> 1.35.4, cannot be undone: objects are stored" in said(planned.stdout)
    steps = json.loads(site.call("upgrade", "--plan", "--json").stdout)["steps"]
    assert [(each["before"], each["after"]) for each in steps] == [("1.34.3", "1.35.4")]
    refused = site.call("upgrade")
    assert refused.returncode == 2
    assert "no way back from Kubernetes 1.34.3 -> 1.35.4: give --accept-irreversible" in refused.stderr
    assert journal.read_text() == before


def test_kubernetes_is_upgraded_host_by_host_from_a_snapshot_and_stops_at_the_first_that_fails(
    site: SiteUnderTest, running: musterlab.cluster.Lab, values: dict[str, object], tmp_path: Path
) -> None:
    work, journal = tmp_path / "work", site.state / "here" / "journal.jsonl"
    kubelets.run(running.kubeconfig, "1.34.3", HOSTS)
    site.write(SITE.format(**values))
    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    (work / "runs").unlink()
    site.write(SITE.format(**values | {"kubernetes": "1.35.4"}))
    refuses_what_nobody_meant(site, journal)
    kubectl(running, "cordon", "node03")

    (work / "broken-node02").touch()
    failed = site.muster("upgrade", "--accept-irreversible")
    assert failed.returncode == 1
    assert "the kubelet of node02 does not start" in said(failed.stderr)
    assert "continue with: muster resume -i" in failed.stderr
    assert (work / "runs").read_text().splitlines() == [
        "drain node01, closed node01 node03",
        "upgrade node01 1.35.4, containerd etcd=host",
        "drain node02, closed node02 node03",
    ]
    assert closed_and_marked(running) == ({"node02", "node03"}, {"node01", "node02"})
    (snapshot,) = (site.state / "here" / "runs").glob("*/etcd-node01.db")
    taken = snapshot.read_bytes()
    assert hashlib.sha256(taken[:-32]).digest() == taken[-32:], "etcd puts its own digest at the end"
    assert b"/registry/minions/node02" in taken
    digest = hashlib.sha256(taken).hexdigest()
    assert f"{snapshot} (sha256 {digest})" in failed.stderr
    assert digest in journal.read_text()
    assert [path.stat().st_mode & 0o077 for path in (snapshot, snapshot.parent)] == [0, 0]
    restore = (snapshot.parent / "restore.txt").read_text()
    assert "--initial-cluster etcd1=https://10.0.0.1:2380" in restore

    (work / "broken-node02").unlink()
    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "snapshot: done: of before this upgrade" in resumed.stderr
    assert (work / "runs").read_text().splitlines()[-2:] == [
        "drain node03, closed node03",
        "upgrade node03 1.35.4, containerd etcd=host",
    ]
    assert closed_and_marked(running) == ({"node03"}, set()), (
        "an administrator closed node03 before the upgrade"
    )
    assert len(list((site.state / "here" / "runs").glob("*/*.db"))) == 1
    assert "nothing is to be resumed" in site.call("resume").stdout

    site.write(SITE.format(**values))
    back = site.call("upgrade", "--accept-irreversible")
    assert back.returncode == 2
    assert "up by one minor release at a time and never back to 1.34.3" in back.stderr
    kubelets.run(running.kubeconfig, "1.33.9", HOSTS)
    site.write(SITE.format(**values | {"kubernetes": "1.35.4"}))
    skipped = site.call("upgrade", "--accept-irreversible", "--from", "deepops")
    assert skipped.returncode == 2
    assert "not to 1.35.4: name 1.34 in versions.kubernetes first" in skipped.stderr
