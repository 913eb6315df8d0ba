"""What to say when the API server does not answer, does not know who asks, or says no.

The server's own words name URLs and API groups; people need the context, the right and the role. The type of the
error stays, so that programs can tell the cases apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from orchestrator.cluster.errors import ClusterError, Forbidden, Unauthorized, Unreachable

if TYPE_CHECKING:
    from orchestrator.cluster.kubeconfig import Access

VIEWER: Final = "muster-viewer"
RESEARCHER: Final = "muster-researcher"
PROJECT_ADMIN: Final = "muster-project-admin"
CLUSTER_ADMIN: Final = "muster-cluster-admin"

_READS: Final = frozenset({"get", "list", "watch"})
_RUNNING: Final = frozenset(
    {"jobs", "statefulsets", "deployments", "services", "ingresses", "persistentvolumeclaims"}
)
_INSIDE: Final = frozenset({"pods", "pods/log", "pods/exec", "pods/attach", "pods/portforward"})
_SEEN: Final = _RUNNING | {"pods", "events", "configmaps", "namespaces", "nodes", "projects"}

_PATH: Final = re.compile(
    r"(?P<method>[A-Z]+) (?:\w+://[^/]+)?/(?:api|apis/(?P<group>[^/]+))/v\w+/"
    r"(?:namespaces/(?P<namespace>[^/?]+)/)?(?P<plural>[^/?]+)(?:/(?P<name>[^/?]+)(?:/(?P<sub>[^/?]+))?)?"
)
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def explained(error: ClusterError, access: Access) -> ClusterError:
    """Return the same kind of error with the words that help, or the error itself where there are none."""
    if isinstance(error, Unreachable):
        return Unreachable(
            f"the API server {access.server} (context {access.context}) does not answer; "
            f"check that it runs, or choose another with --kubeconfig or --context: {error}"
        )
    if isinstance(error, Unauthorized):
        return Unauthorized(
            f"the API server {access.server} does not know user {access.user}: renew its credentials",
            status=error.status,
            reason=error.reason,
        )
    if isinstance(error, Forbidden):
        return Forbidden(_denied(error), status=error.status, reason=error.reason, request=error.request)
    return error


def role_for(verb: str, resource: str) -> str:
    """Return the least of the shipped roles that allows a verb on a resource (`jobs`, `pods/exec`)."""
    if verb in _READS and resource in _SEEN:
        return VIEWER
    if resource in _RUNNING or resource in _INSIDE:
        return RESEARCHER
    if resource in ("configmaps", "rolebindings", "secrets"):
        return PROJECT_ADMIN
    return CLUSTER_ADMIN


def _denied(error: Forbidden) -> str:
    asked = _PATH.match(error.request)
    if asked is None:
        return f"Access denied. You are not authorized to perform this action: {error.message}"
    method, plural, namespace, sub = asked["method"], asked["plural"], asked["namespace"], asked["sub"]
    verb = _VERBS.get(method, "get" if asked["name"] else "list")
    resource = f"{plural}/{sub}" if sub else plural
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    said = error.message.removeprefix(f"{error.request}: ").removeprefix("403 ")
    return (
        f"Access denied. You are not authorized to perform this action: {verb} {resource} {where}; "
        f"the role {role_for(verb, resource)} allows it, ask an administrator for it ({said})"
    )
