"""The ConfigMaps in which the leader records its settings, its skipped objects and its first decisions."""

from collections.abc import Mapping

from orchestrator.cluster.resources import CONFIG_MAPS
from orchestrator.cluster.transport import Transport
from orchestrator.names import SYSTEM_NAMESPACE


async def write_record(
    transport: Transport, name: str, data: Mapping[str, str], *, field_manager: str
) -> None:
    """Apply the ConfigMap `name` in the operator's namespace with this data. Raises subclasses of ClusterError."""
    body = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": name,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "muster"},
        },
        "data": data,
    }
    await transport.apply(CONFIG_MAPS.path(SYSTEM_NAMESPACE, name), body, field_manager=field_manager)
