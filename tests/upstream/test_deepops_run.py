"""Playbooks, environment, inventory and variables that `muster install` passes to DeepOps.

The test's ansible-playbook records how it was called, so the stage fails when it looks for the cluster. The programs of
DeepOps' own environment then read the inventory and the variables.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from deployment import matrix
from tests.deployment.ssh_server import ssh_server
from tests.upstream.ansible_names import defaults, is_shape, roles_of
from tests.upstream.names import role_file
from tests.upstream.stage import INVENTORIES, KEY_FILE, KNOWN_HOSTS, Done

Facts = dict[str, Any]
VARIABLES = role_file("deepops", "vars/main.yml")


def test_each_playbook_of_the_site_is_called(done: Done) -> None:
    assert "DeepOps did not come to its end" in " ".join(done.output.split()), done.output
    operator = {"current": [], "tr4858": [VARIABLES["deepops_operator_playbook"]]}[done.name]
    assert done.words == [[name] for name in (VARIABLES["deepops_cluster_playbook"], *operator)], done.output


def test_nothing_of_our_ansible_and_no_secret_is_in_its_environment(done: Done) -> None:
    for environment in done.environments:
        settings = {
            name for name in environment if name.startswith(("ANSIBLE_", "AWX_", "RUNNER_", "MUSTER_"))
        }
        assert settings == {
            "ANSIBLE_CONFIG", "ANSIBLE_INVENTORY", "ANSIBLE_CACHE_PLUGIN_CONNECTION", "ANSIBLE_NOCOLOR",
            "ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_SSH_ARGS", "ANSIBLE_SSH_CONTROL_PATH",
            "ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_CALLBACKS_ENABLED", "MUSTER_NESTED_EVENTS",
        }  # fmt: skip
        assert not [value for value in environment.values() if "canary" in value]
        assert environment["VIRTUAL_ENV"].endswith("-venv")
        assert environment["PATH"].startswith(environment["VIRTUAL_ENV"])


def test_ansible_itself_takes_these_settings(done: Done, programs: Path) -> None:
    environment = done.environments[0]
    dump = subprocess.run(
        [programs / "ansible-config", "dump", "--only-changed", "--format", "json"], env=environment,
        cwd=done.config.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    settings = {entry["name"]: entry.get("value") for entry in json.loads(dump.stdout) if "name" in entry}
    assert settings["HOST_KEY_CHECKING"] is True, "DeepOps' ansible.cfg says False"
    assert settings["DEFAULT_ROLES_PATH"][-1] == str(
        done.config.parent / "submodules" / "kubespray" / "roles"
    )
    assert settings["DEFAULT_FORKS"] == 25
    words = [
        str(programs / "ansible-config"),
        "dump",
        "--only-changed",
        "-t",
        "connection",
        "--format",
        "json",
    ]
    dump = subprocess.run(
        words, env=environment, cwd=done.config.parent, capture_output=True, text=True, check=True
    )
    (ssh,) = (entry["ssh"] for entry in json.loads(dump.stdout) if "ssh" in entry)
    connection = {entry["name"]: entry.get("value") for entry in ssh}
    assert connection["host_key_checking"] is True
    assert "StrictHostKeyChecking=yes" in connection["ssh_args"]
    assert "/dev/null" not in connection["ssh_args"]
    assert not connection.get("control_path"), "DeepOps' ansible.cfg names a folder that may not be there"


def test_the_hosts_are_in_the_groups_of_kubespray(done: Done, programs: Path) -> None:
    listed = subprocess.run(
        [programs / "ansible-inventory", "--list"], cwd=done.config.parent, env=done.environments[0],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(listed.stdout)
    hosts = yaml.safe_load((INVENTORIES / done.name / "site.yml").read_text())["hosts"]
    for group, role in (("kube_control_plane", "control_plane"), ("etcd", "etcd"), ("muster_gpu", "gpu")):
        assert sorted(found[group]["hosts"]) == sorted(name for name in hosts if role in hosts[name]["roles"])
    assert sorted(found["kube_node"]["hosts"]) == sorted(hosts)
    variables = found["_meta"]["hostvars"]["mgmt01"]
    assert variables["kube_version"] == "1.35.4"
    assert variables["kube_version"] in matrix.deepops_row("26.07")["kubernetes"][-1]  # type: ignore[index]


def test_the_jump_host_is_handed_on_word_for_word(done: Done, programs: Path) -> None:
    listed = subprocess.run(
        [programs / "ansible-inventory", "--list"], cwd=done.config.parent, env=done.environments[0],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (options,) = {
        values["ansible_ssh_common_args"]
        for values in json.loads(listed.stdout)["_meta"]["hostvars"].values()
    }
    _, known, _, command = shlex.split(options)
    assert known == f"UserKnownHostsFile={done.keys / KNOWN_HOSTS}"
    assert shlex.split(command.removeprefix("ProxyCommand=")) == [
        "ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", known, "-i", str(done.keys / KEY_FILE),
        "-l", "admin", "-p", "22", "-W", "[%h]:%p", "--", "bastion.example.com",
    ]  # fmt: skip


def test_a_host_key_that_changed_stops_kubespray_too(done: Done, programs: Path, tmp_path: Path) -> None:
    """kubespray's ansible.cfg checks no host key. The test connects with kubespray's Ansible in the environment of the
    role.
    """
    with ssh_server(tmp_path) as server:
        known, line = tmp_path / "known", server.known_hosts.read_text()
        host = {
            "ansible_host": "127.0.0.1", "ansible_port": server.port, "ansible_user": "root",
            "ansible_ssh_private_key_file": str(server.key_file), "ansible_python_interpreter": sys.executable,
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={known}",
        }  # fmt: skip
        inventory = tmp_path / "inventory.json"
        inventory.write_text(json.dumps({"all": {"hosts": {"dgx01": host}}}))
        words = [
            str(programs / "ansible"),
            "all",
            "--inventory",
            str(inventory),
            "--module-name",
            "ansible.builtin.ping",
        ]
        environment = {**done.environments[0], "MUSTER_NESTED_EVENTS": "", "ANSIBLE_TIMEOUT": "60"}
        (tmp_path / "other").mkdir()
        with ssh_server(tmp_path / "other") as another:
            changed = another.known_hosts.read_text().replace(f":{another.port}", f":{server.port}")
        # The good key is last, because its connection stays open and serves later calls.
        for key, good in ((changed, False), ("", False), (line, True)):
            known.write_text(key)
            ended = subprocess.run(
                words, cwd=done.config.parent, env=environment, capture_output=True, text=True, timeout=120,
                check=False,
            )  # fmt: skip
            assert (ended.returncode == 0) is good, ended.stdout + ended.stderr
            if not good:
                assert "Host key verification failed" in ended.stdout


def test_every_variable_is_one_of_the_tree_and_of_its_type(
    done: Done, deepops: Facts, kubespray: Facts
) -> None:
    known = defaults(deepops, kubespray)
    for name, value in [*done.variables("k8s_cluster").items(), *done.variables("muster_gpu").items()]:
        assert name in known, f"{name} is no variable of DeepOps or kubespray"
        kinds = {type(default) for default in known[name] if default is not None and not is_shape(default)}
        assert not kinds or type(value) in kinds, f"{name} is {value!r}, and {kinds} there"


def test_helm_is_where_the_playbook_of_the_gpu_operator_calls_it(
    done: Done, deepops: Facts, kubespray: Facts
) -> None:
    called = [
        words[-1]
        for words in done.words
        for role in roles_of(deepops["playbooks"].get(words[-1], {"plays": []}))
        if "/usr/local/bin/helm" in deepops["roles"].get(role, {}).get("paths", [])
    ]
    assert done.variables("k8s_cluster")["helm_enabled"] is bool(called)
    assert len(called) == {"current": 0, "tr4858": 1}[done.name]
    assert set(defaults(deepops, kubespray)["bin_dir"]) >= {"/usr/local/bin"}
