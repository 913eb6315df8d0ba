"""Where objects of a kind that only a reference names live in the API: asked of the API server itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from orchestrator.cluster.resources import Resource
from orchestrator.cluster.wire import Wire

if TYPE_CHECKING:
    from orchestrator.cluster.transport import Transport


class ApiResource(Wire, frozen=True):
    """One entry of an `APIResourceList`; the name of a subresource has a slash."""

    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = []


class ApiResourceList(Wire, frozen=True):
    """What the API server serves of one group and version."""

    resources: list[ApiResource] = []


class _Anything(msgspec.Struct):
    """Any answer, of which nothing is read."""


async def discover(transport: Transport, api_version: str, kind: str) -> Resource | None:
    """Return the namespaced resource of that kind that can be listed and watched; None: there is none.

    Raises ClusterError leaves: NotFound where the group and version are not served.
    """
    group, _, version = api_version.rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    served = await transport.get(root, ApiResourceList)
    for resource in served.resources:
        if (
            resource.kind == kind
            and "/" not in resource.name
            and resource.namespaced
            and {"list", "watch"} <= set(resource.verbs)
        ):
            return Resource(group, version, resource.name, kind)
    return None


async def probe(transport: Transport, resource: Resource, namespace: str | None = None) -> None:
    """Raise the ClusterError that listing the resource would raise, if it would. None: in the whole cluster."""
    await transport.get(resource.path(namespace), _Anything, params={"limit": 1})
