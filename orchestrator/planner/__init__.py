"""Pure scheduling decisions: a snapshot in, a plan out. No input or output, no clock, no randomness."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.planner.cycle import Planner, plan

__all__ = ["Planner", "plan"]


def __getattr__(name: str) -> Any:
    """Import the planner on first use: most commands need only a constant or a type of this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orchestrator.planner import cycle  # noqa: PLC0415

    return getattr(cycle, name)
