"""The role of Trident's account permits all requests by which Trident adds a backend, and no others.

The requests are those of Trident 26.06, in order, for a new backend and for the life of a volume.
`test_trident_on_ontap.py` compares them with Trident itself. The privileges come from the role `ontap`.
"""

import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.ontap.double import Double
from tests.deployment.ontap.rights import METHODS, endpoint

VARIABLES = Path(__file__).parents[3] / "roles" / "ontap" / "vars" / "main.yml"
PASSWORD = "swordfish-4858"
REQUESTS = [
    "cluster?fields=**",
    "cluster?fields=san_optimized,disaggregated&ignore_unknown_fields=true",
    "svm/svms?name=svm_ai",
    "cluster/nodes?fields=serial_number&name=*",
    "svm/peers?fields=peer.svm.name&svm.uuid={svm}",
    "svm/svms/{svm}",
    "storage/aggregates?fields=block_storage.primary.disk_type&name=*",
    "network/ip/interfaces?services=data_nfs&svm.uuid={svm}&fields=ip.address,state",
]
LIFE = frozenset(
    (method, f"/api/{path}")
    for path, methods in {
        "cluster": "GET",
        "cluster/jobs": "GET",
        "cluster/nodes": "GET",
        "network/ip/interfaces": "GET",
        "protocols/nfs/export-policies": "GET POST DELETE",
        "protocols/nfs/export-policies/rules": "GET POST DELETE",
        "snapmirror/relationships": "GET",
        "storage/aggregates": "GET",
        "storage/volumes": "GET POST PATCH DELETE",
        "storage/volumes/snapshots": "GET POST DELETE",
        "svm/peers": "GET",
        "svm/svms": "GET",
    }.items()
    for method in methods.split()
)
"""The requests of Trident 26.06 for a backend from its start to its end, with volumes, clones and snapshots."""

Send = Callable[..., tuple[int, Any]]


def privileges(without: str = "") -> list[dict[str, str]]:
    """Return the privileges that the role `ontap` grants for NFS, without one path if it is given."""
    paths = yaml.safe_load(VARIABLES.read_text())["__ontap_trident_paths"]
    granted = [
        {"path": path, "access": access}
        for group in ("base", "nfs")
        for access, names in paths[group].items()
        for path in names
    ]
    assert not without or without in {privilege["path"] for privilege in granted}
    return [privilege for privilege in granted if privilege["path"] != without]


def provide(cluster: Double, granted: list[dict[str, str]]) -> str:
    """Add an SVM with interfaces, role and account to the cluster. Returns the uuid of the SVM."""
    svm = cluster.store.create("svm/svms", {"name": "svm_ai"})
    owner = {"name": "svm_ai"}
    home = {"home_port": {"name": "e5a", "node": {"name": "a800-01"}}}
    for name, policy in (("nfs_1", "default-data-files"), ("management", "default-management")):
        address = f"192.168.11.{len(name)}"
        body = {"name": name, "svm": owner, "ip": {"address": address}, "location": dict(home)}
        cluster.store.create("network/ip/interfaces", body | {"service_policy": policy})
    cluster.store.create("security/roles", {"name": "trident", "owner": owner, "privileges": granted})
    account = {"name": "trident", "owner": owner, "role": {"name": "trident"}, "password": PASSWORD}
    cluster.store.create("security/accounts", account | {"applications": [{"application": "http"}]})
    return str(svm["uuid"])


@pytest.fixture
def send(cluster: Double) -> Send:
    """Return a function that sends a request from Trident's account, and returns status and body."""
    context = ssl.create_default_context(cadata=cluster.authority.pem.decode())

    def send(path: str, method: str = "GET", password: str = PASSWORD) -> tuple[int, Any]:
        login = base64.b64encode(f"trident:{password}".encode()).decode()
        connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, context=context)
        with contextlib.closing(connection):
            connection.request(method, f"/api/{path}", headers={"Authorization": f"Basic {login}"})
            response = connection.getresponse()
            return response.status, json.load(response)

    return send


def test_the_account_may_ask_all_that_trident_asks(cluster: Double, send: Send) -> None:
    svm = provide(cluster, privileges())
    answers = [send(request.format(svm=svm)) for request in REQUESTS]
    assert [status for status, _ in answers] == [200] * len(REQUESTS)
    (interface,) = answers[-1][1]["records"]
    assert interface["name"] == "nfs_1", "an interface for management serves no NFS"
    assert all(node["serial_number"] for node in answers[3][1]["records"])


@pytest.mark.parametrize("path", ["/api/network/ip/interfaces", "/api/storage/aggregates", "/api/svm/svms"])
def test_with_one_right_less_a_request_is_refused(cluster: Double, send: Send, path: str) -> None:
    svm = provide(cluster, privileges(without=path))
    refused = [
        (request, body["error"])
        for request in REQUESTS
        for status, body in [send(request.format(svm=svm))]
        if status == 403
    ]
    assert refused
    for request, error in refused:
        assert endpoint(request.format(svm=svm).partition("?")[0]) == path
        assert error == {"message": "not authorized for that command", "code": "6"}


def test_the_role_grants_the_rights_for_a_life_of_a_volume_and_nothing_else() -> None:
    # Trident sends this once a day
    methods: dict[str, set[str]] = {"/api/support/ems/application-logs": {"POST"}}
    for method, path in LIFE:
        methods.setdefault(path, set()).add(method)
    least = {
        path: next(access for access, allowed in METHODS.items() if access_methods <= set(allowed))
        for path, access_methods in methods.items()
    }
    assert {privilege["path"]: privilege["access"] for privilege in privileges()} == least


def test_the_account_may_nothing_else(cluster: Double, send: Send) -> None:
    provide(cluster, privileges())
    forbidden = [("security/accounts", "GET"), ("storage/aggregates", "DELETE"), ("clusters", "GET")]
    assert [send(path, method)[0] for path, method in forbidden] == [403, 403, 403]
    assert send("cluster", password="another-4858")[0] == 401
    cluster.store.collections["security/accounts"][0]["locked"] = True
    assert send("cluster")[0] == 401
