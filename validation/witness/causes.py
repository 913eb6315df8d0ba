"""The reason why a pod does not run, from its conditions, its status, and the status of its containers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from validation.judge.events import Cause

Json = Mapping[str, Any]
MAX_CHARACTERS: Final = 500
"""Maximum length of a message; a longer message is cut. A message can contain the whole answer of a registry."""
_PREPARING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of containers that wait for another container, or for something without a status of its own."""


def cause_of(pod: Json) -> Cause | None:
    """Return why the pod does not run or has ended. None if Kubernetes gives no reason."""
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
    """Yield the causes of waiting or failed containers. Init containers come first, because they run first."""
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
    """Return how the container's last run ended; empty if it has not run before."""
    ended = last_state.get("terminated")
    if not ended:
        return ""
    return f"it ended before with exit code {ended.get('exitCode')} ({ended.get('reason') or 'no reason'})"


def _cause(source: str, reason: str | None, message: str | None) -> Cause:
    words = " ".join((message or "").split())
    if len(words) > MAX_CHARACTERS:
        words = words[: MAX_CHARACTERS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return Cause(source, reason or "", words)
