"""Reconciles the scheduler's word with that of others: the kubelet that gave the devices, the driver that runs on them.

Both speak through the agent of a node. On a cluster without agents there is no witness, and so no subject.
"""

from collections.abc import Iterator

from validation.judge.events import GpusSeen, PodSeen
from validation.judge.history import History, Violation, first_of_each
from validation.judge.state import State, replay


def kubelet_agrees(history: History) -> list[Violation]:
    """The GPUs that a pod holds, by the scheduler's word, are those that the kubelet of its node gave it.

    Where a kubelet speaks, every pod that runs with whole GPUs at the end is known to it.
    """
    violations = []
    for t_ms, pod, given in _statements(history):
        if given != set(pod.devices):
            message = (
                f"the kubelet of {pod.node} gave pod {_name(pod)} {_listed(given)}, "
                f"not {_listed(pod.devices)} as the scheduler says"
            )
            violations.append(Violation(t_ms, message))
    state = State()
    for event in history.events:
        state.apply(event)
    for pod in unconfirmed(state):
        message = (
            f"the kubelet of {pod.node} knows of no GPU of pod {_name(pod)}, "
            f"which runs there on {_listed(pod.devices)}, as the scheduler says"
        )
        violations.append(Violation(history.end_ms, message))
    return first_of_each(violations)


def processes_on_own_gpus(history: History) -> list[Violation]:
    """The processes of a pod run on the GPUs that it holds, and on no other: the driver names them."""
    violations = []
    for t_ms, pod, index in _processes(history):
        if index not in pod.devices:
            message = (
                f"the driver of {pod.node} has a process of pod {_name(pod)} on GPU {index}, "
                f"which holds {_listed(pod.devices)}, as the scheduler says"
            )
            violations.append(Violation(t_ms, message))
    return first_of_each(violations)


def unconfirmed(state: State) -> list[PodSeen]:
    """The pods that run with whole GPUs on nodes whose kubelet speaks, and that it does not name."""
    return [
        pod
        for pod in state.holding()
        if pod.phase == "Running"
        and not pod.terminating
        and pod.gpu_milli >= 1000
        and pod.node in state.witnesses
        and not _given(state.witnesses[pod.node], pod)
    ]


def confirmed_pods(history: History) -> int:
    """Pods of which a kubelet said which GPUs it gave them."""
    return len({pod.uid for t_ms, pod, _ in _statements(history) if t_ms >= history.since_ms})


def pods_with_processes(history: History) -> int:
    """Pods of which a driver named processes."""
    return len({pod.uid for t_ms, pod, _ in _processes(history) if t_ms >= history.since_ms})


def _statements(history: History) -> Iterator[tuple[int, PodSeen, set[int]]]:
    """What a kubelet says of a pod, whenever one of them changes: when, the pod, and the GPUs that it gave it.

    What it said before the pod was bound is of another one of the same name.
    """
    bound_at: dict[str, int] = {}
    spoke_at: dict[str, int] = {}
    for number, (event, state) in enumerate(replay(history.events)):
        if isinstance(event, GpusSeen):
            spoke_at[event.node] = number
            pods = [pod for pod in state.holding() if pod.node == event.node]
        elif isinstance(event, PodSeen) and event.holds:
            bound_at.setdefault(event.uid, number)
            pods = [event]
        else:
            continue
        for pod in pods:
            witness = state.witnesses.get(pod.node)
            given = _given(witness, pod) if witness else set()
            if given and spoke_at[pod.node] >= bound_at[pod.uid]:
                yield event.t_ms, pod, given


def _processes(history: History) -> Iterator[tuple[int, PodSeen, int]]:
    for event, state in replay(history.events):
        if not isinstance(event, GpusSeen):
            continue
        for gpu in event.gpus:
            for uid in gpu.users:
                pod = state.pods.get(uid)
                if pod is not None and pod.holds and pod.node == event.node:
                    yield event.t_ms, pod, gpu.index


def _given(witness: GpusSeen, pod: PodSeen) -> set[int]:
    name = f"{pod.namespace}/{pod.pod}"
    return {gpu.index for gpu in witness.gpus if name in gpu.holders}


def _name(pod: PodSeen) -> str:
    return f"{pod.project}/{pod.pod}"


def _listed(indices: "set[int] | tuple[int, ...]") -> str:
    return f"GPUs {', '.join(str(index) for index in sorted(indices))}" if indices else "no GPUs"
