"""The web pages in the operator YAML: the rights and volumes of their pod, and the options."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from musterweb.command import web
from musterweb.provider_options import provider_of
from musterweb.provider_sign_in import CALLBACK
from orchestrator.cli.main import muster
from orchestrator.manifests.render import documents
from orchestrator.manifests.web import OIDC_ISSUER, OIDC_WORD, PUBLIC_URL


def run(*options: str) -> Result:
    return CliRunner().invoke(muster, ["operator-yaml", "--cluster", "c", *options])


def objects(*options: str) -> dict[str, dict[str, Any]]:
    result = run("--image", "registry.example/muster:1", *options)
    assert result.exit_code == 0, result.stderr
    return {
        body["kind"]: body for body in documents(result.stdout) if body["metadata"]["name"] == "muster-web"
    }


def pod_spec(*options: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects("--web", *options)["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_without_the_option_there_is_nothing_of_the_pages() -> None:
    assert objects() == {}


def test_its_account_has_no_rights_and_its_pod_no_token() -> None:
    kinds = objects("--web")
    assert set(kinds) == {"ServiceAccount", "Service", "Deployment", "NetworkPolicy"}
    assert kinds["ServiceAccount"]["automountServiceAccountToken"] is False
    spec = pod_spec()
    assert spec["automountServiceAccountToken"] is False
    sources = [{key for key in volume if key != "name"} for volume in spec["volumes"]]
    assert sources == [{"configMap"}, {"secret"}]
    assert spec["volumes"][0]["configMap"]["name"] == "kube-root-ca.crt"


def test_it_is_not_root_writes_nothing_and_runs_the_operators_image() -> None:
    spec = pod_spec()
    (container,) = spec["containers"]
    assert container["image"] == "registry.example/muster:1"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert {container[probe]["httpGet"]["scheme"] for probe in ("livenessProbe", "readinessProbe")} == {
        "HTTPS"
    }


def test_its_selectors_and_ports_meet() -> None:
    kinds = objects("--web")
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        kinds["Service"]["spec"]["selector"],
        kinds["Deployment"]["spec"]["selector"]["matchLabels"],
        kinds["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    (port,) = pod_spec()["containers"][0]["ports"]
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]


def test_from_a_projects_namespace_no_pod_reaches_it() -> None:
    (rule,) = objects("--web")["NetworkPolicy"]["spec"]["ingress"]
    (peer,) = rule["from"]
    (expression,) = peer["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": "muster.dev/project", "operator": "DoesNotExist"}


def test_a_prometheus_is_one_argument_and_gives_no_rights() -> None:
    url = "http://prometheus.monitoring:9090/prom"
    assert f"--prometheus={url}" in pod_spec("--web-prometheus", url)["containers"][0]["args"]
    assert "ClusterRoleBinding" not in objects("--web", "--web-prometheus", url)


@pytest.mark.parametrize(
    ("options", "volume"),
    [
        ((), {"emptyDir": {"sizeLimit": "2Gi"}}),
        (("--web-history-claim", "kept"), {"persistentVolumeClaim": {"claimName": "kept"}}),
    ],
)
def test_only_its_own_history_lets_it_read_as_a_viewer_does(
    options: tuple[str, ...], volume: dict[str, Any]
) -> None:
    chosen = ("--web-history", *options)
    assert objects("--web", *chosen)["ClusterRoleBinding"]["roleRef"]["name"] == "muster-viewer"
    spec = pod_spec(*chosen)
    arguments = spec["containers"][0]["args"]
    assert arguments[-2:] == ["--history=/history/history.db", "--history-token=/history-token/token"]
    volumes = {entry.pop("name"): entry for entry in spec["volumes"]}
    assert volumes["history"] == volume
    assert (
        volumes["history-token"]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"]
        == 3600
    )
    writable = [mount["name"] for mount in spec["containers"][0]["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["history"]


PROVIDER = (
    "--web-oidc-issuer=https://sso.example.com/realms/gpu",
    "--web-oidc-client-id=muster",
    "--web-public-url=https://muster.example.com/",
)


def flags_of(*options: str) -> dict[str, Any]:
    """Return the options that `muster web` parses from its container's arguments. It refuses unknown ones."""
    (container,) = pod_spec(*options)["containers"]
    name, *arguments = container["args"]
    assert name == web.name
    return web.make_context("web", arguments).params


@pytest.mark.parametrize("options", [(), ("--web-history",), ("--web-prometheus=http://p:9090",), PROVIDER])
def test_its_arguments_are_those_of_the_command(options: tuple[str, ...]) -> None:
    assert flags_of(*options)["listen"] == "*:8443"


def test_a_provider_reaches_the_command_with_its_secret_and_authority_as_files() -> None:
    more = ("--web-oidc-client-secret=web-client", "--web-oidc-authority=sso-authority")
    scopes = ("--web-oidc-scope=openid", "--web-oidc-scope=groups")
    flags = flags_of(*PROVIDER, *more, *scopes)
    secret, authority = Path("/provider-secret/client-secret"), Path("/provider-authority/ca.crt")
    assert {name: value for name, value in flags.items() if name.startswith(("oidc", "public"))} == {
        "oidc_issuer": "https://sso.example.com/realms/gpu",
        "oidc_client_id": "muster",
        "oidc_client_secret": secret,
        "oidc_authority": authority,
        "oidc_scopes": ("openid", "groups"),
        "public_url": "https://muster.example.com/",
    }
    spec = pod_spec(*PROVIDER, *more)
    volumes = {entry.pop("name"): entry for entry in spec["volumes"]}
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert volumes["provider-secret"] == {
        "secret": {
            "secretName": "web-client",
            "defaultMode": 0o440,
            "items": [{"key": secret.name, "path": secret.name}],
        }
    }
    assert volumes["provider-authority"] == {
        "configMap": {"name": "sso-authority", "items": [{"key": authority.name, "path": authority.name}]}
    }
    for name, file in (("provider-secret", secret), ("provider-authority", authority)):
        assert mounts[name] == {"name": name, "mountPath": str(file.parent), "readOnly": True}
    # the manifest itself has no secret, and an identity provider gives the pages no rights
    assert set(objects("--web", *PROVIDER, *more)) == {
        "ServiceAccount",
        "Service",
        "Deployment",
        "NetworkPolicy",
    }


def test_a_public_client_of_a_known_authority_needs_no_more_files() -> None:
    volumes = {entry["name"] for entry in pod_spec(*PROVIDER)["volumes"]}
    assert volumes == {"authority", "certificate"}
    assert flags_of(*PROVIDER)["oidc_scopes"] == ()


@given(
    issuer=st.from_regex(OIDC_ISSUER, fullmatch=True),
    public_url=st.from_regex(PUBLIC_URL, fullmatch=True),
    scope=st.from_regex(OIDC_WORD, fullmatch=True),
)
def test_a_possible_provider_here_is_one_for_the_command(issuer: str, public_url: str, scope: str) -> None:
    provider = provider_of(
        issuer, scope, secret=None, authority=None, scopes=("openid", scope), public_url=public_url
    )
    assert provider is not None
    assert urlsplit(provider.settings.redirect_url).path == CALLBACK
    assert not set(f"{issuer}{public_url}{scope}") & set("$\"'\\ \n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--web-history",), "give it too"),
        (("--web-prometheus", "http://p:9090"), "give it too"),
        (("--web", "--web-history-claim", "kept"), "give both"),
        (("--web", "--web-history", "--web-prometheus", "http://p:9090"), "give one"),
        (("--web", "--web-prometheus", "p:9090"), "give a URL"),
        (("--web", "--web-prometheus", "http://p:9090/ # x"), "give a URL"),
        (("--web", "--web-certificate", "A b"), "the name of an object"),
        (("--web", "--web-certificate", ""), "the name of an object"),
        (("--web", "--web-history", "--web-history-claim", "../x"), "the name of an object"),
        (PROVIDER, "give it too"),
        (("--web", *PROVIDER[1:]), "give --web-oidc-issuer too"),
        (("--web", "--web-oidc-authority=a"), "give --web-oidc-issuer too"),
        (("--web", PROVIDER[0], PROVIDER[1]), "needs --web-public-url"),
        (("--web", PROVIDER[0], PROVIDER[2]), "needs --web-oidc-client-id"),
        (("--web", PROVIDER[0]), "needs --web-oidc-client-id and --web-public-url"),
        (("--web", *PROVIDER, "--web-oidc-issuer=http://sso.example.com"), "give a URL such as https://sso"),
        (("--web", *PROVIDER, "--web-public-url=https://a.example/x"), "give a URL such as https://muster"),
        (("--web", *PROVIDER, "--web-oidc-client-id=$(X)"), "give one word"),
        (("--web", *PROVIDER, "--web-oidc-scope=groups"), "without openid"),
        (("--web", *PROVIDER, "--web-oidc-client-secret=A"), "the name of an object"),
    ],
)
def test_contradicting_options_are_refused(options: tuple[str, ...], words: str) -> None:
    result = run(*options)
    assert result.exit_code != 0
    assert words in str(result.exception)
