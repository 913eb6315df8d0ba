"""The hosts of a site over SSH: runs tools on all of them at once, and records what they printed.

Host keys must be known, as for `muster install`; a jump host is reached by the command that Ansible's `ssh` has.
"""

import asyncio
import contextlib
import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import paramiko

from deployment.matrix import gpus_of
from deployment.site import Site
from deployment.site_file import load
from deployment.ssh import jump_command
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.errors import HostError, UnreachableHostError
from validation.judge.events import ToolRan
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.layers.secrets import conceal
from validation.layers.tools import TOOLS, Tool
from validation.scenario.images import NO_MAP, ImageMap
from validation.targets.recorder import Recorder
from validation.targets.site_images import read_images

CONNECT_SECONDS: Final = 15.0
GRACE_SECONDS: Final = 15.0
"""So much longer than the tool may run its answer is waited for."""
MAX_OUTPUT_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 16
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Where tools are that the PATH of a command over SSH lacks."""
_BOOT: Final = "muster boot id: "
_SYSTEM_KNOWN_HOSTS: Final = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True, slots=True)
class Access:
    """How a host is reached.

    Empty: `user` the present one, `key_file` those of the agent and of ~/.ssh, `jump` directly.
    """

    address: str
    port: int = 22
    user: str = ""
    key_file: str = ""
    known_hosts: str = ""
    jump: str = ""


@dataclass(slots=True)
class SiteHosts:
    """The hosts of a site, with a connection to each that stays open. `close` it."""

    scope: HostScope
    access: Mapping[str, Access]
    images: ImageMap = NO_MAP
    """Where the site has the images that scenarios name."""
    _connections: dict[str, "_Connection"] = field(default_factory=dict)
    _ran: set[str] = field(default_factory=set)
    _is_closed: bool = False

    async def run(self, tool: str, recorder: Recorder, *, again: bool) -> None:
        """Run the tool on all hosts at once, unless it ran already and not `again`; record how it ended on each.

        If this is cancelled, the tool is ended on the hosts.
        """
        if tool in self._ran and not again:
            return
        self._ran.add(tool)
        site = self.scope.site
        lines = {host.name: TOOLS[tool].line(site, host) for host in site.hosts}
        # a thread for each host: loads are put on all hosts at the same time
        threads = ThreadPoolExecutor(max(1, len(site.hosts)))
        loop = asyncio.get_running_loop()

        async def run_on(host: DeclaredHost) -> None:
            event = await loop.run_in_executor(threads, self._run, TOOLS[tool], host.name, lines[host.name])
            recorder.record(_without_secrets(event, recorder.now_ms()))

        try:
            await asyncio.gather(*(run_on(host) for host in site.hosts if lines[host.name]))
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            threads.shutdown(wait=False)

    def close(self) -> None:
        """End what runs, and the connections."""
        self._is_closed = True
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def _connection(self, host: str) -> "_Connection":
        if self._is_closed:
            raise HostError("the run was ended")
        return self._connections.setdefault(host, _Connection(self.access[host]))

    def _run(self, tool: Tool, host: str, line: str) -> ToolRan:
        """Run a line on a host. What prevented it is in the event."""
        try:
            ended = self._connection(host).run(line, tool.seconds)
        except HostError as error:
            return ToolRan(0, host, tool.name, line, -1, problem=str(error))
        boot_id, errors = _split_boot_id(ended.errors)
        return ToolRan(
            0, host, tool.name, line, ended.code, ended.output, errors, boot_id=boot_id, ran_ms=ended.ran_ms
        )


def _without_secrets(event: ToolRan, now_ms: int) -> ToolRan:
    return msgspec.structs.replace(
        event, t_ms=now_ms, output=conceal(event.output), error_output=conceal(event.error_output)
    )


def _split_boot_id(errors: str) -> tuple[str, str]:
    """The boot id of the host, and what was printed beside it: the login shell may have spoken before."""
    lines = errors.splitlines(keepends=True)
    number = next((number for number, line in enumerate(lines) if line.startswith(_BOOT)), None)
    if number is None:
        return "", errors
    return lines[number].removeprefix(_BOOT).strip(), "".join(lines[:number] + lines[number + 1 :])


def read_site(
    path: Path, *, golden: str = "", tests: Iterable[str] = (), mounts: Sequence[str] = ()
) -> SiteHosts:
    """The hosts with GPUs of a site file. Raises SiteError, and HostError for one without such a host."""
    site = load(path)
    gpu_hosts = {name: host for name, host in site.hosts.items() if "gpu" in host["roles"]}
    if not gpu_hosts:
        raise HostError(f"{path}: no host of the site has the role gpu")
    if golden and golden not in gpu_hosts:
        raise HostError(f"--golden {golden}: no such host; there are: {', '.join(gpu_hosts)}")
    foreign = next((n for n, host in gpu_hosts.items() if host.get("connection", "ssh") != "ssh"), None)
    if foreign is not None:
        raise HostError(f"{path}: {foreign} is not reached over SSH, so its tools cannot be run")
    if wrong := [mount for mount in mounts if not mount.startswith("/")]:
        raise HostError(f"--mount {wrong[0]}: not the path of a directory, which begins with /")
    declared = [
        DeclaredHost(name, host["model"], gpus_of(host) or 0)
        for name, host in gpu_hosts.items()
        if name not in site.maintenance
    ]
    figures = load_thresholds()
    away = {name: reason for name, reason in site.maintenance.items() if name in gpu_hosts}
    host_site = msgspec.structs.replace(
        _host_site(site),
        hosts=declared,
        away=away,
        golden=golden,
        tests=sorted(set(tests)),
        mounts=list(mounts),
        nonce=secrets.token_hex(8),
        name=site.name,
    )
    scope = HostScope(
        host_site,
        figures.systems,
        figures.hosts,
        figures_sha256(),
    )
    access = {host.name: _access(site, gpu_hosts[host.name]) for host in declared}
    return SiteHosts(scope, access, read_images(site))


def _host_site(site: Site) -> HostSite:
    """What the site file says of driver, network and storage."""
    storage_class = next(
        (c for c in site.get("storage", "classes", default=[]) if c.get("default")), dict[str, Any]()
    )
    return HostSite(
        driver=site.versions.get("driver", ""),
        mtu=site.get("network", "mtu", default=0),
        networks=list(site.get("storage", "ontap", "export_cidrs", default=[])),
        other_vlans=[
            vlan["name"]
            for vlan in site.get("network", "vlans", default=[])
            if vlan["id"] not in {v["id"] for v in site.get("storage", "ontap", "vlans", default=[])}
        ],
        servers=[lif["address"] for lif in site.get("storage", "ontap", "data_lifs", default=[])],
        mount_options=list(storage_class.get("mount_options", [])),
    )


def _access(site: Site, host: Mapping[str, Any]) -> Access:
    def expanded(path: str) -> str:
        return str(Path(path).expanduser()) if path else ""

    return Access(
        host["address"],
        host.get("port", site.get("access", "port", default=22)),
        host.get("user", site.get("access", "user", default="")),
        expanded(site.get("access", "key_file", default="")),
        expanded(site.get("access", "known_hosts", default="")),
        jump_command(site, dict(host)),
    )


class _Ended(NamedTuple):
    """How a command ended on a host."""

    code: int
    output: str
    errors: str
    ran_ms: int


class _Connection:
    """A connection to a host, opened with the first command. Commands run one after another."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._client: paramiko.SSHClient | None = None
        self._unreachable = ""
        self._closed = threading.Event()

    def run(self, line: str, seconds: int) -> _Ended:
        """How the line ended. Raises HostError."""
        with self._lock:
            client = self._opened()
            started = time.monotonic()
            code, output, errors = _execute(client, line, seconds)
            return _Ended(code, output, errors, int((time.monotonic() - started) * 1000))

    def close(self) -> None:
        """Close it; a command that runs is ended on the host, as its input ends."""
        self._closed.set()
        if self._client is not None:
            self._client.close()

    def _opened(self) -> paramiko.SSHClient:
        """The client. A host that was not reached is not tried again: every tool would wait for it anew."""
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
            if self._closed.is_set():  # meanwhile
                self._client.close()
                raise HostError("the run was ended")
        return self._client


def _connect(access: Access) -> paramiko.SSHClient:
    """A client that is logged in. Raises UnreachableHostError, with what to do about it."""
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
    """The files of host keys, those that there are."""
    own = Path(access.known_hosts) if access.known_hosts else Path.home() / ".ssh" / "known_hosts"
    return [path for path in (own, _SYSTEM_KNOWN_HOSTS) if path.exists()]


def _jump(access: Access) -> paramiko.ProxyCommand | None:
    """The way over the jump host, if there is one."""
    if not access.jump:
        return None
    marks = {"%%": "%", "%h": access.address, "%p": str(access.port)}
    words = [_replaced(word, marks) for word in shlex.split(access.jump)]
    return paramiko.ProxyCommand(shlex.join(words))


def _replaced(word: str, marks: Mapping[str, str]) -> str:
    """The word with the marks of OpenSSH replaced, from the left."""
    parts, index = [], 0
    while index < len(word):
        mark = word[index : index + 2]
        parts.append(marks.get(mark, word[index]))
        index += 2 if mark in marks else 1
    return "".join(parts)


def _execute(client: paramiko.SSHClient, line: str, seconds: int) -> tuple[int, str, str]:
    """Run the line, for so long at most. Raises HostError if it does not end, prints too much, or is cut off."""
    try:
        transport = client.get_transport()
        if transport is None:
            raise HostError("the connection was closed")
        channel = transport.open_session(timeout=CONNECT_SECONDS)
        with contextlib.closing(channel):
            channel.exec_command(bounded(line, seconds))
            return _collect(channel, seconds, time.monotonic)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise HostError(f"the connection broke: {str(error) or type(error).__name__}") from error


def bounded(line: str, seconds: int) -> str:
    """The command for any login shell: it ends after so long, and when the connection does.

    The input of the channel ends with the connection; `cat` waits for that, and its shell then ends the tool.
    """
    script = (
        f'PATH="$PATH:{_PATH}" LC_ALL=C; export PATH LC_ALL; '
        f'echo "{_BOOT}$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)" >&2; exec 3<&0; '
        f"timeout -k 5 {seconds} /bin/sh -c {shlex.quote(line)} </dev/null 3<&- & t=$!; "
        "{ cat <&3 >/dev/null; kill $t; } >/dev/null 2>&1 & w=$!; exec 3<&-; "
        "wait $t; c=$?; kill $w 2>/dev/null; exit $c"
    )
    return f"/bin/sh -c {shlex.quote(script)}"


_TIMED_OUT: Final = (124, 137)
"""Exit codes of `timeout`: for its TERM, and its KILL."""


def _collect(channel: paramiko.Channel, seconds: int, clock: Callable[[], float]) -> tuple[int, str, str]:
    output, errors = bytearray(), bytearray()
    deadline = clock() + seconds + GRACE_SECONDS
    channel.settimeout(0.2)
    streams = ((channel.recv, output), (channel.recv_stderr, errors))
    while not (channel.exit_status_ready() and _is_dry(channel)):
        for receive, received in streams:
            with contextlib.suppress(socket.timeout):
                received.extend(receive(_BLOCK_BYTES))
        if len(output) + len(errors) > MAX_OUTPUT_BYTES:
            raise HostError(f"it printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
        if clock() > deadline:
            raise HostError(f"no answer within {seconds} s")
    code = channel.exit_status  # a channel that was cut says that it has one, too
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
