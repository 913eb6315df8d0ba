"""Pure scheduling decisions: a snapshot in, a plan out. No input or output, no clock, no randomness."""

from orchestrator.planner.cycle import Planner, plan

__all__ = ["Planner", "plan"]
