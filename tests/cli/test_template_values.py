"""Templates of `submit`: the commands that store them (`cli/template.py`), and how they fill flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from orchestrator.cli.settings import Settings
from orchestrator.cli.submit import submit
from orchestrator.cli.template_values import with_templates
from orchestrator.errors import UsageError
from orchestrator.submit.templates import Template

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"


def test_a_template_is_created_listed_shown_and_deleted(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    made = muster(
        "template", "create", "small", "--set", "gpu=0.5", "--require", "image", "--description", "x y"
    )
    assert (made.code, made.out) == (0, "Template small has been created in namespace muster-team-a\n")
    muster("template", "create", "site", "--set", "large-shm=true", "--default", "--of-cluster")
    assert server.find("configmaps", "site", "muster-system-templates") is not None
    for words in (("list", "templates"), ("list", "template"), ("template", "list")):
        assert muster(*words).lines == [
            "NAME            DESCRIPTION",
            "small           x y",
            "site (default)  -",
        ]
    shown = muster("template", "get", "small").lines
    assert shown[:3] == ["NAME: small", "DESCRIPTION: x y", "FOR: the project"]
    assert "  gpu: '0.5'" in shown
    assert muster("describe", "template", "small").lines == shown
    assert "required: true" in muster("get", "template", "small", "-o", "json").json["values"]
    assert muster("template", "delete", "small").code == 0
    assert muster("template", "delete", "site", "--of-cluster").code == 0
    assert server.all("configmaps") == []


def test_a_template_comes_from_a_file(
    tmp_path: Path, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("image: python\nenvironment: [A=B]\n")
    assert muster("template", "create", "base", "-f", str(file)).code == 0
    made = server.find("configmaps", "base", NAMESPACE)
    assert made is not None
    assert made["data"]["values"] == file.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("base",), "-f/--file"),
        (("base", "--set", "gpu"), "--set 'gpu'"),
        (("base", "--set", "gpus=1"), "gpus"),
        (("base", "--set", "interactive=maybe"), "interactive"),
        (("base", "--require", "nothing"), "nothing"),
        (("Base", "--set", "gpu=1"), "Base"),
        (("base", "-f", "/nonexistent"), "/nonexistent"),
    ],
)
def test_a_template_that_could_never_be_used_is_not_created(
    words: tuple[str, ...], said: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("template", "create", *words)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert said in outcome.err
    assert server.writes() == []


def test_a_name_that_is_taken_is_refused(muster: Callable[..., Outcome]) -> None:
    assert muster("template", "create", "base", "--set", "gpu=1").code == 0
    outcome = muster("template", "create", "base", "--set", "gpu=2")
    assert outcome.code == 1
    assert "base" in outcome.err


def test_an_unknown_template_is_named_with_those_there_are(muster: Callable[..., Outcome]) -> None:
    muster("template", "create", "base", "--set", "gpu=1")
    outcome = muster("template", "get", "nothing")
    assert outcome.code == 1
    assert "nothing" in outcome.err
    assert "base" in outcome.err


def test_templates_of_a_cluster_that_may_not_be_read_are_none(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("template", "create", "base", "--set", "gpu=1")
    server.refuse("GET", "/api/v1/namespaces/muster-system-templates/configmaps", 403, "Forbidden")
    assert muster("list", "templates", "-o", "name").out == "base\n"


@pytest.mark.parametrize(
    ("words", "text", "filled"),
    [
        (["x"], "{image: a, gpu: 1}", {"image": "a", "gpu": "1"}),
        (["x", "-i", "b"], "image: a", {"image": "b"}),
        (["x"], "backoff-limit: 3", {"backoff_limit": 3}),
        (["x", "--interactive=false"], "interactive: true", {"interactive": False}),
        (["x", "-e", "A=1"], "environment: [B=2]", {"environment": ("B=2", "A=1")}),
        (["x", "--", "eval.py"], "args: [train.py]", {"args": ()}),
        (["x"], "args: [train.py]", {"args": ("train.py",)}),
    ],
)
def test_templates_fill_the_parsed_flags_of_submit(
    words: list[str], text: str, filled: dict[str, Any]
) -> None:
    with submit.make_context("submit", words, obj=Settings()) as ctx:
        made = with_templates(ctx, ctx.params, [Template("base", NAMESPACE, text=text)])
    assert {key: made[key] for key in filled} == filled


def test_a_value_of_a_template_that_the_flag_does_not_take_is_refused_by_the_flag() -> None:
    template = Template("base", NAMESPACE, text="service-type: carrier-pigeon")
    with (
        submit.make_context("submit", ["x"], obj=Settings()) as ctx,
        pytest.raises(click.UsageError) as refused,
    ):
        with_templates(ctx, ctx.params, [template])
    assert "service-type" in refused.value.format_message()


def test_the_name_of_the_job_is_no_matter_of_templates() -> None:
    template = Template("base", NAMESPACE, text="name: x")
    with submit.make_context("submit", ["x"], obj=Settings()) as ctx, pytest.raises(UsageError, match="name"):
        with_templates(ctx, ctx.params, [template])
