"""Fleets: runs on some hosts, hosts in maintenance, hosts that are not reached, and hosts behind a jump host."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.deepops_double import environment, lock, repository
from tests.deployment.ssh_server import SshServer, ssh_server
from tests.deployment.sshd import Sshd, sshd

pytestmark = [pytest.mark.installer, pytest.mark.quick]

HOSTS = ("dgx01", "dgx02", "mgmt01")
ROLES = {"dgx01": ["gpu"], "dgx02": ["gpu"], "mgmt01": ["control_plane", "etcd"]}
STAGES = {"preflight": "controller:cluster", "driver": "gpu", "trident": "controller", "docker": "cluster"}
PLAY = """---
- name: Do the {stage}
  hosts: {hosts}
  gather_facts: false
  tasks:
    - name: Work
      ansible.builtin.command: sh -c 'echo {stage} {{{{ inventory_hostname }}}} >> {work}'
      changed_when: true
"""


@dataclass
class Fleet:
    """A site with an SSH server for each host, whose stages record the hosts on which they ran."""

    site: SiteUnderTest
    servers: dict[str, SshServer]
    work: Path
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        document = {
            "schema": 1, "name": "here", "versions": {"kubernetes": "1.35.4", "driver": "580", "trident": "26.06.0"},
            "access": {"user": "root", "become": False, "known_hosts": str(self.known_hosts)},
            "kubernetes": {"container_runtime": "docker"}, "hosts": self.hosts,
            "vars": {"preflight_kubernetes": "", "trident_archive": "/there"}, **self.more,
        }  # fmt: skip
        self.site.write(yaml.safe_dump(document))
        self.known_hosts.write_text(
            "".join(server.known_hosts.read_text() for server in self.servers.values())
        )

    @property
    def known_hosts(self) -> Path:
        return self.site.directory / "known_hosts"

    @property
    def done(self) -> list[str]:
        """Return stage and host of each recorded work since the last call, sorted."""
        lines = sorted(self.work.read_text().splitlines()) if self.work.exists() else []
        self.work.unlink(missing_ok=True)
        return lines

    def plan(self, *more: str) -> dict[str, dict[str, Any]]:
        planned = self.site.call("plan", "--json", *more)
        assert planned.returncode == 0, planned.stderr
        return {stage["stage"]: stage for stage in json.loads(planned.stdout)["stages"]}


@pytest.fixture
def fleet(site: SiteUnderTest, tmp_path: Path) -> Iterator[Fleet]:
    root = tmp_path / "content"
    (root / "playbooks").mkdir(parents=True)
    (root / "roles").mkdir()
    made = Fleet(site, {}, tmp_path / "work")
    imports = [f"- name: Do the {name}\n  ansible.builtin.import_playbook: {name}.yml\n" for name in STAGES]
    (root / "playbooks" / "site.yml").write_text("---\n" + "".join(imports))
    for stage, hosts in STAGES.items():
        (root / "playbooks" / f"{stage}.yml").write_text(
            PLAY.format(stage=stage, hosts=hosts, work=made.work)
        )
    site.environment |= {"MUSTER_INSTALLER_CONTENT": str(root), "KUBECONFIG": str(root / "none")}
    with contextlib.ExitStack() as stack:
        for name in HOSTS:
            (tmp_path / name).mkdir()
            made.servers[name] = server = stack.enter_context(ssh_server(tmp_path / name))
            made.hosts[name] = {
                "address": "127.0.0.1", "port": server.port, "os": "ubuntu-24.04", "model": "generic",
                "roles": ROLES[name],
                "connection_vars": {
                    "ansible_python_interpreter": sys.executable, "ansible_ssh_private_key_file": str(server.key_file),
                },
            }  # fmt: skip
        (root / "none").touch()
        made.write()
        yield made


def everywhere(*left_out: str) -> list[str]:
    """Return the recorded work of the stages of the whole site, without some hosts."""
    lines = ["docker dgx01", "docker dgx02", "docker mgmt01", "driver dgx01", "driver dgx02",
             "preflight controller", "preflight dgx01", "preflight dgx02", "preflight mgmt01",
             "trident controller"]  # fmt: skip
    return [line for line in lines if line.split()[1] not in left_out]


def test_a_limit_works_on_its_hosts_alone_and_the_rest_is_done_later(fleet: Fleet) -> None:
    limited = fleet.site.muster("install", "--limit", "dgx02")
    assert limited.returncode == 0, limited.stderr
    assert fleet.done == ["docker dgx02", "driver dgx02", "preflight controller", "preflight dgx02"]
    assert "trident: left out: it is of the whole site, and --limit names a part of it" in limited.stderr
    planned = fleet.plan()
    assert planned["driver"]["decision"] == "run"
    assert "not done on dgx01 yet" in planned["driver"]["reason"]
    assert fleet.plan("--limit", "dgx*2")["driver"]["decision"] == "done"
    assert fleet.site.muster("install", "--limit", "dgx01,mgmt01").returncode == 0
    assert fleet.done == ["docker dgx01", "docker mgmt01", "driver dgx01", "preflight controller", "preflight dgx01",
                          "preflight mgmt01"]  # fmt: skip
    assert {stage: entry["decision"] for stage, entry in fleet.plan().items()} == {
        "preflight": "run", "driver": "done", "trident": "run", "docker": "done",
    }  # fmt: skip


@pytest.mark.parametrize("action", ["install", "plan", "verify"])
def test_a_limit_without_a_host_is_refused(fleet: Fleet, action: str) -> None:
    for limit in ("dgx03", "dgx01,dgx3*", ",", "controller", "switches"):
        refused = fleet.site.call(action, "--limit", limit)
        assert refused.returncode == 2, limit
        assert "names no host of" in refused.stderr or "has no host" in refused.stderr, limit
    assert fleet.done == []
    assert not (fleet.site.state / "here" / "journal.jsonl").exists()


def test_a_host_in_maintenance_is_left_alone_until_its_mark_is_removed(fleet: Fleet) -> None:
    fleet.hosts["dgx02"]["maintenance"] = "a fan is replaced"
    fleet.write()
    fleet.servers["dgx02"].drop_on = "sh"
    planned = fleet.site.call("plan").stdout
    assert "BUT   not on dgx02 (in maintenance: a fan is replaced)" in planned
    done = fleet.site.muster("install")
    assert done.returncode == 0, done.stderr
    assert fleet.done == everywhere("dgx02")
    plan = fleet.plan()
    assert plan["driver"]["decision"] == "done"
    assert plan["driver"]["reason"].endswith("but for dgx02 (in maintenance: a fan is replaced)")
    refused = fleet.site.call("install", "--limit", "dgx02")
    assert refused.returncode == 2
    assert "every host of it is in maintenance" in refused.stderr
    fleet.servers["dgx02"].drop_on = ""
    del fleet.hosts["dgx02"]["maintenance"]
    fleet.write()
    assert fleet.site.muster("install").returncode == 0
    assert {"docker dgx02", "driver dgx02", "preflight dgx02"} <= set(fleet.done)
    assert fleet.plan()["driver"]["decision"] == "done"


def test_one_host_that_does_not_answer_is_told_and_the_rest_is_done(fleet: Fleet) -> None:
    fleet.servers["dgx01"].drop_on = "python"
    done = fleet.site.muster("install")
    assert done.returncode == 1
    assert re.search(r"dgx01: 127.0.0.1 port \d+ does not answer", done.stderr), done.stderr
    assert (
        "dgx01 not reached, and left out; the rest is done. After you have removed the cause, continue with: muster "
        in done.stderr
    )
    assert "every stage that applies is verified" not in done.stdout
    assert fleet.done == everywhere("dgx01")
    fleet.servers["dgx01"].drop_on = ""
    resumed = fleet.site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert {"docker dgx01", "driver dgx01", "preflight dgx01"} <= set(fleet.done)
    assert "nothing is to be resumed" in fleet.site.call("resume").stdout


def test_a_host_that_is_lost_in_a_stage_costs_the_others_nothing(fleet: Fleet) -> None:
    fleet.servers["dgx01"].drop_on = "driver dgx01"
    done = fleet.site.muster("install")
    assert done.returncode == 1
    assert "host    dgx01 (unreachable)" in done.stderr
    assert "docker: Do the docker, without dgx01 (not reached)" in done.stderr
    assert "dgx01 not reached, and left out; the rest is done" in done.stderr
    assert fleet.done == [line for line in everywhere() if line not in {"docker dgx01", "driver dgx01"}]
    fleet.servers["dgx01"].drop_on = ""
    assert fleet.site.muster("resume").returncode == 0
    assert {"docker dgx01", "driver dgx01"} <= set(fleet.done)
    fleet.servers["dgx01"].drop_on = "driver dgx01"
    assert fleet.site.muster("install", "--from", "driver", "--until", "driver").returncode == 1
    assert fleet.plan()["driver"]["reason"].endswith("not done on dgx01 yet"), "half of it may be done there"


def test_an_upgrade_stops_at_the_host_that_it_loses(fleet: Fleet) -> None:
    content = Path(fleet.site.environment["MUSTER_INSTALLER_CONTENT"]) / "playbooks"
    (content / "upgrade.yml").write_text((content / "site.yml").read_text())
    play = (content / "driver.yml").read_text()
    (content / "driver.yml").write_text(play.replace("  hosts: gpu\n", "  hosts: gpu\n  serial: 1\n"))
    fleet.more["not_applicable"] = {"trident": "this test is about hosts"}
    fleet.write()
    fleet.servers["dgx01"].drop_on = "driver dgx01"
    done = fleet.site.muster("upgrade")
    assert done.returncode == 1
    assert "stage driver failed on dgx01" in done.stderr, done.stderr
    assert [line for line in fleet.done if not line.startswith("preflight")] == []


def test_a_run_without_its_control_plane_is_refused_where_kubernetes_would_come(
    fleet: Fleet, tmp_path: Path
) -> None:
    deepops_stage(fleet, tmp_path)
    fleet.servers["mgmt01"].drop_on = "python"
    refused = fleet.site.muster("install", "--until", "deepops")
    assert refused.returncode == 1
    assert (
        "mgmt01: not ready (mgmt01: of the control plane or of etcd); nothing was changed" in refused.stderr
    )
    assert fleet.done == []


def test_nor_does_kubernetes_come_while_one_of_three_is_in_maintenance(fleet: Fleet, tmp_path: Path) -> None:
    deepops_stage(fleet, tmp_path)
    for name in ("dgx01", "dgx02"):
        fleet.hosts[name]["roles"] = ["gpu", "control_plane", "etcd"]
    fleet.hosts["dgx02"]["maintenance"] = "a fan is replaced"
    fleet.write()
    refused = fleet.site.call("install")
    assert refused.returncode == 1
    assert (
        "dgx02 (in maintenance: a fan is replaced); nothing was done; --until stops before it"
        in refused.stderr
    )
    assert not (fleet.site.state / "here" / "journal.jsonl").exists()


def deepops_stage(fleet: Fleet, tmp_path: Path) -> Path:
    """Put the real stage deepops, with a double of DeepOps, after `preflight`. Returns the folder of DeepOps'
    configuration.
    """
    root = Path(__file__).parents[2]
    content = Path(fleet.site.environment["MUSTER_INSTALLER_CONTENT"])
    (content / "roles").rmdir()
    (content / "roles").symlink_to(root / "roles")
    (content / "playbooks" / "deepops.yml").write_text((root / "playbooks" / "deepops.yml").read_text())
    imports = [
        f"- name: Do the {name}\n  ansible.builtin.import_playbook: {name}.yml\n"
        for name in ("preflight", "deepops")
    ]
    (content / "playbooks" / "site.yml").write_text("---\n" + "".join(imports))
    access = tmp_path / "admin.conf"
    access.write_text("{}")
    work = tmp_path / "deepops-work"
    work.mkdir()
    outer, commit = repository(tmp_path / "double", access, work)
    (tmp_path / "lock").mkdir()
    locked = lock(tmp_path / "lock")
    checkout = fleet.site.state / "here" / "deepops-26.07"
    environment(checkout, locked)
    fleet.more = {
        "versions": {"kubernetes": "1.35.4", "deepops": "26.07", "container_toolkit": "1.20.0", "dra": "off"},
        "deepops": {"repository": str(outer), "commit": commit}, "kubernetes": {},
        "vars": {"deepops_lock": str(locked), "preflight_container_runtime": ""},
    }  # fmt: skip
    fleet.site.environment |= {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
    }
    fleet.write()
    return checkout / "config"


def test_kubespray_knows_no_host_that_is_left_out_and_the_control_plane_always(
    fleet: Fleet, tmp_path: Path
) -> None:
    config = deepops_stage(fleet, tmp_path)
    fleet.more["network"] = {"proxy": {"http": "http://proxy.example.com:3128", "no_proxy": [".example.com"]}}
    fleet.write()
    # kubespray fails at once, because only its input matters here
    (tmp_path / "deepops-work" / "broken").touch()
    done = fleet.site.muster("install", "--limit", "dgx02")
    assert "deepops: Do the deepops, without dgx01 (not in --limit)" in done.stderr, done.stderr
    inventory = (config / "inventory").read_text()
    assert "dgx01" not in inventory
    assert re.findall(r"(?m)^(\w+) ansible_connection", inventory) == ["dgx02", "mgmt01"], (
        "in the order of the file"
    )
    assert "[muster_gpu]\ndgx02\n" in inventory
    values = yaml.safe_load((config / "group_vars" / "all.yml").read_text())
    assert values["http_proxy"] == values["https_proxy"] == "http://proxy.example.com:3128"
    assert {"dgx01", "127.0.0.1", ".example.com", "localhost"} <= set(
        values["additional_no_proxy"].split(",")
    )
    program, hosts = str(Path(sys.executable).parent / "ansible"), str(config / "inventory")
    command = [program, "mgmt01", "-i", hosts, "-m", "debug", "-a", "var=proxy_env"]
    own = {"http_proxy": values["http_proxy"], "NO_PROXY": values["additional_no_proxy"]}
    of_kubespray = {"http_proxy": "x", "NO_PROXY": "y"}
    for defaults, expected in (({}, own), ({"proxy_env_defaults": of_kubespray}, of_kubespray)):
        shown = subprocess.run(
            [*command, "-e", json.dumps(defaults)], capture_output=True, text=True, timeout=120, check=True
        ).stdout
        known = json.loads(shown.partition("=>")[2])["proxy_env"]
        assert expected.items() <= known.items()


@pytest.fixture
def jump(tmp_path: Path) -> Iterator[Sshd]:
    (tmp_path / "jump").mkdir()
    with sshd(tmp_path / "jump") as running:
        yield running


def behind(fleet: Fleet, jump: Sshd) -> None:
    """Put the hosts behind the jump host, except mgmt01."""
    fleet.more["access"] = {
        "user": jump.user, "become": False, "known_hosts": str(fleet.known_hosts),
        "jump": {"address": "127.0.0.1", "port": jump.port, "key_file": str(jump.key_file)},
    }  # fmt: skip
    fleet.hosts["mgmt01"]["jump"] = "none"
    fleet.write()
    with fleet.known_hosts.open("a") as known:
        known.write(jump.known_host)


def test_hosts_behind_a_jump_host_are_reached_over_it(fleet: Fleet, jump: Sshd) -> None:
    behind(fleet, jump)
    done = fleet.site.muster("install", "--until", "driver")
    assert done.returncode == 0, done.stderr
    assert "driver dgx01" in fleet.done
    ports = {fleet.servers[name].port for name in ("dgx01", "dgx02")}
    assert jump.forwarded == ports, "the hosts were not reached over it, or the third was"


def test_the_key_of_the_jump_host_is_checked_by_every_connection(
    fleet: Fleet, jump: Sshd, tmp_path: Path
) -> None:
    behind(fleet, jump)
    known = fleet.known_hosts.read_text()
    other = jump.another_key(tmp_path)
    fleet.known_hosts.write_text(known.replace(jump.known_host, other))
    done = fleet.site.muster("install", "--until", "preflight")
    assert done.returncode == 1
    assert f"dgx01: the key of 127.0.0.1 port {jump.port} is not the known one" in done.stderr, done.stderr
    assert fleet.done == ["preflight controller", "preflight mgmt01"]
    # without `preflight`, Ansible itself does not reach the host
    late = fleet.site.muster("install", "--from", "driver", "--until", "driver")
    assert late.returncode == 1
    assert "host    dgx01 (unreachable)" in late.stderr
    assert "cause   the jump host was not reached, or its key is not the one that is known" in late.stderr, (
        late.stderr
    )
    assert jump.forwarded == set()


def test_the_key_of_a_host_behind_it_is_checked_too(fleet: Fleet, jump: Sshd) -> None:
    behind(fleet, jump)
    known, port = fleet.known_hosts.read_text(), fleet.servers["dgx01"].port
    fleet.known_hosts.write_text(
        "".join(line for line in known.splitlines(keepends=True) if f":{port} " not in line)
    )
    done = fleet.site.muster("install", "--until", "preflight")
    assert done.returncode == 1
    assert f"dgx01: the key of 127.0.0.1 port {port} is not known" in done.stderr, done.stderr
    assert "preflight dgx01" not in fleet.done


def test_a_path_with_a_blank_and_a_percent_sign_is_one_word(site: SiteUnderTest) -> None:
    site.write(
        'schema: 1\nname: here\nversions: {kubernetes: "1.34.2"}\naccess:\n  user: admin\n  key_file: /keys/a b%h\n'
        "  jump: {address: bastion}\nhosts:\n"
        "  n1: {address: 10.0.0.1, os: ubuntu-24.04, roles: [worker]}\n"
    )
    values = json.loads(site.call("inventory").stdout)["all"]["hosts"]["n1"]
    name, command = shlex.split(values["ansible_ssh_common_args"])[1].split("=", 1)
    words = shlex.split(command)
    assert name == "ProxyCommand"
    assert words[words.index("-i") + 1] == "/keys/a b%%h"
    assert words[-4:] == ["-W", "[%h]:%p", "--", "bastion"]
    assert "StrictHostKeyChecking=yes" in words


CANARY = "canary-6b1d7f"


@pytest.mark.parametrize("key", ["http", "https"])
def test_a_proxy_with_a_password_is_refused_and_the_password_is_shown_nowhere(fleet: Fleet, key: str) -> None:
    proxies = {"http": "http://proxy.example.com:3128", key: f"http://muster:{CANARY}@proxy.example.com:3128"}
    fleet.more["network"] = {"proxy": proxies}
    fleet.write()
    for action in ("plan", "install", "verify", "inventory"):
        refused = fleet.site.call(action)
        assert refused.returncode == 2
        assert re.search(rf"site.yml:\d+: network.proxy.{key}: it has a user or a password", refused.stderr)
        assert CANARY not in refused.stdout + refused.stderr
    paths = (
        [path for path in fleet.site.state.rglob("*") if path.is_file()] if fleet.site.state.exists() else []
    )
    assert [path for path in paths if CANARY in path.read_text()] == []


@pytest.mark.parametrize(
    "written", [f"http://muster:{CANARY}@proxy:3128", [f"http://muster:{CANARY}@proxy:3128"]]
)
def test_nor_where_it_is_written_in_the_wrong_place(fleet: Fleet, written: object) -> None:
    fleet.more["network"] = {"proxy": written}
    fleet.write()
    refused = fleet.site.call("plan")
    assert refused.returncode == 2
    assert CANARY not in refused.stdout + refused.stderr


def test_hosts_and_controller_fetch_through_the_proxy(fleet: Fleet) -> None:
    content = Path(fleet.site.environment["MUSTER_INSTALLER_CONTENT"]) / "playbooks"
    for stage in ("driver", "trident"):
        play = (content / f"{stage}.yml").read_text()
        play = play.replace("inventory_hostname }}", "inventory_hostname }} $https_proxy $NO_PROXY")
        play = play.replace(
            "  gather_facts: false\n",
            '  gather_facts: false\n  environment: "{{ muster_proxy | default({}) }}"\n',
        )
        (content / f"{stage}.yml").write_text(play)
    fleet.more["network"] = {"proxy": {"http": "http://proxy.example.com:3128"}}
    fleet.write()
    done = fleet.site.muster("install", "--from", "driver", "--until", "trident")
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in fleet.done]
    assert [words[:3] for words in said] == [
        [stage, host, "http://proxy.example.com:3128"]
        for stage, host in (("driver", "dgx01"), ("driver", "dgx02"), ("trident", "controller"))
    ]
    assert all({"127.0.0.1", "dgx01", "mgmt01"} <= set(words[3].split(",")) for words in said)
