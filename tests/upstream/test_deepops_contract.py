"""Playbooks, variables, groups, releases and values of DeepOps and kubespray that muster uses exist there.

The names are read from the role `deepops`, the matrix, the schema of the site file and the effects.
"""

import json
import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import jinja2
import pytest
import yaml

from deployment import upstream
from deployment.addresses import POD_SUBNET, SERVICE_SUBNET
from deployment.effects import effects
from deployment.matrix import deepops_row, tables
from deployment.stages import served
from tests.upstream.ansible_names import Walk, defaults, named_in_roles
from tests.upstream.conftest import RELEASE
from tests.upstream.environments import lock
from tests.upstream.names import ROLES, ROOT, found, role_file, task_text, texts
from tests.upstream.repository import KUBESPRAY

Facts = dict[str, Any]
SCHEMA = json.loads((ROOT / "deployment" / "data" / "site.schema.json").read_text())
ROW = deepops_row(RELEASE) or {}
VARIABLES = role_file("deepops", "vars/main.yml")
NAMES = upstream.names()
PLAYBOOKS = sorted(
    {
        *(text for text in texts(VARIABLES) if re.fullmatch(r"[\w./-]+\.yml", text)),
        *found(rf"(?<![\w./])(?:playbooks/k8s-cluster|{KUBESPRAY})/[\w./-]+\.yml"),
    }
)
TEMPLATES = ROLES / "deepops" / "templates"
SET = sorted(
    {
        name
        for path in TEMPLATES.glob("*vars*")
        for name in re.findall(r"(?m)^([A-Za-z]\w*):", path.read_text())
    }
)
GROUPS = sorted(
    set(re.findall(r"(?m)^\[([^\]]+)\]$", (TEMPLATES / "inventory.ini.j2").read_text())) - {"muster_gpu"}
)
TASKS = task_text("deepops")
EXTRA = sorted(
    {
        *re.findall(r'"--extra-vars", \{"(\w+)":', TASKS),
        *re.findall(r"--extra-vars, (\w+)=", TASKS),
        *VARIABLES["deepops_removal_variables"],
    }
)
CHOICES = [
    (variable, choice)
    for variable, key in (
        ("container_manager", "container_runtime"),
        ("kube_network_plugin", "network_plugin"),
    )
    for choice in SCHEMA["properties"]["kubernetes"]["properties"][key]["enum"]
]
SYSTEMS = role_file("preflight", "vars/main.yml")["preflight_systems"]
KUBEADM_IMAGES = ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler")
MINORS = {
    minor: [f"{minor}.{patch}" for patch in range(int(first), int(last) + 1)]
    for minor, first, last in (
        re.findall(r">=(\d+\.\d+)\.(\d+),<=\1\.(\d+)", each)[0] for each in ROW["kubernetes"]
    )
}
_NOT_NAMED = {
    # useradd and groupadd change these files
    *("/etc/passwd", "/etc/passwd-", "/etc/shadow", "/etc/shadow-"),
    *("/etc/group", "/etc/group-", "/etc/gshadow", "/etc/gshadow-"),
    "/etc/sysctl.conf",  # 99-sysctl.conf of Ubuntu is a link to this file
}
CHANGED = [
    (kind, name)
    for kind in ("files", "packages", "units")
    for name in sorted({name for effect in effects() for name in getattr(effect, kind)} - _NOT_NAMED)
]
_RECORDED = {"8a5a1bc5317463d7ac9e07e598916c3f51860bf4": "160e3408f3fe05096f28100a0d40d2b65a32b98e"}
"""The facts of 26.07 record the commit of the tag 26.05; their paths and values are those of the tag 26.07."""


@pytest.mark.versions
def test_the_matrix_has_the_commit_of_the_release(deepops: Facts) -> None:
    assert [row["release"] for row in tables()["deepops"]] == [deepops["release"]]
    recorded = deepops["source"]["commit"]
    assert _RECORDED.get(recorded, recorded) == ROW["commit"]
    assert RELEASE in deepops["readme_versions"]


def test_the_repository_is_that_of_the_release(deepops: Facts) -> None:
    assert role_file("deepops", "defaults/main.yml")["deepops_repository"] == deepops["source"]["repository"]


@pytest.mark.versions
def test_kubespray_is_where_deepops_pins_it(deepops: Facts, kubespray: Facts) -> None:
    assert VARIABLES["deepops_kubespray"] == KUBESPRAY
    assert KUBESPRAY in deepops["submodules"]
    if not deepops["pinned"]:
        pytest.skip("not at hand: .git of the checkout of DeepOps")
    assert deepops["pinned"][KUBESPRAY] == kubespray["source"]["commit"]
    assert f"./{KUBESPRAY}/roles" in deepops["ansible_cfg"]["defaults"]["roles_path"].split(":")
    assert f"kubespray {kubespray['release']}" in ROW["source"]


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_playbook_and_all_that_it_includes_exist(deepops: Facts, kubespray: Facts, playbook: str) -> None:
    walk = Walk(deepops, kubespray)
    walk.playbook(playbook)
    assert walk.missing == [], (
        f"{playbook} needs what neither DeepOps nor kubespray has: Galaxy's, or a submodule's"
    )
    assert walk.roles


def test_the_role_names_its_playbooks() -> None:
    assert len(PLAYBOOKS) >= 6
    assert len(SET) >= 20
    removal = VARIABLES["deepops_removal_variables"]
    assert len(EXTRA) - len(removal) + 1 == TASKS.count("--extra-vars") > 2


def test_the_walk_finds_roles_of_galaxy(deepops: Facts, kubespray: Facts) -> None:
    """DeepOps' playbook for a whole cluster needs these roles, so muster does not run this playbook."""
    walk = Walk(deepops, kubespray)
    walk.playbook("playbooks/k8s-cluster.yml")
    assert {"DeepOps.hosts", "DeepOps.chrony"} <= {name for name, _ in walk.missing}


@pytest.mark.versions
@pytest.mark.parametrize("minor", MINORS)
def test_patch_releases_of_kubernetes_are_those_that_kubespray_has_checksums_of(
    kubespray: Facts, minor: str
) -> None:
    known = kubespray["checksums"]["kubelet_checksums"]["amd64"]
    assert set(MINORS[minor]) == {each for each in known if each.startswith(f"{minor}.")}


@pytest.mark.versions
@pytest.mark.parametrize(("software", "release"), ROW["brings"].items())
def test_the_software_that_kubespray_brings_has_these_releases(
    kubespray: Facts, software: str, release: str
) -> None:
    for minor in kubespray["resolved"].values():
        assert f"/v{release}/" in minor[software]["url"]


IN_USE = {
    "kube_network_plugin": "calico", "container_manager": "containerd", "calico_datastore": "kdd",
    "dns_mode": "coredns", "enable_network_policy": True, "enable_nodelocaldns": True,
    "enable_dns_autoscaler": True, "helm_enabled": True,
    "loadbalancer_apiserver_localhost": True, "loadbalancer_apiserver_type": "nginx",
}  # fmt: skip
"""The settings of kubespray for a site with containerd and Calico; all other settings are off."""


@pytest.mark.versions
@pytest.mark.parametrize("row", tables()["downloads"], ids=lambda row: str(row["kubernetes"]))
def test_the_listed_downloads_are_all_that_kubespray_fetches(kubespray: Facts, row: dict[str, Any]) -> None:
    resolved = kubespray["resolved"][row["kubernetes"]]
    files, images = set(), {f"registry.k8s.io/{name}:v{row['kubernetes']}" for name in KUBEADM_IMAGES}
    for name, download in kubespray["downloads"].items():
        condition = str(download["enabled"]).strip("{} ")
        if not jinja2.Environment().compile_expression(condition)(**IN_USE):  # noqa: S701 - no page is made
            continue
        if name == "etcd":
            checksums = kubespray["checksums"]["etcd_binary_checksums"]["amd64"]
            release = resolved[name]["image"].partition(":v")[2]
            file = f"etcd-io/etcd/releases/download/v{release}/etcd-v{release}-linux-amd64.tar.gz"
            files.add(f"https://github.com/{file}#{checksums[release].replace(':', '=')}")
        elif "image" in resolved[name]:
            images.add(resolved[name]["image"])
        else:
            files.add(f"{resolved[name]['url']}#{resolved[name]['checksum'].replace(':', '=')}")
    assert set(row["files"]) == files
    assert set(row["images"]) == images


def test_helm_of_the_controller_is_the_one_that_kubespray_names(kubespray: Facts) -> None:
    defaults = role_file("helm", "defaults/main.yml")
    named = {
        (each["helm"]["url"], each["helm"]["checksum"].removeprefix("sha256:"))
        for each in kubespray["resolved"].values()
    }
    assert (defaults["helm_archive"], defaults["helm_sha256"]) in named


def test_the_servers_of_a_bundle_replace_sites_that_kubespray_downloads_from(
    deepops: Facts, kubespray: Facts
) -> None:
    known = defaults(deepops, kubespray)
    assert {name: known[name][:1] for name in served.FOLDERS} == {
        name: [f"https://{folder}"] for name, folder in served.FOLDERS.items()
    }
    assert "containerd_registries_mirrors" in known
    hosts = {urlsplit(file).netloc for row in tables()["downloads"] for file in row["files"]}
    assert hosts == set(served.FOLDERS.values())


@pytest.mark.versions
def test_no_minor_release_of_kubernetes_is_left_out(kubespray: Facts) -> None:
    assert set(MINORS) == {each.rpartition(".")[0] for each in kubespray["kubernetes"]["versions"]}


@pytest.mark.versions
def test_the_locked_ansible_is_one_that_kubespray_accepts(kubespray: Facts) -> None:
    locked = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", lock(RELEASE).read_text()))
    accepted = kubespray["ansible"]
    low, high, mine = (
        [int(part) for part in text.split(".")]
        for text in (
            accepted["minimal_ansible_version"],
            accepted["maximal_ansible_version"],
            locked["ansible-core"],
        )
    )
    assert low <= mine < high
    assert f"ansible=={locked['ansible']}" in accepted["requirements"]
    assert locked["ansible"] == ROW["ansible"]
    required = {re.split(r"[=<>!~]", each)[0].strip() for each in accepted["requirements"]}
    assert required <= locked.keys()


@pytest.mark.versions
@pytest.mark.parametrize("system", ROW["os"])
def test_a_system_of_the_row_is_one_that_kubespray_and_deepops_take(
    deepops: Facts, kubespray: Facts, system: str
) -> None:
    distribution, version = SYSTEMS[system]["distribution"], SYSTEMS[system]["version"]
    assert distribution in kubespray["operating_systems"]["distributions"]
    listed = kubespray["operating_systems"]["readme"]
    (versions,) = (listed[name] for name in listed if distribution.replace("RedHat", "RHEL") in name)
    assert version in versions.split(", ")
    if not system.startswith("rhel"):
        name = re.sub(
            r"^(dgx-os|ubuntu)-",
            lambda match: {"dgx-os": "DGX OS", "ubuntu": "Ubuntu"}[match[1]] + " ",
            system,
        )
        assert name in deepops["operating_systems"]


@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04"])
def test_a_dgx_runs_on_plain_ubuntu_and_has_the_manager_of_its_nvswitches(
    deepops: Facts, system: str
) -> None:
    """DeepOps installs a DGX's software on plain Ubuntu, and knows which models need NVIDIA's fabric manager."""
    values = deepops["roles"]["nvidia-dgx"]["variables"][f"vars/{system}.yml"]
    (platforms,) = (values[name] for name in values if name.endswith("_platforms"))
    (managers,) = (values[name] for name in values if name.endswith("_fabricmanager_packages"))
    driver = role_file("driver", "vars/main.yml")
    promised = {model for row in tables()["hosts"] if row["os"] == system for model in row["models"]}
    seen = set()
    for model, knowledge in driver["__driver_models"].items():
        platform = next((each for each in platforms if re.search(each["match"], model.upper())), None)
        # these models need packages that Ubuntu does not have
        if platform is None or platform.get("nvlink5"):
            continue
        seen.add(model)
        assert model in promised, f"{model} with {system} is refused"
        assert knowledge["nvswitch"] == platform["nvswitch"], model
        if platform["nvswitch"]:
            packages = driver["__driver_table"][system]["nvswitch"]
            names = {package.partition("-{")[0] for package in packages}
            assert names & {package.partition("-{")[0] for package in managers}, f"{model} with {system}"
    assert "dgx-h100" in seen


@pytest.mark.parametrize(("variable", "choice"), CHOICES)
def test_a_choice_of_the_site_file_is_a_choice_of_kubespray(
    kubespray: Facts, variable: str, choice: str
) -> None:
    assert choice in kubespray["choices"][variable]


@pytest.mark.parametrize("runtime", ROW["runtime"])
def test_a_runtime_of_the_row_is_a_choice_of_kubespray(kubespray: Facts, runtime: str) -> None:
    assert runtime in kubespray["choices"]["container_manager"]
    assert runtime in {row["runtime"] for row in tables()["runtimes"]}
    assert {"docker": "cri_dockerd", "containerd": "containerd"}[runtime] in kubespray["downloads"]


def test_the_role_chooses_a_deployment_of_etcd_that_kubespray_has(kubespray: Facts) -> None:
    (line,) = re.findall(r"(?m)^etcd_deployment_type: (.*)$", (TEMPLATES / "group_vars.yml.j2").read_text())
    assert set(re.findall(r"'(\w+)'", line)) - {"docker"} <= set(kubespray["choices"]["etcd_deployment_type"])


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_the_inventory_is_a_group_of_deepops(deepops: Facts, group: str) -> None:
    assert group in deepops["inventory_groups"]


@pytest.mark.parametrize("name", SET)
def test_a_variable_of_the_templates_is_a_variable_of_the_tree(
    deepops: Facts, kubespray: Facts, name: str
) -> None:
    """The test also covers variables that no inventory in the repository sets."""
    assert name in defaults(deepops, kubespray)


def test_the_runtime_of_gpus_has_the_form_of_the_others(kubespray: Facts) -> None:
    text = (TEMPLATES / "gpu_vars.yml.j2").read_text().partition("{% else")[0]
    (added,) = yaml.safe_load(re.sub(r"\{%.*?%\}", "", text))["containerd_additional_runtimes"]
    known = kubespray["roles"]["container-engine/containerd"]["variables"]["defaults/main.yml"]
    assert known["containerd_additional_runtimes"] == []
    assert set(added["options"]) <= set(known["containerd_runc_runtime"]["options"])
    assert added["type"] == known["containerd_runc_runtime"]["type"]


@pytest.mark.parametrize("name", sorted(found(r"(?<![\w.])(?:k8s_nfs_\w+|containerd_\w+)\b")))
def test_a_variable_that_a_message_names_exists(deepops: Facts, kubespray: Facts, name: str) -> None:
    assert name in defaults(deepops, kubespray)


@pytest.mark.parametrize("name", EXTRA)
def test_an_extra_variable_is_read_by_the_playbooks(kubespray: Facts, name: str) -> None:
    read = {each for playbook in kubespray["playbooks"].values() for each in playbook["names"]}
    read |= {
        each
        for playbook in kubespray["playbooks"].values()
        for play in playbook["plays"]
        for each in re.findall(r"\w+", str(play.get("serial") or ""))
    }
    read |= set(kubespray["roles"]["remove_node/pre_remove"]["variables"]["defaults/main.yml"])
    assert name in read


@pytest.mark.parametrize(
    ("variable", "playbook"),
    [
        ("deepops_scale_playbook", "playbooks/scale.yml"),
        ("deepops_remove_playbook", "playbooks/remove_node.yml"),
    ],
)
def test_a_playbook_for_one_host_is_the_one_of_the_documents(
    kubespray: Facts, variable: str, playbook: str
) -> None:
    assert playbook in texts(kubespray["playbooks"][VARIABLES[variable].removeprefix(f"{KUBESPRAY}/")])


def test_no_tag_is_skipped_or_chosen() -> None:
    """A tag of another project can change which tasks run without an error, so a tag that muster names needs a test
    here.
    """
    assert 'tags"' not in TASKS
    assert "--skip-tags" not in TASKS
    assert re.findall(r"--tags, (\S+),", TASKS) == ['"download,network"']


def test_the_tags_of_the_network_plugin_choose_no_role_that_sets_up_nodes(kubespray: Facts) -> None:
    plays = kubespray["playbooks"]["playbooks/cluster.yml"]["plays"]
    tagged = [
        role["role"]
        for play in plays
        for role in play.get("roles", ())
        if {"download", "network"} & set(role.get("tags", ()))
    ]
    assert {"download", "network_plugin"} <= set(tagged)
    assert {role.split("/")[0] for role in tagged} <= {"download", "network_plugin"}


def test_default_networks_are_those_of_kubespray(kubespray: Facts) -> None:
    own = kubespray["roles"]["kubespray_defaults"]["variables"]["defaults/main/main.yml"]
    assert (own["kube_pods_subnet"], own["kube_service_addresses"]) == (POD_SUBNET, SERVICE_SUBNET)
    assert own["kube_network_node_prefix"] == NAMES["node_prefix"]
    calico = kubespray["roles"]["network_plugin/calico_defaults"]["variables"]["defaults/main.yml"]
    assert calico["calico_pool_blocksize"] == NAMES["block_prefix"]


def test_names_by_which_site_files_are_checked_are_those_of_the_trees(
    deepops: Facts, kubespray: Facts
) -> None:
    known = defaults(deepops, kubespray)
    prose = {"ref", "see"}  # words in comments
    kinds = {bool: "bool", int: "int", list: "list"}
    named = {
        name: kinds.get(type(values[0]), "") if len(set(map(type, values))) == 1 else ""
        for name, values in known.items()
        if re.fullmatch(r"[a-z]\w*", name) and name not in prose
    }
    named |= dict.fromkeys(NAMES["without_default"].split(), "")
    assert {name for name, _ in upstream.variables().items() ^ named.items()} == set()
    assert NAMES["choices"] == {
        name: values
        for name, values in kubespray["choices"].items()
        if name not in {*NAMES["keys"], *NAMES["own"]}
    }
    for name in [*NAMES["keys"], *NAMES["ipv4_only"], *NAMES["own"]]:
        assert name in upstream.variables()
    settled = set(SET) - {*NAMES["keys"], *NAMES["own"]}
    assert not settled & set(re.findall(r"(?m)^(\w+):", (TEMPLATES / "group_vars.yml.j2").read_text()))


def test_releases_of_docker_in_a_site_file_are_those_of_every_system(kubespray: Facts) -> None:
    variables = kubespray["roles"]["container-engine/docker"]["variables"]
    for system in ("ubuntu", "redhat"):
        known = set(variables[f"vars/{system}.yml"]["docker_versioned_pkg"])
        assert known - {"edge", "stable"} == set(NAMES["docker"])


def test_names_that_hosts_may_not_have_are_the_groups_of_the_trees(deepops: Facts, kubespray: Facts) -> None:
    plays = [
        play
        for tree in (deepops, kubespray)
        for playbook in tree["playbooks"].values()
        for play in playbook["plays"]
    ]
    patterns = [text for play in plays for text in texts(play.get("hosts")) if "{{" not in text]
    found_groups = {re.sub(r"[!&\s]|\[.*", "", word) for text in patterns for word in re.split("[:,|]", text)}
    found_groups |= {name.partition(":")[0] for name in deepops["inventory_groups"]}
    named = {name for name in found_groups if re.fullmatch(r"[a-z][\w-]*", name)} - {"first"}
    assert named == set(NAMES["groups"])


def test_the_address_of_a_node_is_a_variable_of_kubespray(kubespray: Facts) -> None:
    checks = [check for role in kubespray["roles"].values() for check in role.get("checks", [])]
    assert "Stop if ip var does not match local ips" in checks
    assert "access_ip" in upstream.variables()


def test_the_subnet_manager_of_nvlink_5_is_a_package_that_deepops_installs(deepops: Facts) -> None:
    values = deepops["roles"]["nvidia-dgx"]["variables"]["vars/ubuntu-24.04.yml"]
    assert "nvlsm" in values["dgx_os7_nvlink5_packages"]


def test_docker_of_the_host_is_a_choice_of_kubespray(kubespray: Facts) -> None:
    """`versions.docker: latest` keeps the Docker that a host has."""
    variables = kubespray["roles"]["container-engine/docker"]["variables"]
    for system in {SYSTEMS[name]["distribution"].lower() for name in ROW["os"]}:
        assert "latest" in variables[f"vars/{system}.yml"]["docker_versioned_pkg"]


def test_the_settings_that_the_role_replaces_are_those_of_deepops(deepops: Facts) -> None:
    """The role's environment overrides these settings: DeepOps checks no host key, and keeps sockets in the home
    directory.
    """
    settings = deepops["ansible_cfg"]
    assert settings["defaults"]["host_key_checking"] == "False"
    assert "UserKnownHostsFile=/dev/null" in settings["ssh_connection"]["ssh_args"]
    assert settings["ssh_connection"]["control_path"].startswith("~/.ssh/")
    assert "fact_caching_connection" in settings["defaults"]
    assert VARIABLES["deepops_run_environment"]["ANSIBLE_CONFIG"].endswith("/ansible.cfg")


@pytest.mark.parametrize("path", sorted(found(r'"contrib/(\w+)')))
def test_a_tool_of_kubespray_that_a_message_names_exists(kubespray: Facts, path: str) -> None:
    assert f"contrib/{path}" in kubespray["paths"]["directories"]


def test_the_role_that_a_signature_names_is_one_of_kubespray(kubespray: Facts) -> None:
    signatures = yaml.safe_load((ROOT / "deployment" / "data" / "signatures.yaml").read_text())
    named = [name for each in signatures for name in re.findall(r"role '(\S+)' was not found", each["match"])]
    assert named
    for name in named:
        assert any(re.fullmatch(name, role) for role in kubespray["roles"])


@pytest.mark.parametrize(("kind", "name"), CHANGED)
def test_an_announced_change_is_named_by_a_role_of_kubespray(kubespray: Facts, kind: str, name: str) -> None:
    """The test checks the effects that the plan announces. test_host_plays.py checks on hosts
    whether there are others.
    """
    known = named_in_roles(kubespray, kind)
    if kind == "files":
        # a backup file is in the folder of its original
        path = PurePosixPath(name.removesuffix("/").removesuffix(".*"))
        assert any(PurePosixPath(each).is_relative_to(path) for each in known)
    else:
        assert {name, name.removesuffix(".service")} & known
