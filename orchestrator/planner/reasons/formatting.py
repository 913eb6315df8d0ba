"""How amounts, spans of time and lists of names are written in sentences."""

from collections.abc import Sequence

from orchestrator.planner.accounting.amounts import amount_text, amounts_text, gpus
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts

_SHOWN_NAMES = 4


def requests_text(requested: Amounts, pods: int) -> str:
    """What a workload asks for, as the beginning of a sentence."""
    return f"asks for {amounts_text(requested)}" + (f" in {pods} pods together" if pods > 1 else "")


def leading_resource(amounts: Amounts) -> int:
    """The resource that a request is about: GPUs, else CPU, else memory."""
    return next((resource for resource, amount in enumerate(amounts) if amount), 1)


def number_text(amount: int, resource: int) -> str:
    """GPUs without their unit, which is said before."""
    return gpus(amount) if resource == 0 else amount_text(amount, resource)


def is_or_are(amount: int, resource: int) -> str:
    """The verb that follows an amount."""
    one = amount in (DEVICE_MILLI, UNLIMITED) and resource < 2
    return "is" if one else "are"


def some_of(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{', '.join(names[:_SHOWN_NAMES])}{more}"


def minutes_text(span_us: int) -> str:
    """A span of time in minutes, above ten hours in hours; the part of one that is left counts as a whole one."""
    minutes = -(-max(0, span_us) // 60_000_000)
    return f"{minutes} min" if minutes < 600 else f"{-(-minutes // 60)} h"
