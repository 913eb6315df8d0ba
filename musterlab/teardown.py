"""Stops a lab, whoever started it, and removes what it kept."""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from musterlab import state, supervisor
from musterlab.errors import StateError
from musterlab.tie import Tie

STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02


def stop(directory: Path, tie: Tie | None = None) -> None:
    """Stop the lab in a directory and remove the directory.

    Raises:
        StateError: something of it cannot be stopped or removed.
    """
    lifelines = state.lifelines(directory)
    for entry in lifelines[:1]:
        _signal(entry["pid"], entry["start_ticks"], signal.SIGTERM)
    if tie is not None:
        tie.cut()
    deadline = time.monotonic() + STOP_SECONDS
    while (tie is not None and not tie.reaped()) or any(state.alive(entry) for entry in lifelines):
        if time.monotonic() > deadline:
            # the kernel takes the processes along with their supervisor
            for entry in lifelines:
                _signal(entry["pid"], entry["start_ticks"], signal.SIGKILL)
            deadline = float("inf")
        time.sleep(_POLL_SECONDS)
    try:
        supervisor.remove_cgroups(supervisor.cgroups(directory))
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StateError(
            f"{error.filename} cannot be removed ({error.strerror}): remove {directory}"
        ) from error


def _signal(pid: int, start_ticks: int, number: signal.Signals) -> None:
    if state.alive({"pid": pid, "start_ticks": start_ticks}):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
