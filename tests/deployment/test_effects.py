"""The changes of the Kubernetes installation on a host are reported before it, and a used runtime is not removed."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.deployment.running import Result, play

pytestmark = pytest.mark.lab

PROGRAMS = {
    "systemctl": (
        '[ "$RUNNING" != unknown ] || exit 1; '
        '[ "$2" = "${RUNNING:-none}.service" ] && echo active || { echo inactive; exit 3; }'
    ),
    "docker": 'echo "train-7 (nvcr.io/nvidia/pytorch:24.01, Up 3 days)"; echo "web (nginx, Exited (0) 2 hours ago)"',
    "grep": (
        'case "$*" in *nameserver*) [ -z "$DNS" ] || echo "nameserver $DNS" ;; '
        '*) echo "/swap.img none swap sw 0 0" ;; esac'
    ),
    "cat": "echo 1",
    "which": '[ -z "$NO_PING" ] && echo /usr/bin/ping',
}


def detect(
    folder: Path, running: str, no_ping: str = "", dns: str = "10.0.0.53", **variables: object
) -> Result:
    """Return the result of preflight on a host on which the service of this runtime runs."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    tasks = [{"ansible.builtin.include_role": {"name": "preflight", "tasks_from": "effects"}}]
    playbook, inventory = folder / "play.yml", folder / "inventory.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "dgx01", "gather_facts": False, "tasks": tasks}]))
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    values = {"preflight_container_runtime": "containerd"} | variables
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"dgx01": local}, "vars": values}}))
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RUNNING": running,
        "NO_PING": no_ping,
        "DNS": dns,
    }
    return play(playbook, folder, "-i", str(inventory), environment=environment)


def said(result: Result) -> str:
    return next(str(task["msg"]) for name, _, task in result.tasks if name == "Report the changes")


def test_docker_in_use_is_taken_away_only_where_that_is_accepted(tmp_path: Path) -> None:
    refused = detect(tmp_path, "docker")
    assert refused.code == 2
    (failure,) = refused.failures
    assert "docker runs on dgx01, and the site file says containerd: kubespray would remove it" in failure
    assert "train-7 (nvcr.io/nvidia/pytorch:24.01, Up 3 days), web (nginx, Exited (0) 2 hours ago)" in failure
    assert "give --accept-runtime-purge, or set kubernetes.container_runtime to docker" in failure
    effects = said(refused)
    assert "swap goes off, and from /etc/fstab go: /swap.img none swap sw 0 0" in effects
    assert "SELinux is enforcing and becomes permissive" in effects
    assert "docker goes with its packages, images and containers: train-7" in effects

    accepted = detect(tmp_path, "docker", preflight_accept_runtime_purge=True)
    assert accepted.code == 0, accepted.output
    assert accepted.changed == 0
    chosen = detect(tmp_path, "docker", preflight_container_runtime="docker")
    assert chosen.code == 0, chosen.output
    assert "docker goes" not in said(chosen)


def test_a_node_with_the_runtime_of_the_site_file_loses_nothing(tmp_path: Path) -> None:
    quiet = detect(tmp_path, "containerd")
    assert quiet.code == 0, quiet.output
    assert "goes with its packages" not in said(quiet)
    refused = detect(tmp_path, "containerd", preflight_container_runtime="docker")
    assert refused.code == 2
    assert "containerd runs on dgx01" in refused.failures[0]


def test_a_host_without_ping_is_named_before_kubespray_fails_on_it(tmp_path: Path) -> None:
    bare = detect(tmp_path, "containerd", no_ping="1")
    assert bare.code == 2
    (failure,) = bare.failures
    assert "dgx01: there is no ping, and kubespray stops without it: install iputils-ping" in failure


@pytest.mark.parametrize(
    ("dns", "upstream", "is_refused"),
    [
        ("", [], True),
        ("127.0.0.53", [], True),
        ("::1", [], True),
        ("10.0.0.53", [], False),
        ("fd00::53", [], False),
        ("127.0.0.53", ["10.0.0.53"], False),
    ],
)
def test_a_host_without_a_dns_server_is_named_before_the_clusters_dns_fails_on_it(
    tmp_path: Path, dns: str, upstream: list[str], *, is_refused: bool
) -> None:
    done = detect(tmp_path, "containerd", dns=dns, preflight_upstream_dns=upstream)
    assert done.code == (2 if is_refused else 0), done.output
    assert ("dgx01: its resolver names no DNS server" in "".join(done.failures)) is is_refused
    assert "kubernetes.upstream_dns" in "".join(done.failures) or not is_refused


def test_a_host_that_does_not_name_its_runtimes_is_refused(tmp_path: Path) -> None:
    refused = detect(tmp_path, "unknown")
    assert refused.code == 2
    assert [name for name, _, task in refused.tasks if task.get("failed")] == ["Look which runtimes run"]
