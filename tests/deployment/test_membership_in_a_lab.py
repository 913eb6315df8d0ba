"""A host more or less costs one host, as a connection plugin counts; a real API server, a double of kubespray."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import musterlab.cluster
from orchestrator.cluster.resources import NODES, PODS
from orchestrator.names import WORKLOAD_LABEL
from tests.deployment import kubelets
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.deepops_double import environment, lock, repository
from tests.deployment.running import inherited
from tests.deployment.test_drain_in_a_lab import call

pytestmark = [pytest.mark.lab, pytest.mark.rare]

ROOT = Path(__file__).parents[2]
STAGES = {"preflight": "controller:cluster", "driver": "gpu", "trident": "controller"}
MAX_SECONDS = 7200
"""Maximum duration of a run. On a busy machine, the first run on 200 hosts takes longer than other tests may."""
PLAY = """---
- name: Do the {stage}
  hosts: {hosts}
  gather_facts: false
  tasks:
    - name: Work
      ansible.builtin.raw: "true"
      changed_when: true
"""


@dataclass
class Fleet:
    """A site of this machine under many names, with an installed cluster."""

    site: SiteUnderTest
    work: Path
    hosts: dict[str, dict[str, Any]]
    more: dict[str, Any]
    kubeconfig: Path

    def write(self) -> None:
        self.site.write(yaml.safe_dump({"schema": 1, "name": "here", "hosts": self.hosts, **self.more}))

    def add(self, name: str, *roles: str) -> None:
        number = len(self.hosts) + 1
        self.hosts[name] = {
            "address": f"10.0.{number // 250}.{number % 250}", "os": "ubuntu-24.04", "model": "generic",
            "roles": list(roles),
            "connection_vars": {"ansible_connection": "counted", "ansible_python_interpreter": sys.executable},
        }  # fmt: skip
        self.write()

    def calls(self) -> Counter[str]:
        """Return the commands on each host since the last call."""
        path = self.work / "calls"
        counted = Counter(path.read_text().split() if path.exists() else [])
        path.unlink(missing_ok=True)
        return Counter(
            {name: counted[host["address"]] for name, host in self.hosts.items() if counted[host["address"]]}
        )

    def runs(self) -> list[str]:
        """Return the work of kubespray since the last call."""
        path = self.work / "runs"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def decisions(self) -> dict[str, str]:
        planned = self.site.call("plan", "--json")
        assert planned.returncode == 0, planned.stderr
        return {stage["stage"]: stage["decision"] for stage in json.loads(planned.stdout)["stages"]}

    def remove(self, host: str, *more: str) -> "subprocess.CompletedProcess[str]":
        """Run `muster node remove`, with nothing to answer a question."""
        return subprocess.run(
            self.site.arguments("node remove", host, *more), env=inherited() | self.site.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def nodes(self) -> list[str]:
        return sorted(
            node["metadata"]["name"] for node in call(self.kubeconfig, "get", NODES.path())["items"]
        )


@pytest.fixture
def fleet(site: SiteUnderTest, tmp_path: Path) -> Iterator[Fleet]:
    running = musterlab.cluster.start("members", nodes=1, detach=False, state_dir=tmp_path / "labs")
    work, content = tmp_path / "work", tmp_path / "content"
    work.mkdir()
    shutil.copytree(ROOT / "playbooks", content / "playbooks")
    (content / "roles").symlink_to(ROOT / "roles")
    for stage, hosts in STAGES.items():
        (content / "playbooks" / f"{stage}.yml").write_text(PLAY.format(stage=stage, hosts=hosts))
    imports = [
        f"- ansible.builtin.import_playbook: {stage}.yml\n"
        for stage in ("preflight", "driver", "deepops", "trident")
    ]
    (content / "playbooks" / "site.yml").write_text("---\n" + "".join(imports))
    outer, commit = repository(tmp_path, running.kubeconfig, work, running.kubectl_directory / "kubectl")
    locked = lock(tmp_path)
    environment(site.state / "here" / "deepops-26.07", locked)
    site.environment |= {
        "KUBECONFIG": "", "MUSTER_INSTALLER_CONTENT": str(content), "COUNTED_CALLS": str(work / "calls"),
        "ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests" / "deployment" / "connections"), "ANSIBLE_FORKS": "25",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always",
    }  # fmt: skip
    more = {
        "access": {"become": False},
        "versions": {
            "kubernetes": "1.35.4", "deepops": "26.07", "driver": "580", "trident": "26.06.0", "dra": "off",
            "device_plugin": "off",
        },
        "deepops": {"repository": str(outer), "commit": commit},
        "vars": {"deepops_lock": str(locked), "trident_archive": "/there", "preflight_container_runtime": ""},
    }  # fmt: skip
    made = Fleet(site, work, {}, more, running.kubeconfig)
    made.add("mgmt01", "control_plane", "etcd")
    yield made
    running.stop()


def installed(fleet: Fleet, gpus: int) -> None:
    """Install a control plane and hosts with GPUs."""
    for number in range(1, gpus + 1):
        fleet.add(f"dgx{number:03}", "gpu")
    kubelets.run(fleet.kubeconfig, "1.35.4", fleet.hosts)
    done = fleet.site.muster("install", seconds=MAX_SECONDS)
    assert done.returncode == 0, done.stderr
    assert set(fleet.calls()) == set(fleet.hosts)
    assert [line.split()[0] for line in fleet.runs()] == ["install"]


OLD = {"mgmt01": 2}  # its facts, and the token


# The durations are in docs/evidence.yaml: a bound here would measure the load of the machine.
@pytest.mark.parametrize("gpus", [1, 19, 199])
def test_an_added_host_costs_one_host(fleet: Fleet, gpus: int) -> None:
    installed(fleet, gpus)
    fleet.add("new01", "gpu")
    planned = fleet.site.call("plan", "--add", "new01")
    assert "kubespray's scale.yml joins new01 to the cluster. On mgmt01" in planned.stdout
    began = time.monotonic()
    done = fleet.site.muster("install", "--add", "new01", seconds=MAX_SECONDS)
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    calls = fleet.calls()
    new = calls.pop("new01")
    print(f"{gpus + 1} hosts: {dict(calls)} on old hosts, {new} on new01, {took:.1f} s", file=sys.__stderr__)
    assert (calls, new) == (OLD, 3)
    assert fleet.runs() == ["facts mgmt01", "upgrade new01 1.35.4, join"]
    assert fleet.decisions() == {"preflight": "run", "driver": "done", "deepops": "done", "trident": "done"}


def test_a_failed_addition_is_resumed_and_a_second_run_changes_nothing(fleet: Fleet) -> None:
    installed(fleet, 2)
    fleet.add("new01", "gpu")
    (fleet.work / "broken-new01").touch()
    failed = fleet.site.muster("install", "--add", "new01")
    assert failed.returncode == 1
    assert "host    new01\n" in failed.stderr
    fleet.runs(), fleet.calls()
    (fleet.work / "broken-new01").unlink()
    resumed = fleet.site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert fleet.runs() == ["facts mgmt01", "upgrade new01 1.35.4, join"]
    assert set(fleet.calls()) == {"mgmt01", "new01"}
    again = fleet.site.muster("install", "--add", "new01")
    assert again.returncode == 0, again.stderr
    assert (fleet.runs(), set(fleet.calls())) == ([], {"new01"}), "preflight looks at it"

    # without --add every host is looked at, and the new one alone is changed
    fleet.add("new02", "gpu")
    plain = fleet.site.muster("install")
    assert plain.returncode == 0, plain.stderr
    assert fleet.runs() == ["facts mgmt01", "upgrade new02 1.35.4, join"]
    assert fleet.calls() == {"mgmt01": 3, "dgx001": 1, "dgx002": 1, "new01": 1, "new02": 3}
    assert set(fleet.decisions().values()) == {"run", "done"}
    # nor does kubespray run where the stage is asked for: what it would be given has not changed
    repeated = fleet.site.muster("install", "--from", "deepops", "--until", "deepops")
    assert repeated.returncode == 0, repeated.stderr
    assert fleet.runs() == []


def test_a_removed_host_leaves_alone_and_the_smaller_site_is_green(fleet: Fleet) -> None:
    installed(fleet, 2)
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0", "labels": {WORKLOAD_LABEL: "train"}},
        "spec": {"nodeName": "dgx002", "containers": [{"name": "a", "image": "a"}]},
    }  # fmt: skip
    call(fleet.kubeconfig, "create", PODS.path("default"), pod)
    question = fleet.remove("dgx002")
    assert question.returncode == 130, "nobody answers"
    assert (
        "These jobs lose pods and are pending again: default/train (1 pod). Remove it? [y/N]"
        in question.stderr
    )
    call(
        fleet.kubeconfig, "delete", PODS.path("default", "train-0"), grace_seconds=0
    )  # no kubelet would end it
    lost = fleet.remove("dgx002", "--lost", "--yes")
    assert "dgx002" in fleet.nodes()
    assert lost.returncode == 2, lost.stderr

    (fleet.work / "broken-dgx002").touch()
    failed = fleet.remove("dgx002", "--yes")
    assert failed.returncode == 1
    assert "the API server does not answer" in failed.stderr
    assert fleet.runs() == ["facts mgmt01", "reset dgx002"]
    (fleet.work / "broken-dgx002").unlink()
    resumed = fleet.site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert fleet.runs() == ["facts mgmt01", "reset dgx002", "delete dgx002"]
    assert "dgx002" not in fleet.nodes()
    assert set(fleet.calls()) <= {"mgmt01", "dgx002"}

    assert "removed before" in fleet.remove("dgx002", "--yes").stdout
    for action in ("plan", "verify", "install"):
        still = fleet.site.call(action)
        assert still.returncode == 2
        assert re.search(
            r"site.yml:\d+: dgx002 was removed from the cluster .* `muster install --add dgx002`",
            still.stderr,
        )
    entry = fleet.hosts.pop("dgx002")
    fleet.write()
    assert fleet.decisions() == {"preflight": "run", "driver": "done", "deepops": "done", "trident": "done"}
    verified = fleet.site.muster("verify")
    assert verified.returncode == 0, verified.stderr
    repeated = fleet.site.muster("install", "--from", "deepops", "--until", "deepops")
    assert repeated.returncode == 0, repeated.stderr
    assert fleet.runs() == []

    fleet.hosts["dgx002"] = entry
    fleet.write()
    back = fleet.site.muster("install", "--add", "dgx002")
    assert back.returncode == 0, back.stderr
    assert fleet.runs() == ["facts mgmt01", "upgrade dgx002 1.35.4, join"]
    assert "dgx002" in fleet.nodes()
