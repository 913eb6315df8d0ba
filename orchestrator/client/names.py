"""Names of objects in the cluster for the completion of a shell. Each TAB starts a process, so imports must be few.

Only this module uses the HTTP client of the standard library. The import of the asynchronous client takes 0.2 s, as
long as a whole answer may take. The server returns tables without objects, whose first column is the name.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from orchestrator.cluster.resources import (
    CLAIMS,
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    NODES,
    PROJECTS,
    STATEFUL_SETS,
    VOLUME_SNAPSHOTS,
    Resource,
)
from orchestrator.cluster.timeouts import COMPLETION_SECONDS
from orchestrator.errors import ConfigurationError
from orchestrator.names import NAMESPACE_PREFIX, PROJECT_LABEL, TEMPLATE_LABEL, TEMPLATES_NAMESPACE
from orchestrator.submit.name_rules import is_object_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from orchestrator.cluster.kubeconfig import Access

_TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1"


class Names:
    """One connection that asks for names: `with Names(access) as names:`. Raises OSError, ValueError, HTTPException."""

    def __init__(self, access: Access) -> None:
        url = urlsplit(access.server)
        host, port = url.hostname or "", url.port
        self._access = access
        self._root = url.path.rstrip("/")
        self._connection = (
            http.client.HTTPConnection(host, port, timeout=COMPLETION_SECONDS)
            if access.ssl is None
            else http.client.HTTPSConnection(host, port, timeout=COMPLETION_SECONDS, context=access.ssl)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def projects(self) -> list[str]:
        """Return all projects."""
        return self._names(PROJECTS)

    def nodes(self) -> list[str]:
        """Return all nodes."""
        return self._names(NODES)

    def jobs(self, project: str | None) -> list[str]:
        """Return the jobs of a project (None: the default project)."""
        namespace = self._namespace(project)
        return [name for resource in (JOBS, STATEFUL_SETS) for name in self._names(resource, namespace)]

    def volumes(self, project: str | None) -> list[str]:
        """Return the PVCs of a project (None: the default project)."""
        return self._names(CLAIMS, self._namespace(project))

    def snapshots(self, project: str | None) -> list[str]:
        """Return the snapshots of a project (None: the default project)."""
        return self._names(VOLUME_SNAPSHOTS, self._namespace(project))

    def templates(self, project: str | None) -> list[str]:
        """Return the templates of a project (None: the default project) and of the cluster."""
        template_names: list[str] = []
        for namespace in (self._namespace(project), TEMPLATES_NAMESPACE):
            template_names += self._names(CONFIG_MAPS, namespace, f"{TEMPLATE_LABEL}=true")
        return template_names

    def _namespace(self, project: str | None) -> str:
        if project is None:
            return self._access.namespace
        if not is_object_name(project):
            raise ConfigurationError(f"{project!r} is no name of a project")
        namespaces = self._names(NAMESPACES, selector=f"{PROJECT_LABEL}={project}")
        return namespaces[0] if namespaces else NAMESPACE_PREFIX + project  # members may not list namespaces

    def _names(self, resource: Resource, namespace: str | None = None, selector: str = "") -> list[str]:
        if namespace == "":
            return []
        query = {"includeObject": "None"} | ({"labelSelector": selector} if selector else {})
        headers = {"Accept": _TABLE}
        token = self._access.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._connection.putrequest("GET", f"{self._root}{resource.path(namespace)}?{urlencode(query)}")
        for name, value in (*headers.items(), *self._access.impersonation):
            self._connection.putheader(name, value)
        self._connection.endheaders()
        answer = self._connection.getresponse()
        body = answer.read()
        return _first_cells(json.loads(body)) if answer.status == http.HTTPStatus.OK else []


def _first_cells(table: dict[str, object]) -> list[str]:
    rows: Sequence[dict[str, Sequence[str]]] = table.get("rows") or ()  # type: ignore[assignment]
    return [str(row["cells"][0]) for row in rows if row.get("cells")]
