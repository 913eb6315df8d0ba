"""A cluster that lives: time passes, workloads come and end, nodes fail and return, evicted
and deleted pods terminate.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING
from zlib import crc32

from orchestrator.planner import Planner
from orchestrator.planner.model import DEVICE_MILLI, Budget, PodState, Snapshot
from orchestrator.planner.settings import Settings
from tests.world.facts import SECOND_US, allocated, gang_is_whole, pending
from tests.world.failing import UNREACHABLE, FailingCluster
from tests.world.scenes import LEVELS, START_US, Maker, Style
from tests.world.settling import Pace, decide

if TYPE_CHECKING:
    from orchestrator.planner.model import Node, Project, Workload
    from tests.world.step import Violation

MAX_WORKLOADS = 18


class World:
    """One life by its seed. `step` changes something and decides; `violations` are those found, by check."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._dice = random.Random(seed)  # noqa: S311 - a life that can be lived again
        self.style = Style.draw(self._dice, nodes=(1, 6))
        self._maker = Maker(self._dice, self.style)
        self.pace = Pace(self._dice.choice((0, 1, 3, 5)), is_mixed=True, is_failing=self.style.failing)
        nodes = self._maker.nodes()
        projects = self._maker.projects(sum(node.gpu_count for node in nodes))
        first = Snapshot(nodes, projects, (), START_US, self._settings())
        self.cluster = self.pace.cluster(first)
        self._planner = Planner()
        self._broken: dict[str, tuple[int, Node]] = {}
        self._deleted: dict[str, int] = {}
        """By workload that was deleted, the step in which its last pod has ended."""
        self._steps = 0
        self.evictions = 0
        self.violations: dict[str, tuple[Violation, Snapshot]] = {}

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster.snapshot

    def step(self) -> bool:
        """Let time and changes pass, and decide. Returns False if the planner raised, which ends the life."""
        self._steps += 1
        self._change(now_us=self.snapshot.now_us + self._dice.choice((1, 5, 30, 120)) * SECOND_US)
        for event, chance in (
            (self._submit, 0.8),
            (self._submit, 0.5),
            (self._submit, 0.3),
            (self._finish, 0.4),
            (self._submit_instead, 0.3 if self.style.notebooks else 0),
            (self._delete_waiting, 0.05),
            (self._break_node, 0.06),
            (self._cordon, 0.04),
            (self._set_quota, 0.04),
        ):
            if self._dice.random() < chance:
                event()
        self._end_runtimes()
        self._end_deleted()
        self._repair_nodes()
        self._note_stale_gangs()
        self._count_budgets()
        if isinstance(self.cluster, FailingCluster):
            self.cluster.refresh()
        snapshot = self.snapshot
        # now and then the planner loses its state, as by a restart
        if self._dice.random() < 0.05:
            self._planner = Planner()
        decision, violations = decide(snapshot, self._planner, self.seed * 1000 + self._steps)
        for violation in violations:
            self.violations.setdefault(violation.check, (violation, snapshot))
        if decision is None:
            return False
        self.evictions += len(decision.evictions)
        self.cluster.carry_out(decision)
        return True

    def _settings(self) -> Settings:
        dice = self._dice
        return Settings(
            max_consolidation_victims=dice.choice((16, 16, 16, 2, None)),
            max_evictions=dice.choice((None, None, None, None, 1, 3)),
            spread=dice.random() < 0.2,
            reservation_after_seconds=dice.choice((None, None, 60, 600)),
            topology_levels=LEVELS if self.style.topology else (),
        )

    def _change(self, **values: object) -> None:
        self.cluster.snapshot = replace(self.snapshot, **values)  # type: ignore[arg-type]

    def _change_workloads(self, changed: dict[str, Workload | None]) -> None:
        workloads = (changed.get(workload.id, workload) for workload in self.snapshot.workloads)
        self._change(workloads=tuple(workload for workload in workloads if workload is not None))

    def _teams(self) -> list[Project]:
        parents = {project.parent for project in self.snapshot.projects}
        return [project for project in self.snapshot.projects if project.name not in parents]

    def _submit(self) -> None:
        if len(self.snapshot.workloads) >= MAX_WORKLOADS or not self.snapshot.nodes:
            return
        team = self._dice.choice(self._teams())
        # one microsecond apart, because workloads of the same microsecond are ordered by name
        created_us = self.snapshot.now_us + self._maker.counter
        largest = max(node.gpu_count for node in self.snapshot.nodes)
        new = self._maker.workload(team.name, created_us, largest)
        self._change(workloads=(*self.snapshot.workloads, new))

    def _finish(self) -> None:
        """End some workload: its pods succeed, or it is deleted and its pods terminate."""
        running = [workload for workload in self.snapshot.workloads if allocated(workload)]
        if running:
            self._delete(self._dice.choice(running))

    def _submit_instead(self) -> None:
        """Let a user delete a non-preemptible workload and submit a similar one immediately."""
        firm = [each for each in self.snapshot.workloads if allocated(each) and not each.preemptible]
        if not firm:
            return
        old = self._dice.choice(firm)
        largest = max((node.gpu_count for node in self.snapshot.nodes), default=1)
        new = self._maker.workload(old.project, self.snapshot.now_us + self._maker.counter, largest)
        new = replace(new, preemptible=False, interactive=old.interactive, priority=old.priority)
        self._change(workloads=(*self.snapshot.workloads, new))
        self._delete(old)

    def _delete(self, workload: Workload) -> None:
        pods = tuple(pod.in_state(PodState.RELEASING) for pod in workload.pods if pod.node is not None)
        self._deleted[workload.id] = self._steps + max(map(self.pace.grace, pods))
        self._change_workloads({workload.id: replace(workload, pods=pods, started_at_us=0)})
        self._end_deleted()

    def _end_deleted(self) -> None:
        over = [
            name
            for name, step in self._deleted.items()
            if step <= self._steps and not self._is_stuck(name, step)
        ]
        self._change_workloads(dict.fromkeys(over))
        for name in over:
            del self._deleted[name]

    def _is_stuck(self, name: str, step: int) -> bool:
        """Return whether pods of the deleted workload do not end until an administrator deletes them by force."""
        pods = [pod for workload in self.snapshot.workloads if workload.id == name for pod in workload.pods]
        return any(pod.stuck for pod in pods) and self._steps < step + 10

    def _delete_waiting(self) -> None:
        waiting = [workload for workload in self.snapshot.workloads if pending(workload)]
        if waiting:
            self._change_workloads({self._dice.choice(waiting).id: None})

    def _end_runtimes(self) -> None:
        now_us = self.snapshot.now_us
        over = [
            workload.id
            for workload in self.snapshot.workloads
            if any(pod.ends_by_us and pod.ends_by_us <= now_us for pod in allocated(workload))
        ]
        self._change_workloads(dict.fromkeys(over))

    def _break_node(self) -> None:
        """Let a node be not ready, or vanish with its pods pending again, or lose some GPUs, for a while."""
        whole = [node for node in self.snapshot.nodes if node.name not in self._broken]
        if len(whole) < 2:
            return
        node = self._dice.choice(whole)
        self._broken[node.name] = (self._steps + self._dice.randint(2, 8), node)
        kind = self._dice.random()
        if kind < 0.4:
            self._replace_node(
                node,
                replace(
                    node, schedulable=False, unhealthy=UNREACHABLE, unhealthy_since_us=self.snapshot.now_us
                ),
            )
        elif kind < 0.7:
            self._replace_node(node, None)
            lost = [
                pod.id
                for workload in self.snapshot.workloads
                for pod in workload.pods
                if pod.node == node.name
            ]
            self.cluster.lose(lost)
            self._restart_counts()
        elif kind < 0.9:
            self._replace_node(node, replace(node, unhealthy_gpus=(self._dice.randrange(node.gpu_count),)))
        else:
            self._replace_node(node, replace(node, lost_gpus=1))

    def _restart_counts(self) -> None:
        """Mark workloads without running pods as not started."""
        self._change_workloads(
            {
                workload.id: replace(workload, started_at_us=0)
                for workload in self.snapshot.workloads
                if workload.started_at_us and not allocated(workload)
            }
        )

    def _repair_nodes(self) -> None:
        for name, (step, node) in list(self._broken.items()):
            if step <= self._steps:
                del self._broken[name]
                others = tuple(other for other in self.snapshot.nodes if other.name != name)
                self._change(nodes=(*others, node))

    def _cordon(self) -> None:
        whole = [node for node in self.snapshot.nodes if node.name not in self._broken]
        if whole:
            node = self._dice.choice(whole)
            self._replace_node(node, replace(node, schedulable=not node.schedulable))

    def _replace_node(self, old: Node, new: Node | None) -> None:
        nodes = (new if node is old else node for node in self.snapshot.nodes)
        self._change(nodes=tuple(node for node in nodes if node is not None))

    def _set_quota(self) -> None:
        """Set a project's quota to at most the present one, so that the cluster can still satisfy all quotas."""
        project = self._dice.choice(self._teams())
        quota = self._dice.randint(0, (project.quota_gpu_milli or 0) // DEVICE_MILLI) * DEVICE_MILLI
        changed = replace(project, quota_gpu_milli=quota)
        self._change(
            projects=tuple(changed if other is project else other for other in self.snapshot.projects)
        )

    def _note_stale_gangs(self) -> None:
        changed: dict[str, Workload | None] = {}
        for workload in self.snapshot.workloads:
            running = allocated(workload)
            is_stale = bool(running) and not gang_is_whole(workload, running)
            since_us = (workload.stale_since_us or self.snapshot.now_us) if is_stale else 0
            if since_us != workload.stale_since_us:
                changed[workload.id] = replace(workload, stale_since_us=since_us)
        self._change_workloads(changed)

    def _count_budgets(self) -> None:
        """Give every fourth workload, by name, a budget that allows a fixed number of evictions; 0 while a pod is not
        running.
        """
        if not self.style.budgets:
            return
        budgets = []
        for workload in self.snapshot.workloads:
            if crc32(workload.name.encode()) % 4 == 0:
                disrupted = any(pod.state is not PodState.ALLOCATED for pod in workload.pods)
                allowed = 0 if disrupted else crc32(workload.name.encode()) // 4 % (len(workload.pods) + 1)
                pods = tuple(pod.id for pod in allocated(workload))
                budgets.append(Budget(f"budget-{workload.name}", allowed, pods))
        self._change(budgets=tuple(budgets))
