"""Conditions on the labels of a node, in the planner's terms. Pure."""

from itertools import product
from typing import Final

from orchestrator.cluster.objects import NodeSelector
from orchestrator.labels import LabelRequirement, requirement_of
from orchestrator.observe.unreadable import UnreadableRequest

Terms = tuple[tuple[LabelRequirement, ...], ...]
"""Any of them must match, with all its requirements; without any, every node matches."""

MAX_TERMS: Final = 32
MAX_REQUIREMENTS: Final = 64
MAX_VALUES: Final = 1000
"""Maxima for one pod, in all its terms together. A decision evaluates them for every node, so they bound one pod's
cost for all others. People write one to three terms; a list of many hosts belongs into the values.
"""

_NO_NODE: Final = (LabelRequirement("metadata.name", "In", ()),)


def terms_of(selector: NodeSelector | None) -> Terms:
    """A selector of Kubernetes as requirements on a node; requirements on fields are matched like those on labels.

    As in Kubernetes a term without requirements matches no node. Raises ValueError if there are too many, or one has an
    unknown operator.
    """
    if selector is None or not selector.node_selector_terms:
        return ()
    listed = selector.node_selector_terms
    if len(listed) > MAX_TERMS:
        raise UnreadableRequest(f"its node affinity has {len(listed)} terms: at most {MAX_TERMS} are read")
    terms = tuple(
        tuple(
            requirement_of(expression.key, expression.operator, expression.values)
            for expression in (*term.match_expressions, *term.match_fields)
        )
        for term in listed
        if term.match_expressions or term.match_fields
    )
    return bounded(terms, "its node affinity has") or (_NO_NODE,)


def not_on(node: str | None) -> Terms:
    """The terms of every node but this one; None: of every node."""
    return ((LabelRequirement("metadata.name", "NotIn", (node,)),),) if node else ()


def both(first: Terms, second: Terms) -> Terms:
    """Return the terms that hold where one of the first and one of the second do.

    Values that both require of one label are intersected, and impossible terms are left out. So claims of one class
    require no more together than each alone. Raises UnreadableRequest if too many remain.
    """
    if not first or not second or first == second:
        return first or second
    merged = (_merged(one, other) for one, other in product(first, second))
    terms = tuple(dict.fromkeys(term for term in merged if term is not None))
    return bounded(terms, "its node affinity and its volumes have together") or (_NO_NODE,)


def bounded(terms: Terms, whose: str) -> Terms:
    """Return the terms. Raises UnreadableRequest, which begins with `whose`, when there are too many to look at."""
    requirements = sum(map(len, terms))
    values = sum(len(requirement.values) for term in terms for requirement in term)
    for count, most, subject in (
        (len(terms), MAX_TERMS, "terms"),
        (requirements, MAX_REQUIREMENTS, "requirements"),
        (values, MAX_VALUES, "values"),
    ):
        if count > most:
            raise UnreadableRequest(f"{whose} {count} {subject}: at most {most} are read")
    return terms


def _merged(
    one: tuple[LabelRequirement, ...], other: tuple[LabelRequirement, ...]
) -> tuple[LabelRequirement, ...] | None:
    """All that both ask; None when no node can match it."""
    lists: dict[str, tuple[str, ...]] = {}
    merged: dict[tuple[str, str, tuple[str, ...]], LabelRequirement] = {}
    for requirement in (*one, *other):
        if requirement.operator != "In":
            merged.setdefault((requirement.key, requirement.operator, requirement.values), requirement)
            continue
        known = lists.get(requirement.key)
        allowed = set(requirement.values)
        lists[requirement.key] = (
            requirement.values if known is None else tuple(value for value in known if value in allowed)
        )
        if not lists[requirement.key]:
            return None
        merged[requirement.key, "In", ()] = LabelRequirement(requirement.key, "In", lists[requirement.key])
    return tuple(merged.values())
