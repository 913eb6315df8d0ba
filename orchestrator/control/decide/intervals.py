"""The times of the decision loop, in seconds."""

from typing import Final

TICK_SECONDS: Final = 10.0
"""After this time, the loop decides even if nothing has changed."""
SETTLED_SECONDS: Final = 0.01
"""A decision begins after this time without a change."""
MAX_SETTLING_SECONDS: Final = 0.05
"""A decision begins after this time even if changes continue."""
IDLE_PART_OF_DECISION: Final = 0.5
"""The loop rests for this fraction of the last decision's processor time, because bindings need the processor too.

Elapsed time is not used: it can be ten times as long if other processes use the processor.
"""
MAX_REST_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 1.0
"""Time until the next decision if a decision failed or left workloads over. It doubles with each failure in a row."""
MAX_RETRY_SECONDS: Final = 30.0
FORBIDDEN_SECONDS: Final = 30.0
"""If the API server refuses the eviction of a pod, the pod is not chosen as a victim for this time."""
