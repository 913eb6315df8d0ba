"""The hosts of a site over SSH: runs tools on all of them at the same time, and records their output.

Host keys must be known, as for `muster install`. A jump host is used with the same options as by Ansible's `ssh`.
"""

import asyncio
import contextlib
import secrets
import shlex
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from deployment.matrix import gpus_of
from deployment.site import Site
from deployment.site_file import load
from deployment.ssh import jump_command
from validation.catalogue.thresholds import figures_sha256, load_thresholds
from validation.errors import HostError
from validation.judge.events import ToolRan
from validation.judge.hosts.group_search import search
from validation.judge.hosts.host_layer import DeclaredHost, HostScope, HostSite
from validation.layers import groups
from validation.layers.secrets import conceal
from validation.layers.tools import SAMPLES, TOOLS, Tool
from validation.scenario.images import NO_MAP, ImageMap
from validation.targets.recorder import Recorder
from validation.targets.site_images import read_images
from validation.targets.ssh_batch import Command, Ended
from validation.targets.ssh_connection import Access, Connection


@dataclass(slots=True)
class SiteHosts:
    """The hosts of a site, with an open connection to each. Call `close` at the end."""

    scope: HostScope
    access: Mapping[str, Access]
    images: ImageMap = NO_MAP
    """Maps each image name in a scenario to the image name at the site."""
    _connections: dict[str, Connection] = field(default_factory=dict)
    _ran: set[str] = field(default_factory=set)
    _ran_again: set[str] = field(default_factory=set)
    _is_closed: bool = False

    def due(self, tools: Iterable[str], *, again: bool) -> list[str]:
        """Return the tools that have not run yet; with `again`, those that have not run once more."""
        ran = self._ran_again if again else self._ran | self._ran_again
        return [tool for tool in dict.fromkeys(tools) if tool != SAMPLES and tool not in ran]

    async def run(self, tools: Iterable[str], recorder: Recorder, *, again: bool) -> None:
        """Run the due tools on all hosts at the same time, one after another on each host, and record their output.

        While a load runs, nvidia-smi is read repeatedly; its readings are recorded after the load. If this is
        cancelled, the tools are ended on the hosts.
        """
        due = self.due(tools, again=again)
        (self._ran_again if again else self._ran).update(due)
        if due == [groups.NCCL_NODES]:
            await self._search(recorder)
            return
        site = self.scope.site
        lines = {host.name: {tool: TOOLS[tool].line(site, host) for tool in due} for host in site.hosts}
        await self._run_lines(lines, recorder)

    async def _search(self, recorder: Recorder) -> None:
        """Test groups of hosts until the search has found the sick hosts."""
        hosts, outcome, numbers = groups.joined_hosts(self.scope.site), None, count(1)
        tool, plan = TOOLS[groups.NCCL_NODES], search(len(hosts))
        with contextlib.suppress(StopIteration):
            while True:
                group = [hosts[index] for index in (plan.send(outcome) if outcome else next(plan))]
                number, address = next(numbers), self.access[group[0].name].address
                lines = {
                    host.name: {
                        tool.name: tool.guarded(
                            groups.command(self.scope.site, number, group, index, address)
                        )
                    }
                    for index, host in enumerate(group)
                }
                least = groups.least_mbytes(group, self.scope.systems)
                outcome = groups.read_test(await self._run_lines(lines, recorder), least).outcome

    async def _run_lines(self, lines: Mapping[str, Mapping[str, str]], recorder: Recorder) -> list[ToolRan]:
        """Run the command lines of each host, by its tools. Record the result of each, and return these events."""
        site, events = self.scope.site, list[ToolRan]()
        # two threads for each host: one for the load, one for the samples beside it
        threads = ThreadPoolExecutor(max(1, 2 * len(site.hosts)))
        loop = asyncio.get_running_loop()

        def record(event: ToolRan) -> None:
            if not self._is_closed:
                events.append(_without_secrets(event, recorder.now_ms()))
                recorder.record(events[-1])

        async def run_on(host: DeclaredHost) -> None:
            its = [(TOOLS[tool], line) for tool, line in lines[host.name].items() if line]
            ended = threading.Event()
            running = loop.run_in_executor(
                threads, self._run, host.name, its, lambda event: loop.call_soon_threadsafe(record, event)
            )
            sampler = TOOLS[SAMPLES].line(site, host) if any(tool.is_load for tool, _ in its) else ""
            sampling = (
                loop.run_in_executor(threads, self._sample, host.name, sampler, ended) if sampler else None
            )
            try:
                await running
            finally:
                ended.set()
            if sampling is not None:
                record(await sampling)

        try:
            await asyncio.gather(*(run_on(host) for host in site.hosts if lines.get(host.name)))
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            threads.shutdown(wait=False)
        return events

    def close(self) -> None:
        """Stop the running tools, and close the connections."""
        self._is_closed = True
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def _run(self, host: str, lines: Sequence[tuple[Tool, str]], record: Callable[[ToolRan], object]) -> None:
        """Run the command lines on a host one after another, and record the event of each."""
        ends = self._ends(host, [_command(tool, line) for tool, line in lines])
        for (tool, line), how in zip(lines, ends, strict=True):
            record(_event(host, tool, line, how))

    def _sample(self, host: str, line: str, ended: threading.Event) -> ToolRan:
        """Read the GPUs of a host until the load has ended."""
        tool = TOOLS[SAMPLES]
        return _event(host, tool, line, *self._ends(host, [_command(tool, line)], ended))

    def _ends(
        self, host: str, commands: Sequence[Command], ended: threading.Event | None = None
    ) -> Iterator[Ended | HostError]:
        if self._is_closed:
            return iter([HostError("the run was ended")] * len(commands))
        connection = self._connections.setdefault(host, Connection(self.access[host]))
        return connection.run(commands, ended)


def _command(tool: Tool, line: str) -> Command:
    """Return the command of a tool's line, with the variable P for the tools that have a program."""
    text = f"P={shlex.quote(tool.program_text)}; {line}" if tool.program_text else line
    return Command(text, tool.seconds)


def _event(host: str, tool: Tool, line: str, how: Ended | HostError) -> ToolRan:
    """Return the event of a run. If the line could not run, its `problem` has the reason."""
    if isinstance(how, HostError):
        return ToolRan(0, host, tool.name, line, -1, problem=str(how))
    code, output, errors, boot_id, ran_ms = how
    return ToolRan(0, host, tool.name, line, code, output, errors, boot_id=boot_id, ran_ms=ran_ms)


def _without_secrets(event: ToolRan, now_ms: int) -> ToolRan:
    return msgspec.structs.replace(
        event, t_ms=now_ms, output=conceal(event.output), error_output=conceal(event.error_output)
    )


def read_site(
    path: Path, *, golden: str = "", tests: Iterable[str] = (), mounts: Sequence[str] = ()
) -> SiteHosts:
    """Return the hosts with GPUs of a site file. Raises SiteError, and HostError if the site file has no such host."""
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
    """Return the driver, the network and the storage of the site file."""
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
