"""Every project that the CRD lets the API server store can be read; otherwise one field would
cost the whole project.
"""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import Project
from orchestrator.cluster.quantity import memory_bytes
from orchestrator.durations import parse_duration_seconds
from orchestrator.manifests.render import documents, render
from orchestrator.observe.project_reader import planner_project
from tests.observe.objects import decoded

(CRD,) = (each for each in documents(render("tests")) if each["metadata"]["name"] == "projects.muster.dev")
SPEC: dict[str, Any] = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
    "properties"
]
UNITS = st.sampled_from(["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
DURATIONS = ("interactiveTimeLimit", "preemptMinRuntime", "reclaimMinRuntime")


def digits(most: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", min_size=1, max_size=most)


def part(unit: str) -> st.SearchStrategy[str]:
    return st.just("") | digits(12).map(lambda number: number + unit)


def matches(schema: dict[str, Any], text: str) -> bool:
    """Return whether the schema accepts the text, without its CEL rules."""
    is_long_enough = schema.get("minLength", 0) <= len(text) <= schema["maxLength"]
    return is_long_enough and re.fullmatch(schema["pattern"], text) is not None


def within_max(text: str) -> bool:
    """Return whether the CEL rule for amounts accepts the text."""
    try:
        return memory_bytes(text) <= 8 * 10**15
    except ValueError:
        return False  # the amount exceeds every quantity


def readable(**spec: Any) -> None:
    planner_project(decoded(Project, metadata={"name": "p"}, spec={"gpu": {"quota": 1}, **spec}))


@pytest.mark.parametrize("field", DURATIONS)
@given(text=st.tuples(part("h"), part("m"), part("s")).map("".join))
def test_every_duration_that_is_stored_can_be_read(field: str, text: str) -> None:
    if matches(SPEC[field], text):
        parse_duration_seconds(field, text)
        readable(**{field: text})


@pytest.mark.parametrize("field", DURATIONS)
def test_the_longest_duration_that_is_stored_can_be_read(field: str) -> None:
    assert parse_duration_seconds(field, "99999h9999999m999999999s") == 1_959_996_339 < 2**31


@pytest.mark.parametrize("resource", ["cpu", "memory", "storage"])
@given(text=st.tuples(digits(15), st.just("") | digits(9).map(".{}".format), UNITS).map("".join))
def test_every_amount_that_is_stored_can_be_read(resource: str, text: str) -> None:
    schema = SPEC[resource]["properties"]["limit"] if resource != "storage" else SPEC[resource]
    assert "8P" in schema["x-kubernetes-validations"][1]["rule"]
    assert matches(schema, text)
    if within_max(text):
        readable(**{resource: {"limit": text} if resource != "storage" else text})


def test_every_number_of_gpus_has_the_rule_of_three_decimals() -> None:
    gpu = SPEC["gpu"]["properties"]
    of_model = gpu["models"]["additionalProperties"]["properties"]
    for schema in (gpu["quota"], gpu["limit"], gpu["overQuotaWeight"], of_model["quota"], of_model["limit"]):
        messages = [rule["message"] for rule in schema["x-kubernetes-validations"]]
        assert "a number of GPUs has at most three decimal places" in messages
