"""Give what is free, best founded requests first, project by project in the order of turns, disturbing nobody."""

from orchestrator.planner.actions.evicting import ROOM_IS_MISSING, better_claims, lacks_only
from orchestrator.planner.actions.rearrange import Rearranger
from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.explain import Explainer
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import Constraints, Request, SubGroup, TopologyRule, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.standing import Standing, standing, standing_with_model

Shape = tuple[
    str,
    bool,
    TopologyRule | None,
    SubGroup | None,
    tuple[object, ...],
    tuple[tuple[Request, Constraints, str], ...],
]


def allocate(decision: Decision) -> None:
    """Place every pending workload that fits; remember for the others why they do not.

    What is free only shrinks here, so a shape that found no place is not tried again, unless what was started goes to
    other places.
    """
    hopeless: set[Shape] = set()
    explainer = Explainer(decision)
    rearranger = Rearranger(decision)
    waiting = decision.pending()
    for level in Standing:
        turns = decision.turns(waiting)
        waiting, stuck = [], []
        while (workload := turns.pop()) is not None:
            grown = None
            if decision.standing(workload, decision.next_chunk(workload)) <= level:
                grown = _start(decision, workload, hopeless, explainer, level)
            if grown is None:
                waiting.append(workload)
            elif not grown:
                stuck.append(workload)
            turns.settle(workload.project, workload if grown and decision.next_chunk(workload) else None)
        for workload in stuck:
            if rearranger.start(workload):
                hopeless.clear()
                waiting += [workload] if decision.next_chunk(workload) else []
    _prefer_older(decision, explainer)


def _prefer_older(decision: Decision, explainer: Explainer) -> None:
    """Inside a project nobody is overtaken by younger or less urgent work that was started in this decision.

    Standing puts a small request before a larger one of the same project; where only one of them fits, the queue
    decides. What the older one would only borrow is not taken from others for it that have a better claim to it.
    """
    hopeless: set[Shape] = set()
    waiting = sorted(lacks_only(decision, ROOM_IS_MISSING), key=workload_order)
    last = {
        project: max(workload_order(each) for each in granted)
        for project in {each.project for each in waiting}
        if (granted := decision.granted(project))
    }
    for workload in waiting:
        if workload.project not in last or workload_order(workload) > last[workload.project]:
            continue
        later = [
            each
            for each in decision.granted(workload.project)
            if workload_order(each) > workload_order(workload)
        ]
        chunk = decision.next_chunk(workload)
        if not later or decision.is_whole(workload) or _shape(decision, workload, chunk) in hopeless:
            continue
        checkpoint = decision.ledger.checkpoint()
        for each in later:
            decision.suspend(each)
        refused = decision.refusal(workload, chunk)
        placed = None
        if refused is None and not better_claims(decision, workload, chunk, later):
            placed = decision.place_all(workload, chunk)
        if placed is None:
            decision.ledger.rollback(checkpoint)
            hopeless.add(_shape(decision, workload, chunk))
            continue
        for each in later:
            decision.cancel(each)
        decision.grant(workload, placed)
        for each in sorted(later, key=workload_order):
            while decision.next_chunk(each) and _start(decision, each, set(), explainer):
                pass


def _start(
    decision: Decision,
    workload: Workload,
    hopeless: set[Shape],
    explainer: Explainer,
    level: Standing = Standing.SURPLUS,
) -> bool | None:
    """Place the next chunk, or remember why not; None when only GPU models would do that others come before it for."""
    chunk = decision.next_chunk(workload)
    refused = decision.refusal(workload, chunk)
    if refused is not None:
        decision.refuse(workload, refused)
        return False
    shape = _shape(decision, workload, chunk)
    checkpoint = decision.ledger.checkpoint()
    placed = None if shape in hopeless else decision.place_all(workload, chunk)
    if placed is None:
        hopeless.add(shape)
        decision.refuse(workload, explainer.no_room(workload, chunk))
        return False
    if _standing_as_placed(decision, workload, placed) > level:
        decision.ledger.rollback(checkpoint)
        return None
    decision.grant(workload, placed)
    return True


def _standing_as_placed(decision: Decision, workload: Workload, placed: Placed) -> Standing:
    """How well founded what is on the ledger is by each GPU model on which it really is."""
    ledger, tree = decision.ledger, decision.tree
    chunk = tuple(pod for pod, _ in placed)
    if not tree.promised_models or decision.models.bound(workload, chunk) is not None:
        return Standing.GUARANTEED  # judged before it was placed
    on: dict[str, int] = {}
    checkpoint = ledger.checkpoint()
    for pod, where in placed:
        ledger.unplace(workload, pod, where.node, where.devices)
        model = ledger.by_name[where.node].model
        on[model] = on.get(model, 0) + pod.request.gpu_milli
    total = standing(ledger, decision.shares, workload, chunk_amounts(chunk))
    found = [
        standing_with_model(
            ledger,
            decision.models.shares,
            total,
            lineage=tree.lineage[workload.project],
            gpu_milli=amount,
            model=model,
        )
        for model, amount in on.items()
    ]
    ledger.rollback(checkpoint)
    return max(found)


def _shape(decision: Decision, workload: Workload, chunk: Chunk) -> Shape:
    return (
        workload.project,
        workload.interactive,
        workload.topology,
        workload.groups,
        decision.standing_towards_holds(workload, chunk),
        tuple((pod.request, pod.constraints, pod.sub_group) for pod in chunk),
    )
