"""Node selector terms in the planner's terms. Pure."""

from itertools import product
from typing import Final

from orchestrator.cluster.objects import NodeSelector
from orchestrator.labels import LabelRequirement, requirement_of
from orchestrator.observe.unreadable import UnreadableRequest

Terms = tuple[tuple[LabelRequirement, ...], ...]
"""A node matches if it meets all requirements of at least one term. Without terms, all nodes match."""

MAX_TERMS: Final = 32
MAX_REQUIREMENTS: Final = 64
MAX_VALUES: Final = 1000
"""Maxima for all terms of one pod together. A decision evaluates them for every node, so the maxima bound the cost that
one pod causes. People write one to three terms; a list of many hosts can be the values of one requirement.
"""

NODE_NAME_LABEL: Final = "metadata.name"
"""A pseudo label with the node's own name, so that terms on fields are matched like terms on labels."""
NO_LABEL: Final = f"it selects nodes by the label {NODE_NAME_LABEL}, which is a field: use matchFields"
_NO_NODE: Final = tuple(LabelRequirement(NODE_NAME_LABEL, each, ()) for each in ("Exists", "DoesNotExist"))
"""A term that matches no node. A snapshot file can have it, unlike a requirement without values."""


def terms_of(selector: NodeSelector | None) -> Terms:
    """Return the terms of a node selector. Requirements on fields are matched like requirements on labels.

    As in Kubernetes, a term without requirements matches no node. Raises ValueError for too many terms and for an
    unknown operator.
    """
    if selector is None or not selector.node_selector_terms:
        return ()
    listed = selector.node_selector_terms
    if len(listed) > MAX_TERMS:
        raise UnreadableRequest(f"its node affinity has {len(listed)} terms: at most {MAX_TERMS} are read")
    if any(one.key == NODE_NAME_LABEL for term in listed for one in term.match_expressions):
        raise UnreadableRequest(NO_LABEL)
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
    """Return terms that match all nodes except this one; None: all nodes."""
    return ((LabelRequirement(NODE_NAME_LABEL, "NotIn", (node,)),),) if node else ()


def both(first: Terms, second: Terms) -> Terms:
    """Return the conjunction of both: terms that match the nodes that match `first` and `second`.

    If `first` and `second` require values of the same label, the values are intersected, and impossible terms are left
    out. So several PVCs of one class have no more terms than one PVC. Raises UnreadableRequest if too many terms
    remain.
    """
    if not first or not second or first == second:
        return first or second
    merged = (_merged(one, other) for one, other in product(first, second))
    terms = tuple(dict.fromkeys(term for term in merged if term is not None))
    return bounded(terms, "its node affinity and its volumes have together") or (_NO_NODE,)


def bounded(terms: Terms, whose: str) -> Terms:
    """Return the terms. Raises UnreadableRequest if there are too many; the message begins with `whose`."""
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
    """Return the requirements of both terms together; None if no node can match them."""
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
