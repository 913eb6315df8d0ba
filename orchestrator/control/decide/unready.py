"""Pods that are put off because volumes, ResourceClaims or GPU fractions on their node were not ready.

For example, no agent named the GPU in time. Most causes pass, so the pod can get the same node once more. After two
failures in a row on a node, the next decision does not use this node for the pod. So a faulty node does not block the
pod. Later decisions can use the node again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

UNREADY_SECONDS: Final = 10.0
"""Time for which the pod is put off, so that other pods can have the GPUs. It doubles with each failure of the pod."""
MAX_DOUBLINGS: Final = 6
_TIMES: Final = 2


@dataclass(slots=True)
class _Failure:
    """The failures of a pod: `times` in a row on the node, `in_all` on all nodes. `is_avoided`: a decision has
    avoided the node.
    """

    node: str
    why: str
    until: float
    times: int = 1
    in_all: int = 1
    is_avoided: bool = False


class UnreadyPods:
    """The failures by pod uid. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float], seconds: float = UNREADY_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._failures: dict[str, _Failure] = {}

    def note(self, uid: str, node: str, why: str) -> None:
        """Note that the pod could not be bound to the node. Put it off for twice as long as the last time."""
        before = self._failures.get(uid)
        times = before.times + 1 if before is not None and before.node == node else 1
        in_all = 1 if before is None else before.in_all + 1
        seconds = self._seconds * 2.0 ** min(in_all - 1, MAX_DOUBLINGS)
        self._failures[uid] = _Failure(node, why, self._clock() + seconds, times, in_all)

    def read(self, is_waiting: Callable[[str], bool]) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return, for one decision and by pod uid, the reasons of pods that are put off, and the nodes that a pod must
        not get.

        Remove pods that are no longer pending.
        """
        self._failures = {uid: failure for uid, failure in self._failures.items() if is_waiting(uid)}
        now = self._clock()
        put_off = {uid: failure.why for uid, failure in self._failures.items() if failure.until > now}
        avoided = {}
        for uid, failure in self._failures.items():
            if uid not in put_off and failure.times >= _TIMES and not failure.is_avoided:
                avoided[uid] = failure.node
                failure.is_avoided = True
        return put_off, avoided
