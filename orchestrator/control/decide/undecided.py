"""Computes the reasons of pending pods, also of pods that a decision left out because the planner raised an error."""

from collections.abc import Collection, Mapping
from typing import Final

from orchestrator.cluster.objects import Pod
from orchestrator.control.decide.quarantine import WORKLOAD, Decided
from orchestrator.observe.pod_status import NotDecided
from orchestrator.observe.snapshot import Reading
from orchestrator.observe.unreadable import SkippedObject
from orchestrator.planner.model import Plan, PodState, Snapshot

_UNDECIDED: Final = (
    "muster found no decision with it yet, because another object stops the planner; it is tried again"
)

_EXCLUDED: Final = (
    "the operator ended each time it decided on it, so it is set aside; delete it and create it differently, "
    "or ask an administrator"
)


def quarantined(decided: Decided, snapshot: Snapshot, pods: Mapping[str, Pod]) -> list[SkippedObject]:
    """Return the objects that made the planner raise an error, and the workloads that were left out with them."""
    workloads = {workload.id: workload for workload in snapshot.workloads}
    whys = [(culprit.kind, culprit.id, undecidable(culprit.why)) for culprit in decided.quarantined]
    whys += [(WORKLOAD, workload_id, _UNDECIDED) for workload_id in decided.undecided]
    whys += [(WORKLOAD, workload_id, _EXCLUDED) for workload_id in decided.excluded]
    answer = []
    for kind, name, why in whys:
        workload = workloads.get(name) if kind == WORKLOAD else None
        if workload is None:
            answer.append(SkippedObject(kind, "", name, "", why))
            continue
        pod = next((pods[pod.id] for pod in workload.pods if pod.id in pods), None)
        namespace = "" if pod is None else pod.metadata.namespace
        answer.append(SkippedObject(kind, namespace, workload.name, workload.id, why))
    return answer


def reasons(decided: Decided, snapshot: Snapshot) -> dict[str, str]:
    """Return, by uid of a pending pod, the reason why no decision was made on its workload."""
    if not (decided.quarantined or decided.undecided or decided.excluded):
        return {}
    whys = {culprit.key: undecidable(culprit.why) for culprit in decided.quarantined}
    whys |= {(WORKLOAD, workload_id): _UNDECIDED for workload_id in decided.undecided}
    whys |= {(WORKLOAD, workload_id): _EXCLUDED for workload_id in decided.excluded}
    answer = {}
    for workload in snapshot.workloads:
        why = whys.get((WORKLOAD, workload.id))
        if why is None and (project := whys.get(("Project", workload.project))) is not None:
            why = f"the project {workload.project} is skipped: {project}"
        for pod in workload.pods if why else ():
            if pod.state is PodState.PENDING:
                answer[pod.id] = why or ""
    return answer


def undecidable(why: str) -> str:
    """Return the message about an object on which the planner raised an error."""
    return f"muster cannot decide on it, by a mistake of its own ({why}); it is tried again later, or when it changes"


def pending_reasons(
    reading: Reading, decision: Plan, volumes: Collection[str], undecided: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return, by uid of a pending pod, the code of its reason and the message.

    `volumes` are the uids of pods whose volumes are not ready. `undecided` is the result of `reasons`.
    """
    bound = {binding.pod for binding in decision.bindings}
    known: dict[str, tuple[str, str]] = {
        uid: (NotDecided.VOLUME_NOT_READY if uid in volumes else NotDecided.UNREADABLE, message)
        for uid, message in reading.unreadable_pods.items()
    }
    for workload in reading.snapshot.workloads if decision.pending else ():
        reason = decision.pending.get(workload.id)
        if reason is not None:
            for pod in workload.pods:
                if pod.state is PodState.PENDING and pod.id not in bound:
                    known[pod.id] = (reason.code.value, reason.message)
    return known | {uid: (NotDecided.SKIPPED, message) for uid, message in undecided.items()}
