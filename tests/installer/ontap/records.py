"""What an ONTAP cluster holds: one list of records for each REST collection, and how they are made and changed."""

import copy
import fnmatch
import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]

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


class Refused(Exception):
    """The cluster refuses a request, with an HTTP status and an error code of ONTAP."""

    def __init__(self, message: str, *, status: int = 400, code: str = "262179") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def nested(body: Any) -> Any:
    """Return a body with `a.b: 1` written as `a: {b: 1}`, as ONTAP takes both."""
    if isinstance(body, list):
        return [nested(item) for item in body]
    if not isinstance(body, dict):
        return {"true": True, "false": False}.get(body, body) if isinstance(body, str) else body
    result: Record = {}
    for key, value in body.items():
        inner = result
        *parents, leaf = key.split(".")
        for parent in parents:
            inner = inner.setdefault(parent, {})
        merge(inner, {leaf: nested(value)})
    return result


def values(record: Any, path: str) -> list[Any]:
    """Return what is at a dotted path; a list on the way stands for all its members."""
    found = [record]
    for part in path.split("."):
        members = itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in found)
        found = [item[part] for item in members if isinstance(item, dict) and part in item]
    return list(itertools.chain.from_iterable(item if isinstance(item, list) else [item] for item in found))


def matches(record: Record, path: str, pattern: str) -> bool:
    """Whether a record fits one part of a query: `a|b`, `a,b` and `*` as ONTAP reads them."""
    wanted = [choice.strip() for choice in pattern.replace(",", "|").split("|")]
    present = [
        str(value).lower() if isinstance(value, bool) else str(value) for value in values(record, path)
    ]
    return any(fnmatch.fnmatchcase(value, choice) for value in present for choice in wanted)


def merge(record: Record, change: Record) -> None:
    """Write a change into a record, dictionaries member by member."""
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(record.get(key), dict):
            merge(record[key], value)
        else:
            record[key] = value


def _owner(record: Record) -> str | None:
    """The name of what a record belongs to: names are taken once within it."""
    for key in ("svm", "owner", "node"):
        if key in record:
            return str(record[key]["name"])
    return None


def _identity(name: str) -> Record:
    return {"name": name, "uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name))}


def _port(node: str, name: str, **more: Any) -> Record:
    record: Record = {
        "name": name,
        "uuid": str(uuid.uuid4()),
        "node": _identity(node),
        "type": "physical",
        "enabled": True,
    }
    return record | more


def _seed() -> dict[str, list[Record]]:
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
        _identity(f"aggr1_{node.replace('-', '_')}") | {"state": "online", "node": _identity(node)}
        for node in NODES
    ]
    names = ("base", "nfs", "cifs", "iscsi")
    licenses = [{"name": name, "scope": "site", "state": "compliant"} for name in names]
    collections: dict[str, list[Record]] = {
        "cluster/nodes": [_identity(node) for node in NODES],
        "cluster/licensing/licenses": licenses,
        "cluster/schedules": [_identity(name) for name in ("hourly", "daily", "weekly")],
        "network/ethernet/ports": ports,
        "network/ethernet/broadcast-domains": [domain],
        "storage/aggregates": aggregates,
        "storage/volumes": [],
        "svm/svms": [],
    }
    return collections | {path: [] for path in (*SVM_OWNED, *SECURITY)}


@dataclass
class Store:
    """The records of all collections."""

    collections: dict[str, list[Record]] = field(default_factory=_seed)
    slow: frozenset[str] = frozenset({"svm/svms", "storage/volumes", "protocols/nfs/services"})

    def collection(self, path: str) -> list[Record] | None:
        """Return the records of a collection, or None where the path names one record."""
        if path in self.collections:
            return self.collections[path]
        parent, _, leaf = path.rpartition("/")
        match parent.rpartition("/")[0], leaf:
            case "protocols/nfs/export-policies", "rules":
                return list(self.item(parent)["rules"])
            case "storage/snapshot-policies", "schedules":
                return list(self.item(parent)["copies"])
        if parent.startswith("security/roles/") and leaf == "privileges":
            return list(self.item(parent)["privileges"])
        return None

    def item(self, path: str) -> Record:
        """Return the one record that a path names by uuid, name, id or index."""
        parent, _, key = path.rpartition("/")
        collection, _, owner = parent.rpartition("/")
        if collection in SECURITY:
            return self._one(
                self.collections[collection], lambda r: (r["owner"]["uuid"], r["name"]) == (owner, key)
            )
        records = self.collection(parent)
        if records is None:
            raise Refused(f"API not found: /api/{path}", status=404, code="3")
        owned_by_svm = parent in {"protocols/nfs/services", "name-services/dns"}
        return self._one(
            records,
            lambda r: (
                key == r["svm"]["uuid"]
                if owned_by_svm
                else key in {str(r.get(k)) for k in ("uuid", "name", "id", "index") if k in r}
            ),
        )

    def _one(self, records: list[Record], wanted: Callable[[Record], bool]) -> Record:
        for record in records:
            if wanted(record):
                return record
        raise Refused("entry doesn't exist", status=404, code="4")

    def create(self, path: str, body: Record) -> Record:
        """Make a record as the cluster would, with all that it adds of its own."""
        if path.endswith("/rules"):
            return self._create_rule(path, body)
        if path.startswith("security/roles/") and path.endswith("/privileges"):
            self.item(path.rpartition("/")[0])["privileges"].append(body)
            return body
        if path == "cluster/licensing/licenses":
            return self._license(body)
        if path not in self.collections:
            raise Refused(f"API not found: /api/{path}", status=404, code="3")
        record = copy.deepcopy(body)
        self._resolve(record)
        complete = _COMPLETE.get(path)
        if complete is not None:
            complete(self, record)
        record.setdefault("uuid", str(uuid.uuid4()))
        self._refuse_twice(path, record)
        self.collections[path].append(record)
        return record

    def _resolve(self, record: Record) -> None:
        """Turn the names of owners into references, and refuse those that do not exist."""
        for key in ("svm", "owner"):
            if key in record:
                svm = self.find(
                    "svm/svms", record[key]["name"], f'SVM "{record[key]["name"]}" does not exist'
                )
                record[key] = {"name": svm["name"], "uuid": svm["uuid"]}

    def find(self, path: str, name: str, otherwise: str) -> Record:
        """Return the record of this name, or refuse the request with this message."""
        for record in self.collections[path]:
            if record["name"] == name:
                return record
        raise Refused(otherwise, status=404, code="2621462")

    def port(self, node: str, name: str) -> Record:
        """Return a port of a node, or refuse the request."""
        for record in self.collections["network/ethernet/ports"]:
            if record["name"] == name and record["node"]["name"] == node:
                return record
        raise Refused(f'port "{name}" does not exist on node "{node}"', code="1376663")

    def _refuse_twice(self, path: str, record: Record) -> None:
        for other in self.collections[path]:
            if _owner(other) == _owner(record) and "name" in record and other.get("name") == record["name"]:
                raise Refused(f'duplicate entry "{record["name"]}"', status=409, code="1")

    def _create_rule(self, path: str, body: Record) -> Record:
        rules = self.item(path.rpartition("/")[0])["rules"]
        rule: Record = {
            "index": max((rule["index"] for rule in rules), default=0) + 1,
            "protocols": ["any"],
            "superuser": ["none"],
            "anonymous_user": "65534",
            "allow_suid": True,
            "allow_device_creation": True,
            "chown_mode": "restricted",
            "ntfs_unix_security": "fail",
        }
        merge(rule, body)
        rules.append(rule)
        return rule

    def _license(self, body: Record) -> Record:
        for key in body["keys"]:
            if not key.isalpha():
                raise Refused(f"License key {key} is not valid", code="1115137")
        for record in self.collections["cluster/licensing/licenses"]:
            record["state"] = "compliant"
        return {"keys": body["keys"]}

    def change(self, path: str, body: Record, query: dict[str, str]) -> None:
        """Change one record; a port that gets a broadcast domain leaves its old one."""
        if path == "private/cli/network/port/broadcast-domain/remove-ports":
            raise Refused("ports would be left without a broadcast domain", code="1967097")
        record = self.item(path)
        if path.startswith("network/ethernet/ports/") and "broadcast_domain" in body:
            self._move(record, body["broadcast_domain"])
        if "password" in body and body["password"] == record.get("password"):
            raise Refused("New password must be different from the old password.", code="7077920")
        if path.startswith("svm/svms/") and "aggregates" in body:
            _aggregates(self, body)
        if "new_index" in query:
            body["index"] = int(query["new_index"])
        merge(record, body)
        if path.startswith("network/ip/interfaces/"):
            record["state"] = "up" if record["enabled"] else "down"

    def _move(self, port: Record, target: Record) -> None:
        domain = self.find(
            "network/ethernet/broadcast-domains",
            target["name"],
            f'broadcast domain "{target["name"]}" does not exist',
        )
        for other in self.collections["network/ethernet/broadcast-domains"]:
            other["ports"] = [member for member in other["ports"] if member["uuid"] != port["uuid"]]
        domain["ports"].append({"name": port["name"], "uuid": port["uuid"], "node": port["node"]})
        port["broadcast_domain"] = {"name": domain["name"], "ipspace": domain["ipspace"]}

    def delete(self, path: str) -> None:
        """Delete one record; an SVM takes what belongs to it along, but never volumes."""
        record = self.item(path)
        parent, _, _ = path.rpartition("/")
        if parent == "svm/svms":
            self._delete_svm(record)
        for collection in SECURITY:
            if parent.startswith(f"{collection}/"):
                parent = collection
        self.collections[parent].remove(record)

    def _delete_svm(self, svm: Record) -> None:
        if any(volume["svm"]["name"] == svm["name"] for volume in self.collections["storage/volumes"]):
            raise Refused("SVM has volumes that are not root volumes", status=409, code="13434894")
        for path in (*SVM_OWNED, *SECURITY):
            self.collections[path] = [r for r in self.collections[path] if _owner(r) != svm["name"]]

    def add_volume(self, name: str, svm: str) -> None:
        """Put a volume with data into an SVM, as Trident would have done."""
        owner = self.find("svm/svms", svm, f'SVM "{svm}" does not exist')
        self.collections["storage/volumes"].append(
            {
                "name": name,
                "uuid": str(uuid.uuid4()),
                "svm": {"name": svm, "uuid": owner["uuid"]},
                "state": "online",
                "style": "flexvol",
                "type": "rw",
                "is_svm_root": False,
                "nas": {"path": f"/{name}"},
                "space": {"size": 1 << 30, "used": 1 << 20, "snapshot": {}},
                "aggregates": [{"name": "aggr1_a800_01"}],
            }
        )


def _aggregates(store: Store, record: Record) -> None:
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


def _svm(store: Store, record: Record) -> None:
    _aggregates(store, record)
    for key, default in (("ipspace", "Default"), ("snapshot_policy", "default")):
        value = record.get(key, default)
        record[key] = {"name": value} if isinstance(value, str) else value
    record.setdefault("comment", "")
    record |= {"state": "running", "subtype": "default", "language": "c.utf_8", "max_volumes": "unlimited"}
    record |= {"auto_enable_analytics": False, "auto_enable_activity_tracking": False}
    record["nfs"] = {"allowed": True, "enabled": False} | record.get("nfs", {})


def _interface(store: Store, record: Record) -> None:
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
    record["service_policy"] = {"name": record["service_policy"]}
    record.setdefault("enabled", True)
    record["state"] = "up" if record["enabled"] else "down"


def _service(_: Store, record: Record) -> None:
    record.setdefault("enabled", True)
    protocol: Record = {"v3_enabled": True, "v40_enabled": False, "v41_enabled": False}
    transport: Record = {"tcp_enabled": True, "udp_enabled": True, "tcp_max_transfer_size": 65536}
    merge(protocol, record.get("protocol", {}))
    merge(transport, record.get("transport", {}))
    record |= {"protocol": protocol, "transport": transport}


def _domain(_: Store, record: Record) -> None:
    if isinstance(record.get("ipspace"), str):
        record["ipspace"] = {"name": record["ipspace"]}
    record.setdefault("ports", [])


def _ethernet_port(store: Store, record: Record) -> None:
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
    record |= {"node": _identity(node), "enabled": True}


def _policy(store: Store, record: Record) -> None:
    record["id"] = 8589934593 + len(store.collections["protocols/nfs/export-policies"])
    record.setdefault("rules", [])


def _qos(_: Store, record: Record) -> None:
    limits = {
        "capacity_shared": False,
        "max_throughput_iops": 0,
        "max_throughput_mbps": 0,
        "min_throughput_iops": 0,
    }
    record["fixed"] = limits | record.get("fixed", {})


def _snapshots(store: Store, record: Record) -> None:
    record.setdefault("comment", "")
    record["scope"] = "svm" if "svm" in record else "cluster"
    for item in record["copies"]:
        name = item["schedule"]["name"]
        schedule = store.find("cluster/schedules", name, f'schedule "{name}" does not exist')
        item |= {"schedule": {"name": name, "uuid": schedule["uuid"]}}
        item.setdefault("prefix", name)
        item.setdefault("snapmirror_label", "-")


def _role(_: Store, record: Record) -> None:
    record |= {"builtin": False, "scope": "svm"}


def _account(store: Store, record: Record) -> None:
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


def _route(_: Store, record: Record) -> None:
    record |= {"scope": "svm", "metric": record.get("metric", 20)}


_COMPLETE: dict[str, Callable[[Store, Record], None]] = {
    "svm/svms": _svm,
    "network/ip/interfaces": _interface,
    "network/ip/routes": _route,
    "protocols/nfs/services": _service,
    "network/ethernet/broadcast-domains": _domain,
    "network/ethernet/ports": _ethernet_port,
    "protocols/nfs/export-policies": _policy,
    "storage/qos/policies": _qos,
    "storage/snapshot-policies": _snapshots,
    "security/roles": _role,
    "security/accounts": _account,
}
