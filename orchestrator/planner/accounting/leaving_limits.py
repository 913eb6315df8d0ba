"""Limits bound what is really held: pods that leave count until they are gone, and who starts instead waits for it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Amounts


class Use(NamedTuple):
    """What a pod of the project has, or will have, on a node with GPUs of that model."""

    project: str
    amounts: Amounts
    gpu_model: str


def limit_until_gone(
    ledger: Ledger, placed: Iterable[Use], nominated: Callable[[], Iterable[Use]]
) -> str | None:
    """The first of the project and its departments that would pass a limit if the placed pods started at once.

    What is placed, of one project, is on the ledger, as is what is `nominated` and holds nothing yet.
    """
    uses = list(placed)
    for name in ledger.tree.limited.get(uses[0].project, ()) if uses else ():
        excess = _excess(ledger, name, uses)
        if not any(amount > 0 for amount in excess.values()):
            continue
        for use in nominated():
            if name in ledger.tree.lineage[use.project]:
                for bound in excess:
                    excess[bound] -= _amount(use, bound)
        if any(amount > 0 for amount in excess.values()):
            return name
    return None


def _excess(ledger: Ledger, name: str, uses: Iterable[Use]) -> dict[int | str, int]:
    """By resource and GPU model of these uses, what is held above the limit with what leaves, where something does."""
    excess: dict[int | str, int] = {}
    for resource in ledger.tree.resources:
        leaving = ledger.leaving[name][resource]
        if leaving and any(use.amounts[resource] for use in uses):
            excess[resource] = ledger.allocated[name][resource] + leaving - ledger.tree.limit[name][resource]
    for model in {use.gpu_model for use in uses if use.amounts[0]} & ledger.tree.models:
        leaving = ledger.model_leaving.get((name, model), 0)
        if leaving:
            held = ledger.model_held.get((name, model), 0)
            excess[model] = held + leaving - ledger.tree.model_limit[name, model]
    return excess


def _amount(use: Use, bound: int | str) -> int:
    if isinstance(bound, int):
        return use.amounts[bound]
    return use.amounts[0] if use.gpu_model == bound else 0
