"""Adds, compares and formats amounts of GPUs, CPU and memory."""

from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts, Scalars

EVERY_RESOURCE = (0, 1, 2)


class Figures(NamedTuple):
    """The state of a project or department: quota, limit, fair share, and use."""

    quota: Amounts
    limit: Amounts
    share: Amounts
    held: Amounts


def plus(first: Amounts, second: Amounts) -> Amounts:
    """Return the sum of each resource."""
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def minus(first: Amounts, second: Amounts) -> Amounts:
    """Return the difference of each resource."""
    return (first[0] - second[0], first[1] - second[1], first[2] - second[2])


def summed_scalars(several: Iterable[Scalars]) -> Scalars:
    """Return the sum of each resource, sorted by name."""
    total: dict[str, int] = {}
    for scalars in several:
        for name, amount in scalars:
            total[name] = total.get(name, 0) + amount
    return tuple(sorted(total.items()))


def exceeds_somewhere(amounts: Amounts, bounds: Amounts) -> bool:
    """Return whether at least one resource exceeds its bound."""
    return amounts[0] > bounds[0] or amounts[1] > bounds[1] or amounts[2] > bounds[2]


def exceeds_where_requested(amounts: Amounts, bounds: Amounts, requested: Amounts) -> bool:
    """Return whether a resource that is requested (above 0) exceeds its bound."""
    return bool(
        (requested[0] and amounts[0] > bounds[0])
        or (requested[1] and amounts[1] > bounds[1])
        or (requested[2] and amounts[2] > bounds[2])
    )


def entitled(quota: int, limit: int, share: int) -> int:
    """Return the entitlement of a project to a resource: the larger of quota and fair share, but at most the limit.

    Example: `entitled(4000, 6000, 8000)` returns `6000`.
    """
    return limit if quota >= UNLIMITED else min(limit, max(quota, share))


def entitled_amounts(figures: Figures) -> Amounts:
    """Return the result of `entitled` for each resource."""
    quota, limit, share = figures.quota, figures.limit, figures.share
    return (
        entitled(quota[0], limit[0], share[0]),
        entitled(quota[1], limit[1], share[1]),
        entitled(quota[2], limit[2], share[2]),
    )


def gpus(gpu_milli: int) -> str:
    """Return an amount of GPUs as text for messages: `2`, `0.5`, `0.125`, `unlimited`.

    Example: `gpus(2500)` returns `'2.5'`.
    """
    if gpu_milli >= UNLIMITED:
        return "unlimited"
    whole, rest = divmod(gpu_milli, DEVICE_MILLI)
    return str(whole) if rest == 0 else f"{whole}.{rest:03d}".rstrip("0")


def amount_text(amount: int, resource: int) -> str:
    """Return an amount of GPUs (`resource` 0), CPU (1) or memory (2) as text: `1 GPU`, `0.5 CPUs`, `16 GiB`.

    Example: `amount_text(17179869184, 2)` returns `'16 GiB'`.
    """
    if resource < 2:
        return f"{gpus(amount)} {'GPU' if resource == 0 else 'CPU'}{'' if amount == DEVICE_MILLI else 's'}"
    if amount >= UNLIMITED:
        return "unlimited memory"
    if 0 < amount < 1 << 30:
        return f"{gpus(amount * DEVICE_MILLI >> 20)} MiB"
    return f"{gpus(amount * DEVICE_MILLI >> 30)} GiB"


def scalar_text(name: str, amount: int) -> str:
    """Return an amount of another resource as text: `1 rdma/hca`, `4 GiB of hugepages-2Mi`.

    Example: `scalar_text("rdma/hca", 1)` returns `'1 rdma/hca'`.
    """
    return f"{amount_text(amount, 2)} of {name}" if _is_in_bytes(name) else f"{amount} {name}"


def scalar_number(name: str, amount: int) -> str:
    """Return the text of `scalar_text` without the name of the resource."""
    return amount_text(amount, 2) if _is_in_bytes(name) else str(amount)


def _is_in_bytes(name: str) -> bool:
    return name == "ephemeral-storage" or name.startswith("hugepages-")


def amounts_text(amounts: Amounts) -> str:
    """Return the GPUs as text; if there are none, CPU and memory."""
    if amounts[0]:
        return amount_text(amounts[0], 0)
    return all_amounts_text(amounts)


def all_amounts_text(amounts: Amounts, scalars: Scalars = ()) -> str:
    """Return all amounts above 0 as text: GPUs, CPU, memory and other resources."""
    words = [amount_text(amount, resource) for resource, amount in enumerate(amounts) if amount]
    words += [scalar_text(name, amount) for name, amount in scalars]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "a place"
