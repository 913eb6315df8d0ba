"""The changes of the Kubernetes installation on a host are reported before it, and a used runtime is not removed."""

import os
import sys

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


HOSTS: dict[str, dict[str, object]] = {
    "docker": {"running": "docker"},
    "docker-accepted": {"running": "docker", "preflight_accept_runtime_purge": True},
    "docker-chosen": {"running": "docker", "preflight_container_runtime": "docker"},
    "containerd": {},
    "containerd-not-chosen": {"preflight_container_runtime": "docker"},
    "no-ping": {"no_ping": "1"},
    "no-services": {"running": "unknown"},
    "no-dns": {"dns": ""},
    "dns-on-loopback": {"dns": "127.0.0.53"},
    "dns-on-loopback-6": {"dns": "::1"},
    "dns-6": {"dns": "fd00::53"},
    "dns-of-the-site": {"dns": "127.0.0.53", "preflight_upstream_dns": ["10.0.0.53"]},
}
"""The hosts of the play with their variables. `running` is the runtime whose service runs."""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Return the result of preflight on all hosts: one play, because each start of Ansible takes seconds."""
    folder = tmp_path_factory.mktemp("effects")
    programs = folder / "programs"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    tasks = [{"ansible.builtin.include_role": {"name": "preflight", "tasks_from": "effects"}}]
    of_host = {"RUNNING": "{{ running }}", "NO_PING": "{{ no_ping }}", "DNS": "{{ dns }}"}
    playbook, inventory = folder / "play.yml", folder / "inventory.yml"
    playbook.write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "environment": of_host, "tasks": tasks}])
    )
    values = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "preflight_container_runtime": "containerd",
        "running": "containerd",
        "no_ping": "",
        "dns": "10.0.0.53",
    }
    inventory.write_text(yaml.safe_dump({"all": {"hosts": HOSTS, "vars": values}}))
    return play(
        playbook, folder, "-i", str(inventory), environment={"PATH": f"{programs}:{os.environ['PATH']}"}
    )


def failures(result: Result, host: str) -> list[str]:
    """Return the messages of the failed tasks of this host; none if it passed all tasks."""
    found = [str(task.get("msg")) for _, name, task in result.tasks if name == host and task.get("failed")]
    assert result.stats[host]["failures"] == len(found), result.output
    return found


def said(result: Result, host: str) -> str:
    return next(
        str(task["msg"])
        for name, on, task in result.tasks
        if on == host and name == "Report the changes" and "msg" in task
    )


def test_docker_in_use_is_taken_away_only_where_that_is_accepted(result: Result) -> None:
    (failure,) = failures(result, "docker")
    assert "docker runs on docker, and the site file says containerd: kubespray would remove it" in failure
    assert "train-7 (nvcr.io/nvidia/pytorch:24.01, Up 3 days), web (nginx, Exited (0) 2 hours ago)" in failure
    assert "give --accept-runtime-purge, or set kubernetes.container_runtime to docker" in failure
    effects = said(result, "docker")
    assert (
        "swap is switched off, and these lines of /etc/fstab are removed: /swap.img none swap sw 0 0"
        in effects
    )
    assert "SELinux is enforcing and becomes permissive" in effects
    assert "docker is removed with its packages, images and containers: train-7" in effects

    assert failures(result, "docker-accepted") == []
    assert failures(result, "docker-chosen") == []
    assert "docker is removed" not in said(result, "docker-chosen")
    assert result.changed == 0


def test_a_node_with_the_runtime_of_the_site_file_loses_nothing(result: Result) -> None:
    assert failures(result, "containerd") == []
    assert "is removed with its packages" not in said(result, "containerd")
    (refused,) = failures(result, "containerd-not-chosen")
    assert "containerd runs on containerd-not-chosen" in refused


def test_a_host_without_ping_is_named_before_kubespray_fails_on_it(result: Result) -> None:
    (failure,) = failures(result, "no-ping")
    assert "no-ping: there is no ping, and kubespray stops without it: install iputils-ping" in failure


@pytest.mark.parametrize("host", ["no-dns", "dns-on-loopback", "dns-on-loopback-6"])
def test_a_host_without_a_dns_server_is_named_before_the_clusters_dns_fails_on_it(
    result: Result, host: str
) -> None:
    (failure,) = failures(result, host)
    assert f"{host}: its resolver names no DNS server" in failure
    assert "kubernetes.upstream_dns" in failure


@pytest.mark.parametrize("host", ["containerd", "dns-6", "dns-of-the-site"])
def test_a_host_with_a_dns_server_passes(result: Result, host: str) -> None:
    assert failures(result, host) == []


def test_a_host_that_does_not_name_its_runtimes_is_refused(result: Result) -> None:
    assert len(failures(result, "no-services")) == 1
    on_host = [(name, task) for name, host, task in result.tasks if host == "no-services"]
    assert [name for name, task in on_host if task.get("failed")] == ["Look which runtimes run"]
