"""The work of an administrator in a step, parsed and checked: a drain of nodes, its end, or the end of the operator."""

from collections.abc import Collection
from dataclasses import dataclass

from validation.scenario.schema import Step, milli


@dataclass(frozen=True, slots=True)
class LoadedDrain:
    """The drain of the nodes of these jobs. `gpu_milli` is the sum of the GPUs of these nodes, in thousandths."""

    nodes_of: tuple[str, ...]
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The work of an administrator after the commands of a step. At most one field is set."""

    drain: LoadedDrain | None = None
    uncordon: bool = False
    restart_operator: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the work in words, for the plan that people sign."""
        if self.drain is not None:
            jobs, gpus = ", ".join(self.drain.nodes_of), self.drain.gpu_milli // 1000
            return (
                f"the nodes of {jobs} ({gpus} GPUs) are cordoned, and the pods of projects there evicted",
            )
        if self.uncordon:
            return ("the nodes take pods again",)
        if self.restart_operator:
            return ("the operator is killed, between the first eviction and the binding that it is for",)
        return ()


NO_UPKEEP = Upkeep()


def load_upkeep(step: Step, jobs: Collection[str], *, is_drained: bool) -> Upkeep:
    """Return the work of an administrator in the step.

    `jobs` are the jobs that exist at that time. `is_drained`: nodes are cordoned before the step. Raises ValueError.
    """
    drain = step.drain
    if (drain is not None) + step.uncordon + step.restart_operator > 1:
        raise ValueError("a step has one of `drain`, `uncordon` and `restartOperator`")
    if step.uncordon and not is_drained:
        raise ValueError("`uncordon`: no node is cordoned")
    if step.restart_operator and not step.run:
        raise ValueError("`restartOperator`: without commands no pod is evicted")
    if drain is None:
        return Upkeep(None, step.uncordon, step.restart_operator)
    if is_drained:
        raise ValueError("`drain`: nodes are cordoned already")
    unknown = next((name for name in drain.nodes_of if name not in jobs), None)
    if unknown is not None or not drain.nodes_of:
        raise ValueError(f"`drain`: there is no job `{unknown or ''}`")
    gpu_milli = milli(drain.gpus)
    if not gpu_milli or gpu_milli % 1000:
        raise ValueError(f"`drain`: {drain.gpus} is no whole number of GPUs")
    return Upkeep(LoadedDrain(tuple(drain.nodes_of), gpu_milli))
