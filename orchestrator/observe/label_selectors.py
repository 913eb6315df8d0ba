"""Label selectors of Kubernetes in the planner's terms. Pure."""

from typing import Final

from orchestrator.cluster.objects import LabelSelector
from orchestrator.labels import POD_OPERATORS, LabelRequirement, requirement_of

MAX_REQUIREMENTS: Final = 64
MAX_VALUES: Final = 1000
"""Maximum number of values in one selector, which decisions compare with every pod of its namespaces."""


def requirements_of(selector: LabelSelector) -> tuple[LabelRequirement, ...]:
    """Return the requirements of a selector, all of which must match. Raises ValueError for an unknown operator."""
    requirements = len(selector.match_labels) + len(selector.match_expressions)
    values = sum(len(expression.values) for expression in selector.match_expressions)
    for count, most, kind in (
        (requirements, MAX_REQUIREMENTS, "requirements"),
        (values, MAX_VALUES, "values"),
    ):
        if count > most:
            raise ValueError(f"its selector has {count} {kind}: at most {most} are read")
    return (
        *(LabelRequirement(key, "In", (value,)) for key, value in selector.match_labels.items()),
        *(
            requirement_of(expression.key, expression.operator, expression.values, POD_OPERATORS)
            for expression in selector.match_expressions
        ),
    )
