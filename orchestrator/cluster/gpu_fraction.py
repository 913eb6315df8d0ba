"""Numbers of GPUs and fractions of a GPU, as exact thousandths of a device.

Nothing is rounded here: a fraction has at most three places. The planner's `Request.portion_milli` converts an
amount of memory to a fraction, rounded up.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from orchestrator.cluster.quantity import shortened

MAX_GPUS: Final = 1_000_000
DEVICE_MILLI: Final = 1000
"""One device. The planner has its own constant, because it imports no other package of muster."""


@lru_cache(maxsize=4096)
def gpu_milli(gpus: Decimal | str | int) -> int:
    """Return a number of GPUs in thousandths of a device, exactly.

    Raises ValueError if it is not a decimal number, is negative or above a million, or has more than three places.
    """
    try:
        value = Decimal(gpus)
    except InvalidOperation as error:
        raise ValueError(f"{shortened(str(gpus))} is no number of GPUs; write it like 2 or 0.5") from error
    if not value.is_finite() or value < 0 or value > MAX_GPUS:
        raise ValueError(f"{str(gpus)[:60]} is no number of GPUs; write it like 2 or 0.5")
    milli = value * DEVICE_MILLI
    if milli != milli.to_integral_value():
        raise ValueError(
            f"{str(gpus)[:60]} GPUs has more than three places; a thousandth of a device is the least"
        )
    return int(milli)


def format_gpu(gpu_milli: int) -> str:
    """Return thousandths of a device as a decimal number of GPUs without needless zeros: `2`, `0.5`.

    Example: `format_gpu(1500)` returns `'1.5'`.
    """
    sign = "-" if gpu_milli < 0 else ""
    whole, part = divmod(abs(gpu_milli), 1000)
    return f"{sign}{whole}.{part:03d}".rstrip("0").rstrip(".")
