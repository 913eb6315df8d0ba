"""Writes the sentences of obstacles that are not about nodes: projects, limits, gangs, nominations.

A sentence states facts: the request, the free amounts, the holders. It names a remedy only if a field says that the
remedy was tried on the ledger.
"""

from functools import singledispatch

from orchestrator.planner.accounting.amounts import amount_text, amounts_text
from orchestrator.planner.model import PendingReason, Waiting
from orchestrator.planner.obstacles import (
    ClaimsOvertaken,
    ConstraintsOvertaken,
    GangEvicted,
    GangIncomplete,
    Hindrances,
    LimitReached,
    LimitReserved,
    ModelReserved,
    Nominated,
    NoProject,
    Obstacle,
    Overtaken,
    QuotaReached,
)
from orchestrator.planner.reasons.node_texts import is_or_are, some_of

_LEFT_OVER = (
    "; this decision did not look for evictions for it any more: it is among the first in the next one"
)


def pending_reason(obstacle: Obstacle, hindrances: Hindrances | None, is_left_over: bool) -> PendingReason:
    """Return the code and the whole message. `is_left_over`: the decision did not reach it within its bound."""
    message = sentence(obstacle)
    if hindrances is not None and obstacle.code is not Waiting.RELEASING:
        message += hindrances_text(hindrances)
    return PendingReason(obstacle.code, message + _LEFT_OVER if is_left_over else message)


@singledispatch
def sentence(obstacle: object) -> str:
    """Return the facts about the obstacle in a sentence without a full stop."""
    raise TypeError(type(obstacle))


@sentence.register
def _(said: PendingReason) -> str:
    return said.message


@sentence.register
def _(limit: LimitReached) -> str:
    of_model = f" of {limit.model}" if limit.model else ""
    alone = f": only the limit of {limit.project} is in its way" if limit.is_alone else ""
    return (
        f"asks for {amount_text(limit.requested, limit.resource)}{of_model}; {limit.project} holds "
        f"{amount_text(limit.held, limit.resource)} of its limit of {amount_text(limit.limit, limit.resource)}"
        f"{' for that model' if limit.model else ''}{alone}"
    )


@sentence.register
def _(quota: QuotaReached) -> str:
    return (
        f"asks for {amount_text(quota.requested, quota.resource)} that cannot be taken back; {quota.project} holds "
        f"{amount_text(quota.held, quota.resource)} of that kind and its quota is "
        f"{amount_text(quota.quota, quota.resource)}{_advice(quota)}"
    )


@sentence.register
def _(model: ModelReserved) -> str:
    return (
        f"asks for {amount_text(model.requested, 0)} of {model.model} without preemption; other quotas have the rest "
        f"of that model, and the quota of {model.project} for it is {amount_text(model.quota, 0)}"
        f"{_advice(model)}"
    )


def _advice(reached: QuotaReached | ModelReserved) -> str:
    return ": it fits if you submit it as preemptible" if reached.starts_preemptible else ""


@sentence.register
def _(limit: LimitReserved) -> str:
    return (
        f"asks for {amounts_text(limit.requested)}; {limit.project} keeps {amounts_text(limit.reserved)} of its "
        f"limit for {limit.reserved_for}, which has waited longer and comes first"
    )


@sentence.register
def _(gang: GangIncomplete) -> str:
    terminating = f" ({gang.terminating} more are on their way out)" if gang.terminating else ""
    there = (
        f"its sub-groups need more pods than the {gang.present} that are there{terminating}"
        if gang.needed is None
        else f"{gang.present} of the {gang.needed} pods that its gang needs are there{terminating}"
    )
    return f"{there}: it cannot start before the missing ones have been made"


@sentence.register
def _(_gang: GangEvicted) -> str:
    return "pods of its gang are evicted: the others are pending until these can start with them"


@sentence.register
def _(_claims: ClaimsOvertaken) -> str:
    return "the devices of its resource claims went to others in the same decision; it is decided on again at once"


@sentence.register
def _(_constraints: ConstraintsOvertaken) -> str:
    return "other pods of this decision broke its required constraints; it is decided on again at once"


@sentence.register
def _(project: NoProject) -> str:
    if not project.name:
        return "its namespace belongs to no project: nothing starts there"
    return f"there is no project {project.name!r}: nothing of it starts before that is created"


@sentence.register
def _(overtaken: Overtaken) -> str:
    return f"{overtaken.by} of the same project is more urgent and takes its GPUs"


@sentence.register
def _(nominated: Nominated) -> str:
    plural = "s" if len(nominated.nodes) > 1 else ""
    place = (
        f"is nominated to node{plural} {some_of(nominated.nodes)} with {amounts_text(nominated.requested)}"
    )
    if nominated.charged is None:
        return f"{place}; terminating pods still hold them"
    project, bound, resource, amount, model = nominated.charged
    return (
        f"{place}; {bound} of {project}: {amount_text(amount, resource)}{f' of {model}' if model else ''} "
        f"{is_or_are(amount, resource)} still held by terminating pods"
    )


def hindrances_text(hindrances: Hindrances) -> str:
    """Return the addition to a reason that says why no pod is evicted for the workload."""
    words: list[str] = []
    if hindrances.pods_over_cap > hindrances.cap:
        words.append(
            f"to free enough for it takes {hindrances.pods_over_cap} evictions or more, and one decision "
            f"makes {hindrances.cap} at most (--max-evictions)"
        )
    elif hindrances.pods_over_cap:
        words.append(
            f"of the {hindrances.cap} evictions that one decision makes at most (--max-evictions) {hindrances.spent} "
            "were made for others"
        )
    if hindrances.budgets:
        words.append(f"its possible victims are protected by {', '.join(hindrances.budgets)}")
    return "".join(f"; {word}" for word in words)
