from __future__ import annotations

import base64
import json
import ssl
import stat
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.cluster import errors
from orchestrator.cluster.kubeconfig import load_access, load_server, set_default_namespace
from orchestrator.cluster.transport import Transport
from orchestrator.errors import ConfigurationError
from tests.cluster.certificates import Authority
from tests.cluster.fake_api_server import Answer, pod, serving

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PATH = "/api/v1/namespaces/team/pods/a"


def config(
    name: str = "lab",
    *,
    namespace: str = "",
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> Any:
    """Return a kubeconfig with one context, one cluster and one user with this name."""
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}.example:6443", **(cluster or {})}}
        ],
        "users": [{"name": name, "user": dict(user or {})}],
        "contexts": [{"name": name, "context": context}],
    }


def write(file: Path, document: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config"


# --- which file -------------------------------------------------------------------------------------------


def test_the_current_context_is_loaded(file: Path) -> None:
    access = load_access(write(file, config(namespace="team")))
    assert (access.server, access.namespace, access.context, access.user) == (
        "https://lab.example:6443",
        "team",
        "lab",
        "lab",
    )
    assert access.token() is None


def test_a_context_without_a_namespace_means_default(file: Path) -> None:
    assert load_access(write(file, config())).namespace == "default"


def test_the_file_that_is_named_wins_over_the_environment_and_that_over_the_home(tmp_path: Path) -> None:
    named, listed = write(tmp_path / "named", config("named")), write(tmp_path / "listed", config("listed"))
    write(tmp_path / ".kube" / "config", config("home"))
    environ = {"KUBECONFIG": str(listed)}
    assert load_access(named, environ=environ, home=tmp_path).context == "named"
    assert load_access(environ=environ, home=tmp_path).context == "listed"
    assert load_access(environ={}, home=tmp_path).context == "home"
    assert load_access(environ={"KUBECONFIG": ""}, home=tmp_path).context == "home"


def test_listed_files_are_merged_and_the_first_to_name_a_thing_decides(tmp_path: Path) -> None:
    first, second = config("first"), config("second", namespace="second-team")
    first["clusters"].append({"name": "second", "cluster": {"server": "https://decided-first"}})
    files = [write(tmp_path / "1", first), tmp_path / "absent", write(tmp_path / "2", second)]
    environ = {"KUBECONFIG": ":".join(str(file) for file in files)}
    assert load_access(environ=environ).context == "first"
    access = load_access(context="second", environ=environ)
    assert (access.server, access.namespace) == ("https://decided-first", "second-team")


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    account = tmp_path / "account"
    write(account / "token", "first\n")
    write(account / "namespace", "muster-system")
    write(account / "ca.crt", Authority().pem.decode())
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = load_access(environ=environ, home=tmp_path, service_account=account)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "muster-system")
    assert access.token() == "first"
    (account / "token").write_text("the second token")
    assert access.token() == "the second token"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("- a list", "is no kubeconfig"),
        ("a: b: c", "is no YAML"),
        ("", "no current-context"),
        ({**config(), "current-context": "other"}, "there is no context 'other'; it has: lab"),
        ({**config(), "clusters": []}, "there is no cluster 'lab'; it has: none"),
        ({**config(), "users": ["lab"]}, "users must be a list of named mappings"),
        (config(cluster={"server": "lab:6443"}), "must be a URL, not 'lab:6443'"),
        (
            config(cluster={"certificate-authority": "absent.pem"}),
            "certificate-authority of 'lab' is .*absent.pem",
        ),
        (config(cluster={"certificate-authority-data": "%"}), "is no base64"),
        (config(cluster={"certificate-authority-data": "YWJj"}), "is no PEM certificate"),
        (config(user={"client-certificate-data": "YWJj"}), "only one of client-certificate and client-key"),
        (config(user={"client-certificate-data": "YWJj", "client-key-data": "YWJj"}), "no matching PEM pair"),
        (config(user={"username": "me"}), "username of 'lab' is not supported"),
    ],
)
def test_an_unusable_file_is_named_with_its_error(file: Path, document: Any, message: str) -> None:
    write(file, document)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_access(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_kubeconfig_at_all_says_where_one_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--kubeconfig or KUBECONFIG"):
        load_access(environ={}, home=tmp_path, service_account=tmp_path)
    with pytest.raises(ConfigurationError, match="there is no such kubeconfig"):
        load_access(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="KUBECONFIG=/absent"):
        load_access(environ={"KUBECONFIG": "/absent"})


# --- credentials ------------------------------------------------------------------------------------------


def test_a_token_in_the_file_is_used(file: Path) -> None:
    assert load_access(write(file, config(user={"token": "secret"}))).token() == "secret"


def test_a_token_file_is_found_beside_the_kubeconfig_and_read_again_when_it_changes(file: Path) -> None:
    write(file, config(user={"tokenFile": "token", "token": "ignored"}))
    token = write(file.parent / "token", "one\n")
    access = load_access(file)
    assert access.token() == "one"
    token.unlink()
    with pytest.raises(ConfigurationError, match="the token cannot be read"):
        access.token()
    token.write_text("three")
    assert access.token() == "three"


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_client_certificate_opens_a_server_that_asks_for_one(file: Path, inline: bool) -> None:
    authority = Authority()
    certificate, key = authority.issue("admin")
    async with serving(tls=authority.server_context()) as server:
        server.on("GET", PATH, Answer(pod("a")))
        if inline:
            ca = {"certificate-authority-data": encoded(authority.pem)}
            user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
        else:
            ca = {"certificate-authority": "ca.pem"}
            user = {"client-certificate": "admin.pem", "client-key": "admin.key"}
            for name, pem in (("ca.pem", authority.pem), ("admin.pem", certificate), ("admin.key", key)):
                (file.parent / name).write_bytes(pem)
        access = load_access(write(file, config(user=user, cluster={"server": server.url, **ca})))
        async with Transport(access) as transport:
            assert (await transport.get(PATH))["kind"] == "Pod"


async def test_a_server_of_another_authority_is_not_trusted_unless_told_to(file: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("admin")
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    async with serving(tls=authority.server_context()) as server:
        server.on("GET", PATH, Answer(pod("a")))
        other = {"certificate-authority-data": encoded(Authority().pem)}
        access = load_access(write(file, config(user=user, cluster={"server": server.url, **other})))
        async with Transport(access) as transport:
            with pytest.raises(errors.Unreachable, match="check the server and the CA"):
                await transport.create(PATH, {})
        insecure = {"insecure-skip-tls-verify": True}
        access = load_access(write(file, config(user=user, cluster={"server": server.url, **insecure})))
        async with Transport(access) as transport:
            assert await transport.get(PATH)


async def test_a_server_may_be_known_by_another_name(file: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("admin")
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    ca = {"certificate-authority-data": encoded(authority.pem), "tls-server-name": "kubernetes.default"}
    async with serving(tls=authority.server_context("kubernetes.default")) as server:
        server.on("GET", PATH, Answer(pod("a")))
        access = load_access(write(file, config(user=user, cluster={"server": server.url, **ca})))
        assert isinstance(access.ssl, ssl.SSLContext)
        async with Transport(access) as transport:
            assert await transport.get(PATH)


# --- the default namespace --------------------------------------------------------------------------------


def test_the_default_namespace_is_changed_in_place_and_nothing_else(file: Path) -> None:
    before = config(user={"token": "secret"})
    write(file, before).chmod(0o640)
    assert set_default_namespace("muster-team", file) == file
    before["contexts"][0]["context"]["namespace"] = "muster-team"
    assert yaml.safe_load(file.read_text()) == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(file.parent.iterdir()) == [file]


def test_the_default_namespace_is_changed_in_the_file_that_has_the_context(tmp_path: Path) -> None:
    files = [write(tmp_path / name, config(name)) for name in ("a", "b")]
    environ = {"KUBECONFIG": ":".join(str(file) for file in files)}
    text = files[0].read_text()
    assert set_default_namespace("team", context="b", environ=environ) == files[1]
    assert load_access(files[1]).namespace == "team"
    assert files[0].read_text() == text


def test_a_link_to_a_kubeconfig_remains_a_link(tmp_path: Path) -> None:
    target = write(tmp_path / "real" / "config", config())
    link = tmp_path / "link"
    link.symlink_to(target)
    set_default_namespace("team", link)
    assert link.is_symlink()
    assert load_access(target).namespace == "team"


def test_the_default_namespace_of_an_unknown_context_is_refused(file: Path) -> None:
    write(file, config())
    with pytest.raises(ConfigurationError, match="there is no context 'nope'; it has: lab"):
        set_default_namespace("team", file, "nope")


def test_a_server_alone_has_no_credentials_and_runs_no_command(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    users: dict[str, dict[str, object]] = {
        "token": {"token": "secret"},
        "file": {"tokenFile": "missing"},
        "command": {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "touch",
                "args": [str(ran)],
                "interactiveMode": "Never",
            }
        },
        "certificate": {"client-certificate": "missing.pem", "client-key": "missing.pem"},
        "impersonation": {"token": "secret", "as": "root", "as-groups": ["system:masters"]},
    }
    document = {
        "current-context": "token",
        "clusters": [{"name": "one", "cluster": {"server": "https://one:6443/", "tls-server-name": "inner"}}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": name, "context": {"cluster": "one", "user": name}} for name in users],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(document))
    for name in users:
        access = load_server(path, name, environ={})
        assert (access.server, access.tls_server_name) == ("https://one:6443", "inner")
        assert (access.user, access.token(), access.impersonation) == ("", None, ())
    assert not ran.exists()


def test_a_server_of_a_pod_leaves_the_token_of_the_account_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    (tmp_path / "token").write_text("secret")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = load_server(None, environ=environ, home=tmp_path, service_account=tmp_path)
    assert (access.server, access.token(), access.user) == ("https://10.0.0.1:443", None, "")
    with pytest.raises(ConfigurationError, match="no kubeconfig"):
        load_server(None, environ={}, home=tmp_path, service_account=tmp_path / "nowhere")
