"""Follows from event to event whether an expectation is satisfied and lasts.

A run uses it during the wait for an expectation. `rejudge` repeats its decisions from the record.
"""

from validation.judge.convergence import Convergence, ConvergenceResult


class Settling:
    """The wait for an expectation to be satisfied before `within_ms`, and then for `hold_ms` without a break.

    Times count from the beginning of the wait. Call `pass_time` before each event and `note` after it. The first
    Convergence that one of them returns is the result.
    """

    def __init__(self, *, within_ms: int, hold_ms: int) -> None:
        self._within_ms = within_ms
        self._hold_ms = hold_ms
        self._first_ms: int | None = None
        self._since_ms: int | None = None
        self._flaps = 0

    def pass_time(self, now_ms: int) -> Convergence | None:
        """Note that nothing changed until `now_ms`; return the result if the expectation lasted for `hold_ms`, or the
        time limit has passed.
        """
        if self._since_ms is not None:
            return self._end(ConvergenceResult.CONVERGED, now_ms) if self.remaining_ms(now_ms) <= 0 else None
        if now_ms < self._within_ms:
            return None
        return self._end(ConvergenceResult.FLAPPED if self._flaps else ConvergenceResult.TIMED_OUT, now_ms)

    def note(self, now_ms: int, *, holds: bool, ruled_out: bool = False) -> Convergence | None:
        """Note whether the expectation is satisfied from `now_ms` on; return the result, if there is one now.

        `ruled_out`: the expectation cannot be satisfied any more.
        """
        if holds and self._since_ms is None:
            if now_ms > self._within_ms:
                return self.pass_time(now_ms)
            self._since_ms = now_ms
            self._first_ms = now_ms if self._first_ms is None else self._first_ms
        elif not holds and self._since_ms is not None:
            self._since_ms = None
            self._flaps += 1
        if ruled_out and not holds:
            return self._end(ConvergenceResult.RULED_OUT, now_ms)
        return self.pass_time(now_ms)

    def remaining_ms(self, now_ms: int) -> int:
        """Return the remaining time of the wait if nothing changes."""
        if self._since_ms is not None:
            return self._since_ms + self._hold_ms - now_ms
        return self._within_ms - now_ms

    def _end(self, result: ConvergenceResult, now_ms: int) -> Convergence:
        converged = result == ConvergenceResult.CONVERGED
        first_ms = self._since_ms if converged else self._first_ms
        stable_ms = now_ms if converged else None
        return Convergence(result, self._within_ms, self._hold_ms, first_ms, stable_ms, self._flaps)
