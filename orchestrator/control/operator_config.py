"""What an administrator sets for the operator: the options of `muster operator` and `muster operator-yaml`.

The defaults of what decisions go by are those of the planner's `Settings`.
"""

from dataclasses import dataclass, field
from typing import Final

from orchestrator.planner.model import Settings
from orchestrator.workloads.protection import MAX_GRACE_SECONDS, PolicyMode

MAX_CHECKPOINT_GRACE_SECONDS: Final = MAX_GRACE_SECONDS
"""A pod may ask for so much time, at most, to save its work after it was evicted. One that asks for none has its own
termination grace period."""

MAX_PROJECT_OBJECTS: Final = 10_000
"""So many pods, and so many Jobs, a project has at once whose Project says nothing else."""

UNLIMITED: Final = "unlimited"


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The settings of the planner, and those of the loops around it. Times are seconds."""

    settings: Settings = field(default_factory=Settings)
    max_checkpoint_grace_seconds: int = MAX_CHECKPOINT_GRACE_SECONDS
    policies: PolicyMode = PolicyMode.DENY
    network_policy: bool = True
    """Whether the namespaces of projects get the default NetworkPolicies."""
    max_project_pods: int | None = MAX_PROJECT_OBJECTS
    max_project_jobs: int | None = MAX_PROJECT_OBJECTS
    """What Kubernetes counts in the namespace of a project that bounds neither itself; None: nothing."""

    def arguments(self) -> list[str]:
        """Return the options of `muster operator` that say the same; what has its default is left out."""
        settings, defaults = self.settings, Settings()
        options: list[str] = []
        if settings.max_evictions != defaults.max_evictions:
            options.append(f"--max-evictions={settings.max_evictions}")
        if settings.not_ready_grace_seconds != defaults.not_ready_grace_seconds:
            options.append(f"--not-ready-grace={settings.not_ready_grace_seconds}s")
        if settings.reservation_after_seconds != defaults.reservation_after_seconds:
            after = settings.reservation_after_seconds
            options.append(f"--reservation-after={'never' if after is None else f'{after}s'}")
        if settings.stale_grace_seconds != defaults.stale_grace_seconds:
            options.append(f"--stale-grace={settings.stale_grace_seconds}s")
        if settings.max_consolidation_victims != defaults.max_consolidation_victims:
            options.append(f"--max-moves={settings.max_consolidation_victims}")
        if settings.spread:
            options.append("--spread")
        options += [f"--topology-level={level}" for level in settings.topology_levels]
        if self.max_checkpoint_grace_seconds != MAX_CHECKPOINT_GRACE_SECONDS:
            options.append(f"--max-checkpoint-grace={self.max_checkpoint_grace_seconds}s")
        if self.policies is not PolicyMode.DENY:
            options.append(f"--policies={self.policies.value}")
        if not self.network_policy:
            options.append("--no-network-policy")
        for option, count in (
            ("--max-project-pods", self.max_project_pods),
            ("--max-project-jobs", self.max_project_jobs),
        ):
            if count != MAX_PROJECT_OBJECTS:
                options.append(f"{option}={UNLIMITED if count is None else count}")
        return options


DEFAULT_CONFIG: Final = OperatorConfig()
