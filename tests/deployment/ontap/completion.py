"""The fields that a cluster adds to a new record, and the records that it refuses to create."""

from collections.abc import Callable
from typing import Protocol

from tests.deployment.ontap import volumes
from tests.deployment.ontap.bare_cluster import identity
from tests.deployment.ontap.bodies import Record, Refused, merge


class Cluster(volumes.Cluster, Protocol):
    """The store of the other records."""

    def port(self, node: str, name: str) -> Record: ...


def assign_aggregates(store: Cluster, record: Record) -> None:
    """Replace the names of aggregates by references."""
    wanted = record.get("aggregates", [])
    record["aggregates"] = [
        {
            key: store.find("storage/aggregates", item["name"], f'aggregate "{item["name"]}" does not exist')[
                key
            ]
            for key in ("name", "uuid")
        }
        for item in wanted
    ]


def _svm(store: Cluster, record: Record) -> None:
    assign_aggregates(store, record)
    for key, default in (("ipspace", "Default"), ("snapshot_policy", "default")):
        value = record.get(key, default)
        record[key] = {"name": value} if isinstance(value, str) else value
    record.setdefault("comment", "")
    record |= {"state": "running", "subtype": "default", "language": "c.utf_8", "max_volumes": "unlimited"}
    record |= {"auto_enable_analytics": False, "auto_enable_activity_tracking": False}
    record["nfs"] = {"allowed": True, "enabled": False} | record.get("nfs", {})


SERVICES = {
    "default-data-files": ("data_core", "data_nfs", "data_cifs", "data_fpolicy_client", "data_flexcache"),
    "default-management": ("management_ssh", "management_https", "data_core"),
}
"""The services of interfaces with one of ONTAP's own policies. Trident looks for `data_nfs`."""


def _interface(store: Cluster, record: Record) -> None:
    home = record["location"]["home_port"]
    port = store.port(home["node"]["name"], home["name"])
    if any(
        other["ip"]["address"] == record["ip"]["address"]
        for other in store.collections["network/ip/interfaces"]
    ):
        raise Refused(f"address {record['ip']['address']} is in use", status=409, code="1376534")
    place = {"name": port["name"], "uuid": port["uuid"], "node": port["node"]}
    record["location"] |= {"home_port": place, "port": place, "home_node": port["node"], "node": port["node"]}
    record["location"] |= {"auto_revert": True, "failover": "home_node_only"}
    policy = record["service_policy"]
    record |= {"service_policy": {"name": policy}, "services": list(SERVICES.get(policy, ()))}
    record.setdefault("enabled", True)
    record["state"] = "up" if record["enabled"] else "down"


def _service(_: Cluster, record: Record) -> None:
    record.setdefault("enabled", True)
    protocol: Record = {"v3_enabled": True, "v40_enabled": False, "v41_enabled": False}
    transport: Record = {"tcp_enabled": True, "udp_enabled": True, "tcp_max_transfer_size": 65536}
    merge(protocol, record.get("protocol", {}))
    merge(transport, record.get("transport", {}))
    record |= {"protocol": protocol, "transport": transport}


def _domain(_: Cluster, record: Record) -> None:
    if isinstance(record.get("ipspace"), str):
        record["ipspace"] = {"name": record["ipspace"]}
    record.setdefault("ports", [])


def _ethernet_port(store: Cluster, record: Record) -> None:
    node = record["node"]["name"]
    if record["type"] == "vlan":
        base = store.port(node, record["vlan"]["base_port"]["name"])
        record["name"] = f"{base['name']}-{record['vlan']['tag']}"
    else:
        members = [store.port(node, member["name"]) for member in record["lag"]["member_ports"]]
        taken = {
            port["name"]
            for port in store.collections["network/ethernet/ports"]
            if port["node"]["name"] == node
        }
        record["name"] = next(name for name in ("a0a", "a0b", "a0c") if name not in taken)
        record["lag"]["member_ports"] = [
            {"name": m["name"], "uuid": m["uuid"], "node": m["node"]} for m in members
        ]
    record |= {"node": identity(node), "enabled": True, "mtu": 1500}


def _policy(store: Cluster, record: Record) -> None:
    policies = store.collections["protocols/nfs/export-policies"]
    record["id"] = max((policy["id"] for policy in policies), default=8589934592) + 1
    record.setdefault("rules", [])


def _qos(_: Cluster, record: Record) -> None:
    limits = {
        "capacity_shared": False,
        "max_throughput_iops": 0,
        "max_throughput_mbps": 0,
        "min_throughput_iops": 0,
    }
    record["fixed"] = limits | record.get("fixed", {})


def _snapshots(store: Cluster, record: Record) -> None:
    record.setdefault("comment", "")
    record["scope"] = "svm" if "svm" in record else "cluster"
    for item in record["copies"]:
        name = item["schedule"]["name"]
        schedule = store.find("cluster/schedules", name, f'schedule "{name}" does not exist')
        item |= {"schedule": {"name": name, "uuid": schedule["uuid"]}}
        item.setdefault("prefix", name)
        item.setdefault("snapmirror_label", "-")


def _role(_: Cluster, record: Record) -> None:
    record |= {"builtin": False, "scope": "svm"}


def _account(store: Cluster, record: Record) -> None:
    role = record["role"]["name"]
    owner = record["owner"]["name"]
    if not any(
        r["name"] == role and r["owner"]["name"] == owner for r in store.collections["security/roles"]
    ):
        raise Refused(f'role "{role}" does not exist', code="5636156")
    if len(record.get("password", "")) < 8:
        raise Refused("New password must be at least 8 characters long.", code="7077918")
    record |= {"locked": False, "scope": "svm"}
    for application in record["applications"]:
        application |= {"second_authentication_method": "none", "is_ldap_fastbind": False}


def _route(_: Cluster, record: Record) -> None:
    record |= {"scope": "svm", "metric": record.get("metric", 20)}


COMPLETE: dict[str, Callable[[Cluster, Record], None]] = {
    "svm/svms": _svm,
    "network/ip/interfaces": _interface,
    "network/ip/routes": _route,
    "protocols/nfs/services": _service,
    "network/ethernet/broadcast-domains": _domain,
    "network/ethernet/ports": _ethernet_port,
    "protocols/nfs/export-policies": _policy,
    "storage/qos/policies": _qos,
    "storage/snapshot-policies": _snapshots,
    "storage/volumes": volumes.complete,
    "security/roles": _role,
    "security/accounts": _account,
}
