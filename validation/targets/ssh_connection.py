"""A connection to a host over SSH."""

import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import paramiko

from validation.errors import HostError, UnreachableHostError
from validation.targets.ssh_batch import CONNECT_SECONDS, Command, Ended, run_batch

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


class Connection:
    """A connection to a host, opened with the first command."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._unreachable = ""
        self._closed = threading.Event()

    def run(
        self, commands: Sequence[Command], ended: threading.Event | None = None
    ) -> Iterator[Ended | HostError]:
        """Run the commands one after another, and yield how each ended, or why it did not.

        A command that does not end costs its own output: the others run on another channel. If the connection breaks,
        the others run on another connection; if there is none, each is the error of the connection.

        If `ended` is set before, stop the command; this is no failure.
        """
        done = 0
        while done < len(commands):
            try:
                for how in run_batch(self._opened(), commands[done:], ended):
                    done += 1
                    yield how
            except HostError as error:
                done += 1
                yield error

    def close(self) -> None:
        """Close the connection. A running command loses its input and is ended on the host."""
        self._closed.set()
        if self._client is not None:
            self._client.close()

    def _opened(self) -> paramiko.Transport:
        """Return the transport of the connected client.

        If the host was not reached before, raises UnreachableHostError without another attempt: otherwise every tool
        would wait again.
        """
        with self._lock:
            if self._closed.is_set():
                raise HostError("the run was ended")
            if self._unreachable:
                raise UnreachableHostError(self._unreachable)
            transport = self._client.get_transport() if self._client is not None else None
            if transport is not None and transport.is_active():
                return transport
            try:
                self._client = _connect(self._access)
            except UnreachableHostError as error:
                self._unreachable = str(error)
                raise
            transport = self._client.get_transport()
            if self._closed.is_set() or transport is None:  # another thread has closed it during _connect
                self._client.close()
                raise HostError("the run was ended")
            return transport


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
