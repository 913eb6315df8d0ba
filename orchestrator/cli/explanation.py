"""The explanation of a job: its form, and the explanation by the reason of the operator. It makes no plan."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator import names
from orchestrator.cli.output import table
from orchestrator.client.surroundings import MAX_NODES
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.cluster.objects import Node, Pod, Project
from orchestrator.cluster.pods import FINISHED
from orchestrator.cluster.wire import has_condition
from orchestrator.views.containers import activity, last_exit, not_scheduled
from orchestrator.views.jobs import WorkloadView, requested_gpu_milli

ENTITLEMENT_HEADER: Final = ("PROJECT", "QUOTA", "LIMIT", "HELD", "FAIR SHARE")
HOLDERS_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "SINCE", "PREEMPTIBLE", "NODES")
_MARKS: Final = (names.UNHEALTHY_GPUS_ANNOTATION, names.FAILED_GPUS_ANNOTATION, names.LOST_GPUS_ANNOTATION)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a job: sentences, its project, the jobs with GPUs; `answer` is for programs.

    `remedies` are changes that start the job. `holders` are rows of jobs with GPUs; `more` such jobs have no row.
    """

    answer: dict[str, Any]
    sentences: list[str]
    remedies: list[str] = field(default_factory=list)
    entitlement: list[Sequence[str]] = field(default_factory=list)
    closing: str = ""
    holders: list[Sequence[str]] = field(default_factory=list)
    more: int = 0

    def lines(self) -> list[str]:
        """Return the text for a terminal."""
        lines = [*self.sentences]
        if self.remedies:
            lines += ["", "It would run", *(f"- {remedy}" for remedy in self.remedies)]
        lines += ["", table(ENTITLEMENT_HEADER, self.entitlement)] if self.entitlement else []
        held_by = "GPUs" if self.answer.get("gpusTotal") == "0" else "The others"
        lead = f" {held_by} are held by" if self.holders else ""
        lines += ["", f"{self.closing}{lead}"] if self.closing else []
        lines += [table(HOLDERS_HEADER, self.holders)] if self.holders else []
        return [*lines, *([f"and {self.more} more: --json shows all"] if self.more > 0 else [])]


def is_decided(view: WorkloadView) -> bool:
    """Return whether the job and its nodes explain the job as well as a plan would.

    A plan is needed in these cases:

    - a pending pod has no reason of the operator yet
    - a node or GPU of the job is unhealthy
    - a pod has ResourceClaims
    - not all nodes of the job were read
    """
    pods = [pod for pod in view.pods if pod.status.phase not in FINISHED]
    return (
        len(view.nodes) <= MAX_NODES
        and all(not_scheduled(pod) for pod in pending_pods(view))
        and not any(pod.spec.resource_claims or pod.status.extended_resource_claim_status for pod in pods)
        and not any(map(_is_marked, filter(None, view.around.nodes.values())))
    )


def pending_pods(view: WorkloadView) -> list[Pod]:
    """Return the pods that have no node and are not deleted."""
    return [
        pod
        for pod in view.pods
        if not pod.spec.node_name
        and pod.status.phase not in FINISHED
        and pod.metadata.deletion_timestamp is None
    ]


def _is_marked(node: Node) -> bool:
    """Return whether a label, annotation or condition marks the node or one of its GPUs as unhealthy."""
    metadata, status = node.metadata, node.status
    gpus = status.allocatable.get(names.GPU_RESOURCE, 0)
    return (
        str(status.capacity.get(names.GPU_RESOURCE, gpus)) != str(gpus)
        or names.UNHEALTHY_KEY in metadata.labels
        or any(taint.key == names.UNHEALTHY_KEY for taint in node.spec.taints)
        or any(metadata.annotations.get(mark) for mark in _MARKS)
        or has_condition(status.conditions, "Ready") is None
    )


def as_written(view: WorkloadView, answer: dict[str, Any], projects: Iterable[Project]) -> Explanation:
    """Explain a job by the reason and the figures that the operator wrote."""
    pending, reason = pending_pods(view), written(view)
    code, _, message = reason.partition(": ")
    rows = list(_figures(view.project, projects))
    requested_milli = sum(requested_gpu_milli(pod.metadata, pod.spec) for pod in pending)
    requested = None if view.gpu_memory else format_gpu(requested_milli)
    answer |= {"planned": False, "projects": rows}
    lines = of_containers(view)
    if not pending:
        return Explanation(answer, lines or [without_node(view)], entitlement=_cells(rows) if lines else [])
    gpus = (
        f"{requested} {gpu_word(requested_milli)}"
        if requested
        else f"{view.gpu_memory} of a GPU for each pod,"
    )
    lines.append(f"{view.name} of {view.project} waits: {gpus} in {_pods(len(pending))}.")
    answer |= {
        "waiting": {"pods": len(pending), "gpus": requested},
        "reason": code if message else "",
        "message": message or reason,
    }
    closing = f"For remedies and the jobs that hold the GPUs: muster explain {view.name} --remedies"
    return Explanation(answer, [*lines, reason], entitlement=_cells(rows), closing=closing)


def _figures(name: str, projects: Iterable[Project]) -> Iterator[dict[str, str]]:
    """Yield the figures of the project and its parents, nearest first, then of the other projects that hold GPUs."""
    by_name = {project.metadata.name: project for project in projects}
    others = {key for key, project in by_name.items() if project.status.allocated_gpu}
    above: str | None = name
    while above is not None and above in by_name:
        project = by_name.pop(above)
        yield figures_of(project)
        above = project.spec.parent
    yield from (figures_of(by_name[other]) for other in sorted(others & by_name.keys()))


def figures_of(project: Project) -> dict[str, str]:
    """Return the quota and the limit of a project, with the figures that the operator wrote."""
    spec, status = project.spec.gpu, project.status
    return {
        "name": project.metadata.name,
        "quota": str(spec.quota),
        "limit": "unlimited" if spec.limit is None else str(spec.limit),
        "held": str(status.allocated_gpu),
        "fairShare": str(status.fair_share_gpu),
    }


def _cells(rows: Iterable[dict[str, str]]) -> list[Sequence[str]]:
    return [tuple(row.values()) for row in rows]


def written(view: WorkloadView) -> str:
    """Return the operator's reason on a pod that has no node."""
    return next(filter(None, map(not_scheduled, view.pods)), "")


def of_containers(view: WorkloadView) -> list[str]:
    """Return sentences about the containers of pods that have a node."""
    return activity(f"{view.name} of {view.project}", view.pods, view.around)


def without_node(view: WorkloadView) -> str:
    """Return the sentence about a job without a reason of the operator, whose pods have no node."""
    if because := written(view) or (": ".join(view.delay) if view.delay else ""):
        return f"{view.name} of {view.project} is pending: {because.rstrip('.')}."
    because = view.waits_because or last_exit(view.pods)
    end = f": {because}" if because else ""
    return f"{view.name} of {view.project} has no pending or running pod: its status is {view.status}{end}."


def gpu_word(gpu_milli: int) -> str:
    """Return the unit of an amount of GPUs."""
    return "GPU" if gpu_milli <= 1000 else "GPUs"


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count > 1)}"
