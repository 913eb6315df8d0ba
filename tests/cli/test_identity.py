"""The identity of a user: `whoami`, `login`, `logout`, impersonation, credentials of plugins, and denied requests."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

ADMIN = ("create", "projects", "")


def test_whoami_shows_the_user_in_the_cluster_and_the_role_in_each_project(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.forbidden |= {
        ADMIN,
        ("create", "configmaps", "muster-team-a"),
        ("create", "configmaps", "people-of-b"),
        ("create", "jobs", "people-of-b"),
    }
    outcome = muster("whoami")
    assert outcome.lines[:5] == [
        "User: ann",
        "Logged in Id: uid-of-ann",
        "Groups: team,system:authenticated",
        f"Cluster: lab ({server.url})",
        "Cluster administrator: no",
    ]
    assert [line.split() for line in outcome.lines[6:]] == [
        ["PROJECT", "ROLE"],
        ["team-a", "muster-researcher"],
        ["team-b", "muster-viewer"],
    ]
    answer = muster("whoami", "-o", "json").json
    assert answer["roles"] == {"team-a": "muster-researcher", "team-b": "muster-viewer"}
    assert server.writes() == []


def test_whoami_without_any_right_names_the_next_step(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("GET", "/api/v1/namespaces", 403, "Forbidden")
    for right in (("create", "jobs"), ("list", "jobs"), ("create", "configmaps")):
        server.forbidden.add((*right, "muster-team-a"))
    outcome = muster("whoami")
    assert outcome.code == 0
    assert outcome.lines[-1].startswith("You have no role in any project")


def test_a_server_too_old_to_name_the_caller_is_no_failure(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", 404, "NotFound")
    assert muster("whoami").lines[0].startswith("User: lab (by the kubeconfig")


def test_login_checks_the_credentials_and_logout_says_where_they_are(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster("login").out.startswith(f"You are ann at {server.url} (context lab).")
    assert "kubeconfig" in muster("logout").out
    server.refuse("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", 401, "Unauthorized")
    outcome = muster("login")
    assert (outcome.code, outcome.out) == (1, "")
    assert "renew its credentials" in outcome.err


@pytest.mark.parametrize("before", [True, False])
def test_requests_are_made_as_the_user_and_groups_that_are_named(
    before: bool, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    words = ("--as", "bob", "--as-group", "team", "--as-group=other")
    assert muster(*((*words, "list") if before else ("list", *words))).code == 0
    for each in server.headers:
        assert each["Impersonate-User"] == "bob"


def test_a_group_without_a_user_is_refused_before_anything_is_asked(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("list", "--as-group", "team")
    assert outcome.code == 1
    assert "--as" in outcome.err
    assert muster("list", "--as", "bob\nX-Injected: yes").code == 1
    assert server.requests == []


def test_the_kubeconfig_may_name_the_user_to_act_as_and_the_option_wins(
    kubeconfig: Path, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    _change_user(kubeconfig, {"as": "carol", "as-groups": ["team"]})
    muster("list")
    assert {each["Impersonate-User"] for each in server.headers} == {"carol"}
    server.headers.clear()
    muster("list", "--as", "bob")
    assert {each["Impersonate-User"] for each in server.headers} == {"bob"}
    assert {each.get("Impersonate-Group") for each in server.headers} == {None}


def test_a_plugin_of_the_kubeconfig_makes_the_token(
    kubeconfig: Path, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "token-of-the-plugin"},
    }
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print('''{json.dumps(credential)}''')"],
        "interactiveMode": "Never",
    }
    _change_user(kubeconfig, {"exec": plugin})
    assert muster("list").code == 0
    assert {each["Authorization"] for each in server.headers} == {"Bearer token-of-the-plugin"}


def test_a_plugin_that_fails_is_one_line(kubeconfig: Path, muster: Callable[..., Outcome]) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent/plugin"}
    _change_user(kubeconfig, {"exec": plugin | {"interactiveMode": "Never"}})
    outcome = muster("list")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("refused", "command", "said"),
    [
        (
            ("GET", "/apis/batch/v1/namespaces/muster-team-a/jobs"),
            ("list",),
            ("list jobs in namespace muster-team-a", "muster-viewer"),
        ),
        (
            ("POST", "/apis/batch/v1/namespaces/muster-team-a/jobs"),
            ("submit", "x", "-i", "image"),
            ("create jobs in namespace muster-team-a", "muster-researcher"),
        ),
        (
            ("POST", "/apis/muster.dev/v1alpha1/projects"),
            ("project", "create", "new", "-g", "1"),
            ("create projects in the whole cluster", "muster-cluster-admin"),
        ),
        (
            ("POST", "/api/v1/namespaces/muster-team-a/configmaps"),
            ("template", "create", "x", "--set", "gpu=1"),
            ("create configmaps in namespace muster-team-a", "muster-project-admin"),
        ),
    ],
)
def test_a_denied_call_names_the_verb_the_resource_and_the_role(
    refused: tuple[str, str],
    command: tuple[str, ...],
    said: tuple[str, ...],
    muster: Callable[..., Outcome],
    server: MemoryApiServer,
) -> None:
    server.refuse(*refused, 403, "Forbidden")
    outcome = muster(*command)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    for each in ("Access denied", *said):
        assert each in outcome.err


def _change_user(kubeconfig: Path, user: dict[str, Any]) -> None:
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = user
    kubeconfig.write_text(yaml.safe_dump(document))
