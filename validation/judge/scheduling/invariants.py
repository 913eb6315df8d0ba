"""Invariants: conditions that are evaluated after every single event. Over-commitment for one event is a violation.

An invariant is a function of the whole list of events. It returns its violations. `INVARIANTS` names all of them.
Invariants that judge how long a state lasted use `window_ms` and `end_ms`.

`SUBJECTS` counts the objects that could violate each invariant. An invariant without a subject proves nothing.

The invariants over witnesses are in `witnesses`, over limits of projects in `limits`, and over nodes and operator
under maintenance in `upkeep`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from validation.judge.events import Event, PodSeen
from validation.judge.scheduling.history import History, Invariant, Violation
from validation.judge.scheduling.lasting import overdue_states, wrong_states
from validation.judge.scheduling.limits import (
    Runs,
    interactive_time_limit,
    limited_to_nodes,
    node_affinity,
    runs_to_their_limit,
)
from validation.judge.scheduling.upkeep import (
    cordoned_node,
    nominated_pods,
    nominations_last,
    placed_beside_cordoned,
)
from validation.judge.scheduling.witnesses import (
    confirmed_pods,
    kubelet_agrees,
    pods_with_processes,
    processes_on_own_gpus,
)
from validation.judge.state import State, Workload, evictions, replay
from validation.judge.units import gpus


def node_capacity(history: History) -> list[Violation]:
    """No node ever holds more GPUs than it has."""
    return wrong_states(history, _full_nodes)


def _full_nodes(state: State) -> Iterator[str]:
    held: dict[str, int] = defaultdict(int)
    for pod in state.holding():
        held[pod.node] += pod.gpu_milli
    for node, milli in sorted(held.items()):
        has = state.nodes.get(node, 0)
        if milli > has * 1000:
            yield f"node {node} has {has} GPUs and holds {gpus(milli)}"


def gpu_capacity(history: History) -> list[Violation]:
    """No GPU is held twice: one pod holds a whole device, the fractions of a shared device sum up to at most 1.

    Every holder names its devices.

    If the kubelet of a node reports, a pod with whole GPUs holds the GPUs in the report. Before the report, it holds
    none.
    """
    return wrong_states(history, _device_faults)


def _device_faults(state: State) -> list[str]:
    faults = []
    for pod in state.holding():
        name = f"{pod.project}/{pod.pod}"
        expected = max(1, pod.gpu_milli // 1000)
        if len(pod.devices) != expected or len(set(pod.devices)) != expected:
            faults.append(
                f"pod {name} holds {gpus(pod.gpu_milli)} GPUs but names devices "
                f"{list(pod.devices)} of {pod.node}"
            )
        beyond = [index for index in pod.devices if not 0 <= index < state.nodes.get(pod.node, 0)]
        if beyond:
            faults.append(f"pod {name} holds GPU {beyond[0]} of {pod.node}, which has no such GPU")
    for (node, index), shares in sorted(state.devices(by_kubelets=True).items()):
        if sum(shares.values()) > 1000:
            holders = ", ".join(sorted(f"{state.pods[uid].project}/{state.pods[uid].pod}" for uid in shares))
            faults.append(f"GPU {index} of {node} is held {gpus(sum(shares.values()))} times: {holders}")
    return faults


def in_quota_never_evicted(history: History) -> list[Violation]:
    """Only borrowed GPUs are reclaimed: an evicted workload was not within its project's quota at its eviction.

    The quota is filled with the project's workloads that hold GPUs, and with its pending non-preemptible ones, which
    may preempt training jobs of the project. The order is: not preemptible first, then priority, then order of
    submission. A workload that does not fit is skipped.
    """
    violations = []
    announced: set[str] = set()
    for event, state in replay(history.events):
        if not isinstance(event, PodSeen) or event.eviction is None or event.uid in announced:
            continue
        announced.add(event.uid)
        key = (event.project, event.workload)
        if key in _covered_by_quota(state, event.project, key):
            quota = gpus(state.quotas.get(event.project, 0))
            violations.append(
                Violation(
                    event.t_ms,
                    f"workload {event.workload} of {event.project} was evicted inside its quota of {quota}: "
                    f"{event.eviction.message}",
                )
            )
    return violations


def _covered_by_quota(state: State, project: str, victim: Workload) -> set[Workload]:
    sized_workloads = []
    for key, pods in state.by_workload().items():
        live = [pod for pod in pods if pod.holds]
        counted = live or [pod for pod in pods if not pod.preemptible and not pod.finished]
        if key[0] != project or not (counted or key == victim):
            continue
        first = (counted or pods)[0]
        size = sum(pod.gpu_milli for pod in counted or pods)
        sized_workloads.append(((first.preemptible, -first.priority, first.submitted_us, key), size))
    covered: set[Workload] = set()
    used = 0
    for (*_, key), size in sorted(sized_workloads):
        if used + size <= state.quotas.get(project, 0):
            covered.add(key)
            used += size
    return covered


def interactive_within_quota(history: History) -> list[Violation]:
    """Workloads that cannot be preempted never hold more than their project's quota."""
    return wrong_states(history, _unprotected_claims)


def _unprotected_claims(state: State) -> Iterator[str]:
    held: dict[str, int] = defaultdict(int)
    for pod in state.holding():
        if not pod.preemptible:
            held[pod.project] += pod.gpu_milli
    for project, milli in sorted(held.items()):
        quota = state.quotas.get(project, 0)
        if milli > quota:
            yield (
                f"{project} holds {gpus(milli)} GPUs that cannot be taken back, "
                f"over its quota of {gpus(quota)}"
            )


def interactive_never_evicted(history: History) -> list[Violation]:
    """Return a workload that cannot be preempted is never evicted."""
    violations: dict[str, Violation] = {}
    for event in history.events:
        if isinstance(event, PodSeen) and event.eviction is not None and not event.preemptible:
            message = f"workload {event.workload} of {event.project} cannot be preempted and was evicted"
            violations.setdefault(event.uid, Violation(event.t_ms, message))
    return list(violations.values())


def gang_all_or_none(history: History) -> list[Violation]:
    """Return a gang has at least its minimum of bound pods, or none, except for a moment while it starts or ends.

    A gang is incomplete with at least one and fewer than `min_member` bound pods. A moment is `window_ms`. The time
    begins with the event that made the gang incomplete. It ends with the event that ended this state, or with the
    history.

    Pods being deleted do not count as bound, finished ones do. A gang that the scenario deleted is not judged.
    """
    window = f"{history.window_ms / 1000:g} s"

    def partial_gangs(state: State) -> Iterator[str]:
        for key, pods in state.by_workload().items():
            bound = sum(pod.finished or (pod.holds and not pod.terminating) for pod in pods)
            if 0 < bound < pods[0].min_member and key not in state.deleted:
                yield f"gang {key[1]} of {key[0]} held only some of the pods it needs for more than {window}"

    return overdue_states(history, partial_gangs)


def nothing_vanishes(history: History) -> list[Violation]:
    """Return a pod with GPUs ends only because it finished, was evicted, reached its time limit, or its workload was
    deleted.

    A pod that ends while it is terminating counts as deleted, also if its phase becomes `Succeeded`.
    """
    violations = []
    last_held: dict[str, PodSeen] = {}
    runs = Runs()
    for event, state in replay(history.events):
        runs.follow(event, state.projects)
        if not isinstance(event, PodSeen):
            continue
        if event.holds:
            last_held[event.uid] = event
        last = last_held.get(event.uid)
        if event.change != "deleted" or last is None:
            continue
        ordered = (event.project, event.workload) in state.deleted
        finished = event.finished and not last.terminating
        drained = event.uid in state.drained
        if not (finished or event.eviction or last.eviction or ordered or drained or runs.allows_end(event)):
            violations.append(
                Violation(
                    event.t_ms,
                    f"pod {event.project}/{event.pod} vanished: the API server deleted it, "
                    "and the scheduler recorded no eviction",
                )
            )
    return violations


INVARIANTS: dict[str, Invariant] = {
    "node-capacity": node_capacity,
    "gpu-capacity": gpu_capacity,
    "in-quota-never-evicted": in_quota_never_evicted,
    "interactive-within-quota": interactive_within_quota,
    "interactive-never-evicted": interactive_never_evicted,
    "gang-all-or-none": gang_all_or_none,
    "nothing-vanishes": nothing_vanishes,
    "kubelet-agrees": kubelet_agrees,
    "processes-on-own-gpus": processes_on_own_gpus,
    "interactive-time-limit": interactive_time_limit,
    "node-affinity": node_affinity,
    "cordoned-node": cordoned_node,
    "nominations-last": nominations_last,
}
OF_LIMITED_PROJECTS = frozenset({"interactive-time-limit", "node-affinity"})
"""The invariants that are checked only if a scenario sets such a limit on a project."""


def _holders(history: History) -> int:
    """Return the number of pods that held GPUs."""
    return len({pod.uid for pod in _holding(history)})


def _protected_holders(history: History) -> int:
    """Return the number of pods that held GPUs and cannot be preempted."""
    return len({pod.uid for pod in _holding(history) if not pod.preemptible})


def _evicted_pods(history: History) -> int:
    """Return the number of pods whose eviction the scheduler announced."""
    return len(_announced(history))


def _evictions_beside_protected(history: History) -> int:
    """Return the number of non-preemptible pods that held GPUs at an eviction, and so could have been evicted."""
    announced = {pod.uid: pod for pod in _announced(history)}
    beside = set()
    for event, state in replay(history.events):
        if isinstance(event, PodSeen) and announced.get(event.uid) is event:
            beside |= {event.uid for pod in state.holding() if not pod.preemptible}
    return len(beside)


def _gangs(history: History) -> int:
    """Return the number of gangs with a minimum above one pod."""
    gangs: set[Workload] = set()
    for begun, event, state in _since(history):
        if not begun:
            gangs.update(key for key, pods in state.by_workload().items() if pods[0].min_member > 1)
        elif isinstance(event, PodSeen):
            key = (event.project, event.workload)
            pods = state.by_workload().get(key, ())
            gangs.update({key} if pods and pods[0].min_member > 1 else ())
    return len(gangs)


def _departed(history: History) -> int:
    """Return the number of pods that held GPUs and were deleted."""
    held: set[str] = set()
    deleted: set[str] = set()
    for event in history.events:
        if isinstance(event, PodSeen) and event.change == "deleted" and event.t_ms >= history.since_ms:
            deleted |= {event.uid} & held
        elif isinstance(event, PodSeen) and event.holds and event.gpu_milli:
            held.add(event.uid)
    return len(deleted)


def _announced(history: History) -> list[PodSeen]:
    return [pod for pod in evictions(history.events) if pod.t_ms >= history.since_ms]


def _holding(history: History) -> Iterator[PodSeen]:
    """Yield every pod that held GPUs, in its state at the beginning and after each of its events."""
    for begun, event, state in _since(history):
        if not begun:
            yield from state.holding()
        elif isinstance(event, PodSeen) and event.holds and event.gpu_milli:
            yield event


def _since(history: History) -> Iterator[tuple[bool, Event, State]]:
    """Yield for each judged event: whether another event was judged before it, the event, and the state after it."""
    begun = False
    for event, state in replay(history.events):
        if event.t_ms >= history.since_ms:
            yield begun, event, state
            begun = True


SUBJECTS: dict[str, tuple[str, Callable[[History], int]]] = {
    "node-capacity": ("pod held GPUs", _holders),
    "gpu-capacity": ("pod held GPUs", _holders),
    "in-quota-never-evicted": ("workload was evicted", _evicted_pods),
    "interactive-within-quota": ("pod that cannot be preempted held GPUs", _protected_holders),
    "interactive-never-evicted": (
        "workload was evicted while one that cannot be preempted held GPUs",
        _evictions_beside_protected,
    ),
    "gang-all-or-none": ("gang of more than one pod was there", _gangs),
    "nothing-vanishes": ("pod with GPUs was deleted", _departed),
    "kubelet-agrees": ("kubelet said which GPUs it gave a pod", confirmed_pods),
    "processes-on-own-gpus": ("driver named a process of a pod", pods_with_processes),
    "interactive-time-limit": ("interactive pod ran until its limit", runs_to_their_limit),
    "node-affinity": ("pod of a project that is limited to nodes was placed", limited_to_nodes),
    "cordoned-node": ("pod was placed while a node was cordoned", placed_beside_cordoned),
    "nominations-last": ("pod was nominated when the operator was killed", nominated_pods),
}
