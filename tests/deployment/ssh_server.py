"""An SSH server on loopback that runs commands on this machine, and can drop its connections."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

_ACCEPT_SECONDS = 0.2


class SshServer:
    """Listens until `close`. While `drop_on` is set, connections break when a command contains this text."""

    def __init__(self, directory: Path) -> None:
        # a pair of RSA keys takes half a second of processor time
        self._key = paramiko.ECDSAKey.generate()
        self._client_key = paramiko.ECDSAKey.generate()
        self.key_file = directory / "id_ecdsa"
        self._client_key.write_private_key_file(str(self.key_file))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(_ACCEPT_SECONDS)
        self._closing = threading.Event()
        self._transports: list[paramiko.Transport] = []
        self.drop_on = ""
        self.no_root = False
        self.port: int = self._socket.getsockname()[1]
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(
            f"[127.0.0.1]:{self.port} {self._key.get_name()} {self._key.get_base64()}\n"
        )
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        """Break all connections and stop."""
        self._closing.set()
        self._thread.join()
        self.drop()
        self._socket.close()

    def drop(self) -> None:
        """Break every connection."""
        transports, self._transports = self._transports, []
        for each in transports:
            each.close()

    def accepts(self, key: paramiko.PKey) -> bool:
        """Return whether this is the key in `key_file`."""
        return key.get_base64() == self._client_key.get_base64()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            transport = paramiko.Transport(connection)
            transport.add_server_key(self._key)
            self._transports.append(transport)
            # a client that disconnects early is no error of the server
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                transport.start_server(server=_Session(self))


class _Session(paramiko.ServerInterface):
    def __init__(self, server: SshServer) -> None:
        self._server = server

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if self._server.accepts(key) else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._execute, args=(channel, command.decode())).start()
        return True

    def _execute(self, channel: paramiko.Channel, command: str) -> None:
        server = self._server
        if server.drop_on and server.drop_on in command:
            server.drop()
            return
        if server.no_root:
            command = command.replace("sudo -n true", "false")
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        feeder = threading.Thread(target=self._feed, args=(channel, process))
        feeder.start()
        assert process.stdout is not None
        with process.stdout:
            output = process.stdout.read()
        status = process.wait()
        with contextlib.suppress(OSError, EOFError):
            channel.sendall(output)
            channel.send_exit_status(status & 0xFF)
        channel.close()
        feeder.join()

    def _feed(self, channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
        """Pass the client's data on, until the client or the process closes the stream."""
        assert process.stdin is not None
        given = b""
        with contextlib.suppress(OSError), process.stdin:
            while block := channel.recv(65536):
                given += block
                if self._server.drop_on and self._server.drop_on.encode() in given:
                    process.kill()
                    self._server.drop()
                    return
                process.stdin.write(block)
                process.stdin.flush()


@contextmanager
def ssh_server(directory: Path) -> Iterator[SshServer]:
    """Yield a server for the length of a test."""
    server = SshServer(directory)
    try:
        yield server
    finally:
        server.close()
