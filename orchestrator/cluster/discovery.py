"""Asks the API server for the path of a kind, given its API version and name."""

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
    """Return the namespaced resource of that kind that can be listed and watched; None if there is none.

    Raises a subclass of ClusterError, for example NotFound if the group and version are not served. Returns None
    without a request if `api_version` is invalid: users can write any text there, even one that would change the path
    of the request.
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
    """Return the first of these versions of the group that is served; None if none is served.

    Raises subclasses of ClusterError.
    """
    try:
        served = await transport.get(f"/apis/{group}", ApiGroup)
    except NotFound:
        return None
    known = {listed.version for listed in served.versions}
    return next((version for version in versions if version in known), None)


async def probe(transport: Transport, resource: Resource, namespace: str | None = None) -> None:
    """List one object of the resource, to find out whether that is possible. `namespace` None lists the whole
    cluster. Raises subclasses of ClusterError.
    """
    await transport.get(resource.path(namespace), _Anything, params={"limit": 1})
