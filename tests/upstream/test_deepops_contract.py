"""What muster names of DeepOps and kubespray is in their trees: playbooks, roles, variables, groups, releases, choices.

The names are read from the role `deepops`, the matrix and the schema of the site file; none is listed here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment.matrix import deepops_row, tables
from tests.upstream import trees
from tests.upstream.conftest import Tree
from tests.upstream.environments import lock

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "roles" / "deepops"
SCHEMA = json.loads((ROOT / "deployment" / "data" / "site.schema.json").read_text())
KUBESPRAY_DEFAULTS = "roles/kubespray_defaults"
_INCLUDES = ("include_role", "import_role", "ansible.builtin.include_role", "ansible.builtin.import_role")
_PLAYBOOKS = ("import_playbook", "ansible.builtin.import_playbook")
_TASKS = ("include_tasks", "import_tasks", "ansible.builtin.include_tasks", "ansible.builtin.import_tasks")


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for nested in value.values():
            yield from texts(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from texts(nested)


def playbooks() -> list[str]:
    """Every playbook that the role runs: the paths among its variables."""
    values = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    return sorted(text for text in texts(values) if re.fullmatch(r"[\w./-]+\.yml", text))


def test_every_release_of_the_matrix_has_its_trees() -> None:
    assert sorted(row["release"] for row in tables()["deepops"]) == sorted(trees.DEEPOPS)
    assert len(playbooks()) >= 6


@pytest.mark.parametrize("playbook", playbooks())
def test_a_playbook_and_all_that_it_includes_are_in_the_tree(deepops: Tree, playbook: str) -> None:
    walk = Walk(deepops)
    walk.playbook(deepops.path / playbook)
    assert walk.missing == [], (
        f"{playbook} needs what neither DeepOps nor kubespray has: Galaxy's, or a submodule's"
    )
    assert walk.roles


def test_the_walk_finds_roles_of_galaxy(deepops: Tree) -> None:
    """DeepOps' own playbook for all of it needs them; so it is not run."""
    walk = Walk(deepops)
    walk.playbook(deepops.path / "playbooks" / "k8s-cluster.yml")
    assert {"DeepOps.hosts", "DeepOps.chrony"} <= {name for name, _ in walk.missing}


def test_patch_releases_of_kubernetes_are_those_that_kubespray_has_checksums_of(deepops: Tree) -> None:
    path = deepops.kubespray / KUBESPRAY_DEFAULTS / "vars" / "main" / "checksums.yml"
    known = yaml.safe_load(path.read_text())["kubelet_checksums"]["amd64"]
    row = deepops_row(deepops.release)
    assert row
    promised = set()
    for specifier in row["kubernetes"]:
        ((minor, first, again, last),) = re.findall(r">=(\d+\.\d+)\.(\d+),<=(\d+\.\d+)\.(\d+)", specifier)
        assert minor == again
        promised |= {f"{minor}.{patch}" for patch in range(int(first), int(last) + 1)}
    assert promised == set(known)


def test_the_locked_ansible_is_one_that_kubespray_accepts(deepops: Tree) -> None:
    play = yaml.safe_load((deepops.kubespray / "playbooks" / "ansible_version.yml").read_text())[0]["vars"]
    (core,) = re.findall(r"(?m)^ansible-core==(\S+)", lock(deepops.release).read_text())
    low, high, mine = (
        [int(part) for part in text.split(".")]
        for text in (play["minimal_ansible_version"], play["maximal_ansible_version"], core)
    )
    assert low <= mine < high


def test_operating_systems_are_those_that_kubespray_takes(deepops: Tree) -> None:
    defaults = yaml.safe_load(
        (deepops.kubespray / "roles/kubernetes/preinstall/defaults/main.yml").read_text()
    )
    systems = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text())["preflight_systems"]
    row = deepops_row(deepops.release)
    assert row
    for name in row["os"]:
        assert systems[name]["distribution"] in defaults["supported_os_distributions"]
    readme = (deepops.path / "README.md").read_text()
    for name in row["os"]:
        if name.startswith("ubuntu-"):
            assert name.removeprefix("ubuntu-") in readme


@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04"])
def test_a_dgx_runs_on_plain_ubuntu_and_has_the_manager_of_its_nvswitches(deepops: Tree, system: str) -> None:
    """DeepOps puts the software of a DGX on plain Ubuntu, and knows which models need NVIDIA's fabric manager."""
    values = yaml.safe_load((deepops.path / "roles" / "nvidia-dgx" / "vars" / f"{system}.yml").read_text())
    (platforms,) = (values[name] for name in values if name.endswith("_platforms"))
    (managers,) = (values[name] for name in values if name.endswith("_fabricmanager_packages"))
    driver = yaml.safe_load((ROOT / "roles" / "driver" / "vars" / "main.yml").read_text())
    promised = {model for row in tables()["hosts"] if row["os"] == system for model in row["models"]}
    seen = set()
    for model, knowledge in driver["__driver_models"].items():
        platform = next((each for each in platforms if re.search(each["match"], model.upper())), None)
        if platform is None or platform.get("nvlink5"):  # those need packages that Ubuntu does not have
            continue
        seen.add(model)
        assert model in promised, f"{model} with {system} is refused"
        assert knowledge["nvswitch"] == platform["nvswitch"], model
        if platform["nvswitch"]:
            packages = driver["__driver_table"][system]["nvswitch"]
            names = {package.partition("-{")[0] for package in packages}
            assert names & {package.partition("-{")[0] for package in managers}, f"{model} with {system}"
    assert "dgx-h100" in seen


def test_choices_of_the_site_file_are_choices_of_kubespray(deepops: Tree) -> None:
    tasks = yaml.safe_load(
        (deepops.kubespray / "roles" / "validate_inventory" / "tasks" / "main.yml").read_text()
    )
    (conditions,) = (
        task["assert"]["that"] for task in tasks if task["name"] == "Stop if unsupported options selected"
    )
    choices = {
        name: yaml.safe_load(found)
        for condition in conditions
        for name, found in re.findall(r"^(\w+) in (\[.*?\])$", condition)
    }
    cluster = SCHEMA["properties"]["kubernetes"]["properties"]
    assert set(cluster["container_runtime"]["enum"]) <= set(choices["container_manager"])
    assert set(cluster["network_plugin"]["enum"]) <= set(choices["kube_network_plugin"])
    row = deepops_row(deepops.release)
    assert row
    assert set(row["runtime"]) <= set(choices["container_manager"])


def test_groups_of_the_inventory_are_groups_of_deepops(deepops: Tree) -> None:
    named = set(re.findall(r"(?m)^\[([\w:]+)\]$", (ROLE / "templates" / "inventory.ini.j2").read_text()))
    known = set(
        re.findall(r"(?m)^\[([\w:]+)\]$", (deepops.path / "config.example" / "inventory").read_text())
    )
    assert named - {"muster_gpu"} <= known


def test_variables_of_the_templates_are_variables_of_the_tree(deepops: Tree) -> None:
    """All of them, also those that no site that comes with muster sets."""
    text = "\n".join(
        path.read_text()
        for path in deepops.path.rglob("*.yml")
        if {"defaults", "vars", "group_vars"} & set(path.parts)
    )
    for template in ("group_vars.yml.j2", "gpu_vars.yml.j2"):
        names = re.findall(r"(?m)^([a-z_]+):", (ROLE / "templates" / template).read_text())
        assert names
        assert [name for name in names if not re.search(rf"(?m)^\s*{name}:", text)] == []


def test_extra_variables_are_read_by_the_playbooks(deepops: Tree) -> None:
    text = "\n".join(path.read_text() for path in (ROLE / "tasks").glob("*.yml"))
    names = re.findall(r'"--extra-vars", \{"(\w+)":', text) + re.findall(r"--extra-vars, (\w+)=", text)
    assert len(names) == text.count("--extra-vars") > 1
    upstream = "\n".join(path.read_text() for path in (deepops.kubespray / "playbooks").glob("*.yml"))
    assert [name for name in names if not re.search(rf"\b{name}\b", upstream)] == []


def test_no_tag_is_skipped_or_chosen() -> None:
    """The tags of another project change what runs without a word; where one is named, it must be tested here."""
    assert not [
        path
        for path in (ROLE / "tasks").glob("*.yml")
        if 'tags"' in path.read_text() or "--skip-tags" in path.read_text()
    ]


class Walk:
    """Everything that a playbook includes by a plain name. `missing` are roles and files that are nowhere."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.roles: set[str] = set()
        self.missing: list[tuple[str, str]] = []
        self._files: set[Path] = set()

    def playbook(self, path: Path) -> None:
        if not path.is_file():
            self.missing.append((path.name, "playbook"))
            return
        for play in _read(path) or []:
            for key in _PLAYBOOKS:
                if key in play:
                    self.playbook((path.parent / play[key].split()[0]).resolve())
            for role in play.get("roles", []):
                self.role(role if isinstance(role, str) else role.get("role", role.get("name", "")), path)
            for part in ("tasks", "pre_tasks", "post_tasks", "handlers"):
                self._tasks(play.get(part), path)

    def role(self, name: str, source: Path) -> None:
        if "{{" in name or name in self.roles:
            return
        self.roles.add(name)
        beside = [
            parent.parent / name for parent in source.parents if parent.parent.is_relative_to(self._tree.path)
        ]
        path = self._tree.find_role(name) or next((path for path in beside if path.is_dir()), None)
        if path is None:
            self.missing.append((name, str(source.relative_to(self._tree.path))))
            return
        meta = path / "meta" / "main.yml"
        if meta.is_file():
            for entry in (_read(meta) or {}).get("dependencies") or []:
                self.role(entry if isinstance(entry, str) else entry.get("role", entry.get("name", "")), meta)
        for folder in ("tasks", "handlers"):
            self._file(path / folder / "main.yml", path)

    def _file(self, path: Path, role: Path) -> None:
        if path in self._files or not path.is_file():
            return
        self._files.add(path)
        self._tasks(_read(path), path)

    def _tasks(self, tasks: Any, source: Path) -> None:
        for task in tasks or []:
            for part in ("block", "rescue", "always"):
                self._tasks(task.get(part), source)
            for key in _INCLUDES:
                if key in task and isinstance(task[key], dict):
                    self.role(task[key]["name"], source)
            for key in _TASKS:
                target = task.get(key)
                target = target.get("file") if isinstance(target, dict) else target
                if isinstance(target, str) and "{{" not in target:
                    self._file(source.parent / target, source)


class _Loader(yaml.SafeLoader):
    """Reads Ansible's own tags as texts."""


def _read(path: Path) -> Any:
    return yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506 - it is a SafeLoader


_Loader.add_multi_constructor("!", lambda loader, suffix, node: str(node.value))
