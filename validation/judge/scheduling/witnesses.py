"""Compares the devices of the scheduler's annotations with the reports of the kubelet and of the driver.

The agent of a node writes both reports into the node's GpuNode. On a cluster without agents there are no reports, and
so no subjects.
"""

from collections.abc import Iterator

from validation.judge.events import GpusSeen, PodSeen
from validation.judge.scheduling.history import History, Violation, first_of_each
from validation.judge.scheduling.lasting import overdue_states
from validation.judge.state import State, replay


def kubelet_agrees(history: History) -> list[Violation]:
    """Return the GPUs of a pod in the scheduler's annotation are those that the kubelet of its node gave it.

    The kubelet chooses the GPUs of a device plugin. The scheduler has `window_ms` to write them into the annotation. If
    a kubelet reports, it must report every pod that runs with whole GPUs at the end.
    """
    violations = overdue_states(history, _otherwise_given)
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
    """By the driver's report, the processes of a pod run only on the GPUs that the pod holds.

    The scheduler has `window_ms` to write the GPUs of the kubelet into its annotation.
    """
    return first_of_each(overdue_states(history, _elsewhere))


def unsettled(state: State) -> list[PodSeen]:
    """Return the pods whose GPUs the kubelets have not reported yet, or report differently than the scheduler."""
    otherwise = (pod for pod in state.holding() if (given := state.given(pod)) and given != set(pod.devices))
    return [*unconfirmed(state), *otherwise]


def unconfirmed(state: State) -> list[PodSeen]:
    """Return the pods that run with whole GPUs and that the kubelet of their node does not report, though it reports
    others.
    """
    return [
        pod
        for pod in state.holding()
        if pod.phase == "Running"
        and not pod.terminating
        and pod.gpu_milli >= 1000
        and pod.node in state.witnesses
        and not state.named(pod)
    ]


def _otherwise_given(state: State) -> Iterator[str]:
    """Yield a sentence for each contradiction between the kubelets and the scheduler in this state."""
    for pod in state.holding():
        given = state.given(pod)
        if given and given != set(pod.devices):
            yield (
                f"the kubelet of {pod.node} gave pod {_name(pod)} {_listed(given)}, "
                f"not {_listed(pod.devices)} as the scheduler says"
            )


def _elsewhere(state: State) -> Iterator[str]:
    """Yield a sentence for each contradiction between the drivers and the scheduler in this state."""
    for node in state.witnesses:
        for pod, index in _processes(state, node):
            if index not in pod.devices:
                yield (
                    f"the driver of {node} has a process of pod {_name(pod)} on GPU {index}, "
                    f"which holds {_listed(pod.devices)}, as the scheduler says"
                )


def confirmed_pods(history: History) -> int:
    """Return the number of pods whose GPUs a kubelet reported."""
    confirmed = set()
    for event, state in replay(history.events):
        if event.t_ms >= history.since_ms and isinstance(event, PodSeen | GpusSeen):
            confirmed |= {pod.uid for pod in _concerned(event, state) if state.given(pod)}
    return len(confirmed)


def pods_with_processes(history: History) -> int:
    """Return the number of pods whose processes a driver reported."""
    users = set()
    for event, state in replay(history.events):
        if event.t_ms >= history.since_ms and isinstance(event, GpusSeen):
            users |= {pod.uid for pod, _ in _processes(state, event.node)}
    return len(users)


def _concerned(event: PodSeen | GpusSeen, state: State) -> list[PodSeen]:
    """Return the pods that the event concerns."""
    if isinstance(event, PodSeen):
        return [event] if event.holds else []
    return [pod for pod in state.holding() if pod.node == event.node]


def _processes(state: State, node: str) -> Iterator[tuple[PodSeen, int]]:
    """Yield the pods with processes on the node, by its driver's last report, each with the GPU of a process."""
    witness = state.witnesses.get(node)
    for gpu in witness.gpus if witness else ():
        for uid in gpu.users:
            pod = state.pods.get(uid)
            if pod is not None and pod.holds and pod.node == node:
                yield pod, gpu.index


def _name(pod: PodSeen) -> str:
    return f"{pod.project}/{pod.pod}"


def _listed(indices: "frozenset[int] | tuple[int, ...]") -> str:
    return f"GPUs {', '.join(str(index) for index in sorted(indices))}" if indices else "no GPUs"
