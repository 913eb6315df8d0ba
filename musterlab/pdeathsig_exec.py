"""Runs a program that the kernel kills as soon as its parent dies (PR_SET_PDEATHSIG).

Usage: `pdeathsig_exec.py PARENT_PID PROGRAM ARGUMENT...`. The kernel must be asked between fork and exec. Python code
of a process with threads must not run there, so this is a separate program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Replace this process by the program. Ends immediately if the parent has ended already."""
    parent_pid, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        return
    os.execvp(program[0], program)  # noqa: S606 - a list of arguments, no shell


if __name__ == "__main__":
    main(sys.argv[1:])
