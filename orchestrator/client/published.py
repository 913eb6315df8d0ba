"""Counts, for the command line, the GPUs that drivers publish in ResourceSlices."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from orchestrator.cluster.device_objects import ResourceSlice
from orchestrator.cluster.discovery import served_version
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.resources import DRA_VERSIONS, RESOURCE_SLICES
from orchestrator.cluster.transport import Transport
from orchestrator.observe.published_gpus import PublishedGpus, gpus_by_node
from orchestrator.observe.resource_claims import UnreadableDevices, read_slice


async def published_gpus(transport: Transport) -> Mapping[str, PublishedGpus]:
    """Return the published GPUs by node; empty if the user may not read slices. Invalid slices are left out."""
    try:
        version = await served_version(transport, RESOURCE_SLICES.group, DRA_VERSIONS)
        if version is None:
            return {}
        page = await transport.list(replace(RESOURCE_SLICES, version=version).path(), ResourceSlice)
    except (Forbidden, NotFound):
        return {}
    return published_in(page.items)


def published_in(objects: Iterable[ResourceSlice]) -> Mapping[str, PublishedGpus]:
    """Return the GPUs of these slices by node. Invalid slices are left out."""
    slices = []
    for published in objects:
        try:
            slices.append(read_slice(published))
        except UnreadableDevices:
            continue  # the operator reports this slice
    return gpus_by_node(slices)
