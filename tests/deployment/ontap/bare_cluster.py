"""The records of an A800 before its setup: nodes, ports, aggregates, licences."""

import uuid
from typing import Any

from tests.deployment.ontap.bodies import Record

NODES = ("a800-01", "a800-02")
PHYSICAL_PORTS = ("e5a", "e5b", "e0M")
SVM_OWNED = (
    "network/ip/interfaces",
    "network/ip/routes",
    "name-services/dns",
    "protocols/nfs/services",
    "protocols/nfs/export-policies",
    "storage/qos/policies",
    "storage/snapshot-policies",
)
SECURITY = ("security/accounts", "security/roles")


def identity(name: str) -> Record:
    """Return the identifying fields of a record with this name."""
    return {"name": name, "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name))}


def _port(node: str, name: str, **more: Any) -> Record:
    record: Record = {
        "name": name,
        "uuid": str(uuid.uuid4()),
        "node": identity(node),
        "type": "physical",
        "enabled": True,
        "mtu": 1500,
    }
    return record | more


def seed() -> dict[str, list[Record]]:
    """Return the records of all collections."""
    default: Record = {"name": "Default", "ipspace": {"name": "Default"}}
    ports = [_port(node, name, broadcast_domain=dict(default)) for node in NODES for name in PHYSICAL_PORTS]
    domain: Record = {
        "name": "Default",
        "uuid": str(uuid.uuid4()),
        "mtu": 1500,
        "ipspace": {"name": "Default"},
    }
    domain["ports"] = [{"name": p["name"], "uuid": p["uuid"], "node": p["node"]} for p in ports]
    aggregates = [
        identity(f"aggr1_{node.replace('-', '_')}")
        | {
            "state": "online",
            "node": identity(node),
            "block_storage": {"primary": {"disk_type": "ssd"}},
        }
        for node in NODES
    ]
    names = ("base", "nfs", "cifs", "iscsi")
    licenses = [{"name": name, "scope": "site", "state": "compliant"} for name in names]
    collections: dict[str, list[Record]] = {
        "cluster/nodes": [
            identity(node) | {"serial_number": f"72180000000{number}"} for number, node in enumerate(NODES)
        ],
        "cluster/licensing/licenses": licenses,
        "cluster/schedules": [identity(name) for name in ("hourly", "daily", "weekly")],
        "network/ethernet/ports": ports,
        "network/ethernet/broadcast-domains": [domain],
        "storage/aggregates": aggregates,
        "snapmirror/relationships": [],
        "storage/volumes": [],
        "support/ems/application-logs": [],
        "svm/peers": [],
        "svm/svms": [],
    }
    return collections | {path: [] for path in (*SVM_OWNED, *SECURITY)}
