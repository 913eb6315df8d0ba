"""Faults while muster installs. Each ends the run with its cause, and `muster resume` continues."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from tests.rehearsal import machines, site, storage
from tests.rehearsal.chain import Chain, Step, StepFailed, installation
from tests.rehearsal.faults import Fault, tried
from tests.rehearsal.machines import Machine

if TYPE_CHECKING:
    from subprocess import Popen

_FULL: Final = "/var/lib"
_FILE: Final = "crictl-*.tar.gz"
_DOWNLOADING: Final = "TASK [download : "
_JOINING: Final = "TASK [kubernetes/kubeadm : Join to cluster"
_STAGE_SECONDS: Final = 1800


def _worker(chain: Chain) -> Machine:
    return next(
        machine for machine in machines.load(chain.folder / "hosts") if machine.name == site.WORKERS[-1]
    )


def _fill_disk(chain: Chain) -> None:
    """Put a small file system in the place of the host's disk; its name is that of a device."""
    _worker(chain).run(*("mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "/dev/small", _FULL), check=True)


def _free_disk(chain: Chain) -> None:
    _worker(chain).run("umount", _FULL, check=True)


def _lose_resolver(chain: Chain) -> None:
    """Take the DNS servers from the site file, and from the resolver of a host."""
    document = chain.folder / "site" / "site.yml"
    saved = document.with_suffix(".saved")
    saved.write_bytes(document.read_bytes())
    site_file = yaml.safe_load(document.read_text())
    del site_file["kubernetes"]["upstream_dns"]
    document.write_text(yaml.safe_dump(site_file, sort_keys=False))
    _worker(chain).run("resolvectl", "dns", "host0", "", check=True)


def _find_resolver(chain: Chain) -> None:
    document = chain.folder / "site" / "site.yml"
    document.with_suffix(".saved").rename(document)
    _worker(chain).run("systemctl", "restart", "systemd-networkd", check=True)


def _served(chain: Chain) -> Path:
    (file,) = (chain.folder / "files").rglob(_FILE)
    return file


def _alter_file(chain: Chain) -> None:
    file = _served(chain)
    file.with_suffix(".saved").write_bytes(file.read_bytes())
    file.write_bytes(file.read_bytes() + b"\0")


def _restore_file(chain: Chain) -> None:
    file = _served(chain)
    file.with_suffix(".saved").rename(file)


_FAULTS: Final = (
    Fault(
        "a full disk",
        _fill_disk,
        (f"are free on {_FULL} of {site.WORKERS[-1]}", "free some space"),
        _free_disk,
    ),
    Fault("no DNS server", _lose_resolver, (site.WORKERS[-1], "kubernetes.upstream_dns"), _find_resolver),
    Fault(
        "a file of another digest",
        _alter_file,
        ("crictl", "its checksum is not the one that kubespray expects"),
        _restore_file,
    ),
)


def kill_muster(chain: Chain) -> None:
    """Kill muster alone while kubespray downloads: the processes that it started must end, and `resume` must be
    possible.
    """
    running = _install_until(chain, "fault-killed", _DOWNLOADING)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()


def stop_worker(chain: Chain) -> None:
    """Cut the power of a host while kubespray lets it join. The installation must end and name the host."""
    running = _install_until(chain, "fault-power", _JOINING)
    worker = _worker(chain)
    worker.kill()
    code = running.wait(_STAGE_SECONDS)
    worker.start(chain.folder / "packages", chain.folder / storage.VOLUMES)
    said = chain.log("fault-power").read_text(errors="replace")
    if code != 1 or worker.name not in said.splitlines()[-1]:
        raise StepFailed(
            f"the installation ended with {code} and does not name {worker.name}; see fault-power.log"
        )


def _install_until(chain: Chain, log: str, task: str) -> "Popen[bytes]":
    """Begin the installation, and return it when the stage deepops has come to a task. Raises StepFailed."""
    logs = chain.folder / "state" / "rehearsal" / "logs"
    before = set(logs.glob("*-deepops.log"))
    running = chain.popen(log, *chain.words(*installation(chain)))
    deadline = time.monotonic() + _STAGE_SECONDS
    while not any(
        task in file.read_text(errors="replace") for file in set(logs.glob("*-deepops.log")) - before
    ):
        if running.poll() is not None or time.monotonic() > deadline:
            raise StepFailed(f"the installation did not reach {task}; see {log}.log")
        time.sleep(1)
    return running


STEPS: Final = (
    *(tried(fault, installation) for fault in _FAULTS),
    Step("fault: muster is killed", kill_muster),
    Step("fault: a host loses power in kubespray", stop_worker),
)
