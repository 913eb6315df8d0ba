"""Hosts that do not answer, or answer wrongly, are reported with cause and fix; a dropped connection loses nothing."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.ssh_server import SshServer, ssh_server

pytestmark = pytest.mark.lab

PLAY = """---
- name: Work on the hosts
  hosts: {hosts}
  gather_facts: false
  tasks:
    - name: Work
      ansible.builtin.command: echo marker-of-the-stage
      changed_when: true
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path) as running:
        yield running


@pytest.fixture
def site(site: SiteUnderTest, tmp_path: Path) -> SiteUnderTest:
    """A site with two stages: `preflight` runs on the controller, `work` on the hosts."""
    root = tmp_path / "content"
    (root / "roles").mkdir(parents=True)
    (root / "playbooks").mkdir()
    (root / "playbooks" / "preflight.yml").write_text(PLAY.format(hosts="controller"))
    (root / "playbooks" / "work.yml").write_text(PLAY.format(hosts="cluster"))
    imports = "- name: Look\n  ansible.builtin.import_playbook: preflight.yml\n"
    imports += "- name: Work\n  ansible.builtin.import_playbook: work.yml\n"
    (root / "playbooks" / "site.yml").write_text(imports)
    site.environment["MUSTER_INSTALLER_CONTENT"] = str(root)
    return site


def describe(
    site: SiteUnderTest, server: SshServer, port: int | None = None, key: Path | None = None
) -> None:
    site.write(
        'schema: 1\nname: here\nversions:\n  kubernetes: "1.34.2"\n'
        f"access:\n  user: root\n  become: false\n  key_file: {key or server.key_file}\n"
        f"  known_hosts: {server.known_hosts}\n"
        "hosts:\n  dgx01:\n    address: 127.0.0.1\n    os: ubuntu-24.04\n    model: generic\n    roles: [gpu]\n"
        f"    port: {port or server.port}\n"
        f"    connection_vars: {{ansible_python_interpreter: {sys.executable}}}\n"
        'vars:\n  preflight_kubernetes: ""\n'
    )


def test_a_host_that_answers_is_worked_on(site: SiteUnderTest, server: SshServer) -> None:
    describe(site, server)
    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    assert "dgx01: 1 ok, 1 changed" in done.stderr


def test_a_host_that_does_not_answer_stops_the_run_before_anything_is_done(
    site: SiteUnderTest, server: SshServer
) -> None:
    with socket.socket() as unused:  # bound but not listening, so that no other program takes the port
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        describe(site, server, port=port)
        done = site.muster("install")
    assert done.returncode == 1
    assert f"dgx01: 127.0.0.1 port {port} does not answer" in done.stderr
    assert "fix: check power, network and sshd" in done.stderr
    assert "nothing was changed. When that is fixed: muster resume -i" in done.stderr


def test_a_key_that_is_not_accepted_is_told(site: SiteUnderTest, server: SshServer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with ssh_server(other) as another:
        describe(site, server, key=another.key_file)
        done = site.muster("install")
    assert done.returncode == 1
    assert "does not accept the key of root" in done.stderr
    assert "authorized_keys" in done.stderr


def test_an_unknown_host_key_is_reported(site: SiteUnderTest, server: SshServer) -> None:
    server.known_hosts.write_text("")
    describe(site, server)
    done = site.muster("install")
    assert done.returncode == 1
    assert f"the key of 127.0.0.1 port {server.port} is not known" in done.stderr
    assert "ssh-keyscan" in done.stderr


def test_a_host_key_that_changed_stops_ansible_itself(
    site: SiteUnderTest, server: SshServer, tmp_path: Path
) -> None:
    """Without `preflight`, Ansible checks the host key. ansible-runner alone would turn this check off."""
    describe(site, server)
    other = tmp_path / "other"
    other.mkdir()
    with ssh_server(other) as another:
        changed = another.known_hosts.read_text().replace(f":{another.port}", f":{server.port}")
    assert changed.split()[0] == server.known_hosts.read_text().split()[0]
    server.known_hosts.write_text(changed)
    done = site.muster("install", "--from", "work")
    assert done.returncode == 1, done.stderr
    assert "host    dgx01 (unreachable)" in done.stderr
    assert "cause   the host's key is not the one that is known" in done.stderr, done.stderr


def test_a_user_without_a_right_to_become_root_is_reported(site: SiteUnderTest, server: SshServer) -> None:
    describe(site, server)
    site.write(site.file.read_text().replace("become: false", "become: true"))
    server.no_root = True
    done = site.muster("install")
    assert done.returncode == 1
    assert "the user may not become root without a password" in done.stderr


def test_a_connection_that_drops_in_a_stage_costs_nothing(site: SiteUnderTest, server: SshServer) -> None:
    describe(site, server)
    server.drop_on = "marker-of-the-stage"
    done = site.muster("install")
    assert done.returncode == 1
    assert "host    dgx01 (unreachable)" in done.stderr
    assert "check power and network of the host, then resume" in done.stderr, done.stderr
    server.drop_on = ""
    resumed = site.muster("install")
    assert resumed.returncode == 0, resumed.stderr
    assert "dgx01: 1 ok, 1 changed" in resumed.stderr
