"""Decides which namespace belongs to a project. A label alone is not enough, because other users can set labels.

A project has one namespace. Usually it is `muster-NAME`, which the operator creates with the uid of the Project in its
owner reference. Otherwise `spec.namespace` of the Project names it and its label names the project, so that both
administrators have agreed. Kubernetes' own namespaces, `default` and muster's own namespace never belong to a project.
"""

from collections.abc import Iterable
from typing import Final

from orchestrator.cluster.objects import Namespace, Project
from orchestrator.cluster.resources import PROJECTS
from orchestrator.names import GROUP, NAMESPACE_PREFIX, PROJECT_LABEL, SYSTEM_NAMESPACE
from orchestrator.observe.dict_ops import discard

RESERVED_PREFIXES: Final = ("kube-", f"{SYSTEM_NAMESPACE}-")
RESERVED: Final = frozenset({"default", SYSTEM_NAMESPACE})


def is_reserved(name: str) -> bool:
    """Return whether the namespace is reserved and so cannot belong to a project: Kubernetes' own, muster's own, and
    `default`.
    """
    return name in RESERVED or name.startswith(RESERVED_PREFIXES)


def namespace_name(project: Project) -> str:
    """Return the name of the only namespace that can belong to the project, whether it exists or not."""
    return project.spec.namespace or NAMESPACE_PREFIX + project.metadata.name


def objection(namespace: Namespace, project: Project) -> str:
    """Return the reason why the namespace does not belong to the project; "" if it does."""
    name, owner = namespace.metadata.name, project.metadata.name
    if is_reserved(name):
        return f"the namespace {name} is reserved: no project can have it"
    if name != namespace_name(project):
        return f"the namespace of the project {owner} is {namespace_name(project)}, not {name}"
    if project.spec.namespace:
        if namespace.metadata.labels.get(PROJECT_LABEL) == owner:
            return ""
        return (
            f"the namespace {name} does not agree to be the project's: "
            f"label it with 'kubectl label namespace {name} {PROJECT_LABEL}={owner}'"
        )
    if any(reference.uid == project.metadata.uid for reference in namespace.metadata.owner_references):
        return ""
    return (
        f"the namespace {name} exists and does not belong to the project. Delete it, or give it to the project with "
        f"spec.namespace of the Project and its label {PROJECT_LABEL}={owner}"
    )


def names_its_project(namespace: Namespace, project: str) -> bool:
    """Return whether the label and an owner reference of a namespace name this project.

    The uid is not compared, because users without the right to read Projects call this.
    """
    return namespace.metadata.labels.get(PROJECT_LABEL) == project and any(
        reference.api_version.startswith(f"{GROUP}/")
        and reference.kind == PROJECTS.kind
        and reference.name == project
        for reference in namespace.metadata.owner_references
    )


def projects_by_namespace(namespaces: Iterable[Namespace], projects: Iterable[Project]) -> dict[str, str]:
    """Return the names of projects by the namespace that belongs to them."""
    owners = NamespaceOwners()
    for project in projects:
        owners.note_project(project, is_there=True)
    for namespace in namespaces:
        owners.note_namespace(namespace, is_there=True)
    return dict(owners.project_of)


class NamespaceOwners:
    """The namespaces of projects, updated by changes of both. `project_of` has the project names by namespace."""

    def __init__(self) -> None:
        self.project_of: dict[str, str] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._projects: dict[str, Project] = {}
        self._claims: dict[str, dict[str, None]] = {}

    def note_namespace(self, namespace: Namespace, *, is_there: bool) -> bool:
        """Apply a change of a namespace. Return whether it now belongs to another project, or to none."""
        name = namespace.metadata.name
        if is_there:
            self._namespaces[name] = namespace
        else:
            self._namespaces.pop(name, None)
        return self._settle(name)

    def note_project(self, project: Project, *, is_there: bool) -> list[str]:
        """Apply a change of a project. Return the namespaces that now belong to another project, or to none."""
        name, changed = project.metadata.name, []
        before = self._projects.pop(name, None)
        if before is not None:
            discard(self._claims, namespace_name(before), name)
            changed.append(namespace_name(before))
        if is_there:
            self._projects[name] = project
            self._claims.setdefault(namespace_name(project), {})[name] = None
            changed.append(namespace_name(project))
        return [namespace for namespace in dict.fromkeys(changed) if self._settle(namespace)]

    def _settle(self, name: str) -> bool:
        before = self.project_of.get(name, "")
        after = self._owner(name)
        if after:
            self.project_of[name] = after
        else:
            self.project_of.pop(name, None)
        return before != after

    def _owner(self, name: str) -> str:
        namespace = self._namespaces.get(name)
        if namespace is None:
            return ""
        claims = self._claims.get(name, ())
        return next((project for project in claims if not objection(namespace, self._projects[project])), "")
