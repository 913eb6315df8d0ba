"""The lag of the watch: the time from the API server's answer to a binding until the watch shows the binding."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_SAMPLES: Final = 10_000
MAX_AWAITED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Lags:
    """The lag of `count` bindings: median, 99th percentile and maximum, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class WatchLag:
    """Measures the lag and keeps the newest samples. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answered: dict[str, float] = {}
        self._seen: set[str] = set()
        self._samples: deque[float] = deque(maxlen=MAX_SAMPLES)

    def answered(self, uid: str) -> None:
        """Note that the API server has answered that the pod is bound."""
        if uid in self._seen:
            self._seen.discard(uid)
            self._samples.append(0.0)  # the watch showed the binding before the API server's answer
            return
        if len(self._answered) >= MAX_AWAITED:
            self._answered.clear()
        self._answered[uid] = self._clock()

    def seen(self, uid: str) -> None:
        """Note that the watch has shown a binding that this process sent."""
        answered = self._answered.pop(uid, None)
        if answered is not None:
            self._samples.append(self._clock() - answered)
            return
        if len(self._seen) >= MAX_AWAITED:
            self._seen.clear()
        self._seen.add(uid)

    def lags(self) -> Lags | None:
        """Return the lag of the kept samples; None before the first binding."""
        if not self._samples:
            return None
        ms = sorted(sample * 1000 for sample in self._samples)
        return Lags(len(ms), ms[len(ms) // 2], ms[len(ms) * 99 // 100], ms[-1])
