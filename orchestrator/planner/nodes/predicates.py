"""Whether a node may take a pod at all, whatever is free on it: a small pure function for each rule of Kubernetes."""

from orchestrator.labels import matches_requirement
from orchestrator.planner.model import Constraints, Node, Project, Taint, Toleration, Workload


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


def node_types_for(project: Project, workload: Workload) -> tuple[str, ...]:
    """The node types that the project allows for this kind of workload; empty allows all."""
    return project.interactive_node_types if workload.interactive else project.train_node_types
