"""The requests of stages to the cluster's API server that find the installed versions."""

from typing import Any

from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.transport import Transport


async def items(transport: Transport, path: str) -> list[dict[str, Any]]:
    """Return the objects of a list; empty if there is no such kind, or the account may not read it."""
    try:
        objects: list[dict[str, Any]] = (await transport.get(path))["items"]
    except (NotFound, Forbidden):
        return []
    return objects
