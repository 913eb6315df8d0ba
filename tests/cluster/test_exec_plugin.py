"""orchestrator.cluster.exec_plugin: credentials from a command."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cluster.kubeconfig import load_access
from orchestrator.errors import ConfigurationError

V1 = "client.authentication.k8s.io/v1"


def kubeconfig(directory: Path, plugin: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    file = directory / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://a.example", **(cluster or {})}}],
        "users": [
            {"name": "ada", "user": {"exec": {"apiVersion": V1, "interactiveMode": "Never", **plugin}}}
        ],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "ada"}}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


def script(directory: Path, text: str) -> str:
    """Write a program beside the kubeconfig; return its path as the kubeconfig names it."""
    path = directory / "plugin"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return "./plugin"


def token_of(file: Path) -> str | None:
    return load_access(file).token()


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


def test_the_command_beside_the_kubeconfig_makes_the_token(tmp_path: Path) -> None:
    access = load_access(
        kubeconfig(tmp_path, {"command": script(tmp_path, f"echo '{credential(token='made')}'")})
    )
    assert access.token() == "made"
    assert access.token_blocks


@pytest.mark.parametrize(("expires", "runs"), [("2000-01-01T00:00:00Z", 3), ("2999-01-01T00:00:00Z", 1)])
def test_the_command_runs_again_only_once_its_credential_expires(
    tmp_path: Path, expires: str, runs: int
) -> None:
    answer = credential(token="made", expirationTimestamp=expires)
    command = script(tmp_path, f"echo run >> {tmp_path}/runs; echo '{answer}'")
    access = load_access(kubeconfig(tmp_path, {"command": command}))
    assert [access.token(), access.token()] == ["made", "made"]
    assert len((tmp_path / "runs").read_text().splitlines()) == runs


def test_the_command_gets_its_variables_and_is_told_of_the_cluster(tmp_path: Path) -> None:
    command = script(tmp_path, f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo "$ANSWER"')
    plugin = {
        "command": command,
        "env": [{"name": "ANSWER", "value": credential(token="made")}],
        "provideClusterInfo": True,
    }
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "dgx"}}
    assert load_access(kubeconfig(tmp_path, plugin, {"extensions": [extension]})).token() == "made"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {"server": "https://a.example", "config": {"audience": "dgx"}},
        },
    }


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ({"command": "false"}, "made by `false`: it ended with 1; run it by hand"),
        ({"command": "echo", "args": ["hello"]}, "made by `echo hello`: it printed no ExecCredential"),
        ({"command": "echo", "args": [credential()]}, "it made neither a token nor a certificate"),
        (
            {"command": "echo", "args": [credential(token="a", expirationTimestamp="soon")]},
            "cannot be read: 'soon'",
        ),
        (
            {"command": "no-such-command", "installHint": "get it there"},
            "No such file or directory; get it there",
        ),
        ({"command": "true", "apiVersion": "client.authentication.k8s.io/v1alpha1"}, "supported are"),
        ({"args": ["a"]}, "must be a mapping with a command"),
    ],
)
def test_a_command_that_makes_nothing_is_named_with_the_reason(
    tmp_path: Path, plugin: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        token_of(kubeconfig(tmp_path, plugin))
    assert message in str(refused.value)
    assert "ada" in str(refused.value)
