"""Properties of every plan, whatever happens to the cluster: a random walk with hypothesis.

The walk checks P1 to P5 and P8 after every step; P6, P7, P9 and P10 compare whole runs. A failing walk writes the
wrongly planned snapshot as a file for `muster simulate`, and the error names the file. Once the defect is understood,
the file belongs into `regressions/`, whose files `test_regressions.py` replays.
"""

from __future__ import annotations

import functools
import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.planner import plan
from orchestrator.planner.accounting.shares import Claim, divide
from orchestrator.planner.model import Plan, Pod, PodState, Snapshot, Waiting, Workload
from orchestrator.simulation.writer import dump
from tests.planner.builders import Cluster, node, project, workload

if TYPE_CHECKING:
    from collections.abc import Callable

FOUND = Path(".hypothesis", "found")
TEAMS = ("team-a", "team-b", "team-c")
SIZES = (100, 200, 300, 400, 500, 600, 1000, 1000, 2000, 3000, 4000)


def covered(cluster: Cluster, name: str) -> set[str]:
    """Return the project's running pods within its quota, by the rule in the documentation."""
    running = [each for each in cluster.workloads.values() if each.project == name and held(each)]
    running.sort(key=lambda each: (each.preemptible, -each.priority, each.created_at_us))
    left, inside = cluster.projects[name].quota_gpu_milli or 0, set()
    for each in running:
        pods = [pod for pod in each.pods if pod.state is PodState.ALLOCATED]
        core, surplus = pods[: each.min_member], pods[each.min_member :]
        needed = sum(pod.request.gpu_milli for pod in core)
        if needed > left:
            continue
        left -= needed
        inside |= {pod.id for pod in core}
        for pod in surplus:
            if pod.request.gpu_milli <= left:
                left -= pod.request.gpu_milli
                inside.add(pod.id)
    return inside


def lost_for_good(decision: Plan, workloads: dict[str, Workload], project: str) -> int:
    """Return the loss of the project in the decision, without nominated pods, in `gpu_milli`."""
    promised = {nomination.pod for nomination in decision.nominations}
    evicted = {eviction.pod for eviction in decision.evictions} - promised
    return sum(
        pod.request.gpu_milli
        for workload in workloads.values()
        if workload.project == project
        for pod in workload.pods
        if pod.id in evicted
    )


def assert_everybody_who_waits_has_a_reason(before: Snapshot, decision: Plan) -> None:
    """Assert P11: exactly the workloads with a pending pod that is not bound have a reason, with a message."""
    bound = {each.pod for each in decision.bindings}
    waiting = {
        each.id
        for each in before.workloads
        if any(pod.state is PodState.PENDING and pod.id not in bound for pod in each.pods)
    }
    assert set(decision.pending) == waiting
    assert all(reason.message for reason in decision.pending.values())


def held(each: Workload) -> int:
    return sum(pod.request.gpu_milli for pod in each.pods if pod.state is PodState.ALLOCATED)


def recorded(check: Callable[..., None]) -> Callable[..., None]:
    """Wrap a check so that its failure writes the last snapshot as a file; shrinking leaves the smallest one."""

    @functools.wraps(check)
    def checked(self: PlannerWalk, **values: object) -> None:
        try:
            check(self, **values)
        except AssertionError as error:
            FOUND.mkdir(parents=True, exist_ok=True)
            path = FOUND / f"{check.__name__}.snapshot.yaml"
            path.write_text(dump(self.cluster.before))
            error.add_note(
                f"the planner was wrong about this snapshot: muster simulate {path} --until-stable"
            )
            raise

    return checked


class PlannerWalk(RuleBasedStateMachine):
    cluster: Cluster
    counter = 0

    @initialize(
        nodes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
        quotas=st.lists(st.integers(0, 8), min_size=3, max_size=3),
    )
    def start(self, nodes: list[int], quotas: list[int]) -> None:
        capacity = sum(nodes) * 1000
        self.cluster = Cluster(
            [node(f"node-{index}", gpus) for index, gpus in enumerate(nodes)],
            [
                project(name, min(quota * 1000, capacity // 3 // 100 * 100))
                for name, quota in zip(TEAMS, quotas, strict=True)
            ],
        )

    @rule(
        team=st.sampled_from(TEAMS),
        gpu_milli=st.sampled_from(SIZES),
        interactive=st.booleans(),
        pods=st.sampled_from([1, 1, 1, 2, 3]),
        minimum=st.sampled_from([1, 1, 2, 3]),
        priority=st.sampled_from([None, None, None, 40, 60]),
    )
    def submit(
        self, *, team: str, gpu_milli: int, interactive: bool, pods: int, minimum: int, priority: int | None
    ) -> None:
        self.counter += 1
        new = workload(
            f"job-{self.counter}",
            team,
            gpu_milli,
            interactive=interactive,
            pods=pods,
            minimum=min(pods, minimum),
            priority=None if interactive else priority,
        )
        self.cluster.submit(new)

    @rule(place=st.integers(0, 30))
    def finish(self, place: int) -> None:
        if self.cluster.workloads:
            del self.cluster.workloads[sorted(self.cluster.workloads)[place % len(self.cluster.workloads)]]

    @rule(team=st.sampled_from(TEAMS), quota=st.integers(0, 4))
    def change_quota(self, team: str, quota: int) -> None:
        changed = replace(self.cluster.projects[team], quota_gpu_milli=quota * 1000, over_quota_weight=quota)
        self.cluster.projects[team] = changed

    @rule(place=st.integers(0, 10))
    def cordon_or_uncordon(self, place: int) -> None:
        chosen = place % len(self.cluster.nodes)
        nodes = list(self.cluster.nodes)
        each = nodes[chosen]
        nodes[chosen] = replace(each, schedulable=not (each.schedulable or each.unhealthy))
        self.cluster.nodes = tuple(nodes)

    @rule(place=st.integers(0, 10))
    def lose_a_node(self, place: int) -> None:
        """Replace a node by a new one of the same size. Its pods become pending."""
        chosen = self.cluster.nodes[place % len(self.cluster.nodes)]
        self.counter += 1
        fresh = node(f"node-{self.counter:03d}-new", chosen.gpu_count)
        self.cluster.nodes = tuple(fresh if each is chosen else each for each in self.cluster.nodes)
        for name, each in self.cluster.workloads.items():
            if any(pod.node == chosen.name for pod in each.pods):
                pods = tuple(
                    replace(pod, state=PodState.PENDING, node=None, devices=())
                    if pod.node == chosen.name
                    else pod
                    for pod in each.pods
                )
                self.cluster.workloads[name] = replace(each, pods=_whole_or_nothing(each, pods))

    @rule(
        place=st.integers(0, 10),
        gpus=st.lists(st.integers(0, 7), max_size=2, unique=True),
        whole=st.booleans(),
    )
    def get_unhealthy_or_well(self, *, place: int, gpus: list[int], whole: bool) -> None:
        """Make some GPUs of a node, or the node, unhealthy; heal an unhealthy one."""
        chosen = place % len(self.cluster.nodes)
        nodes = list(self.cluster.nodes)
        each = nodes[chosen]
        if each.unhealthy or each.unhealthy_gpus:
            nodes[chosen] = replace(each, unhealthy="", unhealthy_gpus=(), schedulable=True)
        elif whole:
            nodes[chosen] = replace(each, unhealthy="fell off the bus", schedulable=False)
        else:
            broken = tuple(sorted(gpu for gpu in gpus if gpu < each.gpu_count))
            nodes[chosen] = replace(each, unhealthy_gpus=broken)
        self.cluster.nodes = tuple(nodes)

    @rule()
    @recorded
    def decide(self) -> None:
        """P4: a decision evicts no pod within quota for another project, if its project then
        holds less than its quota.
        """
        inside = {name: covered(self.cluster, name) for name in TEAMS}
        before = dict(self.cluster.workloads)
        held_before = self.cluster.held()
        decision = self.cluster.step()
        assert_everybody_who_waits_has_a_reason(self.cluster.before, decision)
        for eviction in decision.evictions:
            victim = before[eviction.workload]
            winner = before[eviction.beneficiary]
            assert victim.preemptible, "work that cannot be taken back was evicted"
            if eviction.rule in ("quota", "fair-share"):
                quota = self.cluster.projects[victim.project].quota_gpu_milli or 0
                left = held_before.get(victim.project, 0) - lost_for_good(decision, before, victim.project)
                assert eviction.pod not in inside[victim.project] or left >= quota, (
                    "work within its quota was evicted"
                )
                assert winner.project != victim.project
            elif eviction.rule == "priority":
                assert winner.project == victim.project
                assert winner.priority > victim.priority
            else:
                assert eviction.rule in ("consolidation", "unhealthy")
                assert eviction.pod in {each.pod for each in decision.nominations}, "a moved pod has no place"

    @rule()
    @recorded
    def come_to_rest(self) -> None:
        """P8: after a bounded number of evictions, nothing changes. P3 and P5 are true at rest."""
        evicted = len(self.cluster.evicted_pods)
        last = self.cluster.settle(max_steps=20)
        times = Counter(self.cluster.evicted_pods[evicted:])
        assert all(count <= 2 for count in times.values()), (
            "P8: evicted again and again, and nothing happened"
        )
        assert_everybody_who_waits_has_a_reason(self.cluster.before, last)
        held = self.cluster.held()
        for name, reason in last.pending.items():
            waiting = self.cluster.workloads[name]
            if len(waiting.pods) != 1 or waiting.pods[0].request.gpu_milli < 1000:
                continue
            requested = waiting.pods[0].request.gpu_milli
            if reason.code not in (Waiting.PROJECT_LIMIT, Waiting.OVER_QUOTA, Waiting.RELEASING):
                assert self._no_idle_node(requested), "P5: GPUs are idle and somebody who may have them waits"
            quota = self.cluster.projects[waiting.project].quota_gpu_milli or 0
            if requested == 1000 and held[waiting.project] + requested <= quota:
                assert not self._borrowed_whole_gpus(waiting.project), (
                    "P3: within the quota, and others borrow"
                )

    def _borrowed_whole_gpus(self, project: str) -> list[str]:
        """Return workloads beyond the quotas of other projects, on healthy whole GPUs."""
        sound = {each.name for each in self.cluster.nodes if each.schedulable and not each.unhealthy_gpus}
        now = self.cluster.held()
        return [
            each.id
            for name in TEAMS
            if name != project and now[name] > (self.cluster.projects[name].quota_gpu_milli or 0)
            for each in self.cluster.workloads.values()
            if each.project == name
            and each.preemptible
            and not {pod.id for pod in each.pods} & covered(self.cluster, name)
            and sum(pod.state is PodState.ALLOCATED for pod in each.pods) == 1
            and any(pod.node in sound and pod.request.gpu_count for pod in each.pods)
        ]

    def _no_idle_node(self, gpu_milli: int) -> bool:
        used: dict[tuple[str | None, int], int] = defaultdict(int)
        for each in self.cluster.workloads.values():
            for pod in each.pods:
                for device in pod.devices:
                    used[pod.node, device] += pod.request.gpu_portion_milli or 1000
        return not any(
            each.schedulable
            and not each.unhealthy_gpus
            and sum(not used[each.name, device] for device in range(each.gpu_count)) * 1000 >= gpu_milli
            for each in self.cluster.nodes
        )

    @rule(seed=st.integers(0, 100))
    @recorded
    def the_order_of_the_input_does_not_matter(self, seed: int) -> None:
        snapshot = self.cluster.snapshot()
        shuffler = random.Random(seed)  # noqa: S311 - a shuffle that can be repeated
        shuffled = Snapshot(
            tuple(shuffler.sample(snapshot.nodes, len(snapshot.nodes))),
            tuple(shuffler.sample(snapshot.projects, len(snapshot.projects))),
            tuple(shuffler.sample(snapshot.workloads, len(snapshot.workloads))),
        )
        assert _comparable(plan(snapshot)) == _comparable(plan(shuffled))

    @invariant()
    @recorded
    def no_device_is_given_twice(self) -> None:
        """P1 and P2: the pods use at most the capacity, and at most a whole of each GPU."""
        used: dict[tuple[str | None, int], int] = defaultdict(int)
        for each in self.cluster.workloads.values():
            for pod in each.pods:
                assert len(pod.devices) == (
                    pod.request.gpu_count or bool(pod.request.gpu_portion_milli)
                ) * bool(pod.node)
                for device in pod.devices:
                    used[pod.node, device] += pod.request.gpu_portion_milli or 1000
        assert all(amount <= 1000 for amount in used.values())
        sizes = {each.name: each.gpu_count for each in self.cluster.nodes}
        assert all(node is not None and device < sizes[node] for node, device in used)

    @invariant()
    @recorded
    def a_gang_runs_whole_or_not_at_all(self) -> None:
        """A migrated gang is exempt: its other pods wait for the pod with a new placement."""
        for each in self.cluster.workloads.values():
            running = sum(pod.state is PodState.ALLOCATED for pod in each.pods)
            if running >= each.min_member:
                self.cluster.moving.discard(each.id)
            assert running == 0 or running >= each.min_member or each.id in self.cluster.moving


def _whole_or_nothing(each: Workload, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the pods as a job controller leaves them: a gang that lost a member starts again."""
    if sum(pod.state is PodState.ALLOCATED for pod in pods) >= each.min_member:
        return pods
    return tuple(replace(pod, state=PodState.PENDING, node=None, devices=()) for pod in pods)


def _comparable(decision: Plan) -> object:
    return (decision.bindings, decision.evictions, sorted(decision.pending.items(), key=lambda item: item[0]))


TestPlannerWalk = PlannerWalk.TestCase
TestPlannerWalk.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


WEIGHTS = st.lists(st.integers(1, 5), min_size=3, max_size=3)
QUOTAS = st.lists(st.integers(0, 3), min_size=3, max_size=3)


def saturated(
    gpus: int, weights: list[int], quotas: list[int], *, order: int = 0, copies: int = 1
) -> dict[str, int]:
    """Return the GPUs of each team, in `gpu_milli`, if all request everything in jobs of one GPU. `order` shuffles the
    jobs.
    """
    teams = [
        project(name, quota * 1000 * copies, over_quota_weight=weight * 1000)
        for name, weight, quota in zip(TEAMS, weights, quotas, strict=True)
    ]
    cluster = Cluster([node(f"node-{each}", gpus) for each in range(copies)], teams)
    jobs = [workload(f"{name}-{job:03d}", name, 1000) for name in TEAMS for job in range(gpus * copies)]
    random.Random(order).shuffle(jobs)  # noqa: S311 - a shuffle that can be repeated
    for job in jobs:
        cluster.submit(job)
    cluster.settle()
    return dict(cluster.held())


@settings(max_examples=40, deadline=None)
@given(weights=WEIGHTS, quotas=QUOTAS, gpus=st.integers(9, 16))
def test_p6_the_rest_is_split_by_weight_to_within_one_job(
    weights: list[int], quotas: list[int], gpus: int
) -> None:
    held = saturated(gpus, weights, quotas)
    left = gpus - sum(quotas)
    for name, weight, quota in zip(TEAMS, weights, quotas, strict=True):
        exact = quota * 1000 + left * 1000 * weight / sum(weights)
        assert abs(held[name] - exact) < 1000


@settings(max_examples=30, deadline=None)
@given(weights=WEIGHTS, quotas=QUOTAS, gpus=st.integers(9, 12), order=st.integers(1, 50))
def test_p7_the_order_of_submission_does_not_change_the_final_amounts(
    weights: list[int], quotas: list[int], gpus: int, order: int
) -> None:
    assert saturated(gpus, weights, quotas) == saturated(gpus, weights, quotas, order=order)


@given(
    weights=WEIGHTS,
    quotas=QUOTAS,
    demands=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    more=st.integers(1, 5),
    total=st.integers(0, 30),
)
def test_p9_more_weight_never_means_a_smaller_share(
    *, weights: list[int], quotas: list[int], demands: list[int], more: int, total: int
) -> None:
    """Except for the device that rounding gives to one or the other."""

    def share(weight: int) -> int:
        claims = [
            Claim(name, quota * 1000, demand * 1000, weight=each)
            for name, quota, demand, each in zip(TEAMS, quotas, demands, [weight, *weights[1:]], strict=True)
        ]
        return divide(total * 1000, claims)[TEAMS[0]]

    assert share(weights[0] + more) > share(weights[0]) - 1000


@settings(max_examples=15, deadline=None)
@given(weights=WEIGHTS, quotas=QUOTAS, gpus=st.integers(9, 12), copies=st.integers(2, 4))
def test_p10_a_cluster_many_times_as_large_is_divided_alike(
    weights: list[int], quotas: list[int], gpus: int, copies: int
) -> None:
    """Each team holds the same multiple, except for the device that rounding moves in each copy."""
    small, large = saturated(gpus, weights, quotas), saturated(gpus, weights, quotas, copies=copies)
    assert all(abs(large[name] - copies * small[name]) < copies * 1000 for name in TEAMS)
