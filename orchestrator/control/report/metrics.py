"""The operator's metrics: counters of its loops, and values that a scrape computes from the last decision.

Only the leader has series of projects and of the cluster. Their number is bounded: the oldest `MAX_PROJECTS` projects
have their own series. All others together are the series `_other`, which is not a possible project name. The values of
projects and of the cluster are computed only at a scrape.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from orchestrator.cluster.objects import Project as ProjectObject
from orchestrator.control.report.waiting import pending_pods, waiting_since_us, waiting_workloads
from orchestrator.distribution import installed_version
from orchestrator.exposition import (
    CONTENT_TYPE,
    PROCESS_METRICS,
    Distribution,
    Exposition,
    Metric,
    add_process,
    cpu_seconds,
    resident_bytes,
)
from orchestrator.observe.namespaces import namespace_name
from orchestrator.observe.snapshot import Reading
from orchestrator.pages import Page
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.accounting.ledger import capacity_gpu_milli
from orchestrator.planner.model import DEVICE_MILLI, Eviction, Plan, PodState, Project, Waiting

MAX_PROJECTS: Final = 500
"""Maximum number of projects with their own series; the oldest have them."""
OTHERS: Final = "_other"
MAX_STARTING: Final = 10_000
RULES: Final = (
    "quota",
    "fair-share",
    "priority",
    "consolidation",
    "stale-gang",
    "unhealthy",
    "reservation",
    "double-claim",
    "start-timeout",
    "memory",
    "other",
)
"""The rules by which pods are evicted. Any other rule counts as `other`."""
FAILURES: Final = ("unanswered", "budget", "forbidden", "overtaken", "refused", "mistake")
"""The reasons for which a request about a pod can fail at the API server."""
DECISION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAIT_BUCKETS: Final = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 28800.0, 86400.0, 604800.0)

BUILD_INFO: Final = Metric(
    "muster_operator_build_info", "gauge", "Always 1; says which version runs.", ("version",)
)
LEADER: Final = Metric("muster_operator_leader", "gauge", "1 if this replica leads, 0 if it stands by.")
LAST_DECISION: Final = Metric(
    "muster_operator_last_decision_timestamp_seconds",
    "gauge",
    "Time of the last decision; the figures of projects and of the cluster are of that time.",
)
DECISION_SECONDS: Final = Metric(
    "muster_operator_decision_duration_seconds",
    "histogram",
    "Time from reading the caches to the first requests of a decision.",
    buckets=DECISION_BUCKETS,
)
DECISION_FAILURES: Final = Metric(
    "muster_operator_decision_failures_total", "counter", "Failed decisions. They started no request."
)
BINDINGS: Final = Metric("muster_operator_bindings_total", "counter", "Pods that were bound.")
EVICTIONS: Final = Metric(
    "muster_operator_evictions_total", "counter", "Pods that were evicted, by the rule.", ("rule",)
)
REQUEST_FAILURES: Final = Metric(
    "muster_operator_request_failures_total",
    "counter",
    "Failed requests about pods. The operator repeats requests without an answer, and decides again about the others.",
    ("reason",),
)
SKIPPED: Final = Metric(
    "muster_operator_skipped_objects", "gauge", "Objects that the scheduler skips or counts differently."
)
STUCK_PODS: Final = Metric(
    "muster_operator_stuck_pods",
    "gauge",
    "Pods that did not end after their grace period, or whose node is not ready.",
    ("node", "problem"),
)
AVOIDED_NODES: Final = Metric(
    "muster_operator_avoided_nodes",
    "gauge",
    "1 for each node that gets no pods, because pods failed there before a container ran or its host has a fault.",
    ("node",),
)
PENDING_REASONS: Final = Metric(
    "muster_operator_pending_workloads",
    "gauge",
    "Pending workloads, by the code of their reason.",
    ("reason",),
)
CLUSTER_GPUS: Final = Metric("muster_cluster_gpus", "gauge", "GPUs of all nodes, unusable ones included.")
CLUSTER_CAPACITY: Final = Metric(
    "muster_cluster_capacity_gpus",
    "gauge",
    "GPUs that projects can share: healthy, on schedulable nodes, not used by other schedulers.",
)
CLUSTER_ALLOCATED: Final = Metric(
    "muster_cluster_allocated_gpus", "gauge", "GPUs that pods of muster's projects hold."
)
CLUSTER_UNHEALTHY: Final = Metric("muster_cluster_unhealthy_gpus", "gauge", "GPUs that must not be used.")
CLUSTER_NODES: Final = Metric(
    "muster_cluster_nodes",
    "gauge",
    "Nodes with GPUs: unhealthy ones, unschedulable ones (cordoned), and ready ones.",
    ("state",),
)


def _of_a_project(name: str, text: str) -> Metric:
    return Metric(f"muster_project_{name}", "gauge", text, ("project",))


def _of_a_department(name: str, text: str) -> Metric:
    return Metric(f"muster_department_{name}", "gauge", text, ("department",))


PROJECT_INFO: Final = Metric(
    "muster_project_info",
    "gauge",
    "Always 1; says in which namespace the project is, and in which department.",
    ("project", "namespace", "department"),
)
PROJECT_QUOTA: Final = _of_a_project("quota_gpus", "Quota of the project in GPUs; absent if unlimited.")
PROJECT_LIMIT: Final = _of_a_project("limit_gpus", "Limit of the project in GPUs; absent if unlimited.")
PROJECT_ALLOCATED: Final = _of_a_project("allocated_gpus", "GPUs that the project's pods hold.")
PROJECT_SHARE: Final = _of_a_project(
    "fair_share_gpus",
    "Present fair share in GPUs: the requested quota, and a portion of the GPUs beyond all quotas.",
)
PROJECT_PENDING_GPUS: Final = _of_a_project("pending_gpus", "GPUs that pending pods of the project request.")
PROJECT_PENDING: Final = _of_a_project("pending_workloads", "Pending workloads of the project.")
PROJECT_OLDEST_WAIT: Final = _of_a_project(
    "oldest_pending_seconds", "Wait of the workload that is pending for longest; 0 if none is pending."
)
PROJECT_WAIT: Final = Metric(
    "muster_project_wait_seconds",
    "histogram",
    "Wait of a workload from its creation or eviction until its first pod is bound.",
    ("project",),
    WAIT_BUCKETS,
)
DEPARTMENT_QUOTA: Final = _of_a_department("quota_gpus", "Quota of the department in GPUs.")
DEPARTMENT_ALLOCATED: Final = _of_a_department("allocated_gpus", "GPUs that its projects' pods hold.")
DEPARTMENT_SHARE: Final = _of_a_department("fair_share_gpus", "GPUs that the department is entitled to now.")
METRICS: Final = (
    BUILD_INFO, LEADER, LAST_DECISION, DECISION_SECONDS, DECISION_FAILURES, BINDINGS, EVICTIONS, REQUEST_FAILURES,
    SKIPPED, STUCK_PODS, AVOIDED_NODES,
    PENDING_REASONS, CLUSTER_GPUS, CLUSTER_CAPACITY, CLUSTER_ALLOCATED, CLUSTER_UNHEALTHY, CLUSTER_NODES,
    PROJECT_INFO, PROJECT_QUOTA, PROJECT_LIMIT, PROJECT_ALLOCATED, PROJECT_SHARE, PROJECT_PENDING_GPUS,
    PROJECT_PENDING, PROJECT_OLDEST_WAIT, PROJECT_WAIT, DEPARTMENT_QUOTA, DEPARTMENT_ALLOCATED, DEPARTMENT_SHARE,
    *PROCESS_METRICS,
)  # fmt: skip


class _Decided(NamedTuple):
    """The last decision, its time in seconds since the epoch, and the number of objects that it skipped."""

    reading: Reading
    plan: Plan
    at: float
    skipped: int


class OperatorMetrics:
    """The counters of the loops. `wall_clock` returns seconds since the epoch."""

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._leads = False
        self._projects: Mapping[str, ProjectObject] = {}
        self._latest: _Decided | None = None
        self._durations = Distribution(DECISION_BUCKETS)
        self._decision_failures = 0
        self._bindings = 0
        self._evictions: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._starting: dict[str, tuple[str, int]] = {}
        self._waits: dict[str, Distribution] = {}

    def leading(self, projects: Mapping[str, ProjectObject]) -> None:
        """Note that this replica leads. The values of the live cache `projects` get series."""
        self._leads, self._projects = True, projects

    def on_standby(self) -> None:
        """Note that this replica is a standby, which reports no projects."""
        self._leads, self._projects, self._latest = False, {}, None
        self._starting.clear()

    def decided(self, reading: Reading, plan: Plan, seconds: float, skipped: int) -> None:
        """Count a decision that took these seconds and skipped this number of objects."""
        self._durations.observe(seconds)
        self._latest = _Decided(reading, plan, self._wall_clock(), skipped)
        if plan.bindings:
            self._note_starting(reading, plan)

    def failed(self) -> None:
        """Count a failed decision."""
        self._decision_failures += 1

    def bound(self, uid: str) -> None:
        """Count a bound pod."""
        self._bindings += 1
        start = self._starting.pop(uid, None)
        if start is None:
            return
        project, since_us = start
        distribution = self._waits.get(project)
        if distribution is None:
            project = project if len(self._waits) < MAX_PROJECTS else OTHERS
            distribution = self._waits.setdefault(project, Distribution(WAIT_BUCKETS))
        distribution.observe(max(0.0, self._wall_clock() - since_us / 1_000_000))

    def evicted(self, eviction: Eviction) -> None:
        """Count an evicted pod."""
        self._evictions[eviction.rule if eviction.rule in RULES else "other"] += 1

    def request_failed(self, reason: str) -> None:
        """Count a failed request about a pod. `reason` is one of `FAILURES`."""
        self._failures[reason] += 1

    def page(self) -> Page:
        """Return the page for Prometheus."""
        page = Exposition()
        page.add(BUILD_INFO, [((installed_version(),), 1)])
        page.add(LEADER, [((), int(self._leads))])
        page.add_histogram(DECISION_SECONDS, [((), self._durations)])
        page.add(DECISION_FAILURES, [((), self._decision_failures)])
        page.add(BINDINGS, [((), self._bindings)])
        page.add(EVICTIONS, [((rule,), self._evictions[rule]) for rule in RULES])
        page.add(REQUEST_FAILURES, [((reason,), self._failures[reason]) for reason in FAILURES])
        if self._latest is not None:
            page.add(LAST_DECISION, [((), self._latest.at)])
            page.add(SKIPPED, [((), self._latest.skipped)])
            problems = self._latest.reading.problems.values()
            stuck = Counter((problem.node, problem.code) for problem in problems)
            page.add(STUCK_PODS, sorted(stuck.items()))
            page.add(AVOIDED_NODES, [((name,), 1) for name in sorted(self._latest.plan.avoided)])
            _add_cluster(page, self._latest)
            self._add_projects(page, self._latest)
        add_process(page, cpu_seconds(), resident_bytes())
        return Page(page.text(), content_type=CONTENT_TYPE)

    def _note_starting(self, reading: Reading, plan: Plan) -> None:
        """For each workload that starts now, store the time since which it was pending. The key is the uid of its
        first bound pod.
        """
        first = {binding.workload: binding.pod for binding in reversed(plan.bindings)}
        if len(self._starting) > MAX_STARTING:  # entries of bindings that were never carried out
            self._starting.clear()
        for workload in reading.snapshot.workloads:
            uid = first.get(workload.id)
            if uid is not None and all(pod.state is PodState.PENDING for pod in workload.pods):
                self._starting[uid] = (workload.project, waiting_since_us(workload))

    def _add_projects(self, page: Exposition, latest: _Decided) -> None:
        snapshot, plan = latest.reading.snapshot, latest.plan
        parents = {project.parent for project in snapshot.projects}
        teams = sorted(
            (project for project in snapshot.projects if project.name not in parents),
            key=lambda project: (project.created_at_us, project.name),
        )
        named = {project.name for project in teams[:MAX_PROJECTS]}
        departments = [project for project in snapshot.projects if project.name in parents][:MAX_PROJECTS]
        page.add(PROJECT_INFO, self._infos(named))
        for metric, amounts in _amounts(teams, plan):
            page.add(metric, _summed(amounts, named))
        self._add_waiting(page, latest, teams, named)
        self._waits = {name: waits for name, waits in self._waits.items() if name in named or name == OTHERS}
        # series exist from the beginning, without samples, because Prometheus sees no increase in a first
        # value
        shown = [*sorted(named), *([OTHERS] if len(teams) > len(named) else [])]
        waits = {name: Distribution(WAIT_BUCKETS) for name in shown} | self._waits
        page.add_histogram(PROJECT_WAIT, [((name,), distribution) for name, distribution in waits.items()])
        for place, metric in enumerate((DEPARTMENT_QUOTA, DEPARTMENT_ALLOCATED, DEPARTMENT_SHARE)):
            claims = [((project.name,), _gpus(_claim(project, plan)[place])) for project in departments]
            page.add(metric, claims)

    def _infos(self, named: set[str]) -> Iterator[tuple[tuple[str, str, str], int]]:
        for project in self._projects.values():
            if project.metadata.name in named:
                yield (project.metadata.name, namespace_name(project), project.spec.parent or ""), 1

    def _add_waiting(
        self, page: Exposition, latest: _Decided, teams: Iterable[Project], named: set[str]
    ) -> None:
        snapshot, plan = latest.reading.snapshot, latest.plan
        names = [project.name for project in teams]
        sizes = GpuSizes.of(snapshot.nodes)
        gpus, counts, oldest = dict.fromkeys(names, 0), dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for workload in waiting_workloads(snapshot, plan):
            name = workload.project
            if name in counts:
                counts[name] += 1
                gpus[name] += sum(sizes.counted_milli(pod.request) for pod in pending_pods(workload))
                oldest[name] = max(oldest[name], snapshot.now_us - waiting_since_us(workload))
        page.add(PROJECT_PENDING, _summed(counts.items(), named, scale=1))
        page.add(PROJECT_PENDING_GPUS, _summed(gpus.items(), named))
        others = [age for name, age in oldest.items() if name not in named]
        ages = [((name,), oldest[name] / 1_000_000) for name in names if name in named]
        page.add(PROJECT_OLDEST_WAIT, [*ages, *([((OTHERS,), max(others) / 1_000_000)] if others else [])])


def _add_cluster(page: Exposition, latest: _Decided) -> None:
    snapshot, plan = latest.reading.snapshot, latest.plan
    nodes = [node for node in snapshot.nodes if node.gpu_count]
    roots = [project.name for project in snapshot.projects if project.parent is None]
    page.add(CLUSTER_GPUS, [((), sum(node.gpu_count for node in nodes))])
    page.add(CLUSTER_CAPACITY, [((), _gpus(capacity_gpu_milli(nodes)))])
    allocated = sum(plan.allocated_gpu_milli.get(name, 0) for name in roots)
    page.add(CLUSTER_ALLOCATED, [((), _gpus(allocated))])
    unhealthy = sum(node.gpu_count if node.unhealthy else node.gpu_count - node.usable_gpus for node in nodes)
    page.add(CLUSTER_UNHEALTHY, [((), unhealthy)])
    states = Counter(
        "unhealthy" if node.unhealthy else "ready" if node.schedulable else "unschedulable" for node in nodes
    )
    page.add(CLUSTER_NODES, [((state,), states[state]) for state in ("ready", "unschedulable", "unhealthy")])
    reasons = Counter(reason.code for reason in plan.pending.values())
    page.add(PENDING_REASONS, [((code.value,), reasons[code]) for code in Waiting])


def _amounts(teams: Iterable[Project], plan: Plan) -> Iterator[tuple[Metric, list[tuple[str, int | None]]]]:
    claims = [(project.name, _claim(project, plan)) for project in teams]
    for place, metric in enumerate((PROJECT_QUOTA, PROJECT_ALLOCATED, PROJECT_SHARE, PROJECT_LIMIT)):
        yield metric, [(name, claim[place]) for name, claim in claims]


def _claim(project: Project, plan: Plan) -> tuple[int | None, int, int, int | None]:
    """Return quota, allocation, fair share and limit, in thousandths of GPUs."""
    return (
        project.quota_gpu_milli,
        plan.allocated_gpu_milli.get(project.name, 0),
        plan.shares_gpu_milli.get(project.name, 0),
        project.limit_gpu_milli,
    )


def _summed(
    amounts: Iterable[tuple[str, int | None]], named: set[str], *, scale: int = DEVICE_MILLI
) -> list[tuple[tuple[str], int | float | None]]:
    """Return the values of the named projects, and the sum of the others. Unlimited amounts have no value."""
    values: list[tuple[tuple[str], int | float | None]] = []
    others, has_others = 0, False
    for name, amount in amounts:
        if name in named:
            values.append(((name,), _scaled(amount, scale)))
        elif amount is not None:
            others, has_others = others + amount, True
    return [*values, *([((OTHERS,), _scaled(others, scale))] if has_others else [])]


def _gpus(gpu_milli: int | None) -> int | float | None:
    return _scaled(gpu_milli, DEVICE_MILLI)


def _scaled(amount: int | None, scale: int) -> int | float | None:
    if amount is None:
        return None
    return amount // scale if amount % scale == 0 else amount / scale
