"""The rights of Trident's account on ONTAP, and the double of ONTAP, name endpoints that Trident or a role calls."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.deployment.ontap.records import Store
from tests.deployment.ontap.rights import METHODS
from tests.upstream import facts
from tests.upstream.names import role_file, task_text

Facts = dict[str, Any]
GRANTED = [
    (protocol, access, path)
    for protocol, levels in role_file("ontap", "vars/main.yml")["__ontap_trident_paths"].items()
    for access, paths in levels.items()
    for path in paths
]
_NOT_CALLED = {
    "/api/private/cli/vserver/nvme/subsystem/delete": "a command of ONTAP, which the list of calls leaves out",
}
_LESS_THAN_CALLED = {"/api/snapmirror/relationships": "readonly"}
"""Endpoints for which muster grants less than Trident calls: muster offers no mirrors of volumes."""


def _calls(trident: Facts) -> dict[str, set[str]]:
    """Return the methods that Trident calls on each endpoint, written without keys as in a role of ONTAP."""
    calls: dict[str, set[str]] = {}
    for each in next(iter(trident["sources"].values()))["ontap_rest"]:
        path, _, method = each.rpartition(" ")
        endpoint = "/api" + re.sub(r"/\{[^}]+\}", "", path)
        calls.setdefault(endpoint, set()).add(method)
    return calls


@pytest.mark.parametrize(
    ("protocol", "access", "path"), [each for each in GRANTED if each[2] not in _NOT_CALLED]
)
def test_a_right_is_the_least_that_covers_the_calls_of_trident(
    trident: Facts, protocol: str, access: str, path: str
) -> None:
    called = _calls(trident)
    assert path in called, f"{protocol}: Trident calls nothing at {path}"
    least = next(level for level, methods in METHODS.items() if called[path] <= set(methods))
    assert access == _LESS_THAN_CALLED.get(path, least)


def _endpoints_of_modules() -> str:
    """Return the text of the role `ontap`, and of the collection netapp.ontap whose modules the role runs."""
    folder = Path(importlib.import_module("ansible_collections.netapp.ontap").__path__[0]) / "plugins"
    paths = [path for name in ("modules", "module_utils") for path in sorted((folder / name).glob("*.py"))]
    return "\n".join([task_text("ontap"), *(path.read_text() for path in paths)])


@pytest.mark.parametrize("collection", sorted(Store().collections))
def test_a_collection_of_the_double_is_one_that_trident_or_the_role_asks_for(
    trident: Facts, collection: str
) -> None:
    assert f"/api/{collection}" in _calls(trident) or re.search(rf"\b{collection}\b", _endpoints_of_modules())


@pytest.mark.parametrize(
    "path", sorted({path for protocol, _, path in GRANTED if protocol in ("base", "nfs")})
)
def test_an_endpoint_of_nfs_is_one_of_the_double(path: str) -> None:
    """In other tests Trident's own program uses the double, which must therefore have the endpoints of NFS."""
    endpoint = path.removeprefix("/api/")
    known = {*Store().collections, "cluster", "cluster/jobs"}
    assert endpoint in known or endpoint.rpartition("/")[0] in known


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize(("protocol", "access", "path"), GRANTED)
def test_a_right_is_for_an_endpoint_of_the_role_that_netapp_publishes(
    trident: Facts, protocol: str, access: str, path: str
) -> None:
    published = facts.checkout("trident") / "contrib/ontap/trident_role/raw/rest_custom_role.json"
    assert path in {each["path"] for each in json.loads(published.read_text())}, f"{protocol}: {access}"
