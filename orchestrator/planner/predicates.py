"""Whether a node may take a pod at all, whatever is free on it: a small pure function for each rule of Kubernetes."""

from collections.abc import Callable, Mapping

from orchestrator.planner.model import Constraints, LabelRequirement, Node, Taint, Toleration


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
    if (
        value is None
        or len(requirement.values) != 1
        or not _is_integer(value)
        or not _is_integer(requirement.values[0])
    ):
        return False
    left, right = int(value), int(requirement.values[0])
    return left > right if requirement.operator == "Gt" else left < right


def _is_integer(text: str) -> bool:
    return text.lstrip("-").isdecimal()


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
        taint.effect == "PreferNoSchedule" or any(tolerates(each, taint) for each in constraints.tolerations)
        for taint in node.taints
    )


class NodeFilter:
    """`accepts`, evaluated once for each combination of constraints and node."""

    def __init__(self, nodes: Callable[[int], Node]) -> None:
        self._node = nodes
        self._known: dict[tuple[Constraints, tuple[str, ...]], dict[int, bool]] = {}

    def accepts(self, position: int, constraints: Constraints, node_types: tuple[str, ...]) -> bool:
        """Whether the node at this position may take pods with these constraints."""
        known = self._known.setdefault((constraints, node_types), {})
        verdict = known.get(position)
        if verdict is None:
            verdict = known[position] = accepts(self._node(position), constraints, node_types)
        return verdict
