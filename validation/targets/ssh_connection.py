"""A connection to a host over SSH. The time and the output of commands are limited."""

import contextlib
import math
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import paramiko

from validation.errors import HostError, UnreachableHostError

CONNECT_SECONDS: Final = 15.0
GRACE_SECONDS: Final = 15.0
"""Maximum time for the answer after the timeout of the tool."""
SAMPLE_SECONDS: Final = 60.0
"""Maximum time after the end of a load for the first reading to be complete, if none was complete during the load."""
MAX_OUTPUT_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 16
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of tools. The PATH of a command over SSH often lacks them."""
BOOT: Final = "muster boot id: "
_SYSTEM_KNOWN_HOSTS: Final = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True, slots=True)
class Access:
    """The address and the login of a host.

    If `user` is empty, the present user logs in. If `key_file` is empty, the keys of the SSH agent and of ~/.ssh are
    used. If `jump` is empty, the connection is direct.
    """

    address: str
    port: int = 22
    user: str = ""
    key_file: str = ""
    known_hosts: str = ""
    jump: str = ""


class Ended(NamedTuple):
    """How a command ended on a host."""

    code: int
    output: str
    errors: str
    ran_ms: int


class Connection:
    """A connection to a host, opened with the first command. Commands run one after another."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._unreachable = ""
        self._closed = threading.Event()

    def run(self, line: str, seconds: int) -> Ended:
        """Run the command line, and return how it ended. Raises HostError."""
        with self._lock:
            client = self._opened()
            started = time.monotonic()
            code, output, errors = _execute(client, line, seconds)
            return Ended(code, output, errors, int((time.monotonic() - started) * 1000))

    def run_beside(self, line: str, seconds: int, ended: threading.Event) -> Ended:
        """Run a command line beside another command until `ended` is set, and return how it ended. Raises HostError."""
        client = self._client
        if client is None:
            with self._lock:
                client = self._opened()
        started = time.monotonic()
        code, output, errors = _execute(client, line, seconds, ended)
        return Ended(code, output, errors, int((time.monotonic() - started) * 1000))

    def close(self) -> None:
        """Close the connection. A running command loses its input and is ended on the host."""
        self._closed.set()
        if self._client is not None:
            self._client.close()

    def _opened(self) -> paramiko.SSHClient:
        """Return the connected client.

        If the host was not reached before, raises UnreachableHostError without another attempt: otherwise every tool
        would wait again.
        """
        if self._closed.is_set():
            raise HostError("the run was ended")
        if self._unreachable:
            raise UnreachableHostError(self._unreachable)
        transport = self._client.get_transport() if self._client is not None else None
        if self._client is None or transport is None or not transport.is_active():
            try:
                self._client = _connect(self._access)
            except UnreachableHostError as error:
                self._unreachable = str(error)
                raise
            if self._closed.is_set():  # another thread has closed the connection during _connect
                self._client.close()
                raise HostError("the run was ended")
        return self._client


def _connect(access: Access) -> paramiko.SSHClient:
    """Return a client that is logged in. Raises UnreachableHostError, with the remedy."""
    where = f"{access.address} port {access.port}"
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    for path in _known_hosts(access):
        try:
            client.load_system_host_keys(str(path))
        except OSError as error:
            raise UnreachableHostError(f"{path} cannot be read: {error.strerror or error}") from error
        except (paramiko.hostkeys.InvalidHostKey, UnicodeDecodeError) as error:
            line = getattr(error, "line", "")
            raise UnreachableHostError(
                f"{path} has a line that cannot be read{f' ({line.strip()[:60]!r})' if line else ''}: "
                "name a file of plain host keys with access.known_hosts"
            ) from error
    try:
        client.connect(
            access.address,
            port=access.port,
            username=access.user or None,
            key_filename=access.key_file or None,
            look_for_keys=not access.key_file,
            sock=_jump(access),
            timeout=CONNECT_SECONDS,
            banner_timeout=CONNECT_SECONDS,
            auth_timeout=CONNECT_SECONDS,
        )
    except paramiko.BadHostKeyException as error:
        client.close()
        raise UnreachableHostError(
            f"the key of {where} is not the known one: check the host, then `ssh-keygen -R`"
        ) from error
    except paramiko.PasswordRequiredException as error:
        client.close()
        raise UnreachableHostError(
            f"the key {access.key_file} has a passphrase: load it into the agent with `ssh-add`"
        ) from error
    except paramiko.AuthenticationException as error:
        client.close()
        raise UnreachableHostError(
            f"{where} does not accept the key of {access.user or 'the present user'}: put it into "
            "~/.ssh/authorized_keys there, or name another with access.key_file"
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        client.close()
        raise UnreachableHostError(_cause(where, access, error)) from error
    return client


def _cause(where: str, access: Access, error: Exception) -> str:
    if "not found in known_hosts" in str(error):
        return f"the key of {where} is not known: compare it at the console, then `ssh-keyscan`"
    if isinstance(error, FileNotFoundError) and access.key_file:
        return f"there is no key file {access.key_file}: correct access.key_file"
    over = " over the jump host" if access.jump else ""
    return f"{where} cannot be reached{over}: {str(error) or type(error).__name__}: check power, network and sshd"


def _known_hosts(access: Access) -> list[Path]:
    """Return the existing files of host keys."""
    own = Path(access.known_hosts) if access.known_hosts else Path.home() / ".ssh" / "known_hosts"
    return [path for path in (own, _SYSTEM_KNOWN_HOSTS) if path.exists()]


def _jump(access: Access) -> paramiko.ProxyCommand | None:
    """Return the command that connects over the jump host; None without a jump host."""
    if not access.jump:
        return None
    marks = {"%%": "%", "%h": access.address, "%p": str(access.port)}
    words = [_replaced(word, marks) for word in shlex.split(access.jump)]
    return paramiko.ProxyCommand(shlex.join(words))


def _replaced(word: str, marks: Mapping[str, str]) -> str:
    """Return the word with each mark of OpenSSH (such as %h) replaced, from left to right."""
    parts, index = [], 0
    while index < len(word):
        mark = word[index : index + 2]
        parts.append(marks.get(mark, word[index]))
        index += 2 if mark in marks else 1
    return "".join(parts)


def _execute(
    client: paramiko.SSHClient, line: str, seconds: int, ended: threading.Event | None = None
) -> tuple[int, str, str]:
    """Run the command line for at most `seconds`. If `ended` is set before, stop the command; this is no failure.

    Raises HostError if the command does not end, prints too much, or loses the connection.
    """
    try:
        transport = client.get_transport()
        if transport is None:
            raise HostError("the connection was closed")
        channel = transport.open_session(timeout=CONNECT_SECONDS)
        with contextlib.closing(channel):
            channel.exec_command(bounded(line, seconds))
            return _collect(channel, seconds, time.monotonic, ended)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise HostError(f"the connection broke: {str(error) or type(error).__name__}") from error


def bounded(line: str, seconds: int) -> str:
    """Return a command for any login shell. It runs `line`, and ends after `seconds` or with the connection.

    The input of the channel ends with the connection. `cat` waits for the end of the input, and its shell then kills
    the tool.
    """
    script = (
        f'PATH="$PATH:{_PATH}" LC_ALL=C; export PATH LC_ALL; '
        f'echo "{BOOT}$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)" >&2; exec 3<&0; '
        f"timeout -k 5 {seconds} /bin/sh -c {shlex.quote(line)} </dev/null 3<&- & t=$!; "
        "{ cat <&3 >/dev/null; kill $t; } >/dev/null 2>&1 & w=$!; exec 3<&-; "
        "wait $t; c=$?; kill $w 2>/dev/null; exit $c"
    )
    return f"/bin/sh -c {shlex.quote(script)}"


_POLL_SECONDS: Final = 0.2
_END_OF_SAMPLE: Final = b"</nvidia_smi_log>"
_TIMED_OUT: Final = (124, 137)
"""Exit codes of `timeout` after it has sent TERM, and after KILL."""


def _collect(
    channel: paramiko.Channel, seconds: int, clock: Callable[[], float], ended: threading.Event | None
) -> tuple[int, str, str]:
    is_stopped, last = False, math.inf
    output, errors = bytearray(), bytearray()
    deadline = clock() + seconds + GRACE_SECONDS
    channel.settimeout(_POLL_SECONDS)
    streams = ((channel.recv, output), (channel.recv_stderr, errors))
    while not (channel.exit_status_ready() and _is_dry(channel)):
        ends = 0
        for receive, received in streams:
            try:
                block = receive(_BLOCK_BYTES)
            except TimeoutError:
                continue
            received.extend(block)
            ends += not block
        if ends == len(streams):  # both have ended, so that `receive` does not wait for the exit status
            channel.status_event.wait(_POLL_SECONDS)
        if ended is not None and ended.is_set() and not is_stopped:
            last = min(last, clock() + SAMPLE_SECONDS)
            # wait for at least one complete reading, even if the load was short
            if _END_OF_SAMPLE in output or clock() > last:
                channel.shutdown_write()  # ends the tool on the host
                is_stopped = True
        if len(output) + len(errors) > MAX_OUTPUT_BYTES:
            raise HostError(f"it printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
        if clock() > deadline:
            raise HostError(f"no answer within {seconds} s")
    code = channel.exit_status  # negative if the channel was cut
    if is_stopped:
        return 0, output.decode(errors="replace"), errors.decode(errors="replace")
    if code < 0:
        raise HostError("the connection broke")
    if code in _TIMED_OUT:
        raise HostError(f"it did not end within {seconds} s")
    return code, output.decode(errors="replace"), errors.decode(errors="replace")


def _is_dry(channel: paramiko.Channel) -> bool:
    return (
        not channel.recv_ready()
        and not channel.recv_stderr_ready()
        and bool(channel.eof_received or channel.closed)
    )
