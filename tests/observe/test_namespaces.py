"""A namespace belongs to its project, whatever labels users set on it."""

import pytest

from orchestrator.cluster.objects import Namespace, Project
from orchestrator.cluster.reflector import Change
from orchestrator.observe.namespaces import (
    NamespaceOwners,
    is_reserved,
    names_its_project,
    objection,
    projects_by_namespace,
)
from orchestrator.observe.reader import Reader
from tests.observe.objects import decoded, namespace, node, pod, project


def claiming(name: str, wanted: str) -> Project:
    """Return a project whose administrator named a namespace in its specification."""
    return decoded(Project, metadata={"name": name, "uid": f"uid-{name}"}, spec={"namespace": wanted})


def labelled(name: str, owner: str) -> Namespace:
    """Return a namespace that has the project's label but no owner reference."""
    return decoded(
        Namespace, metadata={"name": name, "uid": f"uid-{name}", "labels": {"muster.dev/project": owner}}
    )


def test_a_label_alone_makes_no_namespace_a_projects() -> None:
    spaces = [
        labelled("aaa", "team-a"),
        labelled("muster-team-a", "team-a"),
        labelled("kube-system", "team-a"),
    ]
    assert projects_by_namespace(spaces, [project("team-a")]) == {}


def test_the_namespace_that_the_operator_made_is_the_projects_even_without_its_label() -> None:
    made = namespace("muster-team-a", "team-a")
    made.metadata.labels.clear()
    assert projects_by_namespace([made], [project("team-a")]) == {"muster-team-a": "team-a"}


def test_a_namespace_of_an_earlier_project_of_that_name_is_not_the_new_ones() -> None:
    anew = decoded(Project, metadata={"name": "team-a", "uid": "another"})
    assert "does not belong to the project" in objection(namespace("muster-team-a", "team-a"), anew)


def test_a_second_namespace_with_the_projects_uid_is_not_the_projects() -> None:
    assert projects_by_namespace([namespace("muster-other", "team-a")], [project("team-a")]) == {}


def test_an_existing_namespace_is_a_projects_when_both_say_so() -> None:
    wants = claiming("team-a", "vision")
    assert projects_by_namespace([labelled("vision", "team-a")], [wants]) == {"vision": "team-a"}
    assert "kubectl label namespace vision muster.dev/project=team-a" in objection(
        labelled("vision", "team-b"), wants
    )


@pytest.mark.parametrize(
    "name", ["kube-system", "kube-public", "default", "muster-system", "muster-system-templates"]
)
def test_reserved_namespaces_are_no_projects_for_any_label(name: str) -> None:
    assert is_reserved(name)
    assert projects_by_namespace([labelled(name, "team-a")], [claiming("team-a", name)]) == {}


def test_of_two_projects_that_claim_one_namespace_the_label_chooses() -> None:
    both = [claiming("team-a", "vision"), claiming("team-b", "vision")]
    assert projects_by_namespace([labelled("vision", "team-b")], both) == {"vision": "team-b"}


def test_ownership_follows_changes_of_projects_and_namespaces_in_any_order() -> None:
    owners = NamespaceOwners()
    assert not owners.note_namespace(labelled("vision", "team-a"), is_there=True)
    assert owners.note_project(claiming("team-a", "vision"), is_there=True) == ["vision"]
    assert owners.note_project(claiming("team-a", "vision"), is_there=True) == []
    assert owners.note_namespace(labelled("vision", "team-b"), is_there=True)
    assert owners.project_of == {}
    owners.note_namespace(labelled("vision", "team-a"), is_there=True)
    assert owners.note_project(claiming("team-a", "vision"), is_there=False) == ["vision"]
    assert owners.project_of == {}


def test_workloads_move_to_the_project_when_its_namespace_becomes_its_own() -> None:
    reader = Reader()
    for each in (node("n-1"), labelled("muster-team-a", "team-a"), project("team-a", quota=1), pod("p")):
        reader.note(Change("added", each))
    assert [each.project for each in reader.read().snapshot.workloads] == [""]
    assert not reader.is_of_a_project("muster-team-a")
    reader.note(Change("modified", namespace("muster-team-a", "team-a")))
    assert [each.project for each in reader.read().snapshot.workloads] == ["team-a"]
    reader.note(Change("deleted", project("team-a", quota=1)))
    assert [each.project for each in reader.read().snapshot.workloads] == [""]


def test_a_reader_without_a_right_to_projects_uses_label_and_owner_together() -> None:
    assert names_its_project(namespace("muster-team-a", "team-a"), "team-a")
    assert not names_its_project(labelled("muster-team-a", "team-a"), "team-a")
    assert not names_its_project(namespace("muster-team-a", "team-b"), "team-a")
