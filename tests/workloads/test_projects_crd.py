"""What the definition of projects lets the API server store can be read: else one field costs a whole project."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.objects import Project
from orchestrator.cluster.quantity import memory_bytes
from orchestrator.manifests.render import documents, render
from orchestrator.workloads.parsing import parse_duration_seconds
from orchestrator.workloads.snapshot import planner_project
from tests.workloads.objects import decoded

(CRD,) = (each for each in documents(render("tests")) if each["metadata"]["name"] == "projects.muster.dev")
SPEC: dict[str, Any] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
    "properties"
]
DURATIONS = ("interactiveTimeLimit", "preemptMinRuntime", "reclaimMinRuntime")


def matching(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    """Texts that match the schema, as a Go regular expression does: its end is not before a last line break."""
    texts = st.from_regex(schema["pattern"].removesuffix("$") + r"\Z")
    most = schema.get("maxLength", 32)
    return texts.filter(lambda text: schema.get("minLength", 0) <= len(text) <= most)


def within_most(text: str) -> bool:
    """What the rule on amounts says."""
    try:
        return memory_bytes(text) <= 8 * 10**15
    except ValueError:
        return False  # more than any quantity can be


def readable(**spec: Any) -> None:
    planner_project(decoded(Project, metadata={"name": "p"}, spec={"gpu": {"quota": 1}, **spec}))


@pytest.mark.parametrize("field", DURATIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_every_duration_that_is_stored_can_be_read(field: str, data: st.DataObject) -> None:
    text = data.draw(matching(SPEC[field]))
    parse_duration_seconds(field, text)
    readable(**{field: text})


@pytest.mark.parametrize("field", DURATIONS)
def test_the_longest_duration_that_is_stored_can_be_read(field: str) -> None:
    assert parse_duration_seconds(field, "99999h9999999m999999999s") == 1_959_996_339 < 2**31


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@settings(max_examples=30)
@given(data=st.data())
def test_every_amount_that_is_stored_can_be_read(resource: str, data: st.DataObject) -> None:
    schema = SPEC[resource]["properties"]["limit"]
    assert "8P" in schema["x-kubernetes-validations"][1]["rule"]
    texts = matching(schema).filter(within_most)
    readable(**{resource: {"limit": data.draw(texts)}})


def test_every_number_of_gpus_has_the_rule_of_three_decimals() -> None:
    gpu = SPEC["gpu"]["properties"]
    of_model = gpu["models"]["additionalProperties"]["properties"]
    for schema in (gpu["quota"], gpu["limit"], gpu["overQuotaWeight"], of_model["quota"], of_model["limit"]):
        messages = [rule["message"] for rule in schema["x-kubernetes-validations"]]
        assert "a number of GPUs has at most three decimal places" in messages
