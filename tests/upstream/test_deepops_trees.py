"""DeepOps' playbooks and kubespray's own checks of variables, which are in the checkouts alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deployment import upstream
from tests.upstream import facts
from tests.upstream.conftest import RELEASE
from tests.upstream.repository import KUBESPRAY, git
from tests.upstream.stage import Done
from tests.upstream.test_deepops_contract import ROW

pytestmark = pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")


def test_the_commit_of_the_matrix_is_that_of_the_tag(deepops: dict[str, object]) -> None:
    checkout = facts.checkout("deepops")
    if not (checkout / ".git").exists():
        pytest.skip(f"{checkout} is no git checkout")
    assert (
        git(checkout, "rev-parse", "HEAD")
        == git(checkout, "rev-parse", f"{RELEASE}^{{commit}}")
        == ROW["commit"]
    )


def test_the_release_pins_the_kubespray_of_the_checkout(
    deepops: dict[str, object], kubespray: dict[str, object]
) -> None:
    outer, inner = facts.checkout("deepops"), facts.checkout("kubespray")
    if not all((checkout / ".git").exists() for checkout in (outer, inner)):
        pytest.skip(f"{outer} or {inner} is no git checkout")
    assert git(outer, "rev-parse", f"HEAD:{KUBESPRAY}") == git(inner, "rev-parse", "HEAD")


def test_kubespray_reads_the_names_without_a_default_and_asserts_the_choices(
    deepops: dict[str, object], kubespray: dict[str, object]
) -> None:
    names, roles = upstream.names(), facts.checkout("kubespray") / "roles"
    text = "\n".join(path.read_text() for ending in ("yml", "j2") for path in roles.rglob(f"*.{ending}"))
    assert set(names["without_default"].split()) <= set(re.findall(r"\w+", text))
    for name, values in names["choices_of_calico"].items():
        assert f"{name} in {values}" in text
    assert f"(kubelet_max_pods | default({names['max_pods']})) | int <=" in text


def test_every_playbook_is_read_with_the_variables_of_the_site(done: Done, programs: Path) -> None:
    for words, environment in zip(done.words, done.environments, strict=True):
        listed = _run(programs, done, environment, "--list-tasks", *words)
        assert listed.returncode == 0, listed.stderr
        assert "play #" in listed.stdout
        assert "Invoke kubeadm and install a CNI" in listed.stdout or words is not done.words[0]


def test_kubespray_itself_accepts_the_variables(done: Done, programs: Path) -> None:
    """kubespray's checks run with this machine in place of every host. They change nothing."""
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    words = ["--tags", "always", "--extra-vars", json.dumps(here), done.words[0][-1]]
    ended = _run(programs, done, done.environments[0], *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for task in ("Stop if unsupported options selected", "Check if requested Kubernetes are supported"):
        assert task in ended.stdout
    assert "changed=0" in ended.stdout
    assert "changed=1" not in ended.stdout


def test_a_host_joins_with_facts_of_the_control_plane_alone(done: Done, programs: Path) -> None:
    """kubespray refuses `--limit` without facts of each host of its inventory; the role gives it no other hosts."""
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    inventory = (done.config / "inventory").read_text()
    old = {name for name, roles in _roles(inventory).items() if roles & {"kube_control_plane", "etcd"}}
    *others, joining = sorted(_roles(inventory).keys() - old)
    part = [line for line in inventory.splitlines() if line.partition(" ")[0] not in others]
    (done.config / "part").write_text("\n".join(part) + "\n")
    for playbook, limit, hosts in (
        ("playbooks/facts.yml", "kube_control_plane:etcd", old), ("scale.yml", joining, {joining}),
    ):  # fmt: skip
        words = ["--inventory", str(done.config / "part"), "--limit", limit, "--tags", "always,asserts"]
        words += ["--extra-vars", json.dumps(here), f"{KUBESPRAY}/{playbook}"]
        ended = _run(programs, done, done.environments[0], *words)
        assert set(re.findall(r"(?m)^(\S+) +: ok=", ended.stdout)) == hosts, ended.stdout
    check = "Stop if any host not in '--limit' does not have a fact cache"
    assert ended.stdout.partition(check)[2].partition("TASK")[0].count("All assertions passed") == 1, (
        ended.stdout
    )


def _roles(inventory: str) -> dict[str, set[str]]:
    """Return the groups of each host of an inventory."""
    group, found = "", dict[str, set[str]]()
    for line in inventory.splitlines():
        word = line.partition(" ")[0]
        if word.startswith("["):
            group = word.strip("[]")
        elif word and not word.startswith("#") and ":children" not in group:
            found.setdefault(word, set()).add(group)
    return found


def _run(
    programs: Path, done: Done, environment: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    own = {"MUSTER_NESTED_EVENTS": "", "VIRTUAL_ENV": str(programs.parent)}
    return subprocess.run(
        [str(programs / "ansible-playbook"), *words],
        cwd=done.config.parent, env=environment | own, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
