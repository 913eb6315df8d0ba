"""Decides from when a GPU must not be used, and when it may be used again. Pure: the time is an argument.

| reason | cause | ends |
|---|---|---|
| `lost`, `reset-required` | an error of NVML | when the GPU has answered for a minute |
| `no-answer` | other errors of NVML, three samples in a row | the same |
| `xid-N` | a critical event that a program did not cause | when the node has started again |
| `row-remap-failed` | the GPU has no spare rows left | when the GPU was replaced |
"""

from typing import Final

from orchestrator.agent.model import XidErrors

PROGRAMS_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Xids that are faults of programs: the same ones that NVIDIA's device plugin ignores (internal/rm/health.go,
v0.20).
"""
ROW_REMAP_FAILED: Final = "row-remap-failed"
_TRIES: Final = {"no-answer": 3}
_GOOD_SECONDS: Final = 60.0
_XID: Final = "xid-"
_MAX_XIDS: Final = 32


class GpuHealth:
    """The health of one GPU, from its samples and the errors of the driver."""

    def __init__(self, xid_failure: str = "") -> None:
        self._xid_failure = xid_failure
        self._problem = ""
        self._bad_samples = 0
        self._good_since: float | None = None
        self._rows_failed = False
        self._xids: dict[int, XidErrors] = {}

    @property
    def failure(self) -> str:
        """Why the GPU must not be used, "" if it may be used."""
        return self._xid_failure or self._problem or (ROW_REMAP_FAILED if self._rows_failed else "")

    @property
    def is_lost(self) -> bool:
        """Whether the GPU does not answer; it can have other failures too."""
        return bool(self._problem)

    @property
    def xids(self) -> tuple[XidErrors, ...]:
        """The count and the last time of each Xid, by number, for the first 32 different Xids."""
        return tuple(self._xids[xid] for xid in sorted(self._xids))

    def has_answered(self, now: float) -> None:
        """Note that a sample was read at the time `now`."""
        self._bad_samples = 0
        if self._good_since is None:
            self._good_since = now
        if self._problem and now - self._good_since >= _GOOD_SECONDS:
            self._problem = ""

    def has_failed(self, kind: str) -> None:
        """Note that a sample could not be read; `kind` is the kind of the GpuProblem."""
        self._good_since = None
        self._bad_samples += 1
        if self._bad_samples >= _TRIES.get(kind, 1):
            self._problem = kind

    def has_xid(self, xid: int, at: float) -> None:
        """Note an Xid of the driver; `at` is its time in seconds since the epoch."""
        known = self._xids.get(xid)
        if known is not None or len(self._xids) < _MAX_XIDS:
            self._xids[xid] = XidErrors(xid, known.count + 1 if known is not None else 1, int(at))
        if xid not in PROGRAMS_XIDS:
            self._xid_failure = f"{_XID}{xid}"

    def has_rows(self, *, failed: bool | None) -> None:
        """Note whether a row of the GPU's memory could not be replaced."""
        self._rows_failed = bool(failed)


def lasting(failure: str) -> str:
    """Return the failure if it outlives a restart of the agent, else "". The failure of an Xid lasts until the node
    restarts.
    """
    return failure if failure.startswith(_XID) else ""
