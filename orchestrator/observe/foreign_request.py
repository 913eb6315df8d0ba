"""Adds up the use of a node by pods of other schedulers. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.observe.request import Held
from orchestrator.planner import model


def foreign_request(
    foreign: Sequence[Held], gpus: int, cpu: int, memory: int, scalars: Mapping[str, int]
) -> model.Request:
    """Return the use by pods of other schedulers on a node with these amounts."""
    return model.Request(
        gpu_count=gpus,
        cpu_milli=_sum((use.cpu_milli for use in foreign), cpu),
        memory_bytes=_sum((use.memory_bytes for use in foreign), memory),
        scalars=_foreign_scalars(foreign, scalars) if scalars else (),
    )


def _foreign_scalars(held: Iterable[Held], scalars: Mapping[str, int]) -> model.Scalars:
    """Return the other resources that pods of other schedulers hold. An unknown amount counts as all of the node."""
    total = dict.fromkeys(scalars, 0)
    for use in held:
        amounts = dict.fromkeys(scalars) if use.scalars is None else use.scalars
        for name, amount in amounts.items():
            if name in total:
                total[name] += scalars[name] if amount is None else amount
    return tuple((name, amount) for name, amount in total.items() if amount)


def _sum(amounts: Iterable[int | None], everything: int) -> int:
    """Return the sum; an unknown amount (None) counts as `everything`."""
    return sum(everything if amount is None else amount for amount in amounts)
