"""Connects the standard streams of muster with those of a process in a container."""

import asyncio
import os
import select
import signal
import sys
import termios
import threading
import tty as terminal_modes
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Final

import click

from orchestrator.cluster.errors import StreamBroken
from orchestrator.cluster.remote_process import STDERR, RemoteProcess

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_CHUNK: Final = 32 << 10
_DEADLY: Final = (signal.SIGTERM, signal.SIGHUP)


def stdin_is_a_terminal() -> bool:
    """Return whether the standard input is a terminal."""
    return os.isatty(_STDIN)


def wants_terminal(*, stdin: bool, tty: bool) -> bool:
    """Return whether a requested terminal is possible. If it is not, print the reason on stderr."""
    if tty and stdin and not stdin_is_a_terminal():
        click.echo("Warning: no terminal is used, because the input is not a terminal", err=True)
        return False
    return tty


def report(line: str) -> None:
    """Print a line about the progress on stderr."""
    click.echo(line, err=True)


async def converse(process: RemoteProcess, *, stdin: bool, tty: bool) -> int:
    """Connect the standard streams with a process until it ends, and return its exit code.

    With `tty` every key goes to the process, Ctrl-C too, and the process learns the size of the terminal. The settings
    of the terminal are restored in every case.
    """
    async with _dying_tidily():
        with _raw(_STDIN) if tty else nullcontext():
            helpers = [asyncio.ensure_future(_send_input(process))] if stdin else []
            if tty:
                helpers.append(asyncio.ensure_future(_send_sizes(process)))
            try:
                async for channel, data in process.output():
                    _write(_STDERR if channel == STDERR else _STDOUT, data)
            finally:
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
    return process.exit_code


def write_out(data: bytes) -> None:
    """Write bytes to the standard output as they are."""
    sys.stdout.flush()
    _write(_STDOUT, data)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process on the terminal made it non-blocking
            select.select([], [descriptor], [])


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    saved = termios.tcgetattr(descriptor)
    try:
        terminal_modes.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, saved)


@asynccontextmanager
async def _dying_tidily() -> AsyncIterator[None]:
    """On a signal that would end the program, end it in an orderly way, with the exit code of a shell."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    received: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        received.append(number)
        if task is not None:
            task.cancel()

    for number in _DEADLY:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    except asyncio.CancelledError:
        if received:
            raise click.exceptions.Exit(128 + received[0]) from None
        raise
    finally:
        for number in _DEADLY:
            loop.remove_signal_handler(number)


async def _send_input(process: RemoteProcess) -> None:
    """Send the standard input, and its end. If the process has closed its input, stop without an error."""
    with suppress(StreamBroken):
        async with _input() as chunks:
            async for chunk in chunks:
                await process.send(chunk)
        await process.close_stdin()


@asynccontextmanager
async def _input() -> AsyncIterator[AsyncIterator[bytes]]:
    """Read the standard input in a thread.

    asyncio itself can read only pipes and terminals, not files. It would also make a terminal non-blocking for every
    program that shares it.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    was_read = threading.Event()
    stopped, stop = os.pipe()

    def read() -> None:
        while True:
            ready, _, _ = select.select([_STDIN, stopped], [], [])
            if stopped in ready:
                return
            was_read.clear()
            try:
                data = os.read(_STDIN, _CHUNK)
            except OSError:  # the terminal was closed
                data = b""
            loop.call_soon_threadsafe(queue.put_nowait, data)
            if not data:
                return
            was_read.wait()

    async def chunks() -> AsyncIterator[bytes]:
        while data := await queue.get():
            yield data
            was_read.set()

    thread = threading.Thread(target=read, name="standard input", daemon=True)
    thread.start()
    try:
        yield chunks()
    finally:
        os.write(stop, b"x")
        was_read.set()
        thread.join()
        os.close(stopped)
        os.close(stop)


async def _send_sizes(process: RemoteProcess) -> None:
    """Send the size of the terminal, now and whenever it changes."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    changed.set()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            size = os.get_terminal_size(_STDIN)
            with suppress(StreamBroken):
                await process.resize(size.columns, size.lines)
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
