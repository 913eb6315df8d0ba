"""Renders the operator YAML: everything that a cluster needs before muster can schedule on it."""

from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from orchestrator.distribution import installed_version
from orchestrator.names import (
    MEMBERS_BINDING,
    NAMESPACE_PREFIX,
    OBJECTS_QUOTA,
    OPERATOR_ACCOUNT,
    OPERATOR_BINDING,
    PRIORITY_CLASSES,
    PROJECT_LABEL,
    SELECTED_NODE_ANNOTATION,
    SYSTEM_NAMESPACE,
    TEMPLATES_NAMESPACE,
    WRITER_ROLE,
)
from orchestrator.roles import CONTROLLERS, ROLES

DEFAULT_REPLICAS = 2


def default_image() -> str:
    """The image of this version; sites with a mirror name their own."""
    return f"muster:{installed_version()}"


def render(
    cluster: str,
    *,
    image: str | None = None,
    replicas: int = DEFAULT_REPLICAS,
    operator_arguments: Sequence[str] = (),
) -> str:
    """The operator YAML of `cluster` as one text of several documents, the same for the same arguments.

    `operator_arguments` are further options of `muster operator`.
    """
    environment = Environment(
        loader=PackageLoader("orchestrator.manifests", "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - this is YAML; values are quoted as JSON, which YAML contains
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    values = {
        "cluster": cluster,
        "image": image or default_image(),
        "namespace": SYSTEM_NAMESPACE,
        "templates_namespace": TEMPLATES_NAMESPACE,
        "members_binding": MEMBERS_BINDING,
        "operator_binding": OPERATOR_BINDING,
        "writer_role": WRITER_ROLE,
        "objects_quota": OBJECTS_QUOTA,
        "account": OPERATOR_ACCOUNT,
        "prefix": NAMESPACE_PREFIX,
        "project_label": PROJECT_LABEL,
        "selected_node": SELECTED_NODE_ANNOTATION,
        "priority_classes": PRIORITY_CLASSES,
        "roles": ROLES,
        "controllers": CONTROLLERS,
        "replicas": replicas,
        "operator_arguments": ["operator", "--health-port=8080", *operator_arguments],
    }
    parts = [environment.get_template(name).render(values).strip() for name in _template_names()]
    return "".join(f"---\n{part.removeprefix('---').strip()}\n" for part in parts)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered text, in order."""
    return [document for document in yaml.safe_load_all(text) if document]


def _template_names() -> Iterator[str]:
    templates = resources.files("orchestrator.manifests") / "templates"
    yield from sorted(file.name for file in templates.iterdir() if file.name.endswith(".yaml.j2"))
