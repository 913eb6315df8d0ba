"""Which nodes form a domain, and in what order domains are tried: the fullest that can take the pods first."""

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.gangs import chunk_gpu_milli
from orchestrator.planner.model import Pod, PodState, TopologyRule, Workload

Domain = tuple[int, ...]


def domains(ledger: Ledger, levels: Sequence[str], scope: Collection[int] | None) -> list[Domain]:
    """The nodes in groups with the same labels for all `levels`; a node that lacks one of them is in no group."""
    groups = ledger.grouped_by(tuple(levels))
    groups_of_nodes = [(values, groups[values]) for values in sorted(groups) if all(values)]
    if scope is None:
        return [positions for _, positions in groups_of_nodes]
    within = [
        tuple([position for position in positions if position in scope]) for _, positions in groups_of_nodes
    ]
    return [positions for positions in within if positions]


def domains_to_try(
    ledger: Ledger,
    rule: TopologyRule,
    chunk: Sequence[Pod],
    scope: Collection[int] | None,
    occupied: Collection[int],
) -> list[Collection[int] | None]:
    """Sets of nodes for the pods, best first. `occupied` are the nodes where the workload runs already."""
    tries: list[Collection[int] | None] = []
    for level in _levels_to_try(rule):
        below = rule.levels[: rule.levels.index(level) + 1]
        possible = domains(ledger, below, scope)
        at_home = [domain for domain in possible if set(occupied) <= set(domain)] if occupied else possible
        requested = chunk_gpu_milli(chunk)
        free_of = _free_by_level(ledger, below, scope)
        candidates = [(domain, free_of(domain)) for domain in at_home]
        tries += [
            domain
            for domain, free_milli in sorted(candidates, key=itemgetter(1))
            if free_milli[-1] >= requested
        ]
    if rule.required is None:
        tries.append(scope)
    return tries


def candidate_domains(ledger: Ledger, rule: TopologyRule, workload: Workload) -> list[Domain]:
    """Domains in which the workload's pods could be together, whatever is free there; closest levels first."""
    occupied = {
        ledger.by_name[pod.node].position
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED and pod.node in ledger.by_name
    }
    candidates: list[Domain] = []
    for level in _levels_to_try(rule):
        possible = domains(ledger, rule.levels[: rule.levels.index(level) + 1], None)
        candidates += [domain for domain in possible if not occupied or occupied <= set(domain)]
    return candidates


def _levels_to_try(rule: TopologyRule) -> list[str]:
    """From the preferred level outward, no further than the required one."""
    known = [level for level in (rule.preferred, rule.required) if level in rule.levels]
    if not known:
        return []
    deepest = max(rule.levels.index(level) for level in known)
    widest = rule.levels.index(rule.required) if rule.required in rule.levels else 0
    return list(reversed(rule.levels[widest : deepest + 1]))


def _free_by_level(
    ledger: Ledger, levels: Sequence[str], scope: Collection[int] | None
) -> Callable[[Domain], list[int]]:
    """What is free, or will be, around a domain at each level, from the widest, in `gpu_milli`."""
    free_milli: dict[tuple[str, ...], int] = {}
    nodes = ledger.nodes
    for values, positions in ledger.grouped_by(tuple(levels)).items():
        inside = positions if scope is None else [position for position in positions if position in scope]
        free = sum([nodes[position].later_milli for position in inside if nodes[position].node.schedulable])
        for depth in range(len(levels)):
            around = values[: depth + 1]
            free_milli[around] = free_milli.get(around, 0) + free

    def free_of(domain: Domain) -> list[int]:
        labels = nodes[domain[0]].node.labels
        values = tuple([labels.get(level, "") for level in levels])
        return [free_milli[values[: depth + 1]] for depth in range(len(levels))]

    return free_of
