"""The table of roles, and the ClusterRoles and messages that are made from it."""

import itertools

import pytest

from orchestrator.manifests.render import documents, render
from orchestrator.roles import ROLES, role_for


@pytest.mark.parametrize(
    ("verb", "resource", "role"),
    [
        ("list", "projects", "muster-user"),
        ("list", "pods", "muster-viewer"),
        ("list", "nodes", "muster-viewer"),
        ("create", "jobs", "muster-researcher"),
        ("create", "pods/exec", "muster-researcher"),
        ("get", "pods/log", "muster-researcher"),
        ("create", "configmaps", "muster-project-admin"),
        ("create", "rolebindings", "muster-project-admin"),
        ("patch", "projects", "muster-cluster-admin"),
        ("delete", "nodes", None),
        ("bind", "clusterroles", None),
    ],
)
def test_the_least_role_that_allows_it(verb: str, resource: str, role: str | None) -> None:
    assert role_for(verb, resource) == role


def test_every_role_contains_the_one_before_it() -> None:
    tables = list(ROLES.values())
    assert all(set(less) < set(more) for less, more in itertools.pairwise(tables))


def test_the_manifests_hold_the_table() -> None:
    found = {
        each["metadata"]["name"]: each for each in documents(render("c")) if each["kind"] == "ClusterRole"
    }
    for role, rules in ROLES.items():
        assert [
            (each["apiGroups"], tuple(each["resources"]), tuple(each["verbs"]))
            for each in found[role]["rules"]
        ] == [([each.group], each.resources, each.verbs) for each in rules]
