"""Whether a node may take a pod at all, whatever is free on it: a small pure function for each rule of Kubernetes."""

from collections.abc import Mapping

from orchestrator.planner.labels import LabelRequirement
from orchestrator.planner.model import Constraints, Node, Taint, Toleration

_INT64_DIGITS = 19
"""Of the longest 64 bit integer."""


def matches_requirement(labels: Mapping[str, str], requirement: LabelRequirement) -> bool:
    """One expression of a node selector term; an unknown operator matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)
        case _:
            return False


def _compares(value: str | None, requirement: LabelRequirement) -> bool:
    """`Gt` or `Lt` as Kubernetes compares them: a label or value that is no 64 bit integer matches nothing."""
    if value is None or len(requirement.values) != 1:
        return False
    actual, bound = _int64(value), _int64(requirement.values[0])
    if actual is None or bound is None:
        return False
    return actual > bound if requirement.operator == "Gt" else actual < bound


def _int64(text: str) -> int | None:
    """What Go's strconv.ParseInt(text, 10, 64) reads: one sign at most, ASCII digits; None where it fails."""
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not (digits.isascii() and digits.isdecimal()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS:
        return None
    number = -int(digits) if sign == "-" else int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration accepts one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def accepts(node: Node, constraints: Constraints, node_types: tuple[str, ...] = ()) -> bool:
    """Whether the node is schedulable and matches selector, affinity, tolerations and the project's node types."""
    if not node.schedulable:
        return False
    if node_types and node.node_type not in node_types:
        return False
    if any(node.labels.get(key) != value for key, value in constraints.node_selector):
        return False
    if constraints.node_terms and not any(
        all(matches_requirement(node.labels, requirement) for requirement in term)
        for term in constraints.node_terms
    ):
        return False
    return all(
        taint.effect == "PreferNoSchedule"
        or any(tolerates(toleration, taint) for toleration in constraints.tolerations)
        for taint in node.taints
    )
