"""Finds obstacles to the creation or change of a project: quotas above the capacity of the cluster, or faults in
departments.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from orchestrator.cluster.gpu_fraction import DEVICE_MILLI, gpu_milli
from orchestrator.cluster.objects import AmountSpec, Node, ProjectSpec
from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.names import GPU_RESOURCE
from orchestrator.observe.project_reader import MAX_DEPARTMENTS
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.planner.accounting.quota import cpu_excess, gpu_model_excess, memory_excess, quota_excess
from orchestrator.planner.model import GPU_MODEL_LABEL

_NONE: Final[Mapping[str, PublishedGpus]] = {}


def objection_to(
    specs: Mapping[str, ProjectSpec],
    name: str,
    nodes: Sequence[Node],
    published: Mapping[str, PublishedGpus] = _NONE,
) -> str:
    """Return the first obstacle to the project `name` with its specification; empty if there is none.

    `specs` are the specifications of all projects, including this project. `published` are the GPUs that drivers
    publish, by node.
    """
    return (
        _objection_to_parents(specs, name)
        or _objection_to_gpus(specs, name, nodes, published)
        or _objection_to_amounts(specs, name, nodes)
    )


def _objection_to_gpus(
    specs: Mapping[str, ProjectSpec],
    name: str,
    nodes: Sequence[Node],
    published: Mapping[str, PublishedGpus],
) -> str:
    quotas = {project: (one.parent, gpu_milli(one.gpu.quota)) for project, one in specs.items()}
    installed: dict[str, int] = {}
    for node in nodes:
        by_driver = published.get(node.metadata.name)
        if by_driver is None:
            there = gpu_milli(node.status.capacity.get(GPU_RESOURCE, 0))
        else:
            there = len(by_driver.ids) * DEVICE_MILLI
        model = node.metadata.labels.get(GPU_MODEL_LABEL) or (by_driver.model if by_driver else "")
        installed[model] = installed.get(model, 0) + there
    excess = quota_excess(quotas, sum(installed.values()))
    if excess is not None:
        return f"the project {name} cannot have a quota of {specs[name].gpu.quota} GPUs: {excess}"
    installed.pop("", None)
    model_quotas = {project: (*quotas[project], _model_quotas(one)) for project, one in specs.items()}
    excess = gpu_model_excess(model_quotas, installed)
    if excess is not None:
        return f"the project {name} cannot have these quotas for GPU models: {excess}"
    return ""


def _objection_to_parents(specs: Mapping[str, ProjectSpec], name: str) -> str:
    """Return the fault of the project's parents: a parent does not exist, the parents form a cycle, or they are too
    many.
    """
    above: list[str] = []
    parent = specs[name].parent
    if parent is not None and (parent not in specs or parent == name):
        return f"the parent {parent} is not another project: create it first"
    while parent is not None and parent in specs and parent not in above:
        above.append(parent)
        if parent == name:
            cycle = " > ".join([name, *above])
            return f"the departments of {name} would form a cycle: {cycle}; choose another parent"
        parent = specs[parent].parent
    if len(above) > MAX_DEPARTMENTS:
        return (
            f"{name} would have {len(above)} departments above it, the maximum is {MAX_DEPARTMENTS}: choose "
            f"a parent nearer the top"
        )
    return ""


def _objection_to_amounts(specs: Mapping[str, ProjectSpec], name: str, nodes: Sequence[Node]) -> str:
    """Return the obstacle to the project's quotas of CPU and memory; empty if there is none."""
    spec = specs[name]
    cpu = {project: (one.parent, _quota(one.cpu, cpu_milli)) for project, one in specs.items()}
    memory = {project: (one.parent, _quota(one.memory, memory_bytes)) for project, one in specs.items()}
    there = [node.status.allocatable for node in nodes]
    excess = cpu_excess(cpu, sum(cpu_milli(str(allocatable.get("cpu", 0))) for allocatable in there))
    if excess is not None and spec.cpu.quota is not None:
        return f"the project {name} cannot have a quota of {spec.cpu.quota} CPUs: {excess}"
    excess = memory_excess(
        memory, sum(memory_bytes(str(allocatable.get("memory", 0))) for allocatable in there)
    )
    if excess is not None and spec.memory.quota is not None:
        return f"the project {name} cannot have a quota of {spec.memory.quota} of memory: {excess}"
    return ""


def _quota(amount: AmountSpec, parse: Callable[[str], int]) -> int | None:
    return None if amount.quota is None else parse(str(amount.quota))


def _model_quotas(spec: ProjectSpec) -> dict[str, int]:
    return {
        model: gpu_milli(bounds.quota)
        for model, bounds in spec.gpu.models.items()
        if bounds.quota is not None
    }
