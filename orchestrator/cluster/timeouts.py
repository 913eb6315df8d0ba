"""All timeouts of calls to the API server, and of calls to kubelets through it."""

from dataclasses import dataclass
from typing import Final

OPERATOR_REQUEST_SECONDS: Final = 2.5
"""Maximum time of a bind, an eviction or another write of the operator.

A leader sends no request in the last seconds before its lease expires, and those are at least as many. So no request of
a former leader is running when the next leader reads the cluster.
"""
KUBELET_SECONDS: Final = 1.0
"""Maximum time that `top node` waits for the next answer of a kubelet.

A node whose kubelet does not answer is shown without figures.
"""
COMPLETION_SECONDS: Final = 2.0
"""Maximum time that the completion of a word in a shell waits for names."""
NAMESPACE_SECONDS: Final = 30.0
"""Maximum time that the creation of a project waits for its namespace, which the operator creates."""
POD_WATCH_SECONDS: Final = 240
"""Maximum duration of one watch of a pod, in a command that waits for the pod. The command then starts a new watch."""
MIN_WATCH_SECONDS: Final = 300
MAX_WATCH_SECONDS: Final = 600
"""Minimum and maximum duration of a reflector's watch. It is random, so that not all watches restart at the same
time.
"""
CLOSE_SECONDS: Final = 2.0
"""Maximum time until a connection is closed."""
KEEP_ALIVE_SECONDS: Final = 30
"""Maximum time for which a connection without a request is kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a request of a `Transport`.

    `request_seconds` bounds the whole request, `connect_seconds` its connection. A watch may be silent for
    `watch_grace_seconds` longer than its requested duration. A request is tried at most `attempts` times, after
    `backoff_seconds` that double each time. If the server asks for a delay above `max_retry_after_seconds`, the request
    is not repeated. `connections` is the maximum number of concurrent requests.
    """

    connect_seconds: float = 10
    request_seconds: float = 60
    watch_grace_seconds: float = 15
    attempts: int = 4
    backoff_seconds: float = 0.25
    max_retry_after_seconds: float = 30
    connections: int = 64
