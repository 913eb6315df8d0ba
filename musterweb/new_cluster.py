"""The manifests of `muster operator-yaml` for a new cluster, to copy."""

from musterweb.page import Page, Visit
from orchestrator.cli.operator import operator_manifests
from orchestrator.errors import UsageError


async def new_cluster_page(visit: Visit) -> Page:
    """Return the page with the form for the name of a new cluster, and the YAML for this name."""
    name, text, problem = visit.query.get("name", "").strip(), "", ""
    if name:
        try:
            text = cluster_yaml(name)
        except UsageError as error:
            problem = str(error)
    return Page("New cluster", "new_cluster.html.j2", {"name": name, "text": text, "problem": problem})


def cluster_yaml(name: str) -> str:
    """Return the output of `muster operator-yaml --cluster NAME`. Raises UsageError for an invalid name."""
    return operator_manifests(name)
