"""Reads the output of gpu_burn: its last progress, and the verdict on each GPU."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts.host_facts import BurnIn

_VERDICT: Final = re.compile(r"^\s+GPU (\d+): (OK|FAULTY)\s*$", re.MULTILINE)
_WARNING: Final = re.compile(r"\(?(?:WARNING|DIED)!\)?")
_ERRORS: Final = re.compile(r"errors: ([^\r\n]*?)(?:temps:|[\r\n]|$)")
_COUNT: Final = re.compile(r"[0-9]*[1-9][0-9]*")
_RATE: Final = re.compile(r"\((\d+) Gflop/s\)")


def read_burn_in(text: str) -> BurnIn:
    """Return how the load ended. Raises LayerError if it did not finish; its exit code does not show that."""
    ended = re.search(r"^Tested (\d+) GPUs:", text, re.MULTILINE)
    verdicts: dict[int, bool] = {}
    for gpu, verdict in _VERDICT.findall(text):
        verdicts[int(gpu)] = verdicts.get(int(gpu), True) and verdict == "OK"
    if ended is None or len(verdicts) != int(ended[1]):
        raise LayerError(f"gpu_burn did not come to its end: {text.strip()[-100:]!r}")
    progress = [line for line in re.split(r"[\r\n]", text) if "proc'd:" in line]
    rates = [int(rate) for rate in _RATE.findall(progress[-1])] if progress else []
    warnings = sorted(set(_WARNING.findall(text)))
    warnings += sorted(
        {f"errors: {count}" for line in _ERRORS.findall(text) for count in _COUNT.findall(line)}
    )
    return BurnIn([gpu for gpu, ok in sorted(verdicts.items()) if not ok], len(verdicts), rates, warnings)
