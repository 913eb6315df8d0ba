"""Values of variables and arguments arrive in a container byte for byte."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.submit.environment import escaped
from orchestrator.submit.manifest import Placement, workload_manifest
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import Variable

ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
TRICKY = st.text(st.sampled_from("$()A \n\"'é𝄞"), max_size=12)
PLACEMENT = Placement("team-a", "muster-team-a", "2026-01-01T00:00:00.000001Z")


def expanded(text: str, variables: dict[str, str]) -> str:
    """Expand byte by byte as Kubernetes does. Like older versions, change a non-ASCII character after a `$`.

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
def test_kubernetes_expands_to_the_given_text(text: str) -> None:
    assert expanded(escaped(text), {"A": "expanded", "": "nothing"}) == text


@given(text=st.text(st.characters(codec="ascii"), max_size=20))
def test_only_text_that_would_be_expanded_is_escaped(text: str) -> None:
    if "$" not in text or not re.search(r"\$[$(]", text):
        assert escaped(text) == text


@given(value=TRICKY, word=TRICKY, note=TRICKY)
def test_values_words_and_annotations_are_in_the_manifest_as_they_have_to_be(
    value: str, word: str, note: str
) -> None:
    request = Submission(
        "x",
        "image",
        "ann",
        environment=(Variable("V", value),),
        command=("c", word),
        args=(word,),
        annotations=(("example.com/note", note),),
    )
    made = workload_manifest(request, PLACEMENT)
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
