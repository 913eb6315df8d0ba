"""The check before Ansible that every host can be reached over SSH and has what Ansible needs."""

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paramiko

from deployment.errors import InstallError
from orchestrator.progress import Reporter

_TIMEOUT_SECONDS: Final = 10.0
_SKEW_SECONDS: Final = 60
_AT_ONCE: Final = 32


@dataclass(frozen=True)
class Problem:
    """Why a host cannot be worked on, and what to do about it."""

    host: str
    cause: str
    fix: str


def check(inventory: dict[str, Any], progress: Reporter, resume: str) -> None:
    """Log in to every SSH host. Raises InstallError after reporting each that fails."""
    hosts = {
        name: values
        for name, values in inventory["all"]["hosts"].items()
        if values["ansible_connection"] == "ssh"
    }
    if not hosts:
        return
    progress(f"reaching {len(hosts)} hosts over SSH")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = [
            problem
            for host_problems in pool.map(lambda item: probe(*item), hosts.items())
            for problem in host_problems
        ]
    for problem in problems:
        progress(f"  {problem.host}: {problem.cause}")
        progress(f"  {' ' * len(problem.host)}  fix: {problem.fix}")
    if problems:
        failed = ", ".join(sorted({problem.host for problem in problems}))
        raise InstallError(f"{failed}: not ready; nothing was changed. When that is fixed: {resume}")


def probe(name: str, values: dict[str, Any]) -> list[Problem]:
    """Return every problem of one host; empty when it is ready."""
    address, port = values["ansible_host"], int(values["ansible_port"])
    target = f"{address} port {port}"
    with contextlib.ExitStack() as stack:
        client = paramiko.SSHClient()
        stack.callback(client.close)
        _known_hosts(client, values)
        try:
            key = values.get("ansible_ssh_private_key_file")
            client.connect(
                address,
                port,
                values.get("ansible_user"),
                pkey=paramiko.PKey.from_path(key) if key else None,
                look_for_keys=not key,
                timeout=_TIMEOUT_SECONDS,
                banner_timeout=_TIMEOUT_SECONDS,
                auth_timeout=_TIMEOUT_SECONDS,
            )
        except FileNotFoundError as error:
            return [Problem(name, f"there is no key file {error.filename}", "correct access.key_file")]
        except (OSError, paramiko.SSHException) as error:
            return [_connection_problem(name, target, values, error)]
        return [*_facts(name, client, values)]


def _known_hosts(client: paramiko.SSHClient, values: dict[str, Any]) -> None:
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    option = re.search(r"UserKnownHostsFile=(\S+)", str(values.get("ansible_ssh_common_args", "")))
    path = Path(option[1]) if option else Path.home() / ".ssh" / "known_hosts"
    if path.is_file():
        client.load_host_keys(str(path))
    if not option:
        client.load_system_host_keys()


def _connection_problem(name: str, target: str, values: dict[str, Any], error: Exception) -> Problem:
    user, address = values.get("ansible_user", "the present user"), values["ansible_host"]
    silent = f"{target} does not answer"
    table: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
        (
            socket.gaierror,
            f"the name {address} cannot be resolved",
            "write an address, or repair the name service",
        ),
        (
            paramiko.BadHostKeyException,
            f"the key of {target} is not the known one",
            f"check the host, then: ssh-keygen -R {address}",
        ),
        (
            paramiko.AuthenticationException,
            f"{target} does not accept the key of {user}",
            "put the public key into its ~/.ssh/authorized_keys, or name another with access.key_file",
        ),
        ((TimeoutError, ConnectionError), silent, "check power, network and sshd"),
        (paramiko.ssh_exception.NoValidConnectionsError, silent, "check power, network and sshd"),
    )
    for kind, cause, fix in table:
        if isinstance(error, kind):
            return Problem(name, cause, fix)
    if "not found in known_hosts" in str(error):
        scan = f"ssh-keyscan -p {values['ansible_port']} {address} >> ~/.ssh/known_hosts"
        return Problem(name, f"the key of {target} is not known", f"compare it at the console, then: {scan}")
    return Problem(name, f"{target}: {error}", "try `ssh -v` to it")


def _facts(name: str, client: paramiko.SSHClient, values: dict[str, Any]) -> Iterable[Problem]:
    """Yield what would stop Ansible on the host: no Python, a wrong clock, no root."""
    checks: list[tuple[str, Callable[[str], bool], str, str]] = [
        (
            "command -v python3 || command -v python",
            lambda reply: bool(reply.strip()),
            "there is no Python on it",
            "install the package python3",
        ),
        (
            "date +%s",
            lambda reply: reply.strip().isdigit() and abs(int(reply) - time.time()) < _SKEW_SECONDS,
            f"its clock is more than {_SKEW_SECONDS} s off",
            "start chrony or systemd-timesyncd on it: certificates and etcd need the time",
        ),
    ]
    if values.get("ansible_become"):
        checks.append(
            (
                "sudo -n true && echo root",
                lambda reply: reply.strip() == "root",
                "the user may not become root without a password",
                "add `USER ALL=(ALL) NOPASSWD: ALL` below /etc/sudoers.d",
            )
        )
    for command, good, cause, fix in checks:
        try:
            _, output, _ = client.exec_command(command, timeout=_TIMEOUT_SECONDS)
            reply = output.read().decode(errors="replace")
        except (OSError, paramiko.SSHException) as error:
            yield Problem(name, f"the connection dropped: {error}", "check network and sshd")
            return
        if not good(reply):
            yield Problem(name, cause, fix)
