"""Finds the API path of a kind that only a reference names, by a request to the API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.resources import Resource
from orchestrator.cluster.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cluster.transport import Transport


_API_VERSION: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class ApiResource(Wire, frozen=True):
    """One entry of an `APIResourceList`; the name of a subresource has a slash."""

    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] = []


class ApiResourceList(Wire, frozen=True):
    """The kinds that the API server serves of one group and version."""

    resources: list[ApiResource] = []


class ServedVersion(Wire, frozen=True):
    """One version of an API group."""

    version: str


class ApiGroup(Wire, frozen=True):
    """The versions of one API group that the API server serves."""

    versions: list[ServedVersion] = []


class _Anything(msgspec.Struct):
    """Any answer; its content is not read."""


async def discover(transport: Transport, api_version: str, kind: str) -> Resource | None:
    """Return the namespaced resource of that kind that can be listed and watched; None: there is none.

    Raises ClusterError leaves: NotFound if the group and version are not served. An invalid version is never asked
    for: users can write any text there, also one that leads to another path.
    """
    if not _API_VERSION.fullmatch(api_version):
        return None
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


async def served_version(transport: Transport, group: str, versions: Sequence[str]) -> str | None:
    """Return the first of these versions of the group that is served; None for none. Raises ClusterError leaves."""
    try:
        served = await transport.get(f"/apis/{group}", ApiGroup)
    except NotFound:
        return None
    known = {listed.version for listed in served.versions}
    return next((version for version in versions if version in known), None)


async def probe(transport: Transport, resource: Resource, namespace: str | None = None) -> None:
    """Raise the ClusterError that listing the resource would raise, if it would. None: in the whole cluster."""
    await transport.get(resource.path(namespace), _Anything, params={"limit": 1})
