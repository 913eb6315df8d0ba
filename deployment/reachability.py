"""Checks, before Ansible runs, that every host can be reached over SSH and meets the requirements of Ansible."""

import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from deployment.ssh import CHECKED
from orchestrator.progress import Reporter

_CONNECT_SECONDS: Final = 10
_TIMEOUT_SECONDS: Final = 40
_SKEW_SECONDS: Final = 60
_AT_ONCE: Final = 32
_NO_CONNECTION: Final = 255
"""The exit status of `ssh` if the connection failed. Any other status comes from the remote command."""

_FACTS: Final = (
    'echo "python $(command -v python3 || command -v python)"; echo "time $(date +%s)"; '
    'echo "root $(sudo -n true 2>/dev/null && echo yes)"'
)


@dataclass(frozen=True)
class Problem:
    """The reason why a host cannot be used, and the fix."""

    host: str
    cause: str
    fix: str


def problems(hosts: Mapping[str, dict[str, Any]], progress: Reporter) -> list[Problem]:
    """Log in to every SSH host of an inventory. Report every problem, and return all of them."""
    reached = {name: values for name, values in hosts.items() if values["ansible_connection"] == "ssh"}
    if not reached:
        return []
    progress(f"reaching {len(reached)} hosts over SSH")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        replies = pool.map(lambda item: probe(*item), reached.items())
        every = [problem for host_problems in replies for problem in host_problems]
    for problem in every:
        progress(f"  {problem.host}: {problem.cause}")
        progress(f"  {' ' * len(problem.host)}  fix: {problem.fix}")
    return every


def probe(name: str, values: dict[str, Any]) -> list[Problem]:
    """Return every problem of one host; empty when the host is ready. Calls `ssh`, as Ansible does."""
    command = _ssh(values)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=_TIMEOUT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [Problem(name, f"{_target(values)} does not answer", "check power, network and sshd")]
    except FileNotFoundError:
        return [Problem(name, "there is no ssh on this machine", "install the package openssh-client")]
    if done.returncode == _NO_CONNECTION:
        return [_connection_problem(name, values, done.stderr)]
    return [*_fact_problems(name, values, done.stdout)]


def _ssh(values: dict[str, Any]) -> list[str]:
    key = values.get("ansible_ssh_private_key_file")
    user = values.get("ansible_user")
    return [
        "ssh", *CHECKED, "-o", f"ConnectTimeout={_CONNECT_SECONDS}",
        *shlex.split(str(values.get("ansible_ssh_common_args", ""))),
        *shlex.split(str(values.get("ansible_ssh_extra_args", ""))),
        *(["-i", str(key)] if key else []), *(["-l", str(user)] if user else []),
        "-p", str(values["ansible_port"]), "--", str(values["ansible_host"]),
        f"/bin/sh -c {shlex.quote(_FACTS)}",
    ]  # fmt: skip


def _target(values: dict[str, Any]) -> str:
    return f"{values['ansible_host']} port {values['ansible_port']}"


def _connection_problem(name: str, values: dict[str, Any], said: str) -> Problem:
    """Return the message of OpenSSH as a problem. If the jump host is the cause, the problem names the jump host."""
    user = values.get("ansible_user", "the present user")
    target = _target(values)
    over = " (over the jump host)" if "ProxyCommand" in str(values.get("ansible_ssh_common_args", "")) else ""
    network = "check power, network and sshd"
    table: tuple[tuple[str, str, str], ...] = (
        (
            r"Could not resolve hostname (\S+?):",
            "the name {0} cannot be resolved",
            "write an address, or repair the name service",
        ),
        (
            r"Host key for \[?([^\s\]]+)(?:\]:(\d+))? has changed",
            "the key of {0} port {1} is not the known one",
            "check the host, then: ssh-keygen -R '[{0}]:{1}' (without brackets and port where that is 22)",
        ),
        (
            r"host key is known for \[?([^\s\]]+)(?:\]:(\d+))? and you",
            "the key of {0} port {1} is not known",
            "compare it at the console, then: ssh-keyscan -p {1} {0} >> ~/.ssh/known_hosts",
        ),
        (r"Identity file (\S+) not accessible", "there is no key file {0}", "correct access.key_file"),
        (r'Load key "([^"]+)"', "the key file {0} cannot be used", "correct access.key_file"),
        (
            r"(\S+): Permission denied",
            f"{{0}} does not accept the key of {user}",
            "put the public key into its ~/.ssh/authorized_keys, or name another with access.key_file",
        ),
        (r"connect to host (\S+) port (\d+):", "{0} port {1} does not answer", network),
        (
            r"Connection (?:to \S+ )?(?:timed out|closed|reset)|send disconnect|banner exchange|stdio forwarding",
            f"{target} does not answer{over}",
            network,
        ),
    )  # fmt: skip
    for pattern, cause, fix in table:
        found = re.search(pattern, said)
        if found:
            parts = found.groups(default="22")
            return Problem(name, cause.format(*parts), fix.format(*parts))
    last = said.strip().rpartition("\n")[2]
    return Problem(name, f"{target}: {last or 'ssh gave no reason'}", "try `ssh -v` to it")


def _fact_problems(name: str, values: dict[str, Any], reply: str) -> Iterator[Problem]:
    """Yield the problems that would stop Ansible on the host: no Python, a wrong clock, no root access."""
    facts = dict(line.split(" ", 1) for line in reply.splitlines() if " " in line)
    checks: list[tuple[str, Callable[[str], bool], str, str]] = [
        ("python", bool, "there is no Python on it", "install the package python3"),
        (
            "time",
            lambda value: value.isdigit() and abs(int(value) - time.time()) < _SKEW_SECONDS,
            f"its clock is more than {_SKEW_SECONDS} s off",
            "start chrony or systemd-timesyncd on it: certificates and etcd need the time",
        ),
    ]
    if values.get("ansible_become"):
        checks.append(
            (
                "root",
                lambda value: value == "yes",
                "the user may not become root without a password",
                "add `USER ALL=(ALL) NOPASSWD: ALL` below /etc/sudoers.d",
            )
        )
    for fact, good, cause, fix in checks:
        if not good(facts.get(fact, "").strip()):
            yield Problem(name, cause, fix)
