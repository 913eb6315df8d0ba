"""How long a pod may go on once it is evicted or deleted. Pure."""

from typing import Final

from orchestrator.cluster.integers import MAX_DIGITS, whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.names import CHECKPOINT_GRACE_ANNOTATION

MAX_GRACE_SECONDS: Final = 600
"""The longest termination grace period of pods whose project says nothing else. So long a pod goes on, at most, once it
is evicted, unless the operator is told otherwise."""


def grace_seconds(pod: Pod, max_seconds: int) -> int | None:
    """How long after its eviction the pod may go on to save its work, at most `max_seconds`.

    None where neither its annotation nor its specification says so: then it has what Kubernetes gives it.
    """
    text = pod.metadata.annotations.get(CHECKPOINT_GRACE_ANNOTATION, "").strip()
    if text.isascii() and text.isdecimal():
        return min(whole_number(text[:MAX_DIGITS]) or 0, max_seconds)
    own_seconds = pod.spec.termination_grace_period_seconds
    return None if own_seconds is None else min(own_seconds, max_seconds)


def terminates(pod: Pod, max_checkpoint_grace_seconds: int) -> bool:
    """Return whether a bound pod terminates within the longest grace period of an eviction.

    A pod that its owner deleted with a longer grace period counts as running until it is evicted as well.
    """
    metadata = pod.metadata
    return (
        metadata.deletion_timestamp is not None
        and (metadata.deletion_grace_period_seconds or 0) <= max_checkpoint_grace_seconds
    )
