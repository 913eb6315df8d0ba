"""The options of the operator: one declaration for each option, from which all its other forms are derived.

A field of `OperatorConfig` with `_option` is one option. These forms are derived from the fields:

- the options of `muster operator` and `muster operator-yaml`, and their text in docs/reference/cli.md,
- the arguments in the Deployment,
- the values of the Helm chart and their schema,
- the record `muster-settings`.

A new option needs two edits: its field here, and the code that reads the field.
"""

from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, Final, get_type_hints

from orchestrator.observe.grace_periods import MAX_GRACE_SECONDS
from orchestrator.planner.settings import DEFAULT_SETTINGS, Settings
from orchestrator.submit.name_rules import DOMAIN, MAX_DOMAIN_LENGTH, OBJECT_NAME
from orchestrator.submit.network import DEFAULT_INGRESS_CLASS
from orchestrator.submit.protection import PolicyMode

MAX_PROJECT_OBJECTS: Final = 10_000
"""Maximum number of pods, and of Jobs, in a project's namespace, unless the project sets its own maximum."""

NEVER: Final = "never"
_OPTION: Final = "option"
_NODE_LABEL: Final = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


class MemoryLimitsMode(Enum):
    """Whether the GPU memory of a container with a GPU fraction is limited to that fraction."""

    ENFORCE = "enforce"
    """A library that the agents install on the nodes limits the containers; the operator watches their use as well."""
    OFF = "off"
    """GPU fractions are scheduled, and their memory is not limited."""


@dataclass(frozen=True, slots=True)
class Text:
    """The format of a text option: a regular expression for the whole text, and its description in errors."""

    pattern: str
    description: str
    max_length: int = 253


@dataclass(frozen=True, slots=True)
class Option:
    """One option: flag, help text, and the field of `OperatorConfig` with its type and default.

    The field decides the kind of option. A name that ends in `_seconds` makes a duration; if the type allows None,
    `never` is allowed. An `int` is a count, an Enum a choice, a tuple is repeatable. A `bool` is a flag that inverts
    the default.
    """

    flag: str
    help: str
    field: str
    type: Any
    default: Any
    metavar: str | None
    text: Text | None

    @property
    def is_duration(self) -> bool:
        """Return whether the option takes a time such as `90s`."""
        return self.field.endswith("_seconds")

    @property
    def allows_none(self) -> bool:
        """Return whether the field may be None."""
        return type(None) in getattr(self.type, "__args__", ())

    def arguments(self, value: Any) -> list[str]:
        """Return the arguments of `muster operator` for this value; empty if it is the default."""
        if value == self.default:
            return []
        if isinstance(value, bool):
            return [self.flag]
        if isinstance(value, tuple):
            return [f"{self.flag}={item}" for item in value]
        if isinstance(value, Enum):
            value = value.value
        elif self.is_duration:
            value = NEVER if value is None else f"{value}s"
        return [f"{self.flag}={value}"]


def _option(
    default: Any, flag: str, help_text: str, *, metavar: str | None = None, text: Text | None = None
) -> Any:
    return field(default=default, metadata={_OPTION: (flag, help_text, metavar, text)})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """The options of the operator. Fields that the planner's `Settings` has too are passed to the planner."""

    max_evictions: int | None = _option(
        DEFAULT_SETTINGS.max_evictions,
        "--max-evictions",
        "Maximum number of pods that one decision evicts. Default: no maximum.",
        metavar="N",
    )
    not_ready_grace_seconds: int = _option(
        DEFAULT_SETTINGS.not_ready_grace_seconds,
        "--not-ready-grace",
        "Time that a node may be not ready before its preemptible pods are rescheduled.",
    )
    max_unhealthy_nodes: int | None = _option(
        DEFAULT_SETTINGS.max_unhealthy_nodes,
        "--max-unhealthy-nodes",
        "Maximum number of unhealthy nodes at a time from which pods are rescheduled. If more nodes are unhealthy, for "
        "example because the network or a driver fails, all pods stay. Default: no maximum. Also the "
        "maximum number of nodes that get no pods because of a fault of the host; by default a tenth of the nodes.",
        metavar="N",
    )
    reservation_after_seconds: int | None = _option(
        DEFAULT_SETTINGS.reservation_after_seconds,
        "--reservation-after",
        "Time after which free GPUs are kept for a large pending job. 'never' disables this.",
    )
    start_timeout_seconds: int | None = _option(
        DEFAULT_SETTINGS.start_timeout_seconds,
        "--start-timeout",
        "Time after which a pod whose containers have not started is evicted. A pod whose image can never be used is "
        "evicted after at most 2 minutes. 'never' disables this.",
    )
    stale_grace_seconds: int = _option(
        DEFAULT_SETTINGS.stale_grace_seconds,
        "--stale-grace",
        "Time that a gang may run with fewer pods than its minimum.",
    )
    max_consolidation_victims: int = _option(
        DEFAULT_SETTINGS.max_consolidation_victims,
        "--max-moves",
        "Maximum number of pods that are rescheduled to free a node for one job. 0 disables this.",
        metavar="N",
    )
    spread: bool = _option(
        DEFAULT_SETTINGS.spread, "--spread", "Place pods on the emptiest node instead of the fullest."
    )
    topology_levels: tuple[str, ...] = _option(
        DEFAULT_SETTINGS.topology_levels,
        "--topology-level",
        "Node label that jobs may name as a topology level. Repeatable, from the widest level to the closest.",
        metavar="LABEL",
        text=Text(_NODE_LABEL, "the key of a node label, each once", 317),
    )
    max_checkpoint_grace_seconds: int = _option(
        MAX_GRACE_SECONDS,
        "--max-checkpoint-grace",
        "Maximum time that an evicted pod may request to save its state.",
    )
    out_of_service_after_seconds: int | None = _option(
        None,
        "--out-of-service-after",
        "Time that a node may be not ready before the operator sets the taint node.kubernetes.io/out-of-service, with "
        "which Kubernetes starts its jobs elsewhere. Only for nodes that are off when they are not ready. "
        "'never' disables this.",
    )
    max_out_of_service_nodes: int = _option(
        1,
        "--max-out-of-service",
        "Maximum number of nodes with this taint at a time.",
        metavar="N",
    )
    policies: PolicyMode = _option(  # noqa: RUF009 - it returns a field
        PolicyMode.DENY,
        "--policies",
        "Action for objects in projects' namespaces that violate a policy. off: no policies are installed.",
    )
    gpu_memory_limits: MemoryLimitsMode = _option(  # noqa: RUF009 - it returns a field
        MemoryLimitsMode.OFF,
        "--gpu-memory-limits",
        "Limit of the GPU memory of containers with a GPU fraction. With enforce, a library on the nodes limits each "
        "container. The operator then evicts a pod that exceeds its fraction for 60 s.",
    )
    network_policy: bool = _option(
        True,
        "--no-network-policy",
        "Create no NetworkPolicies in the namespaces of projects.",
    )
    ingress_class: str = _option(
        DEFAULT_INGRESS_CLASS,
        "--ingress-class",
        "IngressClass of the Ingresses that `submit -s ingress` creates.",
        metavar="NAME",
        text=Text(OBJECT_NAME, "the name of an IngressClass"),
    )
    ingress_domain: str = _option(
        "",
        "--ingress-domain",
        "Domain below which each project has the host PROJECT.DOMAIN; no other project can use that host. DNS must "
        "resolve *.DOMAIN to the ingress controller. Default: the Ingresses of jobs have no host.",
        metavar="DOMAIN",
        text=Text(
            f"({DOMAIN})?",
            "a DNS name such as gpus.example.com, in lower case, without a wildcard, a port or a final dot, of at "
            f"most {MAX_DOMAIN_LENGTH} characters",
            MAX_DOMAIN_LENGTH,
        ),
    )

    @property
    def settings(self) -> Settings:
        """Return the planner's settings."""
        shared = {one.name for one in fields(Settings)} & {one.name for one in fields(self)}
        return Settings(**{name: getattr(self, name) for name in shared})

    def arguments(self) -> list[str]:
        """Return the options of `muster operator` that give this configuration; defaults are left out."""
        return [word for option in options() for word in option.arguments(getattr(self, option.field))]


@cache
def options() -> tuple[Option, ...]:
    """Return the table of options, in the order of the fields."""
    types = get_type_hints(OperatorConfig)
    return tuple(
        Option(flag, help_text, one.name, types[one.name], one.default, metavar, text)
        for one in fields(OperatorConfig)
        for flag, help_text, metavar, text in (one.metadata[_OPTION],)
    )


DEFAULT_CONFIG: Final = OperatorConfig()
