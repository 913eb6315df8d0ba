"""Rights are read from audit logs, and every reason covers a right that is granted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rights.rights import Reason, Right, granted, reasons, unused, used

MEMBER = (
    'RBAC: allowed by RoleBinding "muster-members/muster-a" of ClusterRole "muster-researcher" to User "ada"'
)


def event(verb: str, resource: str, reason: str, **about: str) -> str:
    reference = {"resource": resource, **about}
    annotations = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": reason}
    body: dict[str, Any] = {"verb": verb, "objectRef": reference, "annotations": annotations}
    return json.dumps(body)


def test_uses_are_read_of_all_logs_beside_any_other_lines(tmp_path: Path) -> None:
    lines = [
        event("create", "jobs", MEMBER, apiGroup="batch"),
        event("get", "pods", MEMBER, subresource="log"),
        event("get", "nodes", 'RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "view" to User "u"'),
        event("get", "nodes", ""),
        event("get", "services", MEMBER)[:-40],
        "",
    ]
    (tmp_path / "a.log").write_text("\n".join(lines))
    (tmp_path / "b.log").write_text(event("list", "jobs", MEMBER, apiGroup="batch") + "\n")
    assert used(tmp_path) == {
        Right("muster-researcher", "batch", "jobs", "create"),
        Right("muster-researcher", "batch", "jobs", "list"),
        Right("muster-researcher", "", "pods/log", "get"),
    }


def test_a_right_of_a_lesser_role_is_used_by_all_greater_ones() -> None:
    rights = granted()
    watch = Right("muster-viewer", "batch", "jobs", "list")
    assert watch in rights
    assert Right("muster-researcher", "batch", "jobs", "list") not in rights
    assert watch in unused(rights, set())
    assert watch not in unused(rights, {Right("muster-project-admin", "batch", "jobs", "list")})
    assert watch in unused(rights, {Right("muster-user", "batch", "jobs", "list")})


@pytest.mark.parametrize("reason", reasons(), ids=lambda reason: reason.because[:40])
def test_every_reason_is_about_a_right_that_is_granted(reason: Reason) -> None:
    assert any(reason.covers(right) for right in granted())
