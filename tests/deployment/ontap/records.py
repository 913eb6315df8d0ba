"""Finds, creates, changes and deletes the records of a cluster as ONTAP does."""

import copy
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.deployment.ontap import volumes
from tests.deployment.ontap.bare_cluster import SECURITY, SVM_OWNED, seed
from tests.deployment.ontap.bodies import Record, Refused, merge
from tests.deployment.ontap.completion import COMPLETE, assign_aggregates


def _owner(record: Record) -> str | None:
    """Return the name of the owner of a record. Names are unique within their owner."""
    for key in ("svm", "owner", "node"):
        if key in record:
            return str(record[key]["name"])
    return None


@dataclass
class Store:
    """The records of all collections."""

    collections: dict[str, list[Record]] = field(default_factory=seed)
    slow: frozenset[str] = frozenset({"svm/svms", "storage/volumes", "protocols/nfs/services"})
    disks: volumes.Disks | None = None

    def is_slow(self, collection: str) -> bool:
        """Return whether the cluster answers changes of a collection with a job."""
        return collection in self.slow or collection.endswith("/snapshots")

    def collection(self, path: str) -> list[Record] | None:
        """Return the records of a collection; None if the path names one record."""
        if path in self.collections:
            return self.collections[path]
        parent, _, leaf = path.rpartition("/")
        match parent.rpartition("/")[0], leaf:
            case "protocols/nfs/export-policies", "rules":
                rules: list[Record] = self.item(parent)["rules"]
                return rules
            case "storage/snapshot-policies", "schedules":
                return list(self.item(parent)["copies"])
        if parent.startswith("security/roles/") and leaf == "privileges":
            return list(self.item(parent)["privileges"])
        return None

    def item(self, path: str) -> Record:
        """Return the record that a path names by uuid, name, id or index."""
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
        """Create a record, with the fields that the cluster adds."""
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
        if path.endswith("/snapshots"):
            return volumes.create_snapshot(self, self.item(path.rpartition("/")[0]), record)
        self._resolve(record)
        complete = COMPLETE.get(path)
        if complete is not None:
            complete(self, record)
        record.setdefault("uuid", str(uuid.uuid4()))
        self._refuse_twice(path, record)
        self.collections[path].append(record)
        volumes.created(self, path, record)
        return record

    def _resolve(self, record: Record) -> None:
        """Replace the names of owners by references. Refuses owners that do not exist."""
        for key in ("svm", "owner"):
            if key in record:
                svm = self._svm(record[key])
                record[key] = {"name": svm["name"], "uuid": svm["uuid"]}

    def _svm(self, reference: Record) -> Record:
        if "uuid" in reference:
            return self._one(self.collections["svm/svms"], lambda r: bool(r["uuid"] == reference["uuid"]))
        name = reference["name"]
        return self.find("svm/svms", name, f'SVM "{name}" does not exist')

    def find(self, path: str, name: str, otherwise: str) -> Record:
        """Return the record with this name. Refuses the request with the message `otherwise` if there is none."""
        for record in self.collections[path]:
            if record["name"] == name:
                return record
        raise Refused(otherwise, status=404, code="2621462")

    def port(self, node: str, name: str) -> Record:
        """Return a port of a node. Refuses the request if there is none."""
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
        volumes.export(self)
        return rule

    def _license(self, body: Record) -> Record:
        for key in body["keys"]:
            if not key.isalpha():
                raise Refused(f"License key {key} is not valid", code="1115137")
        for record in self.collections["cluster/licensing/licenses"]:
            record["state"] = "compliant"
        return {"keys": body["keys"]}

    def change(self, path: str, body: Record, query: dict[str, str]) -> None:
        """Change one record. A port that gets a broadcast domain leaves its old one."""
        if path == "private/cli/network/port/broadcast-domain/remove-ports":
            raise Refused("ports would be left without a broadcast domain", code="1967097")
        record = self.item(path)
        if path.startswith("network/ethernet/ports/") and "broadcast_domain" in body:
            self._move(record, body["broadcast_domain"])
        if "password" in body and body["password"] == record.get("password"):
            raise Refused("New password must be different from the old password.", code="7077920")
        if path.startswith("svm/svms/") and "aggregates" in body:
            assign_aggregates(self, body)
        if "new_index" in query:
            body["index"] = int(query["new_index"])
        merge(record, body)
        volumes.changed(self, path, record)
        if path.startswith("network/ip/interfaces/"):
            record["state"] = "up" if record["enabled"] else "down"

    def _move(self, port: Record, target: Record) -> None:
        domain = self.find(
            "network/ethernet/broadcast-domains",
            target["name"],
            f'broadcast domain "{target["name"]}" does not exist',
        )
        if port["type"] == "vlan":
            base = self.port(port["node"]["name"], port["vlan"]["base_port"]["name"])
            if domain["mtu"] > base["mtu"]:
                raise Refused("The MTU of a VLAN cannot be larger than that of its port", code="1376484")
        for other in self.collections["network/ethernet/broadcast-domains"]:
            other["ports"] = [member for member in other["ports"] if member["uuid"] != port["uuid"]]
        domain["ports"].append({"name": port["name"], "uuid": port["uuid"], "node": port["node"]})
        port["broadcast_domain"] = {"name": domain["name"], "ipspace": domain["ipspace"]}
        port["mtu"] = domain["mtu"]

    def delete(self, path: str) -> None:
        """Delete one record. An SVM is deleted with its records, but never with volumes."""
        record = self.item(path)
        parent, _, _ = path.rpartition("/")
        if parent == "svm/svms":
            self._delete_svm(record)
        for collection in SECURITY:
            if parent.startswith(f"{collection}/"):
                parent = collection
        collection_records = self.collection(parent)
        assert collection_records is not None
        collection_records.remove(record)
        volumes.deleted(self, parent, record)

    def _delete_svm(self, svm: Record) -> None:
        if any(volume["svm"]["name"] == svm["name"] for volume in self.collections["storage/volumes"]):
            raise Refused("SVM has volumes that are not root volumes", status=409, code="13434894")
        for path in (*SVM_OWNED, *SECURITY):
            self.collections[path] = [r for r in self.collections[path] if _owner(r) != svm["name"]]

    def add_volume(self, name: str, svm: str) -> None:
        """Add a volume with data to an SVM, as if Trident had created it."""
        record = {"name": name, "svm": {"name": svm}, "size": 1 << 30, "nas": {"path": f"/{name}"}}
        self.create(volumes.VOLUMES, record | {"aggregates": [{"name": "aggr1_a800_01"}]})
