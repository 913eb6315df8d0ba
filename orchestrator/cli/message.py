"""Lines on standard error: one for each failure, and the progress of long commands."""

import os
import select
import signal
import sys
import time
from typing import Final

import click

from orchestrator.progress import printable

PROGRESS_SECONDS: Final = 2.0


def say_error(message: str) -> None:
    """Print an error as one line of printable characters."""
    click.echo(f"Error: {printable(' '.join(message.split()))}", err=True)


class Progress:
    """Reports at an interval how many of several things are done; a short operation reports nothing."""

    def __init__(self, total: int, subject: str, every_seconds: float = PROGRESS_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._total = total
        self._what = subject
        self._count = 0
        self._said_at = time.monotonic()

    def one_more(self) -> None:
        """Count one thing that is done."""
        self._count += 1
        if self._count < self._total and time.monotonic() - self._said_at >= self._every_seconds:
            self._said_at = time.monotonic()
            click.echo(f"{self._count} of {self._total} {self._what} …", err=True)


def say(text: str, *, err: bool = False) -> None:
    """Print lines that can contain text of others, such as Events, without control characters."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)


def agree(question: str) -> None:
    """Return after the person at the terminal has agreed. Raises Abort if the person refuses or interrupts."""
    # asyncio.run only marks its task at SIGINT, so the question would continue until a second Ctrl-C. The pipe ends the
    # wait also if the signal comes just before it.
    interrupts, written = os.pipe()
    os.set_blocking(written, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakeup = signal.set_wakeup_fd(written)
    try:
        click.echo(f"{question} [y/N]: ", nl=False, err=True)
        select.select([sys.stdin, interrupts], [], [])
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        raise click.Abort from None
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        os.close(interrupts)
        os.close(written)
    if answer.strip().lower() not in ("y", "yes"):
        raise click.Abort
