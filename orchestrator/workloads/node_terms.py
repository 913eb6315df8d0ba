"""Conditions on the labels of a node, in the planner's terms. Pure."""

from itertools import product

from orchestrator.cluster.objects import NodeSelector
from orchestrator.planner.model import LabelRequirement

Terms = tuple[tuple[LabelRequirement, ...], ...]
"""Any of them must hold, with all its requirements; none at all: every node will do."""


def terms_of(selector: NodeSelector | None) -> Terms:
    """What a selector of Kubernetes asks of a node; requirements on fields are matched like those on labels."""
    return tuple(
        tuple(
            LabelRequirement(each.key, each.operator, tuple(each.values))
            for each in (*term.match_expressions, *term.match_fields)
        )
        for term in (selector.node_selector_terms if selector is not None else ())
    )


def both(first: Terms, second: Terms) -> Terms:
    """The terms that hold where one of the first and one of the second do."""
    if not first or not second:
        return first or second
    return tuple((*one, *other) for one, other in product(first, second))
