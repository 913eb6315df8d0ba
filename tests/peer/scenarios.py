"""The peer's scheduling scenarios: each is read as a snapshot, decided on, carried out and compared.

Statuses, quotas and the sets of evicted and started pods are compared strictly. A placement is right if it is the
expected placement after a renaming of nodes that are equal at the start (same size, same tenants).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from orchestrator.labels import LabelRequirement
from orchestrator.planner import plan
from orchestrator.planner.model import (
    Constraints,
    Node,
    Plan,
    Pod,
    PodState,
    Project,
    Request,
    Snapshot,
    SubGroup,
    TopologyRule,
    Workload,
)
from orchestrator.planner.settings import Settings

Case = Mapping[str, Any]

NOW_US = 10**15
MINUTE_US = 60_000_000
UNSUPPORTED_TAGS = frozenset({"mig", "dra", "numa", "pvc", "pod_affinity", "custom_config"})
ACTIONS = {
    "allocate": "allocate",
    "consolidation": "consolidate",
    "reclaim": "reclaim",
    "preempt": "preempt",
    "stalegangeviction": "stale",
}
HELD = ("Allocated", "Binding", "Bound", "Running")
GOING = ("Releasing", "StuckInReleasing")


def gpu_milli(amount: float | None) -> int | None:
    return None if amount is None else int(Fraction(str(amount)) * 1000)


@dataclass
class Task:
    """A pod of a case, with its state between two decisions."""

    name: str
    request: Request
    constraints: Constraints
    sub_group: str
    priority: int
    status: str
    node: str | None = None
    devices: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass
class World:
    """The state of a case between two decisions."""

    case: Case
    tasks: dict[str, Task] = field(default_factory=dict)
    job_of: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.case["jobs"]:
            for task in job["tasks"]:
                self.tasks[task["name"]] = read_task(task)
                self.job_of[task["name"]] = job["name"]
        self._seat()

    def _seat(self) -> None:
        """Choose devices for pods that run at the start: a case names only the pods that share a device."""
        used: dict[str, set[int]] = {}
        shared: dict[tuple[str, str], int] = {}
        sizes = {node["name"]: node.get("gpus", 0) for node in self.case["nodes"]}
        for task in self.tasks.values():
            if task.status not in (*HELD, *GOING) or task.node is None or task.node not in sizes:
                continue
            losses = used.setdefault(task.node, set())

            def fresh(losses: set[int] = losses, size: int = sizes[task.node]) -> int:
                device = next((each for each in range(size) if each not in losses), max(0, size - 1))
                losses.add(device)
                return device

            if task.request.is_shared:
                labels = task.groups or tuple(
                    f"{task.name}/{index}" for index in range(task.request.shared_devices)
                )
                devices = []
                for label in labels:
                    if (task.node, label) not in shared:
                        shared[task.node, label] = fresh()
                    devices.append(shared[task.node, label])
                task.devices = tuple(devices)
            else:
                task.devices = tuple(fresh() for _ in range(task.request.gpu_count))

    def snapshot(self) -> Snapshot:
        return Snapshot(
            nodes=tuple(read_node(node) for node in self.case["nodes"]),
            projects=tuple(
                read_project(queue, position) for position, queue in enumerate(self.case["queues"])
            ),
            workloads=tuple(self._workload(job, place) for place, job in enumerate(self.case["jobs"])),
            now_us=NOW_US,
            settings=Settings(
                max_consolidation_victims=_cap(self.case["settings"].get("max_consolidation_victims")),
                stale_grace_seconds=int(self.case["settings"].get("default_staleness_grace_period_s", 60)),
            ),
        )

    def _workload(self, job: Case, place: int) -> Workload:
        pods = tuple(
            self._pod(self.tasks[task["name"]])
            for task in job["tasks"]
            if self.tasks[task["name"]].status not in ("Failed", "Succeeded", "Gated")
        )
        running = any(pod.state is not PodState.PENDING for pod in pods)
        started = job.get("started_minutes_ago")
        stale = job.get("stale_for_s")
        grace = job.get("staleness_grace_period_s")
        delay = job.get("preemption_delay_s")
        created = NOW_US - int(job["age_minutes"] * MINUTE_US) + place
        groups = read_group(job["pod_group"], levels_by_topology(self.case))
        done = Counter(
            self.tasks[task["name"]].sub_group
            for task in job["tasks"]
            if self.tasks[task["name"]].status == "Succeeded"
        )
        if done:
            groups = without_succeeded(groups, Counter(pod.sub_group for pod in pods), done)
        return Workload(
            id=job["name"],
            name=job["name"],
            project=job["queue"],
            priority=job["priority"],
            preemptible=job["preemptible"],
            created_at_us=created,
            pods=pods,
            groups=groups,
            topology=groups.topology,
            started_at_us=NOW_US - int((started or 1) * MINUTE_US) if running else 0,
            stale_since_us=NOW_US - int((stale or 0) * 1_000_000),
            stale_grace_seconds=None if grace is None else int(grace),
            evicts_from_us=0 if delay is None else created + int(delay * 1_000_000),
        )

    def _pod(self, task: Task) -> Pod:
        state = PodState.PENDING
        if task.status in HELD:
            state = PodState.ALLOCATED
        elif task.status in GOING:
            state = PodState.RELEASING
        return Pod(
            id=task.name,
            name=task.name,
            request=task.request,
            constraints=task.constraints,
            state=state,
            node=task.node if state is not PodState.PENDING else None,
            devices=task.devices if state is not PodState.PENDING else (),
            sub_group=task.sub_group,
            priority=task.priority,
            stuck=task.status == "StuckInReleasing",
        )

    def decide(self) -> Plan:
        """Decide with the actions of the case, set the new status of every task, and return the plan."""
        wanted = self.case.get("actions") or tuple(ACTIONS)
        decision = plan(self.snapshot(), [ACTIONS[each] for each in wanted])
        for eviction in decision.evictions:
            self.tasks[eviction.pod].status = "Releasing"
        for binding in decision.bindings:
            task = self.tasks[binding.pod]
            task.status, task.node, task.devices = "Binding", binding.node, binding.devices
        for promise in decision.nominations:
            task = self.tasks[promise.pod]
            task.status, task.node, task.devices = "Pipelined", promise.node, promise.devices
        return decision

    def settle(self) -> None:
        """Move on to the next decision: bound pods run, nominated and evicted pods are pending again."""
        slow = {job["name"] for job in self.case["jobs"] if job.get("pods_terminate_slowly")}
        for task in self.tasks.values():
            if task.status == "Binding":
                task.status = "Running"
            elif task.status == "Pipelined" or (
                task.status == "Releasing" and self.job_of[task.name] not in slow
            ):
                task.status, task.node, task.devices = "Pending", None, ()


def _cap(cap: int | None) -> int | None:
    return None if cap is None or cap < 0 else cap


def read_task(task: Case) -> Task:
    fraction = task.get("gpu_fraction")
    names = task.get("required_node_names")
    terms = ((LabelRequirement("name", "In", tuple(names)),),) if names else ()
    return Task(
        name=task["name"],
        request=Request(
            gpu_count=int(task.get("gpus") or 0),
            gpu_portion_milli=0 if fraction is None else gpu_milli(fraction) or 0,
            cpu_milli=round(task.get("cpus", 0) * 1000),
            memory_bytes=int(task.get("memory_bytes", 0)),
            gpu_memory_mib=int(task.get("gpu_memory_mib") or 0),
            shared_devices=int(task.get("gpu_devices") or 1),
        ),
        constraints=Constraints(node_terms=terms),
        sub_group=task.get("sub_group", ""),
        priority=task.get("order_priority", 0),
        status=task["status"],
        node=task.get("node"),
        groups=tuple(task.get("gpu_groups") or ()),
    )


def read_node(node: Case) -> Node:
    return Node(
        name=node["name"],
        gpu_count=int(node.get("gpus", 0)),
        cpu_milli=round(node["cpus"] * 1000),
        memory_bytes=int(node["memory_bytes"]),
        pod_slots=node.get("max_pods", 110),
        labels={**node.get("labels", {}), "name": node["name"]},
        gpu_memory_mib=int(node.get("gpu_memory_mib", 0)),
    )


def read_project(queue: Case, position: int) -> Project:
    memory, cpu, gpu = queue["memory_mb"], queue["cpu_milli"], queue["gpu"]
    megabyte = 1_000_000
    return Project(
        name=queue["name"],
        quota_gpu_milli=gpu_milli(gpu["deserved"]),
        limit_gpu_milli=gpu_milli(gpu["limit"]),
        over_quota_weight=gpu["over_quota_weight"],
        priority=queue["priority"],
        parent=queue.get("parent"),
        created_at_us=queue.get("creation_order", position),
        quota_cpu_milli=cpu["deserved"],
        limit_cpu_milli=cpu["limit"],
        cpu_over_quota_weight=cpu["over_quota_weight"],
        quota_memory_bytes=None if memory["deserved"] is None else int(memory["deserved"] * megabyte),
        limit_memory_bytes=None if memory["limit"] is None else int(memory["limit"] * megabyte),
        memory_over_quota_weight=memory["over_quota_weight"],
        preempt_min_runtime_seconds=_seconds(queue.get("preempt_min_runtime_s")),
        reclaim_min_runtime_seconds=_seconds(queue.get("reclaim_min_runtime_s")),
    )


def _seconds(value: float | None) -> int | None:
    return None if value is None else int(value)


def levels_by_topology(case: Case) -> dict[str, tuple[str, ...]]:
    return {
        each["name"]: tuple(level["node_label"] for level in each["levels"])
        for each in case.get("topologies") or ()
    }


def read_group(group: Case, topologies: Mapping[str, tuple[str, ...]]) -> SubGroup:
    children = tuple(read_group(child, topologies) for child in group.get("children", ()))
    constraint = group.get("topology_constraint")
    rule = None
    if constraint and constraint["topology"] in topologies:
        rule = TopologyRule(
            levels=topologies[constraint["topology"]],
            required=constraint.get("required_level"),
            preferred=constraint.get("preferred_level"),
        )
    return SubGroup(
        name=group.get("pod_set") or group.get("group") or "",
        minimum=group.get("min_sub_group") if children else group.get("min_available"),
        children=children,
        topology=rule,
    )


def without_succeeded(group: SubGroup, present: Counter[str], done: Counter[str]) -> SubGroup:
    """Return the gang without the members that have succeeded: as `orchestrator.observe.gangs` reads it.

    `present` counts, by sub-group, pods that wait or run, `done` those that have succeeded. A gang of one part is as
    small as the pods that are there; a part of several gives up as many as have succeeded in it.
    """
    leaves = [child for child in group.children if not child.children]
    if len(leaves) == 1 == len(group.children):
        leaf = leaves[0]
        shrunk = replace(leaf, minimum=min(leaf.minimum or 1, present.total()))
        return replace(group, children=(shrunk,))
    children = []
    for child in group.children:
        if child.children:
            children.append(without_succeeded(child, present, done))
            continue
        count, minimum = present[child.name], child.minimum or 0
        if done[child.name]:
            minimum = min(minimum, max(count, minimum - done[child.name]))
        if minimum or count:
            children.append(replace(child, minimum=minimum))
    return replace(group, children=tuple(children))


def differences(world: World, decision: Plan) -> list[str]:
    """Return a line for each result that is not as the case expects."""
    expected = world.case["expected"]
    found: list[str] = []
    placements: list[tuple[str, str]] = []
    jobs = {job["name"]: job for job in world.case["jobs"]}
    wanted: dict[str, Case] = dict(expected.get("tasks") or {})
    for name, outcome in (expected.get("jobs") or {}).items():
        if name in jobs:
            wanted.update({task["name"]: outcome for task in jobs[name]["tasks"]})
    for name, outcome in wanted.items():
        task = world.tasks.get(name)
        if task is None:
            continue
        if task.status != outcome["status"]:
            found.append(f"{name} is {task.status}, expected {outcome['status']}")
        elif outcome.get("node"):
            placements.append((task.node or "", outcome["node"]))
    if not found and not _renamed(world, placements):
        found.append(f"placements (found, expected): {placements}")
    limits = expected.get("call_limits", {})
    counts = {
        "max_binds": len(decision.bindings),
        "max_evictions": len(decision.evictions),
    }
    if world.case["kind"] == "single_session":
        found += [
            f"{count} against {name} {limits[name]}"
            for name, count in counts.items()
            if limits.get(name) is not None and count > limits[name]
        ]
    for name, totals in (expected.get("nodes") or {}).items():
        idle = _idle(world, name)
        if idle != totals.get("idle_gpus", idle):
            found.append(f"{name} has {idle} idle GPUs, expected {totals['idle_gpus']}")
    return found


def _idle(world: World, name: str) -> int:
    size = next(int(node.get("gpus", 0)) for node in world.case["nodes"] if node["name"] == name)
    used = {
        device
        for task in world.tasks.values()
        if task.node == name and task.status in (*HELD, *GOING)
        for device in task.devices
    }
    return size - len(used)


def _renamed(world: World, placements: Iterable[tuple[str, str]]) -> bool:
    """Return whether one renaming of equal nodes, which keeps topology domains together, explains all placements."""
    kinds = _kinds(world)
    domains = _domains(world)
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for here, there in placements:
        if kinds.get(here) != kinds.get(there):
            return False
        if forth.setdefault(here, there) != there or back.setdefault(there, here) != here:
            return False
    return all(
        [left == right for left, right in zip(domains[one], domains[other], strict=True)]
        == [left == right for left, right in zip(domains[forth[one]], domains[forth[other]], strict=True)]
        for one in forth
        for other in forth
    )


def _domains(world: World) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return for each node its domain at each level of each topology."""
    levels = [
        each[: depth + 1] for each in levels_by_topology(world.case).values() for depth in range(len(each))
    ]
    return {
        node["name"]: tuple(tuple(node.get("labels", {}).get(key, "") for key in keys) for keys in levels)
        for node in world.case["nodes"]
    }


def _kinds(world: World) -> dict[str, object]:
    """Return for each node a key of its state at the start: size, labels, tenants, and other nodes of its domains."""
    tenants: dict[str, Counter[str]] = {}
    named: set[str] = set()
    for job in world.case["jobs"]:
        for task in job["tasks"]:
            named |= set(task.get("required_node_names") or ())
            if task.get("node"):
                tenants.setdefault(task["node"], Counter())[
                    f"{job['queue']}/{job['priority']}/{task.get('gpus')}/{task.get('gpu_fraction')}"
                ] += 1
    topology = {key for each in levels_by_topology(world.case).values() for key in each}
    alone = {
        node["name"]: str(
            (
                sorted((key, str(value)) for key, value in node.items() if key not in ("name", "labels")),
                sorted((key, value) for key, value in node.get("labels", {}).items() if key not in topology),
                sorted(tenants.get(node["name"], Counter()).items()),
                node["name"] if node["name"] in named else "",
            )
        )
        for node in world.case["nodes"]
    }
    domains = _domains(world)
    return {
        name: (
            kind,
            *(
                sorted(alone[each] for each in alone if domains[each][level] == domain)
                for level, domain in enumerate(domains[name])
            ),
        )
        for name, kind in alone.items()
    }


def problems_of(case: Case) -> list[str]:
    """Run the case, and return a sentence for each result that is not as expected."""
    world = World(case)
    if case["kind"] == "single_session":
        return differences(world, world.decide())
    decision = None
    for _ in range(case["rounds"]["until_match"]):
        decision = world.decide()
        world.settle()
    if decision is None:
        return []
    problems = differences(world, decision)
    for number in range(case["rounds"]["after_match"]):
        if problems:
            break
        decision = world.decide()
        problems = [f"{number + 1} rounds later: {each}" for each in differences(world, decision)]
        world.settle()
    return problems


def is_supported(case: Case) -> bool:
    return not UNSUPPORTED_TAGS & set(case["tags"])
