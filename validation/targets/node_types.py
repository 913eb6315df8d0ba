"""Puts nodes into groups with a label, as an administrator does with `kubectl label node`.

Projects can be limited to groups.
"""

from collections.abc import Mapping

from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.resources import NODES
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from validation.errors import TargetError
from validation.witness.names import NODE_TYPE_LABEL


async def label_nodes(transport: Transport | None, types: Mapping[str, str]) -> None:
    """Set the label of its group on each node; remove the label if the group is empty. Raises TargetError."""
    if transport is None:
        raise TargetError("the cluster is not connected")
    try:
        for name, kind in types.items():
            labels = {"metadata": {"labels": {NODE_TYPE_LABEL: kind or None}}}
            await transport.patch(NODES.path(name=name), labels, content_type=MERGE_PATCH)
    except ClusterError as error:
        raise TargetError(f"the nodes cannot be put into groups: {error}") from error
