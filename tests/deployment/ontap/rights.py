"""Who may ask the stand-in for what: its administrator for all, an account of an SVM for what its role says."""

import base64

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
"""The methods of each access level of a role, as ONTAP's documentation of REST roles has them."""


def check(store: Store, authorization: str, administrator: str, method: str, path: str) -> None:
    """Refuse who is nobody, with 401, and what the role of an account does not say, with 403."""
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
            if method in METHODS[_access(granted, f"/api/{path}")]:
                return
            raise Refused(f"not authorized for that command: {method} /api/{path}", status=403, code="6")
    raise Refused("not authorized for that command", status=401, code="6691623")


def _access(granted: dict[str, str], path: str) -> str:
    """The access of the longest path of the role that the path is, or is below."""
    fitting = [prefix for prefix in granted if path == prefix or path.startswith(f"{prefix}/")]
    return granted[max(fitting, key=len)] if fitting else "none"


def _login(authorization: str) -> str:
    try:
        return base64.b64decode(authorization.removeprefix("Basic "), validate=True).decode()
    except ValueError:
        return ""
