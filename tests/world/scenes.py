"""Random clusters by seed: nodes, projects with or without departments, and running and pending workloads."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.labels import LabelRequirement
from orchestrator.planner.model import (
    DEVICE_MILLI,
    Constraints,
    GpuModelBounds,
    Node,
    Pod,
    PodState,
    Project,
    Request,
    Scalars,
    Snapshot,
    SubGroup,
    TopologyRule,
    Workload,
)
from orchestrator.planner.settings import Settings
from orchestrator.planner.traits import (
    ANY_ADDRESS,
    NO_TRAITS,
    HostPort,
    PodPreference,
    PodSelector,
    PodTerm,
    PodTraits,
    Preferences,
    SpreadConstraint,
)
from tests.world.capacity import ClusterCapacity
from tests.world.facts import NOTHING, Tree, add, admits, total, within
from tests.world.failing import NODES, WORKLOADS
from tests.world.pod_constraints import PREFIX, PodConstraints

if TYPE_CHECKING:
    from tests.world.capacity import NodeCapacity

HCA = "rdma/hca"
DISK = "ephemeral-storage"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
RARE = {"scalars": 0.2, "neighbours": 0.2, "failing": 0.2}
"""The portion of worlds with other resources, required constraints between pods, and failing starts."""
GIB = 1 << 30
START_US = 1_700_000_000_000_000
LEVELS = ("zone", "rack")
MODELS = ("A100", "V100")
PORTIONS = (100, 200, 250, 300, 400, 500, 600, 700, 750)


@dataclass(frozen=True)
class Style:
    """The features of a world beside nodes, quotas and jobs.

    `notebooks`: half of the workloads are non-preemptible, and users delete one to submit another. `neighbours`: pods
    have constraints on other pods, and host ports. `failing`: starts of some workloads, and on some nodes, fail.
    """

    trees: bool = False
    cpu_short: bool = False
    cpu_quotas: bool = False
    models: bool = False
    topology: bool = False
    pools: bool = False
    priorities: bool = False
    limits: bool = False
    gangs: bool = True
    fractions: bool = True
    firm: bool = True
    notebooks: bool = False
    budgets: bool = False
    minimum_runtimes: bool = False
    oversubscribed: bool = False
    scalars: bool = False
    neighbours: bool = False
    failing: bool = False
    nodes: tuple[int, int] = (1, 4)

    @classmethod
    def draw(cls, dice: random.Random, **fixed: object) -> Style:
        """Return a random style with each feature in about a third of the worlds."""
        values: dict[str, object] = {
            name: dice.random() < chance
            for name, chance in (
                ("trees", 0.5),
                ("cpu_short", 0.3),
                ("cpu_quotas", 0.2),
                ("models", 0.15),
                ("topology", 0.25),
                ("pools", 0.3),
                ("priorities", 0.3),
                ("limits", 0.3),
                ("gangs", 0.7),
                ("fractions", 0.7),
                ("firm", 0.5),
                ("notebooks", 0.3),
                ("budgets", 0.25),
                ("minimum_runtimes", 0.2),
                ("oversubscribed", 0.15),
            )
        }
        # A separate source of random numbers, so that worlds without these features stay as they were.
        own = random.Random(repr(values))  # noqa: S311 - a world that can be made again
        values |= {name: own.random() < chance for name, chance in RARE.items()}
        return cls(**(values | fixed))  # type: ignore[arg-type]


class Maker:
    """Makes the parts of a world in one style."""

    def __init__(self, dice: random.Random, style: Style) -> None:
        self.dice = dice
        self.style = style
        self.counter = 0

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.node(f"n{number}") for number in range(self.dice.randint(*self.style.nodes)))

    def node(self, name: str) -> Node:
        dice, style = self.dice, self.style
        gpus = dice.choice((1, 2, 4, 4, 8))
        labels: dict[str, str] = {}
        if style.topology:
            labels |= {"zone": dice.choice("xy"), "rack": dice.choice("12")}
            labels["rack"] = labels["zone"] + labels["rack"]
        if style.pools:
            labels["pool"] = dice.choice("ab")
        if style.models:
            labels["nvidia.com/gpu.product"] = dice.choice(MODELS)
        if style.neighbours and dice.random() < 0.8:
            labels[ZONE] = dice.choice(("east", "west"))
        if style.failing and dice.random() < 0.25:
            name = f"{dice.choice(NODES)}-{name}"
        scalars = {HCA: dice.choice((1, 2, 4))} if style.scalars and dice.random() < 0.7 else {}
        if style.scalars and style.neighbours:
            scalars[DISK] = dice.choice((0, 200, 400)) * GIB
        return Node(
            name=name,
            gpu_count=gpus,
            cpu_milli=gpus * (4000 if style.cpu_short else 64_000),
            memory_bytes=gpus * 64 * GIB,
            pod_slots=110 if dice.random() < 0.95 else 4,
            labels=labels,
            gpu_memory_mib=32_768,
            scalars=scalars,
            foreign_traits=(self._traits("kube-system", Constraints()),)
            if style.neighbours and dice.random() < 0.1
            else (),
        )

    def projects(self, gpus: int) -> tuple[Project, ...]:
        """Return projects whose quotas the cluster can satisfy, unless the style oversubscribes."""
        if not self.style.trees:
            return tuple(self._siblings("p", None, self.dice.randint(2, 4), gpus))
        departments = self._siblings("d", None, self.dice.randint(2, 3), gpus)
        children = [child for department in departments for child in self._children(department)]
        return (*departments, *children)

    def _children(self, department: Project) -> list[Project]:
        count, gpus = self.dice.randint(1, 3), (department.quota_gpu_milli or 0) // DEVICE_MILLI
        return self._siblings(f"{department.name}-", department.name, count, gpus)

    def _siblings(self, prefix: str, parent: str | None, count: int, gpus: int) -> list[Project]:
        projects, promised = [], 0
        for number in range(count):
            most = gpus if self.style.oversubscribed else gpus - promised
            quota = self.dice.randint(0, max(0, min(most, gpus)))
            promised += quota
            projects.append(self._project(f"{prefix}{number}", parent, quota))
        return projects

    def _project(self, name: str, parent: str | None, quota: int) -> Project:
        dice, style = self.dice, self.style
        self.counter += 1
        project = Project(
            name=name,
            quota_gpu_milli=quota * DEVICE_MILLI,
            over_quota_weight=dice.choice((0, 1, 1, 1, 2, 3)) * 1000
            if dice.random() < 0.5
            else quota * 1000 or 1,
            priority=dice.choice((0, 0, 1)) if style.priorities else 0,
            parent=parent,
            created_at_us=self.counter,
        )
        if style.limits and dice.random() < 0.3:
            project = replace(project, limit_gpu_milli=(quota + dice.randint(0, 3)) * DEVICE_MILLI)
        if style.cpu_quotas and dice.random() < 0.6:
            project = replace(project, quota_cpu_milli=quota * dice.choice((2000, 4000)))
            if dice.random() < 0.3:
                project = replace(project, limit_cpu_milli=(project.quota_cpu_milli or 0) + 4000)
        if style.models and dice.random() < 0.5:
            bounds = GpuModelBounds(
                dice.choice(MODELS),
                dice.randint(0, quota) * DEVICE_MILLI if dice.random() < 0.7 else None,
                (quota + 1) * DEVICE_MILLI if dice.random() < 0.2 else None,
            )
            project = replace(project, gpu_models=(bounds,))
        if style.minimum_runtimes and dice.random() < 0.4:
            project = replace(project, reclaim_min_runtime_seconds=300, preempt_min_runtime_seconds=60)
        return project

    def workload(self, project: str, created_at_us: int, max_gpus: int = 8) -> Workload:
        """Return a pending workload of one of the kinds on real sites."""
        dice, style = self.dice, self.style
        self.counter += 1
        name = f"w{self.counter:03d}"
        if style.failing and dice.random() < 0.3:
            name += f"-{dice.choice(WORKLOADS)}"
        firm = dice.random() < (0.5 if style.notebooks else 0.15 if style.firm else 0)
        count, minimum = 1, 1
        kind = dice.random()
        if style.gangs and kind < 0.25:
            count = minimum = dice.randint(2, 4)
        elif style.gangs and kind < 0.4:
            count, minimum = dice.randint(2, 4), dice.randint(1, 2)
        request = self._request(max_gpus if count == 1 else max(1, max_gpus // 2))
        constraints = Constraints()
        if style.pools and dice.random() < 0.3:
            constraints = Constraints(node_selector=(("pool", dice.choice("ab")),))
        if style.models and dice.random() < 0.3:
            constraints = Constraints(node_selector=(("nvidia.com/gpu.product", dice.choice(MODELS)),))
        groups, names = None, [""] * count
        if style.gangs and count == minimum > 1 and dice.random() < 0.3:
            groups = SubGroup("", children=(SubGroup("leader", 1), SubGroup("workers", count - 1)))
            names = ["leader", *["workers"] * (count - 1)]
        topology = None
        if style.topology and groups is None and dice.random() < 0.4:
            level = dice.choice(LEVELS)
            topology = TopologyRule(LEVELS, required=level if dice.random() < 0.6 else None, preferred=level)
        runtime = dice.choice((None, None, None, 300, 1800))
        traits = self._traits(f"{PREFIX}{project}", constraints) if style.neighbours else NO_TRAITS
        return Workload(
            id=name,
            name=name,
            project=project,
            priority=100 if firm else dice.choice((50, 50, 50, 40, 60)) if style.priorities else 50,
            preemptible=not firm,
            interactive=firm,
            created_at_us=created_at_us,
            pods=tuple(
                Pod(
                    f"{name}-{number}",
                    f"{name}-{number}",
                    request,
                    constraints,
                    sub_group=names[number],
                    max_runtime_seconds=runtime,
                    traits=traits,
                )
                for number in range(count)
            ),
            min_member=1 if groups else minimum,
            groups=groups,
            topology=topology,
            waiting_since_us=created_at_us,
        )

    def _request(self, max_gpus: int) -> Request:
        request = self._devices_and_cpu(max_gpus)
        if not self.style.scalars or self.dice.random() < 0.6:
            return request
        scalars: Scalars = ((HCA, self.dice.choice((1, 1, 2))),)
        if self.style.neighbours and self.dice.random() < 0.5:
            scalars = ((DISK, self.dice.choice((50, 150)) * GIB), *scalars)
        return replace(request, scalars=scalars)

    def _traits(self, namespace: str, constraints: Constraints) -> PodTraits:
        """Return the labels of a workload's pods, and up to two kinds of constraints on other pods."""
        dice = self.dice
        labels = [("app", dice.choice("xy"))]
        if dice.random() < 0.5:
            labels.append(("tier", dice.choice("tu")))
        traits = PodTraits(namespace, tuple(labels))
        for kind in dice.sample(
            ("apart", "beside", "spread", "port", "prefers"), dice.choice((0, 0, 1, 1, 2))
        ):
            if kind == "apart":
                traits = replace(traits, anti_affinity=self._terms(traits))
            elif kind == "beside":
                traits = replace(traits, affinity=self._terms(traits))
            elif kind == "spread":
                constraint = self._spread(traits, dice.choice((HOST, ZONE)), constraints)
                traits = replace(traits, spread=(constraint,))
            elif kind == "port":
                address = dice.choice((ANY_ADDRESS, ANY_ADDRESS, "10.0.0.1", "10.0.0.2"))
                traits = replace(traits, host_ports=(HostPort(dice.choice((80, 81)), address=address),))
            else:
                preference = PodPreference(dice.choice((-50, 50)), self._term(traits))
                spread = self._spread(traits, HOST, constraints)
                traits = replace(traits, preferences=Preferences(pods=(preference,), spread=(spread,)))
        return traits

    def _terms(self, traits: PodTraits) -> tuple[PodTerm, ...]:
        return tuple(self._term(traits) for _ in range(self.dice.choice((1, 1, 1, 2))))

    def _term(self, traits: PodTraits) -> PodTerm:
        namespaces = self.dice.choice(((traits.namespace,), (traits.namespace,), None))
        return PodTerm(self._selector(traits, namespaces), self.dice.choice((HOST, HOST, ZONE)))

    def _spread(self, traits: PodTraits, key: str, constraints: Constraints) -> SpreadConstraint:
        selector = self._selector(traits, (traits.namespace,))
        least, honors = self.dice.choice((1, 1, 2)), self.dice.random() < 0.5
        terms = tuple(LabelRequirement(name, "In", (value,)) for name, value in constraints.node_selector)
        return SpreadConstraint(
            key, self.dice.choice((1, 1, 2)), selector, least, (terms,) if honors and terms else ()
        )

    def _selector(self, traits: PodTraits, namespaces: tuple[str, ...] | None) -> PodSelector:
        """Return a selector, mostly of the pods of the workload's own application, as in real manifests."""
        own = LabelRequirement("app", "In", (dict(traits.labels)["app"],))
        requirements = self.dice.choice(
            (
                (own,),
                (own,),
                (LabelRequirement("app", "In", ("x",)),),
                (LabelRequirement("app", "NotIn", ("x",)),),
                (LabelRequirement("tier", "Exists"),),
                (own, LabelRequirement("tier", "DoesNotExist")),
            )
        )
        return PodSelector(namespaces, requirements)

    def _devices_and_cpu(self, max_gpus: int) -> Request:
        dice, style = self.dice, self.style
        cpu_milli = dice.choice((0, 1000, 2000, 4000, 9000)) if style.cpu_short or style.cpu_quotas else 0
        roll = dice.random()
        if style.fractions and roll < 0.35:
            shared = 2 if dice.random() < 0.1 else 1
            if dice.random() < 0.1:
                return Request(gpu_memory_mib=8192, shared_devices=shared, cpu_milli=cpu_milli)
            return Request(
                gpu_portion_milli=dice.choice(PORTIONS), shared_devices=shared, cpu_milli=cpu_milli
            )
        if roll > 0.97 and cpu_milli:
            return Request(cpu_milli=cpu_milli)
        gpus = dice.choice([size for size in (1, 1, 1, 2, 2, 3, 4, 8) if size <= max_gpus])
        return Request(gpu_count=gpus, cpu_milli=cpu_milli)


def saturated(seed: int, *, trees: bool, style: Style | None = None) -> Snapshot:
    """Return a cluster with more requests than capacity. Some workloads already run, on random nodes."""
    dice = random.Random(seed)  # noqa: S311 - a world that can be made again
    if style is None:
        # mostly the features on which quotas depend, GPU sizes and fractions; each other feature now and then
        style = (
            Style.draw(dice, trees=trees)
            if dice.random() < 0.3
            else Style(trees=trees, gangs=dice.random() < 0.5)
        )
    maker = Maker(dice, style)
    nodes = maker.nodes()
    gpus = sum(node.gpu_count for node in nodes)
    projects = maker.projects(gpus)
    parents = {project.parent for project in projects}
    teams = [project.name for project in projects if project.name not in parents]
    workloads: list[Workload] = []
    requested = 0
    while requested < gpus * 1000 * dice.choice((1.2, 1.6, 2.2)) and len(workloads) < 24:
        largest = max(node.gpu_count for node in nodes)
        workloads.append(maker.workload(dice.choice(teams), len(workloads) + 1, largest))
        requested += max(100, total(workloads[-1].pods)[0])
    settings = Settings(topology_levels=LEVELS if style.topology else ())
    # without a time, no workload backs off
    now_us = START_US if style.failing else 0
    snapshot = Snapshot(nodes, projects, tuple(workloads), now_us, settings)
    return start_some(snapshot, dice, dice.choice((0.0, 0.3, 0.6, 0.9)))


def start_some(snapshot: Snapshot, dice: random.Random, part: float) -> Snapshot:
    """Return the snapshot with this part of the workloads running, started in random order within the hard rules."""
    tree, capacities = Tree(snapshot.projects), ClusterCapacity(snapshot.nodes)
    held, firm = dict.fromkeys(tree.projects, NOTHING), dict.fromkeys(tree.projects, NOTHING)
    changed = {workload.id: workload for workload in snapshot.workloads}
    constraints = PodConstraints(snapshot)
    keeps_constraints = not constraints.are_none and dice.random() < 0.85
    for number, workload in enumerate(dice.sample(snapshot.workloads, len(snapshot.workloads))):
        if dice.random() >= part or workload.topology is not None:
            continue
        lineage = tree.lineage[workload.project]
        requested = total(workload.pods)
        if not all(within(add(held[name], requested), tree.limit(name)) for name in lineage):
            continue
        if not workload.preemptible and not all(
            within(add(firm[name], requested), tree.quota(name)) for name in lineage
        ):
            continue
        if any(
            bounds.limit_gpu_milli is not None
            for name in lineage
            for bounds in tree.projects[name].gpu_models
        ):
            continue
        pods = _placed(snapshot, tree, capacities, dice, workload)
        if pods is None:
            continue
        running = [pod for one in changed.values() for pod in one.pods]
        if keeps_constraints and not constraints.has_order(
            constraints.on_nodes(pods), constraints.on_nodes(running), ()
        ):
            for pod in pods:
                capacities.take_pod(pod, -1)
            continue
        changed[workload.id] = replace(workload, pods=pods, started_at_us=1000 + number)
        for name in lineage:
            held[name] = add(held[name], requested)
            if not workload.preemptible:
                firm[name] = add(firm[name], requested)
    return replace(snapshot, workloads=tuple(changed[workload.id] for workload in snapshot.workloads))


def _placed(
    snapshot: Snapshot, tree: Tree, capacities: ClusterCapacity, dice: random.Random, workload: Workload
) -> tuple[Pod, ...] | None:
    placed: list[Pod] = []
    for pod in workload.pods:
        options = [
            (capacity, devices)
            for capacity in capacities.by_name.values()
            if admits(capacity.node, pod, workload, tree.projects[workload.project])
            and (devices := free_devices(capacity, pod.request)) is not None
        ]
        if not options:
            for done in placed:
                capacities.take_pod(done, -1)
            return None
        capacity, devices = dice.choice(options)
        placed.append(replace(pod, state=PodState.ALLOCATED, node=capacity.node.name, devices=devices))
        capacities.take_pod(placed[-1])
    return tuple(placed)


def free_devices(capacity: NodeCapacity, request: Request) -> tuple[int, ...] | None:
    """Return the first devices with free capacity for the request; None if it does not fit."""
    if (
        capacity.cpu_milli < request.cpu_milli
        or capacity.memory_bytes < request.memory_bytes
        or capacity.pod_slots < 1
        or any(capacity.scalars.get(name, 0) < amount for name, amount in request.scalars)
    ):
        return None
    part = request.gpu_portion_milli or DEVICE_MILLI
    if request.gpu_memory_mib:
        part = -(-DEVICE_MILLI * request.gpu_memory_mib // capacity.node.gpu_memory_mib)
    count = request.shared_devices if request.is_shared else request.gpu_count
    fitting = sorted((free, device) for device, free in enumerate(capacity.free_milli) if free >= part)
    return None if len(fitting) < count else tuple(sorted(device for _, device in fitting[:count]))
