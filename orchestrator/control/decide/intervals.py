"""The times of the decision loop, in seconds."""

from typing import Final

TICK_SECONDS: Final = 10.0
"""The loop decides after this time although nothing has changed."""
SETTLED_SECONDS: Final = 0.01
"""A decision begins when nothing has changed for this time."""
MAX_SETTLING_SECONDS: Final = 0.05
"""A decision begins after this time although changes go on."""
IDLE_PART_OF_DECISION: Final = 0.5
"""The loop rests for this part of the processor time of the last decision: the bindings need the processor, too.

The elapsed time of the decision is no measure. It can be ten times as long if other processes use the processor.
"""
MAX_REST_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 1.0
"""The time until the next decision if one failed or left workloads over. It doubles with each failure in a row."""
MAX_RETRY_SECONDS: Final = 30.0
FORBIDDEN_SECONDS: Final = 30.0
"""A pod that the API server did not evict is not chosen again for this time."""
