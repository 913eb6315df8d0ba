"""`muster install` with the real DeepOps: its playbooks are found and read, in an environment of their own.

Its ansible-playbook lists the tasks instead of doing them, so the stage ends where it looks for the cluster.
"""

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

from deployment import matrix
from tests.deployment.conftest import SiteUnderTest
from tests.deployment.ssh_server import ssh_server
from tests.upstream import environments
from tests.upstream.conftest import Tree

ROOT = Path(__file__).parents[2]
INVENTORIES = ROOT / "inventories"
SITES = ("current", "tr4858")
PROXY = {"http": "http://proxy.example.com:3128"}
JUMP = {
    "user": "admin",
    "known_hosts": "/keys/known hosts",
    "jump": {"address": "bastion.example.com", "key_file": "/keys/it's"},
}
_PROGRAM = """#!/bin/sh
# what was asked for, and the environment; then the tasks are listed, and nothing is done
number=$(ls {calls} | grep -c words)
env > {calls}/$number.env
echo "$@" > {calls}/$number.words
exec {program} --list-tasks "$@" > {calls}/$number.tasks 2> {calls}/$number.errors
"""


@dataclass
class Done:
    """What a stage deepops did: the configuration that it wrote, and each call of ansible-playbook."""

    name: str
    output: str
    config: Path
    environments: list[dict[str, str]] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of the cluster."""
        text = (self.config / "group_vars" / "k8s_cluster.yml").read_text()
        return dict(yaml.safe_load(text))


@pytest.fixture(scope="session")
def programs(deepops: Tree) -> Path:
    """The programs of DeepOps' environment."""
    path = environments.directory(deepops.release) / "bin"
    if not path.is_dir():
        pytest.skip("DeepOps' environment is not there: `make test-upstream` makes it")
    return path


@pytest.fixture(scope="session", params=SITES)
def done(
    request: pytest.FixtureRequest, deepops: Tree, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Done:
    """The stage deepops of a site that comes with muster."""
    base = tmp_path_factory.mktemp(request.param)
    site, calls = SiteUnderTest(base / "site", base / "state"), base / "calls"
    site.directory.mkdir()
    calls.mkdir()
    document = yaml.safe_load((INVENTORIES / request.param / "site.yml").read_text())
    document["deepops"] = {"repository": str(deepops.path), "commit": deepops.commit}
    document["storage"]["trident"] = {"sha256": "0" * 64}
    if request.param == "current":
        document["versions"]["dra"] = "0.4.1"  # one site with the DRA driver, one with the device plugin
    document["network"]["proxy"] = PROXY
    document["access"] = document.get("access", {}) | JUMP
    site.write(yaml.safe_dump(document))
    checkout = site.state / request.param / f"deepops-{deepops.release}"
    environment = Path(f"{checkout}-venv")
    (environment / "bin").mkdir(parents=True)
    program = environment / "bin" / "ansible-playbook"
    program.write_text(_PROGRAM.format(calls=calls, program=programs / "ansible-playbook"))
    program.chmod(0o755)
    (environment / "requirements.txt").write_bytes(environments.lock(deepops.release).read_bytes())
    names = [secret["env"] for secret in _secrets(document)]
    site.environment |= {name: f"canary-{name}" for name in names}
    site.environment |= {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always",
        "ANSIBLE_FORKS": "7", "MUSTER_SECRET": "canary", "MUSTER_INSTALLER_CONTENT": str(ROOT),
    }  # fmt: skip
    ended = site.muster("install", "--from", "deepops", "--until", "deepops", "--accept-runtime-purge")
    result = Done(request.param, ended.stderr, checkout / "config")
    for number in range(len(list(calls.glob("*.words")))):
        lines = (calls / f"{number}.env").read_text().splitlines()
        result.environments.append(dict(line.split("=", 1) for line in lines if "=" in line))
        result.words.append((calls / f"{number}.words").read_text().split())
        result.tasks.append((calls / f"{number}.tasks").read_text())
    return result


def _secrets(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict):
        if set(value) == {"env"}:
            yield value
        for nested in value.values():
            yield from _secrets(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from _secrets(nested)


def test_every_playbook_is_read_with_what_the_site_file_says(done: Done) -> None:
    assert "DeepOps did not come to its end" in " ".join(done.output.split()), done.output
    expected = {"current": 1, "tr4858": 3}[done.name]
    assert len(done.words) == expected, done.output
    assert all("play #" in tasks for tasks in done.tasks), done.output
    assert "play #" in done.tasks[0]
    assert "Invoke kubeadm and install a CNI" in done.tasks[0]


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


def test_kubespray_itself_accepts_what_it_is_told(done: Done, programs: Path) -> None:
    """Its own validation runs for real, on this machine in the place of every host; these tasks change nothing."""
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    words = [str(programs / "ansible-playbook"), "--tags", "always", "--extra-vars", json.dumps(here)]
    environment = done.environments[0] | {"MUSTER_NESTED_EVENTS": "", "VIRTUAL_ENV": str(programs.parent)}
    ended = subprocess.run(
        [*words, done.words[0][-1]], cwd=done.config.parent, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for task in ("Stop if unsupported options selected", "Check if requested Kubernetes are supported"):
        assert task in ended.stdout
    assert "changed=0" in ended.stdout
    assert "changed=1" not in ended.stdout


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
    assert known == "UserKnownHostsFile=/keys/known hosts"
    assert shlex.split(command.removeprefix("ProxyCommand=")) == [
        "ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", known, "-i", "/keys/it's", "-l", "admin",
        "-p", "22", "-W", "[%h]:%p", "--", "bastion.example.com",
    ]  # fmt: skip


def test_a_host_key_that_changed_stops_kubespray_too(done: Done, programs: Path, tmp_path: Path) -> None:
    """Its ansible.cfg looks at none; a real connection of its Ansible, in the environment that the role gives it."""
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
        environment = {**done.environments[0], "MUSTER_NESTED_EVENTS": ""}
        (tmp_path / "other").mkdir()
        with ssh_server(tmp_path / "other") as another:
            changed = another.known_hosts.read_text().replace(f":{another.port}", f":{server.port}")
        # the good one last: its connection stays open, and serves the next call
        for key, good in ((changed, False), ("", False), (line, True)):
            known.write_text(key)
            ended = subprocess.run(
                words, cwd=done.config.parent, env=environment, capture_output=True, text=True, timeout=120,
                check=False,
            )  # fmt: skip
            assert (ended.returncode == 0) is good, ended.stdout + ended.stderr
            if not good:
                assert "Host key verification failed" in ended.stdout


def test_every_variable_is_one_of_the_tree_and_of_its_type(done: Done, deepops: Tree) -> None:
    defaults = _defaults(deepops)
    for name, value in [*done.variables.items(), *_gpu_variables(done).items()]:
        assert name in defaults, f"{name} is no variable of DeepOps or kubespray"
        kinds = {
            type(default) for default in defaults[name] if default is not None and not _is_template(default)
        }
        assert not kinds or type(value) in kinds, f"{name} is {value!r}, and {kinds} there"


def test_helm_is_where_the_playbooks_that_announce_gpus_call_it(done: Done, deepops: Tree) -> None:
    called = [
        path
        for words in done.words
        for path in [deepops.path / words[-1]]
        if path.is_file() and "/usr/local/bin/helm" in _roles_text(deepops, path)
    ]
    assert done.variables["helm_enabled"] is bool(called)
    assert len(called) == {"current": 0, "tr4858": 2}[done.name]
    assert _one_default(deepops, "bin_dir") == "/usr/local/bin"


def test_feature_discovery_comes_before_the_plugin_that_waits_for_its_label(
    done: Done, deepops: Tree
) -> None:
    names = [words[-1] for words in done.words[1:]]
    waits = [
        index
        for index, name in enumerate(names)
        if r"nvidia\.com\/gpu\.count" in _roles_text(deepops, deepops.path / name)
    ]
    sets = [index for index, name in enumerate(names) if "gpu-feature-discovery" in name]
    assert all(min(sets, default=99) < index for index in waits)
    if done.name == "tr4858":
        assert waits
        assert sets


def _gpu_variables(done: Done) -> dict[str, Any]:
    return dict(yaml.safe_load((done.config / "group_vars" / "muster_gpu.yml").read_text()) or {})


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


def _defaults(deepops: Tree) -> dict[str, list[Any]]:
    """Every variable with a default in a role of the tree, or of DeepOps' example, with all its values."""
    values: dict[str, list[Any]] = {}
    files = [
        *(
            path
            for roles in deepops.roles
            for path in roles.rglob("*.yml")
            if path.parent.name in {"defaults", "vars"} or path.parent.parent.name in {"defaults", "vars"}
        ),
        *(deepops.path / "config.example" / "group_vars").glob("*.yml"),
    ]
    for path in files:
        if path.name == "checksums.yml":
            continue
        for name, value in (yaml.safe_load(path.read_text()) or {}).items():
            values.setdefault(name, []).append(value)
    # what has no default in a role stands as a comment in the sample: the proxies
    sample = deepops.kubespray / "inventory" / "sample" / "group_vars" / "all" / "all.yml"
    for name, value in re.findall(r'(?m)^# (\w+): ("")$', sample.read_text()):
        values.setdefault(name, []).append(yaml.safe_load(value))
    return values


def _one_default(deepops: Tree, name: str) -> Any:
    return _defaults(deepops)[name][0]


def _roles_text(deepops: Tree, playbook: Path) -> str:
    """The tasks of the roles that a playbook names itself."""
    names = [
        task["include_role"]["name"]
        for play in yaml.safe_load(playbook.read_text())
        for task in play.get("tasks", [])
        if "include_role" in task
    ]
    return "\n".join(
        path.read_text()
        for name in names
        for path in sorted((deepops.path / "roles" / name / "tasks").glob("*.yml"))
    )
