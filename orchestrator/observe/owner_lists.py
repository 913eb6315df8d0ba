"""Lists the owners of pods once, for programs that read a cluster and exit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from orchestrator.cluster.discovery import discover
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.objects import Object, Pod
from orchestrator.names import SCHEDULER_NAME
from orchestrator.observe.controllers import CONTROLLERS, climbs, decode, key_of
from orchestrator.observe.owners import MAX_OWNERS, POD_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.cluster.transport import Transport
    from orchestrator.cluster.wire import OwnerReference

MAX_KINDS = 64
"""Maximum number of listed kinds, because users can refer to any kind."""


async def list_owners(
    transport: Transport, pods: Iterable[Pod], known: Mapping[str, Object], namespace: str | None = None
) -> tuple[dict[str, Object], list[str]]:
    """Return the missing owners of muster's pods by uid, and a line for each kind of owner that could not be read.

    For each kind that the pods refer to, this takes two requests: discovery and list. If all owners are `known`, it
    sends no request.
    """
    ours = [pod for pod in pods if pod.spec.scheduler_name == SCHEDULER_NAME]
    by_uid = {pod.metadata.uid: pod for pod in ours}
    owners: dict[str, Object] = {}
    listed: set[tuple[str, str]] = set()
    problems: list[str] = []
    while True:
        versions = {
            key_of(reference): reference.api_version
            for pod in ours
            if (reference := _first_unread(pod, {**known, **owners} if owners else known, by_uid)) is not None
            and key_of(reference) not in listed
        }
        if not versions or len(listed) >= MAX_KINDS:
            return owners, problems
        for kind, api_version in versions.items():
            listed.add(kind)
            try:
                owners |= await _list(transport, kind, api_version, namespace)
            except ClusterError as error:
                problems.append(f"owners of kind {kind[1]} of {api_version}: {error}")


def _first_unread(pod: Pod, known: Mapping[str, Object], pods: Mapping[str, Pod]) -> OwnerReference | None:
    reference = pod.metadata.controller
    for _ in range(MAX_OWNERS):
        if reference is None:
            return None
        kind = key_of(reference)
        owner = pods.get(reference.uid) if kind == POD_KIND else known.get(reference.uid)
        if owner is None:
            return reference if kind[0] else None
        above = owner.metadata.controller
        reference = above if above is not None and climbs(kind, key_of(above)) else None
    return None


async def _list(
    transport: Transport, kind: tuple[str, str], api_version: str, namespace: str | None
) -> dict[str, Object]:
    resource = await discover(transport, api_version, kind[1])
    if resource is None:
        return {}
    known = CONTROLLERS.get(kind)
    if known is None or known.gang is None:
        page = await transport.list(resource.path(namespace), Object, metadata_only=True)
        return {owner.metadata.uid: owner for owner in page.items}
    raw = await transport.list(resource.path(namespace), msgspec.Raw)
    return {owner.metadata.uid: owner for owner in (decode(item, known) for item in raw.items)}
