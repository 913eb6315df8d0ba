"""Which nodes form a domain, and in what order domains are tried: the fullest that can still take the pods first."""

from collections.abc import Collection, Sequence

from orchestrator.planner.gangs import chunk_gpu_milli
from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import Pod, TopologyRule

Domain = tuple[int, ...]


def domains(ledger: Ledger, levels: Sequence[str], scope: Collection[int] | None) -> list[Domain]:
    """The nodes in groups with the same labels for all `levels`; a node that lacks one of them is in no group."""
    found: dict[tuple[str, ...], list[int]] = {}
    for position in range(len(ledger.nodes)) if scope is None else sorted(scope):
        labels = ledger.nodes[position].node.labels
        values = tuple(labels.get(level, "") for level in levels)
        if all(values):
            found.setdefault(values, []).append(position)
    return [tuple(found[values]) for values in sorted(found)]


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
        at_home = [each for each in possible if set(occupied) <= set(each)] if occupied else possible
        asked = chunk_gpu_milli(chunk)
        roomy = [(each, _later(ledger, each)) for each in at_home]
        tries += [each for each, room in sorted(roomy, key=lambda item: item[1]) if room >= asked]
    if rule.required is None:
        tries.append(scope)
    return tries


def _levels_to_try(rule: TopologyRule) -> list[str]:
    """From the preferred level outward, no further than the required one."""
    known = [level for level in (rule.preferred, rule.required) if level in rule.levels]
    if not known:
        return []
    deepest = max(rule.levels.index(level) for level in known)
    widest = rule.levels.index(rule.required) if rule.required in rule.levels else 0
    return list(reversed(rule.levels[widest : deepest + 1]))


def _later(ledger: Ledger, domain: Domain) -> int:
    accounts = (ledger.nodes[position] for position in domain)
    return sum(account.later_milli for account in accounts if account.node.schedulable)
