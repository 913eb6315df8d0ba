"""Equal texts in several objects share memory, and nothing else in an object changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client.equal_texts import MAX_DEPTH, MAX_LENGTH, MAX_TEXTS, EqualTexts
from orchestrator.cluster.objects import Pod


class Inner(msgspec.Struct, frozen=True):
    text: str = "inner"
    more: tuple[Any, ...] = ()


class Outer(msgspec.Struct):
    """An object with every kind of value."""

    text: str = ""
    number: int | None = None
    is_so: bool = False
    labels: dict[str, str] = {}
    parts: list[Any] = []
    pair: tuple[Any, ...] = ()
    inner: Inner = Inner()


words = st.sampled_from(["a", "Ready", "2026-01-01T00:00:00Z", ""]) | st.text(max_size=3)
leaves = words | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
values = st.recursive(
    leaves,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.tuples(inside, inside)
        | st.dictionaries(words, inside, max_size=3)
        | st.builds(Inner, words, st.tuples(inside))
    ),
    max_leaves=8,
)
outers = st.builds(
    Outer,
    text=words,
    number=st.none() | st.integers(),
    is_so=st.booleans(),
    labels=st.dictionaries(words, words, max_size=3),
    parts=st.lists(values, max_size=3),
    pair=st.tuples(values, values),
    inner=st.builds(Inner, words, st.tuples(values)),
)


def copy_of(outer: Outer) -> Outer:
    copied: Outer = deep(outer)
    return copied


def deep(value: Any) -> Any:
    """Return a copy in which every text is a separate object."""
    if type(value) is str:
        return "".join(list(value)) if len(value) > 1 else value
    if isinstance(value, dict):
        return {deep(key): deep(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(deep, value))
    if isinstance(value, msgspec.Struct):
        return type(value)(*(deep(getattr(value, name)) for name in value.__struct_fields__))
    return value


def texts_of(value: Any) -> list[str]:
    """Return all texts except the keys of dicts, in order."""
    if type(value) is str:
        return [value]
    if isinstance(value, dict):
        return [text for entry in value.values() for text in texts_of(entry)]
    if isinstance(value, list | tuple):
        return [text for entry in value for text in texts_of(entry)]
    if isinstance(value, msgspec.Struct):
        return [text for name in value.__struct_fields__ for text in texts_of(getattr(value, name))]
    return []


@given(st.lists(outers, max_size=3))
def test_objects_are_unchanged_and_have_their_equal_texts_in_common(objects: list[Outer]) -> None:
    before = [copy_of(outer) for outer in objects]
    shared = [copy_of(outer) for outer in objects]
    texts = EqualTexts()
    for outer in shared:
        texts.share_in(outer)
    assert list(map(repr, shared)) == list(map(repr, before))  # repr distinguishes 1 from True and from 1.0
    all_texts = [text for outer in shared for text in texts_of(outer)]
    assert len({id(text) for text in all_texts}) == len(set(all_texts))


def test_two_pods_have_their_equal_parts_in_common() -> None:
    decode = msgspec.json.Decoder(Pod).decode
    one, other = (
        decode(
            msgspec.json.encode(
                {
                    "metadata": {"name": name, "namespace": "runai-team-a", "labels": {"project": "team-a"}},
                    "spec": {"nodeName": "dgx-0001"},
                    "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
                }
            )
        )
        for name in ("one", "other")
    )
    texts = EqualTexts()
    texts.share_in(one)
    texts.share_in(other)
    assert one.metadata.namespace is other.metadata.namespace
    assert one.metadata.labels["project"] is other.metadata.labels["project"]
    assert one.spec.node_name is other.spec.node_name
    assert one.status.conditions[0].type is other.status.conditions[0].type


@pytest.mark.parametrize("levels", [MAX_DEPTH, 900])
def test_deeply_nested_values_are_unchanged(levels: int) -> None:
    value: Any = "a text"
    for _ in range(levels):
        value = [value]
    outer = Outer(parts=value)
    EqualTexts().share_in(outer)
    for _ in range(levels):
        (value,) = value
    assert value == "a text"


def test_texts_that_occur_once_are_not_kept_for_ever() -> None:
    texts = EqualTexts()
    for number in range(3 * MAX_TEXTS):
        texts.share_in(Inner(str(number)))
    assert len(texts) <= MAX_TEXTS + 1


def test_long_texts_are_not_shared() -> None:
    texts = EqualTexts()
    texts.share_in(Inner("x" * (MAX_LENGTH + 1), ("y" * MAX_LENGTH,)))
    assert len(texts) == 1
