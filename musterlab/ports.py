"""Ports on loopback.

Another program can take a free port before the lab's program binds it. So the starter chooses all ports together, just
before it starts the programs. If a program ends, and its log says that a port is in use (`in_use`), the starter tries
again with other ports.
"""

import contextlib
import errno
import socket
from pathlib import Path

from musterlab.errors import PortTaken

LOOPBACK = "127.0.0.1"

_IN_USE = ("address already in use", "bind: address in use")


def choose(count: int) -> list[int]:
    """Return `count` different ports that are free at this moment."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind((LOOPBACK, 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


def check_free(port: int) -> None:
    """Check that a requested port is free.

    Raises:
        PortTaken: the port is in use; the message names it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise port_taken(port) from error
            raise PortTaken(f"port {port} on {LOOPBACK} cannot be used: {error.strerror}") from error


def port_taken(port: int) -> PortTaken:
    """Return the error for a port that is in use."""
    return PortTaken(f"port {port} on {LOOPBACK} is in use: give another --port, or none to have one chosen")


def in_use(log: Path) -> bool:
    """Return whether a program says in its log that a port was taken."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return any(phrase in text for phrase in _IN_USE)
