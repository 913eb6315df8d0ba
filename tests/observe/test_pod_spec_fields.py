"""Each field of PodSpec is implemented, irrelevant for a given reason, or refused. A new field of Kubernetes fails
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from orchestrator.cluster.transport import Transport
from orchestrator.observe.cluster_fields import POD_SPEC_IN_A_CLUSTER
from orchestrator.observe.field_rules import Complete, Each, Irrelevant, Refused, Rule
from orchestrator.observe.request import UnreadableRequest, pod_constraints
from tests.observe.objects import pod

if TYPE_CHECKING:
    from orchestrator.cluster.kubeconfig import Access

TYPES: Final[dict[str, dict[str, str]]] = yaml.safe_load(
    (Path(__file__).parent / "pod_spec_types.yaml").read_text()
)


def inner(rule: Rule) -> Rule:
    """Return the rule for an entry of a list, or for the fields of a complete object."""
    while isinstance(rule, Each | Complete):
        rule = rule.entry if isinstance(rule, Each) else rule.fields
    return rule


def fields(rule: Rule, kind: str) -> Iterator[tuple[str, str, Rule | None]]:
    """Yield each field of the type, and of the types below it that have rules: path, type, and rule or None."""
    rules = inner(rule)
    if not isinstance(rules, Mapping):
        return
    for name in {**TYPES[kind], **rules}:
        yield f"{kind}.{name}", TYPES[kind].get(name, "absent"), rules.get(name)
        if name in rules and name in TYPES[kind]:
            yield from fields(rules[name], TYPES[kind][name])


ALL: Final = {path: (kind, rule) for path, kind, rule in fields(POD_SPEC_IN_A_CLUSTER, "PodSpec")}


def test_each_field_has_a_rule_and_each_rule_a_field() -> None:
    assert [path for path, (_, rule) in ALL.items() if rule is None] == []
    assert [path for path, (kind, _) in ALL.items() if kind == "absent"] == []
    assert TYPES.keys() == {
        "PodSpec",
        *(kind for kind, rule in ALL.values() if isinstance(inner_of(rule), Mapping)),
    }


def inner_of(rule: Rule | None) -> Rule | None:
    return None if rule is None else inner(rule)


def test_a_field_of_a_newer_kubernetes_has_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        TYPES, "TopologySpreadConstraint", {**TYPES["TopologySpreadConstraint"], "newField": ""}
    )
    found = {path for path, _, rule in fields(POD_SPEC_IN_A_CLUSTER, "PodSpec") if rule is None}
    assert found == {"TopologySpreadConstraint.newField"}


def test_an_irrelevant_or_refused_field_has_a_reason() -> None:
    for path, (_, rule) in ALL.items():
        if isinstance(rule, Irrelevant | Refused):
            assert len(rule.reason) > 20, path


@pytest.mark.parametrize("path", [path for path, (_, rule) in ALL.items() if isinstance(rule, Refused)])
def test_the_operator_refuses_a_pod_with_a_refused_field(path: str) -> None:
    kind, name = path.split(".")
    value: dict[str, Any] = {"podGroupName": "group"}
    spec = {"volumes": [{"name": "data", name: {}}]} if kind == "Volume" else {name: value}
    with pytest.raises(UnreadableRequest, match=re.compile("not implemented: use")):
        pod_constraints(pod("p", spec=spec))


@pytest.mark.parametrize(
    "name", [path.split(".")[1] for path, (_, rule) in ALL.items() if path.startswith("Volume.")]
)
def test_a_volume_of_an_implemented_kind_is_read(name: str) -> None:
    rule = ALL[f"Volume.{name}"][1]
    if name == "name" or isinstance(rule, Refused):
        return
    source = {"claimName": "c"} if name == "persistentVolumeClaim" else {}
    assert pod_constraints(pod("p", spec={"volumes": [{"name": "data", name: source}]})).node_terms == ()


@pytest.mark.lab
async def test_the_stored_types_are_those_of_the_api_server(lab_access: Access) -> None:
    async with Transport(lab_access) as transport:
        document = await transport.get("/openapi/v2", dict[str, Any])
    definitions = {
        name.rpartition(".")[2]: body for name, body in document["definitions"].items() if ".v1." in name
    }
    for kind, stored in TYPES.items():
        properties = definitions[kind]["properties"]
        assert {name: type_of(body) for name, body in properties.items()} == stored, kind


def type_of(body: Mapping[str, Any]) -> str:
    reference: str = body.get("$ref") or body.get("items", {}).get("$ref", "")
    return reference.rpartition("/")[2].rpartition(".")[2]
