"""The terms of two node selectors together, without a product of terms where values of one label can be intersected."""

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.objects import NodeSelector
from orchestrator.labels import LabelRequirement, matches_requirement
from orchestrator.observe.node_terms import MAX_TERMS, Terms, both, terms_of
from orchestrator.observe.unreadable import UnreadableRequest


def is_in(key: str, *values: str) -> LabelRequirement:
    return LabelRequirement(key, "In", values)


def holds(terms: Terms, labels: dict[str, str]) -> bool:
    return not terms or any(all(matches_requirement(labels, each) for each in term) for term in terms)


ZONES = tuple((is_in("zone", f"z-{each}"),) for each in range(3))
REQUIREMENTS = st.builds(
    LabelRequirement,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
    st.lists(st.sampled_from(["1", "2", "3"]), max_size=3).map(tuple),
)
SELECTORS = st.lists(st.lists(REQUIREMENTS, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
LABELS = [
    {key: value for key, value in (("a", a), ("b", b)) if value}
    for a, b in product(["", "1", "2", "3"], repeat=2)
]


@given(SELECTORS, SELECTORS)
def test_both_hold_exactly_where_each_does(first: Terms, second: Terms) -> None:
    together = both(first, second)
    for labels in LABELS:
        assert holds(together, labels) == (holds(first, labels) and holds(second, labels))


def test_claims_of_one_class_ask_for_no_more_than_each_alone() -> None:
    wider = ((is_in("zone", "z-0", "z-1"),), (is_in("zone", "z-2"),))
    assert both(ZONES, ZONES) == ZONES
    assert both(ZONES, wider) == ZONES
    terms: Terms = ()
    for each in range(12):
        terms = both(terms, ZONES if each % 2 else wider)
    assert terms == ZONES


def test_selectors_that_no_node_can_match_match_none() -> None:
    assert not holds(both(ZONES[:1], ZONES[1:2]), {"zone": "z-0"})
    empty = msgspec.convert({"nodeSelectorTerms": [{}]}, NodeSelector)
    assert not holds(terms_of(empty), {"zone": "z-0"})
    assert terms_of(None) == terms_of(NodeSelector()) == ()


def selector(terms: int, expressions: int = 1, values: int = 1) -> NodeSelector:
    expression = {"key": "k", "operator": "In", "values": ["v"] * values}
    term = {"matchExpressions": [expression] * expressions}
    return msgspec.convert({"nodeSelectorTerms": [term] * terms}, NodeSelector)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (selector(MAX_TERMS), ""),
        (selector(1, 1, 1000), ""),
        (selector(MAX_TERMS + 1), "33 terms: at most 32"),
        (selector(3, 100), "300 requirements: at most 64"),
        (selector(1, 1, 1001), "1001 values: at most 1000"),
    ],
)
def test_a_pod_has_only_so_many_terms(terms: NodeSelector, words: str) -> None:
    if not words:
        assert terms_of(terms)
        return
    with pytest.raises(UnreadableRequest, match=words):
        terms_of(terms)


def test_the_terms_of_two_selectors_together_are_bounded_too() -> None:
    racks = tuple((is_in("rack", f"r-{each}"),) for each in range(11))
    with pytest.raises(UnreadableRequest, match="33 terms: at most 32"):
        both(ZONES, racks)
