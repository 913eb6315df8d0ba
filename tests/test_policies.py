"""The policies as they are rendered; tests/trust tests which requests they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.manifests.render import documents, render
from orchestrator.submit.protection import PolicyMode

OPERATORS = ("muster-bindings", "muster-records", "muster-protections")
"""Policies that protect the operator's own objects and deny in every mode."""
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def of_kind(kind: str, **options: Any) -> dict[str, dict[str, Any]]:
    return {
        body["metadata"]["name"]: body for body in documents(render("c", **options)) if body["kind"] == kind
    }


@pytest.mark.parametrize(
    ("mode", "actions"), [("deny", ["Deny"]), ("warn", ["Warn", "Audit"]), ("audit", ["Audit"])]
)
def test_the_mode_is_the_action_of_every_binding_in_projects_namespaces(
    mode: str, actions: list[str]
) -> None:
    bindings = of_kind(BINDING, policies=PolicyMode(mode))
    projects = [
        binding["spec"]["validationActions"]
        for name, binding in bindings.items()
        if "matchResources" in binding["spec"] and name not in OPERATORS
    ]
    assert len(projects) >= 5
    assert all(action == actions for action in projects)
    assert set(of_kind(POLICY)) == set(bindings)


def test_without_policies_there_are_none_of_projects_namespaces() -> None:
    assert [name for name in of_kind(POLICY, policies=PolicyMode.OFF) if name == "muster-pods"] == []


def test_every_policy_fails_closed_and_every_message_names_its_rule() -> None:
    bindings = of_kind(BINDING)
    for name, policy in of_kind(POLICY, require_devices_variable=True).items():
        assert policy["spec"]["failurePolicy"] == "Fail", name
        if name in OPERATORS or "matchResources" not in bindings[name]["spec"]:
            continue
        for validation in policy["spec"]["validations"]:
            message = validation.get("message") or validation["messageExpression"].removeprefix('"')
            assert message.startswith("rule "), (name, message)
            assert "\n" not in validation.get("message", "")


def test_the_switch_for_visible_devices_is_off() -> None:
    plain, switched = (
        of_kind(POLICY, require_devices_variable=switch)["muster-pods"] for switch in (False, True)
    )
    assert len(switched["spec"]["validations"]) == len(plain["spec"]["validations"]) + 1


def test_the_grace_is_the_operators_bound() -> None:
    text = str(of_kind(POLICY, max_grace_seconds=1234)["muster-pods"]["spec"]["variables"])
    assert "orValue('1234')" in text
