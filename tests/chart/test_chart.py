"""The Helm chart compared with the operator YAML: Helm renders the same objects for the same values, and refuses the
same.

Covers `orchestrator.cli.helm_chart` and `orchestrator.manifests.templating`. Helm is the real program.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.helm_chart import value_name
from orchestrator.cli.main import muster
from orchestrator.cli.operator import operator_yaml
from orchestrator.manifests.web import OIDC_ISSUER, OIDC_WORD, PUBLIC_URL
from tests.chart.helm_program import helm

pytestmark = pytest.mark.lab

OPTIONS = {
    value_name(parameter): parameter
    for parameter in operator_yaml.params
    if isinstance(parameter, click.Option)
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(muster, ["operator-yaml", *arguments])


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chart") / "muster"
    result = run("--cluster", "c", "--helm", str(directory))
    assert (result.exit_code, result.stdout) == (0, "")
    return directory


def objects(text: str) -> dict[tuple[str, str, str], Any]:
    bodies = {}
    for body in yaml.safe_load_all(text):
        if body is not None:
            metadata = body["metadata"]
            bodies[body["kind"], metadata.get("namespace", ""), metadata["name"]] = body
    return bodies


def differing(one: str, other: str) -> list[tuple[str, str, str]]:
    """Return the objects that differ in two texts, by kind, namespace and name."""
    first, second = objects(one), objects(other)
    assert len(first) > 20
    return sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))


def flags(values: Mapping[str, Any]) -> list[str]:
    """Return the options of the command line with the same meaning as the values."""
    arguments = []
    for name, value in values.items():
        option = OPTIONS[name]
        if isinstance(value, bool):
            switches = option.opts if value else option.secondary_opts
            arguments += switches[:1]
        elif isinstance(value, list):
            arguments += [f"{option.opts[0]}={item}" for item in value]
        elif value is not None:
            arguments.append(f"{option.opts[0]}={value}")
    return arguments


def template(chart: Path, values: Mapping[str, Any], *arguments: str) -> Any:
    file = chart.parent / "values.yaml"
    file.write_text(json.dumps(values))
    return helm(chart.parent, "template", "muster", str(chart), "-f", str(file), *arguments)


def duration(seconds: int) -> st.SearchStrategy[str]:
    def text(amounts: tuple[int, int, int]) -> str:
        return "".join(f"{n}{unit}" for n, unit in zip(amounts, "hms", strict=True) if n) or "0s"

    return st.tuples(st.integers(0, 30), st.integers(0, 90), st.integers(0, seconds)).map(text)


BOOLEAN = st.booleans()
DURATION = duration(4000)
DURATION_OR_NEVER = st.just("never") | DURATION
TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
VALUES = {
    "cluster": st.from_regex(r"[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?", fullmatch=True),
    "image": TEXT,
    "replicas": st.integers(0, 5),
    "requireDevicesVariable": BOOLEAN,
    "agent": st.none() | BOOLEAN,
    "agentRuntimeClass": TEXT,
    "agentDriverRoot": TEXT,
    "hostHealth": st.sampled_from(["agent", "other"]),
    "web": BOOLEAN,
    "webCertificate": NAME,
    "webPrometheus": st.sampled_from(["", "http://prometheus.monitoring:9090", "https://[fd00::1]/p/~x"]),
    "webHistory": BOOLEAN,
    "webHistoryClaim": st.just("") | NAME,
    "webPublicUrl": st.from_regex(PUBLIC_URL, fullmatch=True),
    "webOidcIssuer": st.from_regex(OIDC_ISSUER, fullmatch=True),
    "webOidcClientId": st.from_regex(OIDC_WORD, fullmatch=True),
    "webOidcClientSecret": st.just("") | NAME,
    "webOidcAuthority": st.just("") | NAME,
    "webOidcScope": st.lists(st.from_regex(OIDC_WORD, fullmatch=True), unique=True),
    "maxEvictions": st.none() | st.integers(0, 2**31 - 1),
    "notReadyGrace": DURATION,
    "maxUnhealthyNodes": st.none() | st.integers(0, 40),
    "reservationAfter": DURATION_OR_NEVER,
    "startTimeout": DURATION_OR_NEVER,
    "outOfServiceAfter": DURATION_OR_NEVER,
    "maxOutOfService": st.integers(0, 40),
    "staleGrace": DURATION,
    "maxMoves": st.integers(0, 40),
    "spread": BOOLEAN,
    "topologyLevel": st.lists(st.sampled_from(["zone", "example.com/rack", "A.b_c"]), unique=True),
    "maxCheckpointGrace": DURATION,
    "policies": st.sampled_from(["deny", "warn", "audit", "off"]),
    "gpuMemoryLimits": st.sampled_from(["enforce", "off"]),
    "noNetworkPolicy": BOOLEAN,
    "ingressClass": NAME,
    "ingressDomain": st.sampled_from(["", "localhost", "gpus.example.com", "a-1.2.b"]),
}

OF_PROVIDER = {name for name in VALUES if name.startswith(("webOidc", "webPublic"))}
PROVIDER: dict[str, Any] = {
    "web": True,
    "webPublicUrl": "https://muster.example.com",
    "webOidcIssuer": "https://sso.example.com/realms/gpu",
    "webOidcClientId": "muster",
}


def possible(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values without those that exclude each other."""
    left_out = set()
    if values.get("gpuMemoryLimits") == "enforce" and values.get("policies") == "off":
        left_out.add("policies")
    if not values.get("web"):
        left_out |= {"webPrometheus", "webHistory", "webHistoryClaim"} | OF_PROVIDER
    if values.get("webHistory"):
        left_out.add("webPrometheus")
    else:
        left_out.add("webHistoryClaim")
    if not {"webOidcIssuer", "webOidcClientId", "webPublicUrl"} <= values.keys():
        left_out |= OF_PROVIDER
    if scopes := values.get("webOidcScope"):
        values["webOidcScope"] = ["openid", *(scope for scope in scopes if scope != "openid")]
    return {name: value for name, value in values.items() if name not in left_out}


ANY_VALUES = st.fixed_dictionaries(
    {"cluster": VALUES["cluster"]}, optional={name: VALUES[name] for name in VALUES if name != "cluster"}
).map(possible)


def test_every_option_is_a_value_that_is_tried_here(chart: Path) -> None:
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert set(values) == set(VALUES) == set(OPTIONS) - {"helm"}
    schema = json.loads((chart / "values.schema.json").read_text())["properties"]
    assert {name: schema[name]["description"] for name in values} == {
        name: OPTIONS[name].help for name in values
    }


def test_helm_has_nothing_to_say_against_it(chart: Path) -> None:
    done = helm(chart.parent, "lint", "--strict", str(chart))
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    assert "0 chart(s) failed" in done.stdout


@settings(max_examples=10, deadline=None)
@given(values=ANY_VALUES)
def test_for_the_same_values_the_objects_are_the_same(chart: Path, values: dict[str, Any]) -> None:
    expected = run(*flags(values))
    assert expected.exit_code == 0, (values, expected.exception)
    rendered = template(chart, values)
    assert rendered.returncode == 0, (values, rendered.stderr)
    assert differing(rendered.stdout, expected.stdout) == []


WHOLE: list[dict[str, Any]] = [
    {},
    {"web": True, "webHistory": True, "webHistoryClaim": "kept", "webCertificate": "123"},
    {"web": True, "webPrometheus": "http://prometheus.monitoring:9090", "image": "registry.example/muster:1"},
    PROVIDER,
    PROVIDER | {"webOidcScope": ["openid", "groups"], "webOidcClientSecret": "s", "webOidcAuthority": "a"},
    {"agentDriverRoot": "/", "hostHealth": "other", "gpuMemoryLimits": "enforce", "policies": "audit"},
    {"replicas": 0, "agent": True, "policies": "off", "requireDevicesVariable": True, "maxEvictions": 0},
    {
        "topologyLevel": ["zone", "rack"],
        "maxCheckpointGrace": "1h1m1s",
        "spread": True,
    },
    {"image": "other:1", "notReadyGrace": "120s", "startTimeout": "never"},
    {"outOfServiceAfter": "10m", "maxOutOfService": 2},
]


@pytest.mark.parametrize("values", WHOLE, ids=lambda values: "-".join(values) or "defaults")
def test_options_at_the_rendering_of_the_chart_are_its_values(tmp_path: Path, values: dict[str, Any]) -> None:
    arguments = flags({"cluster": "dgx", **values})
    directory = tmp_path / "muster"
    assert run(*arguments, "--helm", str(directory)).exit_code == 0
    rendered = template(directory, {})
    assert rendered.returncode == 0, rendered.stderr
    assert differing(rendered.stdout, run(*arguments).stdout) == []


REFUSED: list[dict[str, Any]] = [
    {"cluster": "a b"},
    {"gpuMemoryLimits": "enforce", "policies": "off"},
    {"webHistory": True},
    {"web": True, "webHistoryClaim": "kept"},
    {"web": True, "webHistory": True, "webPrometheus": "http://p:9090"},
    {"web": True, "webPrometheus": "http://p:9090 # x"},
    {"web": True, "webCertificate": ""},
    PROVIDER | {"web": False},
    PROVIDER | {"webPublicUrl": ""},
    PROVIDER | {"webPublicUrl": "http://muster.example.com"},
    PROVIDER | {"webPublicUrl": "https://muster.example.com/pages"},
    PROVIDER | {"webPublicUrl": "https://muster.example.com:65536"},
    PROVIDER | {"webOidcIssuer": ""},
    PROVIDER | {"webOidcIssuer": "http://127.0.0.1:5556"},
    PROVIDER | {"webOidcIssuer": "https://ada:x@sso.example.com"},
    PROVIDER | {"webOidcIssuer": "https://sso.example.com/?realm=gpu"},
    PROVIDER | {"webOidcClientId": ""},
    PROVIDER | {"webOidcClientId": "$(POD_IP)"},
    PROVIDER | {"webOidcClientSecret": "A b"},
    PROVIDER | {"webOidcAuthority": "../x"},
    PROVIDER | {"webOidcScope": ["groups"]},
    PROVIDER | {"webOidcScope": ["openid", "a b"]},
    {"web": True, "webOidcScope": ["openid"]},
    {"web": True, "webPublicUrl": "https://muster.example.com"},
    {"notReadyGrace": "soon"},
    {"notReadyGrace": ""},
    {"staleGrace": "never"},
    {"maxMoves": -1},
    {"replicas": -1},
    {"topologyLevel": ["rack", "rack"]},
    {"topologyLevel": ["a rack"]},
    {"policies": "maybe"},
    {"ingressClass": ""},
    {"ingressDomain": "*.example.com"},
    {"ingressDomain": "Example.com"},
    {"ingressDomain": "a.b\n"},
    {"ingressDomain": "10.0.0.5"},
    {"ingressDomain": ".".join(["a"] * 99)},
]


@pytest.mark.parametrize("values", REFUSED, ids=str)
def test_the_chart_refuses_the_same_values_as_the_operator_yaml(chart: Path, values: dict[str, Any]) -> None:
    assert run(*flags({"cluster": "c", **values})).exit_code != 0
    assert template(chart, values).returncode != 0


@pytest.mark.parametrize("values", [{"notReadGrace": "1m"}, {"replicas": "2"}, {"web": "yes"}], ids=str)
def test_a_value_that_is_misspelt_or_of_another_type_is_refused(chart: Path, values: dict[str, Any]) -> None:
    done = template(chart, values)
    assert done.returncode != 0
    assert next(iter(values)) in done.stderr


def test_a_release_in_the_namespace_that_the_chart_makes_is_refused(chart: Path) -> None:
    done = template(chart, {}, "--namespace", "muster-system")
    assert done.returncode != 0
    assert "install the release into another namespace" in done.stderr
