"""Stops a lab that any process has started, and removes its files."""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from musterlab import state, supervisor
from musterlab.errors import StateError
from musterlab.supervisor_handle import SupervisorHandle

STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02


def stop(directory: Path, handle: SupervisorHandle | None = None) -> None:
    """Stop the lab in a directory and remove the directory.

    Raises:
        StateError: something of it cannot be stopped or removed.
    """
    process_entries = state.process_entries(directory)
    for entry in process_entries[:1]:
        _signal(entry["pid"], entry["start_ticks"], signal.SIGTERM)
    if handle is not None:
        handle.close()
    deadline = time.monotonic() + STOP_SECONDS
    while (handle is not None and not handle.reaped()) or any(
        state.alive(entry) for entry in process_entries
    ):
        if time.monotonic() > deadline:
            # the kernel kills the processes when their supervisor dies
            for entry in process_entries:
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
