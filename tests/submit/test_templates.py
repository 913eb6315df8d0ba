from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import ConfigMap
from orchestrator.errors import UsageError
from orchestrator.submit.templates import (
    Kind,
    NoSuchTemplate,
    Template,
    config_map_of,
    fill,
    in_order,
    template_of,
)

KINDS = {
    "image": Kind.TEXT,
    "gpu": Kind.TEXT,
    "gpu-memory": Kind.TEXT,
    "interactive": Kind.SWITCH,
    "backoff-limit": Kind.NUMBER,
    "environment": Kind.MANY,
    "volume": Kind.MANY,
    "pvc": Kind.MANY,
    "command": Kind.MANY,
    "args": Kind.MANY,
}
ENVIRON = {"USER": "ann"}


def template(text: str, name: str = "base", **more: Any) -> Template:
    return Template(name, more.pop("namespace", "muster-team-a"), text=text, **more)


def filled(given: dict[str, Any], *texts: str) -> dict[str, Any]:
    return fill(given, [template(text, f"t{place}") for place, text in enumerate(texts)], KINDS, ENVIRON)


@pytest.mark.parametrize(
    ("given", "text", "made"),
    [
        ({}, "image: a", {"image": "a"}),
        ({"image": "mine"}, "image: a", {}),
        ({"image": None}, "image: {value: a, required: true}", {"image": "a"}),
        ({}, "gpu: 2", {"gpu": "2"}),
        ({}, "gpu: 0.5", {"gpu": "0.5"}),
        ({"gpu-memory": "4G"}, "gpu: {value: 1, required: true}", {}),
        ({"interactive": False}, "interactive: true", {}),
        ({}, "interactive: true", {"interactive": True}),
        ({}, "backoff_limit: 3", {"backoff-limit": 3}),
        ({}, "volume: /home/$USER:/home", {"volume": ("/home/ann:/home",)}),
        ({}, "args: [a$$b]", {"args": ("a$b",)}),
        (
            {"environment": ("A=mine", "C=3")},
            "environment: [A=1, B=2]",
            {"environment": ("B=2", "A=mine", "C=3")},
        ),
        ({"volume": ("/x:/data",)}, "volume: ['/y:/data:ro', '/z:/z']", {"volume": ("/z:/z", "/x:/data")}),
        ({"pvc": ("mine:/data",)}, "pvc: [':1G:/data']", {}),
        ({"args": ("eval.py",)}, "{command: python, args: [train.py]}", {}),
        ({}, "{command: python, args: [train.py]}", {"command": ("python",), "args": ("train.py",)}),
        ({}, "", {}),
    ],
)
def test_given_values_win_and_the_rest_is_filled(
    given: dict[str, Any], text: str, made: dict[str, Any]
) -> None:
    assert filled(given, text) == made


def test_an_earlier_template_wins_over_a_later_one_and_lists_are_joined() -> None:
    made = filled({}, "{image: a, environment: [A=1]}", "{image: b, gpu: 1, environment: [A=2, B=2]}")
    assert made == {"image": "a", "gpu": "1", "environment": ("B=2", "A=1")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image: {required: true}", ("--image", "t0", "requires")),
        ("images: a", ("images", "no flag")),
        ("gpu: true", ("gpu", "takes text")),
        ("backoff-limit: many", ("backoff-limit", "whole number")),
        ("interactive: 1", ("interactive", "true or false")),
        ("environment: true", ("environment", "list of texts")),
        ("image: $NOBODY", ("$NOBODY", "--image")),
        ("image: a$", ("image", "$$")),
        ("image: {requird: true}", ("image", "required")),
        ("image: [{}]", ("image",)),
        ("- image", ("mapping",)),
        ("a: [", ("YAML",)),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_in_one_line(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        filled({}, text)
    message = str(refused.value)
    assert "\n" not in message
    for word in ("t0", *words):
        assert word in message


def test_a_value_that_is_required_by_one_template_may_come_from_another() -> None:
    assert filled({}, "image: {required: true}", "image: a") == {"image": "a"}


def test_the_named_template_comes_first_then_the_defaults_of_project_and_cluster() -> None:
    known = [
        template("", "site", namespace="muster-system-templates", is_default=True),
        template("", "big", namespace="muster-system-templates"),
        template("", "ours", is_default=True),
        template("", "big"),
    ]
    assert [each.name for each in in_order(known, None)] == ["ours", "site"]
    named = in_order(known, "big")
    assert [(each.name, each.is_of_cluster) for each in named] == [
        ("big", False),
        ("ours", False),
        ("site", True),
    ]
    with pytest.raises(NoSuchTemplate, match="big, ours, site"):
        in_order(known, "small")


def test_a_template_is_kept_in_a_config_map_and_read_back() -> None:
    made = template("gpu: 1", description="one GPU", is_default=True)
    body = config_map_of(made)
    assert template_of(msgspec.convert(body, ConfigMap)) == made


@given(st.text(max_size=40))
def test_any_text_is_at_most_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        filled({}, text)
