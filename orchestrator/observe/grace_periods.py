"""The time for which an evicted or deleted pod may continue. Pure."""

from typing import Final

from orchestrator.cluster.integers import MAX_DIGITS, whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.names import CHECKPOINT_GRACE_ANNOTATION

MAX_GRACE_SECONDS: Final = 600
"""Default maximum of the termination grace period of pods; a project can set another maximum. It is also the default
maximum time for which an evicted pod continues.
"""


def grace_seconds(pod: Pod, max_seconds: int) -> int | None:
    """Return the time that the pod has after its eviction to save its state, at most `max_seconds`.

    Return None if neither its annotation nor its specification sets a time: then Kubernetes' default applies.
    """
    text = pod.metadata.annotations.get(CHECKPOINT_GRACE_ANNOTATION, "").strip()
    if text.isascii() and text.isdecimal():
        return min(whole_number(text[:MAX_DIGITS]) or 0, max_seconds)
    own_seconds = pod.spec.termination_grace_period_seconds
    return None if own_seconds is None else min(own_seconds, max_seconds)


def terminates(pod: Pod, max_checkpoint_grace_seconds: int) -> bool:
    """Return whether a bound pod terminates within the longest grace period of an eviction.

    If its owner deleted the pod with a longer grace period, it counts as running until it is evicted too.
    """
    metadata = pod.metadata
    return (
        metadata.deletion_timestamp is not None
        and (metadata.deletion_grace_period_seconds or 0) <= max_checkpoint_grace_seconds
    )
