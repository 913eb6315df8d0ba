"""What an administrator sets for the operator: the options of `muster operator` and `muster operator-yaml`.

The defaults of what decisions go by are in `orchestrator.planner.settings`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orchestrator.observe.grace_periods import MAX_GRACE_SECONDS
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings
from orchestrator.submit.network import DEFAULT_INGRESS_CLASS
from orchestrator.submit.protection import PolicyMode

MAX_CHECKPOINT_GRACE_SECONDS: Final = MAX_GRACE_SECONDS
"""A pod may ask for so much time, at most, to save its work after it was evicted. One that asks for none has its own
termination grace period."""

MAX_PROJECT_OBJECTS: Final = 10_000
"""So many pods, and so many Jobs, a project has at once whose Project says nothing else."""

UNLIMITED: Final = "unlimited"

MEMORY_GRACE_SECONDS: Final = 60
"""So long a pod may have more memory of a GPU than its part before it is evicted."""


class MemoryLimitsMode(Enum):
    """Whether containers with a part of a GPU are held to it."""

    ENFORCE = "enforce"
    """Jobs mount the library that agents put on nodes; what their processes truly have is watched besides."""
    OFF = "off"
    """Parts of GPUs are shared out, and nothing holds anybody to them."""


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

    gpu_memory_limits: MemoryLimitsMode = MemoryLimitsMode.OFF
    gpu_memory_grace_seconds: int | None = MEMORY_GRACE_SECONDS
    """None: nobody is evicted for memory, only warned."""

    reservation_image: str = ""
    """Of the pods that hold GPUs for parts of them; "": the operator's own."""
    parts_wait_for_agent: bool = False
    """Whether pods with parts of GPUs wait where no agent says which GPU is whose."""

    ingress_class: str = DEFAULT_INGRESS_CLASS
    """The IngressClass of jobs' Ingresses."""
    ingress_domain: str = ""
    """Below it every project has the host of its name; "": jobs' Ingresses have no hosts."""

    def arguments(self) -> list[str]:
        """Return the options of `muster operator` that say the same; what has its default is left out."""
        settings, defaults = self.settings, DEFAULT_SETTINGS
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
        options += self._arguments_beyond_decisions()
        for option, count in (
            ("--max-project-pods", self.max_project_pods),
            ("--max-project-jobs", self.max_project_jobs),
        ):
            if count != MAX_PROJECT_OBJECTS:
                options.append(f"{option}={UNLIMITED if count is None else count}")
        return options

    def _arguments_beyond_decisions(self) -> list[str]:
        memory_grace = self.gpu_memory_grace_seconds
        choices = (
            (
                self.max_checkpoint_grace_seconds != MAX_CHECKPOINT_GRACE_SECONDS,
                f"--max-checkpoint-grace={self.max_checkpoint_grace_seconds}s",
            ),
            (self.policies is not PolicyMode.DENY, f"--policies={self.policies.value}"),
            (
                self.gpu_memory_limits is not MemoryLimitsMode.OFF,
                f"--gpu-memory-limits={self.gpu_memory_limits.value}",
            ),
            (
                memory_grace != MEMORY_GRACE_SECONDS,
                f"--gpu-memory-grace={'never' if memory_grace is None else f'{memory_grace}s'}",
            ),
            (bool(self.reservation_image), f"--reservation-image={self.reservation_image}"),
            (self.parts_wait_for_agent, "--parts-wait-for-agent"),
            (not self.network_policy, "--no-network-policy"),
            (self.ingress_class != DEFAULT_INGRESS_CLASS, f"--ingress-class={self.ingress_class}"),
            (bool(self.ingress_domain), f"--ingress-domain={self.ingress_domain}"),
        )
        return [option for is_chosen, option in choices if is_chosen]


DEFAULT_CONFIG: Final = OperatorConfig()
