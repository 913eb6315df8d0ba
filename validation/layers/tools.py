"""The tools that examine hosts: the command of each, its time limit, and the meaning of its failure."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hostfacts.clock import CLOCK_SOURCE
from hostfacts.counters import COUNTERS
from validation.judge.hosts.host_layer import MISSING_TOOL, DeclaredHost, HostSite
from validation.judge.hosts.host_links import FRAMES
from validation.judge.verdict import Verdict
from validation.layers import groups

PING_HEADER_BYTES: Final = 28
"""The bytes of IPv4 and ICMP before the payload of an echo request."""
NCCL: Final = "nccl"
FIO: Final = "fio"
BURN_IN: Final = "burn-in"
MOUNTS: Final = "mounts"
BURN_SECONDS: Final = 3600
FIO_SECONDS: Final = 300
OUR_FILES: Final = ".muster-validate"
"""Prefix of the names of the validation's files on mounts; the nonce of the run follows."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    `command` returns the line for a host, empty if there is nothing to run. `program` must be installed on the host.

    `failure` is the verdict on a host on which the tool ends with another exit code than 0. `usual_seconds` is its
    usual time. `is_load` says that it puts a load on the GPUs, and that SAMPLES runs beside it.
    """

    name: str
    program: str
    command: Callable[[HostSite, DeclaredHost], str]
    seconds: int = 60
    usual_seconds: int = 1
    as_root: bool = False
    failure: Verdict = Verdict.ERROR
    is_load: bool = False
    program_text: str = ""
    """The content of the shell variable P; the record does not repeat it."""

    def line(self, site: HostSite, host: DeclaredHost) -> str:
        """Return the command for a shell of the host; empty if there is nothing to run.

        If the program is missing, the command ends with 127.
        """
        command = self.command(site, host)
        return self.guarded(command) if command else ""

    def guarded(self, command: str) -> str:
        """Return the line that runs a command of this tool."""
        root = '[ "$(id -u)" -eq 0 ] || s="sudo -n"; ' if self.as_root else ""
        prefix = "$s " if self.as_root else ""
        return (
            f"{root}for p in {self.program}; do command -v $p >/dev/null && break; p=; done; "
            f'[ "$p" ] || {{ echo "{self.program}: not found" >&2; exit {MISSING_TOOL}; }}; {prefix}{command}'
        )


def _fixed(command: str) -> Callable[[HostSite, DeclaredHost], str]:
    return lambda _site, _host: command


_KERNEL_LOG: Final = (
    'sh -c \'l=$(dmesg) || exit $?; case $l in *"Linux version "*) ;; *) '
    "j=$(journalctl --dmesg --boot --output=short-monotonic --no-pager 2>/dev/null); "
    'case $j in *"Linux version "*) l=$j;; esac;; esac; printf "%s\\n" "$l"\''
)
"""Prints the log from the boot on. If the kernel's buffer has lost the beginning, the journal has it."""


def _frames(site: HostSite, _host: DeclaredHost) -> str:
    if not site.mtu or not site.servers:
        return ""
    payload = site.mtu - PING_HEADER_BYTES
    servers = " ".join(shlex.quote(server) for server in site.servers)
    return f"true; for a in {servers}; do ping -n -c {FRAMES} -W 2 -M do -s {payload} $a; done; true"


def _nccl(_site: HostSite, host: DeclaredHost) -> str:
    return f"all_reduce_perf -b 1G -e 8G -f 2 -g {host.gpus} -n 50 -w 20 -c 1" if host.gpus else ""


def _fio(site: HostSite, _host: DeclaredHost) -> str:
    """Return the line that reads 8 files of 1 GiB in a directory of this host in the first mount, and removes them."""
    if not site.mounts:
        return ""
    directory = f'"$d"/{OUR_FILES}-fio-{site.nonce}."$(uname -n)"'
    return (
        f"true; d={shlex.quote(site.mounts[0])}; mkdir {directory} && trap 'rm -rf {directory}' EXIT && "
        f"fio --name=read --directory={directory} --rw=read --bs=1M --direct=1 --ioengine=libaio --iodepth=16 "
        f"--numjobs=8 --size=1G --time_based --runtime={FIO_SECONDS} --group_reporting --output-format=json"
    )


def _lspci(_site: HostSite, _host: DeclaredHost) -> str:
    """Return the line that prints, for each device, its name and the controls of its ACS."""
    return "lspci -vvv | sed -n '/^[0-9a-f]/p;/ACSCtl/p'"


def _of_mounts(action: str) -> Callable[[HostSite, DeclaredHost], str]:
    """Return a command that runs `action` in every mount.

    In it, $d is the mount's directory, and $f is the prefix of the run's files there.
    """

    def command(site: HostSite, _host: DeclaredHost) -> str:
        if not site.mounts:
            return ""
        mounts = " ".join(shlex.quote(mount) for mount in site.mounts)
        return f'true; for d in {mounts}; do f="$d/{OUR_FILES}-{site.nonce}"; {action}; done; true'

    return command


SAMPLES: Final = "samples"
"""The tool that runs beside each load, and ends with it."""
_LARGE: Final = ("supported_clocks", "processes", "accounted_processes")
"""Elements that make the output of nvidia-smi long and do not concern health."""


def _samples(_site: HostSite, host: DeclaredHost) -> str:
    """Return the line that reads the GPUs every ten seconds, and after five minutes every two minutes, until its input
    ends.
    """
    shortened = "".join(f"/<{name}>.*<\\/{name}>/d;/<{name}>/,/<\\/{name}>/d;" for name in _LARGE)
    return (
        f"true; n=0; while :; do nvidia-smi -q -x | sed '{shortened}s/^[[:blank:]]*//' || exit; "
        "n=$((n+1)); [ $n -lt 30 ] && sleep 10 || sleep 120; done"
        if host.gpus
        else ""
    )


_SMI: Final = Verdict.FAIL
"""The verdict if nvidia-smi fails: a driver that does not answer is a fault of the host."""

TOOLS: Final = {
    tool.name: tool
    for tool in (
        Tool(
            "nvidia-smi",
            "nvidia-smi",
            _fixed("nvidia-smi -q -x"),
            seconds=120,
            usual_seconds=5,
            failure=_SMI,
        ),
        Tool("nvlink", "nvidia-smi", _fixed("nvidia-smi nvlink -s"), usual_seconds=2, failure=_SMI),
        Tool("nvlink-errors", "nvidia-smi", _fixed("nvidia-smi nvlink -e"), usual_seconds=2, failure=_SMI),
        Tool("topology", "nvidia-smi", _fixed("nvidia-smi topo -m"), usual_seconds=2, failure=_SMI),
        Tool("kernel-log", "dmesg", _fixed(_KERNEL_LOG), as_root=True),
        Tool("fabric-manager", "systemctl", _fixed("systemctl is-active nvidia-fabricmanager; true")),
        Tool("ibstat", "ibstat", _fixed("ibstat")),
        Tool(
            "ethtool",
            "ethtool",
            _fixed(
                'true; for d in /sys/class/net/*/device; do d=${d%/device}; ethtool "${d##*/}"; done; true'
            ),
        ),
        Tool("lsmod", "lsmod", _fixed("lsmod")),
        Tool("clock-source", "cat", _fixed(f"cat {CLOCK_SOURCE}")),
        Tool("lspci", "lspci", _lspci, as_root=True),
        Tool("interfaces", "ip", _fixed("ip -json address")),
        Tool("frames", "ping", _frames, usual_seconds=5),
        Tool("counters", "grep", _fixed(f"grep -H . {' '.join(COUNTERS)} 2>&1; true")),
        Tool(
            "mounts",
            "findmnt",
            _fixed("findmnt --json --types nfs,nfs4 --output SOURCE,TARGET,FSTYPE,OPTIONS; true"),
        ),
        Tool(
            "write",
            "dd",
            _of_mounts(
                'uname -n | dd of="$f.$(uname -n)" conv=excl,fsync 2>/dev/null && echo "$d $(uname -n)"'
            ),
            failure=Verdict.FAIL,
        ),
        Tool(
            "read",
            "cat",
            _of_mounts('for g in "$f".*; do echo "$d $(cat "$g")"; done'),
            failure=Verdict.FAIL,
        ),
        Tool("remove", "rm", _of_mounts('rm -f "$f.$(uname -n)"')),
        Tool(SAMPLES, "nvidia-smi", _samples, seconds=BURN_SECONDS + 900, usual_seconds=0, failure=_SMI),
        Tool(
            "nccl",
            "all_reduce_perf",
            _nccl,
            seconds=900,
            usual_seconds=180,
            failure=Verdict.FAIL,
            is_load=True,
        ),
        Tool(
            groups.NCCL_NODES,
            "python3",
            groups.first_command,
            seconds=groups.TEST_SECONDS + groups.GRACE_SECONDS,
            usual_seconds=60,
            failure=Verdict.FAIL,
            program_text=groups.PROGRAM,
        ),
        Tool("fio", "fio", _fio, seconds=900, usual_seconds=FIO_SECONDS + 60, failure=Verdict.FAIL),
        Tool(
            "burn-in",
            "gpu_burn gpu-burn",
            _fixed(f"$p -tc {BURN_SECONDS} 2>&1 | tail -c 65536"),
            seconds=BURN_SECONDS + 600,
            usual_seconds=BURN_SECONDS + 60,
            failure=Verdict.FAIL,
            is_load=True,
        ),
    )
}
