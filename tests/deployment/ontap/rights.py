"""The rights at the double: its administrator may send all requests, an account of an SVM those of its role.

A role names endpoints without keys: `/api/storage/volumes/snapshots` stands for the snapshots of all volumes. The
double is strict: the role must name each endpoint, as the role that NetApp publishes for Trident does.
"""

import base64
import re

from tests.deployment.ontap.bodies import Refused
from tests.deployment.ontap.records import Store

METHODS = {
    "none": (),
    "readonly": ("GET",),
    "read_create": ("GET", "POST"),
    "read_modify": ("GET", "PATCH"),
    "read_create_modify": ("GET", "POST", "PATCH"),
    "all": ("GET", "POST", "PATCH", "DELETE"),
}
"""The methods of each access level of a role, from ONTAP's documentation of REST roles."""


_KEY = re.compile(r"[0-9]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check(store: Store, authorization: str, administrator: str, method: str, path: str) -> None:
    """Refuse an unknown login with 401, and a request beyond the role of the account with 403."""
    login = _login(authorization)
    if login == administrator:
        return
    name, _, password = login.partition(":")
    for account in store.collections["security/accounts"]:
        if account["name"] == name and account.get("password") == password and not account["locked"]:
            owner = (account["role"]["name"], account["owner"]["name"])
            (role,) = (
                role
                for role in store.collections["security/roles"]
                if (role["name"], role["owner"]["name"]) == owner
            )
            granted = {privilege["path"]: privilege["access"] for privilege in role["privileges"]}
            if method in METHODS[granted.get(endpoint(path), "none")]:
                return
            raise Refused("not authorized for that command", status=403, code="6")
    raise Refused("not authorized for that command", status=401, code="6691623")


def endpoint(path: str) -> str:
    """Return the endpoint of a request without keys of records, as roles name it."""
    return "/api/" + "/".join(part for part in path.split("/") if not _KEY.fullmatch(part))


def _login(authorization: str) -> str:
    try:
        return base64.b64decode(authorization.removeprefix("Basic "), validate=True).decode()
    except ValueError:
        return ""
