"""The health of the operator, and the two pages for Kubernetes' probes.

`/healthz` fails if the scheduling loop of a leader stands still, so that Kubernetes restarts the process. `/readyz`
also fails while decisions fail: a restart would not repair failing decisions, but administrators see an unready pod.
`/readyz` names skipped objects, but does not fail because of them: no user can make the operator unready by a pod.
"""

from collections.abc import Callable, Iterable
from typing import Final

from orchestrator.pages import Page

STUCK_SECONDS: Final = 90.0
"""The loop counts as stuck after this time. It is longer than any pause between decisions."""


MAX_LINES: Final = 20
MAX_CHARACTERS: Final = 300


class Health:
    """The state of the loops. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._leads = False
        self._turned_at = clock()
        self._failure: str | None = None
        self._skipped: tuple[str, ...] = ()

    def leading(self) -> None:
        """Note that this replica became the leader."""
        self._leads = True
        self.decided()

    def on_standby(self) -> None:
        """Note that this replica is a standby."""
        self._leads = False
        self._skipped = ()
        self.decided()

    def decided(self) -> None:
        """Note that a decision was made."""
        self._turned_at = self._clock()
        self._failure = None

    def failed(self, why: str) -> None:
        """Note that a decision failed."""
        self._turned_at = self._clock()
        self._failure = why

    def note_skipped(self, objects: Iterable[str]) -> None:
        """Store the skipped objects of the last decision, as lines of text."""
        self._skipped = tuple(objects)

    def stuck(self) -> str | None:
        """Return the reason why the process should be restarted, or None."""
        still = self._clock() - self._turned_at
        if self._leads and still > STUCK_SECONDS:
            return f"the scheduling loop has stood still for {still:.0f} s"
        return None

    def unready(self) -> str | None:
        """Return the reason why the operator makes no decisions, or None."""
        if self._failure is not None:
            return f"the last decision failed: {self._failure}"
        return self.stuck()

    def role(self) -> str:
        """Return the role of this replica: `leading` or `standing by`."""
        return "leading" if self._leads else "standing by"

    def report(self) -> str:
        """Return the role of this replica and the skipped objects, one on each line."""
        count = len(self._skipped)
        if not count:
            return self.role()
        lines = [self.role(), f"{count} object{'s are' if count > 1 else ' is'} skipped:"]
        lines += [line[:MAX_CHARACTERS] for line in self._skipped[:MAX_LINES]]
        return "\n".join([*lines, f"and {count - MAX_LINES} more"] if count > MAX_LINES else lines)


def health_pages(health: Health) -> dict[str, Callable[[], Page]]:
    """Return the functions that make the pages, by path."""

    def page(problem: Callable[[], str | None], otherwise: Callable[[], str]) -> Callable[[], Page]:
        def answer() -> Page:
            failure = problem()
            return Page(f"{failure or otherwise()}\n", status=503 if failure else 200)

        return answer

    return {"/healthz": page(health.stuck, health.role), "/readyz": page(health.unready, health.report)}
