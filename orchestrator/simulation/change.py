"""Changes of a cluster, applied to a snapshot: submit, delete, set a quota. Pure."""

from dataclasses import replace
from typing import Any, Final

import msgspec

from orchestrator.cluster import objects
from orchestrator.errors import UsageError
from orchestrator.names import PRIORITY_CLASSES, PROJECT_LABEL
from orchestrator.observe.reader import read
from orchestrator.observe.snapshot import Observed
from orchestrator.planner.accounting.quota import gpu_model_excess, installed, quota_excess
from orchestrator.planner.model import DEVICE_MILLI, Project, Snapshot, Workload
from orchestrator.simulation.apply_plan import moment_after
from orchestrator.submit.manifest import Placement, workload_manifest
from orchestrator.submit.submission import Submission

_NAMESPACE: Final = "what-if"


def submit(snapshot: Snapshot, submission: Submission, project: str) -> Snapshot:
    """Return the snapshot with the submitted workload. Raises UsageError for an unknown project or a used name."""
    _require_project(snapshot, project)
    if any(
        workload.name == submission.name and workload.project == project for workload in snapshot.workloads
    ):
        raise UsageError(
            f"the project {project} has a workload {submission.name} already: choose another name"
        )
    workload = replace(
        _workload(submission, project),
        id=f"{project}/{submission.name}",
        created_at_us=moment_after(snapshot),
    )
    return replace(snapshot, workloads=(*snapshot.workloads, workload))


def delete(snapshot: Snapshot, project: str, name: str) -> Snapshot:
    """Return the snapshot without the workload. Raises UsageError if the project or the workload is unknown."""
    _require_project(snapshot, project)
    remaining = tuple(
        workload for workload in snapshot.workloads if (workload.project, workload.name) != (project, name)
    )
    if len(remaining) == len(snapshot.workloads):
        raise UsageError(f"the project {project} has no pending or running workload {name}")
    return replace(snapshot, workloads=remaining)


def set_quota(snapshot: Snapshot, project: str, quota_gpu_milli: int) -> Snapshot:
    """Return the snapshot with a changed quota of the project. An over-quota weight equal to the old quota changes too.

    Raises UsageError if `project update` would refuse the quota: quotas exceed the parent's or the installed GPUs.
    """
    _require_project(snapshot, project)
    projects = tuple(
        _with_quota(candidate, quota_gpu_milli) if candidate.name == project else candidate
        for candidate in snapshot.projects
    )
    _refuse_excess(snapshot, projects, project)
    return replace(snapshot, projects=projects)


def set_project(snapshot: Snapshot, project: Project) -> Snapshot:
    """Return the snapshot with the project, which replaces a project of the same name.

    Raises UsageError if quotas exceed the parent's quota or the installed GPUs, or the parent does not exist.
    """
    others = [sibling for sibling in snapshot.projects if sibling.name != project.name]
    if project.parent is not None and project.parent not in {sibling.name for sibling in others}:
        raise UsageError(f"the parent {project.parent} is not another project: create it first")
    projects = tuple(sorted([*others, project], key=lambda sibling: sibling.name))
    _refuse_excess(snapshot, projects, project.name)
    return replace(snapshot, projects=projects)


def delete_project(snapshot: Snapshot, name: str) -> Snapshot:
    """Return the snapshot without a project and its workloads.

    Raises UsageError if it is unknown or has child projects.
    """
    _require_project(snapshot, name)
    children = sorted(sibling.name for sibling in snapshot.projects if sibling.parent == name)
    if children:
        raise UsageError(f"the project {name} has projects in it: {', '.join(children)}")
    return replace(
        snapshot,
        projects=tuple(sibling for sibling in snapshot.projects if sibling.name != name),
        workloads=tuple(workload for workload in snapshot.workloads if workload.project != name),
    )


def find(snapshot: Snapshot, project: str, name: str) -> Workload:
    """Return the workload of that name. Raises UsageError if the project or the workload is unknown."""
    _require_project(snapshot, project)
    for workload in snapshot.workloads:
        if (workload.project, workload.name) == (project, name):
            return workload
    raise UsageError(f"the project {project} has no pending or running workload {name}")


def _with_quota(project: Project, quota_gpu_milli: int) -> Project:
    weight_is_quota = project.over_quota_weight == project.quota_gpu_milli
    weight = quota_gpu_milli if weight_is_quota else project.over_quota_weight
    return replace(project, quota_gpu_milli=quota_gpu_milli, over_quota_weight=weight)


def _refuse_excess(snapshot: Snapshot, projects: tuple[Project, ...], name: str) -> None:
    """Raise UsageError if quotas exceed the parent's quota or the installed GPUs, in total or of one model."""
    quotas: dict[str, Any] = {sibling.name: (sibling.parent, sibling.quota_gpu_milli) for sibling in projects}
    excess = quota_excess(quotas, sum(node.gpu_count for node in snapshot.nodes) * DEVICE_MILLI)
    excess = excess or gpu_model_excess(
        {
            sibling.name: (sibling.parent, sibling.quota_gpu_milli, _model_quotas(sibling))
            for sibling in projects
        },
        installed(snapshot.nodes),
    )
    if excess is not None:
        raise UsageError(f"'muster project update {name}' would refuse this quota: {excess}")


def _model_quotas(project: Project) -> dict[str, int]:
    return {
        bounds.model: bounds.quota_gpu_milli
        for bounds in project.gpu_models
        if bounds.quota_gpu_milli is not None
    }


def _require_project(snapshot: Snapshot, project: str) -> None:
    known = sorted(sibling.name for sibling in snapshot.projects)
    if project not in known:
        raise UsageError(f"there is no project {project}; there are: {', '.join(known) or 'none'}")


def _workload(submission: Submission, project: str) -> Workload:
    """Return the submission as the planner's workload, by the operator's code that reads pods."""
    manifest = workload_manifest(submission, Placement(project, _NAMESPACE, ""))
    template = manifest["spec"]["template"]
    count = min(submission.parallelism or 1, submission.completions or 1)
    owner_id = f"{project}/{submission.name}"
    owner = {
        "apiVersion": "v1",
        "kind": "Owner",
        "name": submission.name,
        "uid": owner_id,
        "controller": True,
    }
    priority = PRIORITY_CLASSES[template["spec"]["priorityClassName"]]
    pods = {}
    for number in range(count):
        metadata = template["metadata"] | {
            "name": f"{submission.name}-{number}",
            "namespace": _NAMESPACE,
            "uid": f"{owner_id}/{number}",
            "ownerReferences": [owner],
        }
        body = {"metadata": metadata, "spec": template["spec"] | {"priority": priority}}
        pod = msgspec.convert(body, objects.Pod)
        pods[pod.metadata.uid] = pod
    labels = {PROJECT_LABEL: project}
    namespace = objects.Namespace(objects.Metadata(name=_NAMESPACE, uid=_NAMESPACE, labels=labels))
    owner_project = objects.Project(objects.Metadata(name=project), objects.ProjectSpec(namespace=_NAMESPACE))
    reading = read(
        Observed(nodes={}, pods=pods, namespaces={_NAMESPACE: namespace}, projects={project: owner_project})
    )
    for why in reading.unreadable_pods.values():
        raise UsageError(f"{submission.name} could not be scheduled: {why}")
    return reading.snapshot.workloads[0]
