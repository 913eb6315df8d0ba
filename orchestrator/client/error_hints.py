"""Hints for errors of the API server: no answer, an unknown user, a refusal.

The server's message has URLs and API groups, but people need the context, the right and the role. The type of the error
stays, so that programs can distinguish the cases.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from orchestrator.cluster.errors import ClusterError, Forbidden, Unauthorized, Unreachable
from orchestrator.roles import role_for

if TYPE_CHECKING:
    from orchestrator.cluster.kubeconfig import Access

_PATH: Final = re.compile(
    r"(?P<method>[A-Z]+) (?:\w+://[^/]+)?/(?:api|apis/(?P<group>[^/]+))/v\w+/"
    r"(?:namespaces/(?P<namespace>[^/?]+)/)?(?P<plural>[^/?]+)(?:/(?P<name>[^/?]+)(?:/(?P<sub>[^/?]+))?)?"
)
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def with_hint(error: ClusterError, access: Access) -> ClusterError:
    """Return an error of the same type with a hint, or the error itself if there is no hint."""
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


def _denied(error: Forbidden) -> str:
    request = _PATH.match(error.request)
    if request is None:
        return f"Access denied. You are not authorized to perform this action: {error.message}"
    method, plural, namespace, sub = (
        request["method"],
        request["plural"],
        request["namespace"],
        request["sub"],
    )
    verb = _VERBS.get(method, "get" if request["name"] else "list")
    resource = f"{plural}/{sub}" if sub else plural
    where = f"in namespace {namespace}" if namespace else "in the whole cluster"
    reason = error.message.removeprefix(f"{error.request}: ").removeprefix("403 ")
    role = role_for(verb, resource)
    bound = "" if namespace else ", bound in the whole cluster,"
    allowed_roles = (
        f"the role {role}{bound} allows it, ask an administrator for it"
        if role
        else "none of muster's roles allows it, ask the administrator of the Kubernetes cluster"
    )
    advice = f"{allowed_roles} ({reason})"
    return (
        f"Access denied. You are not authorized to perform this action: {verb} {resource} {where}; {advice}"
    )
