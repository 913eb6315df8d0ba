"""Runs commands one after another on one channel of SSH. A shell on the host marks the end of each command's output.

Each command has its own time limit, exit code, output and error output.
"""

import contextlib
import math
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import paramiko

from validation.errors import HostError

CONNECT_SECONDS: Final = 15.0
GRACE_SECONDS: Final = 15.0
"""Maximum time for the answer after the timeout of the tool."""
SAMPLE_SECONDS: Final = 60.0
"""Maximum time after the end of a load for the first reading to be complete, if none was complete during the load."""
MAX_OUTPUT_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 16
_POLL_SECONDS: Final = 0.2
_END_OF_SAMPLE: Final = b"</nvidia_smi_log>"
_TIMED_OUT: Final = (124, 137)
"""Exit codes of `timeout` after it has sent TERM, and after KILL."""
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of tools. The PATH of a command over SSH often lacks them."""
_SHELL: Final = (
    f'PATH="$PATH:{_PATH}" LC_ALL=C; export PATH LC_ALL; m=$1; shift; '
    'mark() { printf "\\n%s %s\\n" "$m" "$1"; printf "\\n%s %s\\n" "$m" "$1" >&2; }; '
    'mark "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"; '
    "exec 3<&0; trap 'kill $! 2>/dev/null; exit 143' TERM; "
    "{ cat <&3; kill $$; } >/dev/null 2>&1 & w=$!; exec 3<&-; "
    "while [ $# -gt 0 ]; do "
    'timeout -k 5 "$1" /bin/sh -c "$2" </dev/null & wait $!; c=$?; mark $c; '
    f"case $c in {'|'.join(map(str, _TIMED_OUT))}) break;; esac; shift 2; done; "
    "kill $w 2>/dev/null"
)
"""The script of a batch. Its arguments are the mark, then the time limit and the line of each command.

It prints the mark with the boot id of the host, and the mark with the exit code after each command, on both outputs.

The input of the channel ends with the connection. `cat` waits for the end of the input, and then the script kills the
running command. After a command that did not end in time, the script ends too: remains of the command may still print.
"""


class Command(NamedTuple):
    """A line for a shell of the host, and its time limit."""

    line: str
    seconds: int


class Ended(NamedTuple):
    """How a command ended on a host."""

    code: int
    output: str
    errors: str
    boot_id: str
    ran_ms: int


def run_batch(
    transport: paramiko.Transport, commands: Sequence[Command], ended: threading.Event | None
) -> Iterator[Ended]:
    """Run the commands, and yield how each ended. If `ended` is set before, stop the command; this is no failure.

    Raises HostError if a command does not end, prints too much, or loses the connection. The commands after it have
    not run then.
    """
    try:
        channel = transport.open_session(timeout=CONNECT_SECONDS)
        with contextlib.closing(channel):
            mark = secrets.token_hex(16)
            channel.exec_command(batch(commands, mark))
            outputs = _Outputs(channel, mark, ended)
            *_, boot_id = outputs.until_mark(CONNECT_SECONDS)
            for command in commands:
                yield _one(outputs, command, boot_id)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise HostError(f"the connection broke: {str(error) or type(error).__name__}") from error


def batch(commands: Sequence[Command], mark: str) -> str:
    """Return the command of the batch for any login shell."""
    words = [word for line, seconds in commands for word in (str(seconds), line)]
    return shlex.join(["/bin/sh", "-c", _SHELL, "sh", mark, *words])


def _one(outputs: "_Outputs", command: Command, boot_id: str) -> Ended:
    started = time.monotonic()
    output, errors, word = outputs.until_mark(command.seconds)
    code = 0 if outputs.is_stopped else int(word)
    if code in _TIMED_OUT:
        raise HostError(f"it did not end within {command.seconds} s")
    return Ended(code, output, errors, boot_id, int((time.monotonic() - started) * 1000))


class _Outputs:
    """Both outputs of a channel, divided at the marks."""

    def __init__(self, channel: paramiko.Channel, mark: str, ended: threading.Event | None) -> None:
        self.is_stopped = False
        self._channel = channel
        self._ended = ended
        self._streams = [
            _Stream(channel.recv, channel.recv_ready, mark),
            _Stream(channel.recv_stderr, channel.recv_stderr_ready, mark),
        ]
        channel.settimeout(_POLL_SECONDS)

    def until_mark(self, seconds: float) -> tuple[str, str, str]:
        """Return the output and the error output until the mark, and the word of the mark.

        If the command was stopped, the word is empty. Raises HostError if there is no mark within `seconds` and
        GRACE_SECONDS.
        """
        deadline, last = time.monotonic() + seconds + GRACE_SECONDS, math.inf
        while waiting := [stream for stream in self._streams if not stream.find()]:
            if all(stream.has_ended for stream in waiting):
                return self._rest()
            ready = [stream for stream in waiting if stream.is_ready()]
            for stream in ready or [stream for stream in waiting if not stream.has_ended][:1]:
                stream.receive()
            if self._ended is not None and self._ended.is_set() and not self.is_stopped:
                last = min(last, time.monotonic() + SAMPLE_SECONDS)
                # wait for at least one complete reading, even if the load was short
                if _END_OF_SAMPLE in self._streams[0].data or time.monotonic() > last:
                    self._channel.shutdown_write()  # ends the tool on the host
                    self.is_stopped = True
            if sum(len(stream.data) for stream in waiting) > MAX_OUTPUT_BYTES:
                raise HostError(f"it printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise HostError(f"no answer within {seconds:g} s")
        (output, word), (errors, _) = (stream.take() for stream in self._streams)
        return output, errors, word

    def _rest(self) -> tuple[str, str, str]:
        """Return the output of a stopped command. Raises HostError if it was not stopped."""
        output, errors = (stream.data.decode(errors="replace") for stream in self._streams)
        if self.is_stopped:
            return output, errors, ""
        self._channel.status_event.wait(GRACE_SECONDS)
        code = self._channel.exit_status  # negative if the channel was cut
        if code < 0:
            raise HostError("the connection broke")
        last = (errors.strip() or output.strip()).splitlines()[-1:]
        raise HostError(": ".join([f"the shell of the host ended with exit code {code}", *last]))


class _Stream:
    """An output of a channel until the next mark, and after it."""

    def __init__(self, receive: Callable[[int], bytes], is_ready: Callable[[], bool], mark: str) -> None:
        self.data = bytearray()
        self.has_ended = False
        self.is_ready = is_ready
        self._receive = receive
        self._mark = f"\n{mark} ".encode()
        self._start = self._end = 0
        """The indexes in `data` of the mark and of the end of its line. The search begins at the first."""

    def receive(self) -> None:
        """Add the next block; none if nothing arrives for a moment."""
        with contextlib.suppress(TimeoutError):
            block = self._receive(_BLOCK_BYTES)
            self.data += block
            self.has_ended = not block

    def find(self) -> bool:
        """Return whether there is a mark."""
        at = self.data.find(self._mark, self._start)
        self._start = at if at >= 0 else max(0, len(self.data) - len(self._mark))
        self._end = self.data.find(b"\n", at + len(self._mark)) if at >= 0 else -1
        return self._end >= 0

    def take(self) -> tuple[str, str]:
        """Remove the output until the mark, and return it with the word of the mark."""
        output = self.data[: self._start].decode(errors="replace")
        word = self.data[self._start + len(self._mark) : self._end].decode()
        del self.data[: self._end + 1]
        self._start = 0
        return output, word
