"""Each thing has one name: in the site file, the roles, messages and documents."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import inventory, playbook, site_file, variables
from deployment.content import find

ROOT = Path(__file__).parents[2]
ROLES = sorted(each.name for each in (ROOT / "roles").iterdir())
SITES = sorted(each for each in (ROOT / "inventories").iterdir())
TEXTS = [
    ROOT / "deployment" / "data" / "signatures.yaml",
    *(ROOT / "docs" / name for name in ("reference/site-file.md", "reference/stages.md")),
    *(path for each in SITES for path in each.glob("*.yml")),
]
NOT_VARIABLES = {"driver_version", "snapshot_policies"}
"""Words with the prefix of a role that are not variables."""


@cache
def specs(role: str) -> dict[str, Any]:
    """Return the entry points of a role, with the specification of each."""
    text = (ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)["argument_specs"]
    return found


@cache
def options(role: str) -> dict[str, Any]:
    """Return the variables of all entry points of a role."""
    return {name: option for entry in specs(role).values() for name, option in entry["options"].items()}


@cache
def defaults(role: str) -> dict[str, Any]:
    text = (ROOT / "roles" / role / "defaults" / "main.yml").read_text()
    return yaml.safe_load(text) or {}


def given(directory: Path) -> set[str]:
    """Return every role variable that the site file sets, on all hosts or on one."""
    loaded = site_file.load(directory)
    names = set(variables.of_roles(loaded))
    for host in loaded.hosts.values():
        names |= set(variables.of_host(host))
    return names


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_with_a_default_is_described_and_the_other_way_round(role: str) -> None:
    required = {name for name, option in options(role).items() if option.get("required")}
    assert set(options(role)) - required <= set(defaults(role))
    assert set(defaults(role)) <= set(options(role))


@pytest.mark.parametrize("directory", SITES, ids=lambda each: each.name)
def test_the_roles_take_the_values_of_the_site_file(directory: Path) -> None:
    known = {name for role in ROLES for name in options(role)}
    assert given(directory) <= known


@pytest.mark.parametrize("directory", SITES, ids=lambda each: each.name)
def test_every_variable_that_a_stage_cannot_do_without_is_set(directory: Path) -> None:
    loaded = site_file.load(directory)
    groups = inventory.groups(inventory.build(loaded))
    running = {
        each.name for each in playbook.read(find()) if not playbook.not_applicable(each, loaded, groups)
    }
    installing = {role: specs(role)["main"]["options"] for role in running}
    required = {
        name for found in installing.values() for name, option in found.items() if option.get("required")
    }
    assert required <= given(directory)


def named(text: str) -> set[str]:
    """Return every word that looks like a role variable, except parts of paths and of longer names."""
    plain = re.sub(r"(__|[-./])[a-z0-9_]+", " ", text)
    return set(re.findall(rf"\b(?:{'|'.join(ROLES)})_[a-z][a-z0-9_]*[a-z0-9]\b", plain)) - NOT_VARIABLES


@pytest.mark.parametrize("path", TEXTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_every_variable_that_people_are_told_of_is_one(path: Path) -> None:
    assert named(path.read_text()) - {name for role in ROLES for name in options(role)} == set()


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_that_a_role_uses_is_one_or_its_own(role: str) -> None:
    text = "\n".join(each.read_text() for each in sorted((ROOT / "roles" / role).rglob("*.yml*")))
    own = set(re.findall(r"(?m)^\s*(?:- )?([a-z0-9_]+):", text))
    own |= set(re.findall(r"(?:register|loop_var|index_var): ([a-z0-9_]+)", text))
    assert named(text) - own - {name for each in ROLES for name in options(each)} == set()


@pytest.mark.parametrize("directory", SITES, ids=lambda directory: directory.name)
def test_no_site_that_comes_with_muster_switches_a_feature_gate(directory: Path) -> None:
    assert "feature_gate" not in str(variables.of_roles(site_file.load(directory)))
    assert "feature_gate" not in "".join(path.read_text() for path in directory.glob("*.yml"))


def test_the_account_of_trident_is_one_fact() -> None:
    loaded = site_file.load(ROOT / "inventories" / "current")
    values = variables.of_roles(loaded)
    assert values["trident_password"] == values["ontap_trident_password"]
    assert values.get("trident_username") == values.get("ontap_trident_user")
    assert defaults("trident")["trident_username"] == defaults("ontap")["ontap_trident_user"]
    assert values["trident_svm"] == values["ontap_svm"]
    interfaces = {each["address"]: each for each in values["ontap_lifs"]}
    assert interfaces[values["trident_management_lif"]]["service_policy"] == "default-management"
