"""What must hold of every plan, whatever happens to the cluster: a random walk with hypothesis."""

import random
from collections import defaultdict
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchestrator.planner import plan
from orchestrator.planner.model import Plan, Pod, PodState, Snapshot, Waiting, Workload
from tests.planner.builders import Cluster, node, project, workload

TEAMS = ("team-a", "team-b", "team-c")
SIZES = (100, 200, 300, 400, 500, 600, 1000, 1000, 2000, 3000, 4000)


def covered(cluster: Cluster, name: str) -> set[str]:
    """Names of the project's running workloads that its quota covers, by the rule as the documentation words it."""
    running = [each for each in cluster.workloads.values() if each.project == name and held(each)]
    running.sort(key=lambda each: (each.preemptible, -each.priority, each.created_at_us))
    left, inside = cluster.projects[name].quota_gpu_milli or 0, set()
    for each in running:
        if held(each) <= left:
            left -= held(each)
            inside.add(each.id)
    return inside


def held(each: Workload) -> int:
    return sum(pod.request.gpu_milli for pod in each.pods if pod.state is PodState.ALLOCATED)


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
        nodes[chosen] = replace(nodes[chosen], schedulable=not nodes[chosen].schedulable)
        self.cluster.nodes = tuple(nodes)

    @rule(place=st.integers(0, 10))
    def lose_a_node(self, place: int) -> None:
        """It comes back as another one of the same size; what ran on it waits again."""
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

    @rule()
    def decide(self) -> None:
        inside = {name: covered(self.cluster, name) for name in TEAMS}
        before = dict(self.cluster.workloads)
        decision = self.cluster.step()
        for eviction in decision.evictions:
            victim = before[eviction.workload]
            winner = before[eviction.beneficiary]
            assert victim.preemptible, "work that cannot be taken back was evicted"
            if eviction.rule in ("quota", "fair-share"):
                assert victim.id not in inside[victim.project], "work within its quota was evicted"
                assert winner.project != victim.project
            elif eviction.rule == "priority":
                assert winner.project == victim.project
                assert winner.priority > victim.priority
            else:
                assert eviction.rule == "consolidation"
                assert eviction.pod in {each.pod for each in decision.promises}, "a moved pod has no place"

    @rule()
    def come_to_rest(self) -> None:
        """No thrash, and at rest nobody who is within the quota waits while borrowed work holds what would do."""
        evicted = len(self.cluster.evicted)
        last = self.cluster.settle()
        assert len(self.cluster.evicted) - evicted <= 3 * len(self.cluster.workloads)
        held = self.cluster.held()
        for name, reason in last.pending.items():
            waiting = self.cluster.workloads[name]
            assert reason.message
            if reason.code is Waiting.CLUSTER_FULL and len(waiting.pods) == 1:
                asked = waiting.pods[0].request.gpu_milli
                assert self._no_idle_node(asked), "one GPU waits beside an idle one"
            assert held[waiting.project] >= 0

    def _no_idle_node(self, gpu_milli: int) -> bool:
        used: dict[tuple[str | None, int], int] = defaultdict(int)
        for each in self.cluster.workloads.values():
            for pod in each.pods:
                for device in pod.devices:
                    used[pod.node, device] += pod.request.gpu_portion_milli or 1000
        return not any(
            each.schedulable
            and sum(not used[each.name, device] for device in range(each.gpu_count)) * 1000 >= gpu_milli
            for each in self.cluster.nodes
        )

    @rule(seed=st.integers(0, 100))
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
    def no_device_is_given_twice(self) -> None:
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
    def a_gang_runs_whole_or_not_at_all(self) -> None:
        """But for one that is being moved: its other pods wait for the one that has a new place."""
        for each in self.cluster.workloads.values():
            running = sum(pod.state is PodState.ALLOCATED for pod in each.pods)
            if running >= each.min_member:
                self.cluster.moving.discard(each.id)
            assert running == 0 or running >= each.min_member or each.id in self.cluster.moving


def _whole_or_nothing(each: Workload, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """What a job controller does: a gang that lost a member starts again."""
    if sum(pod.state is PodState.ALLOCATED for pod in pods) >= each.min_member:
        return pods
    return tuple(replace(pod, state=PodState.PENDING, node=None, devices=()) for pod in pods)


def _comparable(decision: Plan) -> object:
    return (decision.bindings, decision.evictions, sorted(decision.pending.items(), key=lambda item: item[0]))


TestPlannerWalk = PlannerWalk.TestCase
TestPlannerWalk.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
