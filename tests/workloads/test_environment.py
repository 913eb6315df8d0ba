"""What is given to a container arrives byte for byte, or is refused with the reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.workloads.environment import (
    LONGEST_STRING_BYTES,
    MOST_BYTES,
    Variable,
    escaped,
    parse_variable,
    read_variables,
)
from orchestrator.workloads.manifest import Placement, workload_manifest
from orchestrator.workloads.submission import MOST_ANNOTATION_BYTES, Submission

if TYPE_CHECKING:
    from pathlib import Path

ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
TRICKY = st.text(st.sampled_from("$()A \n\"'é𝄞"), max_size=12)
PLACEMENT = Placement("team-a", "muster-team-a", "2026-01-01T00:00:00.000001Z")


def expanded(text: str, variables: dict[str, str]) -> str:
    """Expand as Kubernetes does, byte by byte, with what older versions make of a `$` before non-ASCII.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (EnvVar.value)
    """
    source, result, place = text.encode(), b"", 0
    while place < len(source):
        if source[place : place + 1] != b"$" or place + 1 == len(source):
            result += source[place : place + 1]
            place += 1
            continue
        after = source[place + 1 :]
        if after[:1] == b"$":
            result, place = result + b"$", place + 2
        elif after[:1] == b"(" and (found := re.match(rb"\(([^)]*)\)", after)):
            reference = found[0].decode(errors="replace")
            result += variables.get(reference[1:-1], f"${reference}").encode()
            place += 1 + len(found[0])
        else:
            result += b"$" + chr(after[0]).encode()
            place += 2
    return result.decode(errors="replace")


@given(text=ANY_TEXT | TRICKY)
@example(text="$(A)")
@example(text="$$(A) $$ $$$ $")
@example(text="$é")
def test_what_kubernetes_expands_is_what_was_given(text: str) -> None:
    assert expanded(escaped(text), {"A": "expanded", "": "nothing"}) == text


@given(text=st.text(st.characters(codec="ascii"), max_size=20))
def test_only_what_would_be_expanded_is_escaped(text: str) -> None:
    if "$" not in text or not re.search(r"\$[$(]", text):
        assert escaped(text) == text


@given(value=TRICKY, word=TRICKY, note=TRICKY)
def test_values_words_and_annotations_are_in_the_manifest_as_they_have_to_be(
    value: str, word: str, note: str
) -> None:
    asked = Submission(
        "x",
        "image",
        "ann",
        environment=(Variable("V", value),),
        command=("c", word),
        args=(word,),
        annotations=(("example.com/note", note),),
    )
    made = workload_manifest(asked, PLACEMENT)
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        assert metadata["annotations"]["example.com/note"] == note
    (container,) = made["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value", "") for each in container["env"]}
    assert expanded(variables["V"], variables) == value
    assert [expanded(each, variables) for each in (*container["command"], *container["args"])] == [
        "c",
        word,
        word,
    ]


LONGEST = "x" * (LONGEST_STRING_BYTES - len("V="))


@pytest.mark.parametrize("value", ["x" * 65536, LONGEST, "ä" * (len(LONGEST) // 2)])
def test_what_linux_can_take_is_taken(value: str) -> None:
    assert Submission("x", "image", "ann", environment=(Variable("V", value),)).environment[0].value == value


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"environment": (Variable("V", LONGEST + "x"),)}, "--environment V is 131072 bytes"),
        ({"environment": (Variable("V", "ä" * 65536),)}, "--environment V is 131074 bytes"),
        ({"environment": (Variable("V", "a\0b"),)}, "--environment V has a NUL"),
        ({"args": ("a\0",)}, "--args has a NUL"),
        ({"command": ("x" * 131072,)}, "--command is 131072 bytes"),
        (
            {"args": ("x" * 131000,) * 9},
            rf"1179000 bytes together, and Kubernetes keeps at most {MOST_BYTES}",
        ),
        ({"annotations": (("example.com/a", "x" * MOST_ANNOTATION_BYTES),)}, "--annotation: all annotations"),
        ({"annotations": (("a", "1"), ("a", "2"))}, "--annotation a is given twice"),
        ({"labels": (("a", "1"), ("a", "2"))}, "--label a is given twice"),
    ],
)
def test_what_cannot_arrive_is_refused_with_the_reason(fields: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Submission("x", "image", "ann", **fields)  # type: ignore[arg-type]


def test_the_command_line_of_a_long_submission_is_shortened_for_display() -> None:
    made = workload_manifest(
        Submission("x", "image", "ann", command_line="muster submit " + "x" * 200_000), PLACEMENT
    )
    kept = made["metadata"]["annotations"]["muster.dev/command-line"]
    assert len(kept) <= 4096
    assert kept.startswith("muster submit xxx")
    assert kept.endswith(" ...")


def test_a_file_of_variables_is_taken_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_bytes(
        "# a comment\n\nA=1\nB=with = and # and 'quotes' \r\n  C=ä$(X)\nD=SECRET:s3,key\nE=\n".encode()
    )
    assert read_variables(file) == [
        Variable("A", "1"),
        Variable("B", "with = and # and 'quotes' "),
        Variable("C", "ä$(X)"),
        Variable("D", secret="s3", secret_key="key"),
        Variable("E"),
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"A=1\nnonsense\n", "line 2: give NAME=VALUE"), (b"A=1\n\nB=\xff\n", "line 3: is no")],
)
def test_a_line_that_cannot_be_read_is_named(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=rf"--env-file .*env, {told}"):
        read_variables(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--env-file .*nothing cannot be read: No such file"):
        read_variables(tmp_path / "nothing")


@given(text=st.text(max_size=20))
def test_a_variable_is_read_as_it_is_or_refused(text: str) -> None:
    try:
        found = parse_variable(text)
    except UsageError as error:
        assert "-e/--environment" in str(error)  # noqa: PT017
        return
    assert found.secret or f"{found.name}={found.value}" == text
