"""Why a pod does not run, as Kubernetes says it: in its conditions, its status, and that of its containers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from validation.judge.events import Cause

Json = Mapping[str, Any]
MAX_CHARACTERS: Final = 500
"""Maximum length of a message; the rest is cut. A message can contain a registry's whole answer."""
_PREPARING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of containers that wait for another one, or for something that has no status of its own."""


def cause_of(pod: Json) -> Cause | None:
    """Return the cause that keeps the pod from running, or that ended it; None if Kubernetes names none."""
    status = pod.get("status") or {}
    if not (pod.get("spec") or {}).get("nodeName"):
        return _unscheduled(status)
    if status.get("reason"):
        return _cause("pod", status["reason"], status.get("message"))
    causes = list(_of_containers(status))
    return next((cause for cause in causes if cause.reason not in _PREPARING), next(iter(causes), None))


def _unscheduled(status: Json) -> Cause | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _cause("PodScheduled", condition.get("reason"), condition.get("message"))
    return None


def _of_containers(status: Json) -> Iterator[Cause]:
    """Yield the causes of waiting or failed containers. Init containers are first, as they run first."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        source = f"container {container.get('name', '')}"
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting:
            words = [waiting.get("message") or "", _end(container.get("lastState") or {})]
            yield _cause(source, waiting.get("reason"), "; ".join(filter(None, words)))
        elif terminated and terminated.get("exitCode"):
            words = [f"exit code {terminated['exitCode']}", terminated.get("message") or ""]
            yield _cause(source, terminated.get("reason"), ": ".join(filter(None, words)))


def _end(last_state: Json) -> str:
    """How the container ended before it was to be started again; empty if it has not run before."""
    ended = last_state.get("terminated")
    if not ended:
        return ""
    return f"it ended before with exit code {ended.get('exitCode')} ({ended.get('reason') or 'no reason'})"


def _cause(source: str, reason: str | None, message: str | None) -> Cause:
    words = " ".join((message or "").split())
    if len(words) > MAX_CHARACTERS:
        words = words[: MAX_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return Cause(source, reason or "", words)
