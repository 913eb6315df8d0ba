"""What an administrator chooses for the operator: the options of `muster operator` and `muster operator-yaml`."""

from dataclasses import dataclass, field
from typing import Final

from orchestrator.planner.model import Settings

LONGEST_GRACE_SECONDS: Final = 600
"""A pod may ask for so much time, at most, to save its work after it was evicted."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The settings of the planner, and those of the loops around it. Times are seconds."""

    settings: Settings = field(default_factory=Settings)
    longest_grace_seconds: int = LONGEST_GRACE_SECONDS

    def arguments(self) -> list[str]:
        """The options of `muster operator` that say the same; what has its default is left out."""
        settings, usual = self.settings, Settings()
        found: list[str] = []
        if settings.max_evictions != usual.max_evictions:
            found.append(f"--max-evictions={settings.max_evictions}")
        if settings.not_ready_grace_seconds != usual.not_ready_grace_seconds:
            found.append(f"--not-ready-grace={settings.not_ready_grace_seconds}s")
        if settings.reservation_after_seconds != usual.reservation_after_seconds:
            after = settings.reservation_after_seconds
            found.append(f"--reservation-after={'never' if after is None else f'{after}s'}")
        if settings.stale_grace_seconds != usual.stale_grace_seconds:
            found.append(f"--stale-grace={settings.stale_grace_seconds}s")
        if settings.max_consolidation_victims != usual.max_consolidation_victims:
            found.append(f"--max-moves={settings.max_consolidation_victims}")
        if settings.spread:
            found.append("--spread")
        found += [f"--topology-level={each}" for each in settings.topology_levels]
        if self.longest_grace_seconds != LONGEST_GRACE_SECONDS:
            found.append(f"--longest-checkpoint-grace={self.longest_grace_seconds}s")
        return found


DEFAULT_CHOICES: Final = Choices()
