"""One real node: `main(SPECIFICATION)`, run as a process of the lab, with the standard library only.

The process (the parent) starts a child, which is the first process of a new process namespace. When the parent ends,
the kernel kills the child, and with it all processes of the node.

The child builds the node's root file system, starts containerd and the kubelet, and reaps orphans. It restarts a killed
kubelet, and up to three times one that ends by itself. If the kubelet ends again, or containerd ends, the child ends.

The root file system is a small one in memory, with `/etc`, `/var` and `/run` for this node alone. The node shares
`/dev` and the other directories of the machine's root, such as `/usr`, `/home`, `/mnt` and `/tmp`, with the machine.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from musterlab import supervisor
from musterlab.realnodes import cgroups, driver, inotify, kernel

PROGRAMS = "/lab/bin"
PLUGINS = "/lab/cni"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PERSISTENT = {"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet", "pods": "/var/log/pods"}
"""Directories of the node that outlive a restart, by their name in the lab's state directory."""

_SOCKET_SECONDS = 120.0
_CGROUP_SECONDS = 120.0
_KUBELET_RESTARTS = 3
"""Example of a kubelet that ends by itself: others took the last inotify instances between the check and its start."""

_POLL_SECONDS = 0.01
OWN = frozenset({"dev", "etc", "lab", "lost+found", "proc", "run", "sys", "var"})
"""Directories of the root that the node does not share with the machine."""

_KERNEL_SETTINGS = {  # the kubelet wants these values, and would otherwise set them for the whole machine
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def main(specification: str) -> int:
    """Run the node until it ends; return the exit status of its first process."""
    os.umask(0o022)
    node = json.loads(Path(specification).read_text())
    network = json.loads(Path(node["network"]).read_text())
    namespace = os.open(network["namespace"], os.O_RDONLY)
    kernel.enter(namespace)
    os.close(namespace)
    folders = [Path(folder) for folder in node["cgroups"]]
    # an earlier run of the node may have left cgroups; on a busy machine, its processes end late
    supervisor.remove_cgroups(folders, _CGROUP_SECONDS)
    for folder in folders:
        cgroups.make(folder)
        cgroups.join(folder)
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC
    kernel.unshare(flags | kernel.CLONE_NEWCGROUP)
    for folder in folders:
        if (folder / "cgroup.subtree_control").exists():
            cgroups.delegate(folder)
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        os._exit(_first_process(node, alive))
    os.close(alive)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _first_process(node: dict[str, Any], alive: int) -> int:
    kernel.die_with_parent()
    if select.select([alive], [], [], 0)[
        0
    ]:  # the other end is closed: the parent died before `die_with_parent`
        return 1
    try:
        # opened before the node's root is built, because the node may not see this path
        log = (
            os.open(node["gpus"]["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if node["gpus"]
            else -1
        )
        _build_root(node)
        kernel.set_host_name(node["name"])
        return _run(node, log)
    except OSError as error:
        print(f"the node cannot be set up: {error}", file=sys.stderr, flush=True)
        return 1


def _build_root(node: dict[str, Any]) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    # build the new root over /proc, a path that exists on each machine, has no state directory, and is not
    # read below
    root = Path("/proc")
    kernel.mount("tmpfs", str(root), "tmpfs", options="mode=755,size=64m")
    for entry in os.scandir("/"):
        target = root / entry.name
        if entry.is_symlink():
            target.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir() and entry.name not in OWN:
            _bind(entry.path, target)
    _bind("/dev", root / "dev")
    _bind(node["etc"], root / "etc")
    for name, path in node["programs"].items():
        _bind(path, root / PROGRAMS.lstrip("/") / name)
    _bind(node["plugins"], root / PLUGINS.lstrip("/"))
    for name, path in PERSISTENT.items():
        _bind(str(Path(node["directory"]) / name), root / path.lstrip("/"))
    if node["gpus"]:
        driver.build(root, node["gpus"])
    for name in ("run/lock", "var/log/containers", "var/lib/cni", "proc", "sys"):
        (root / name).mkdir(parents=True)
    (root / "var/run").symlink_to("/run")
    kernel.mount("sysfs", str(root / "sys"), "sysfs")
    _mount_cgroups(root, [Path(folder) for folder in node["cgroups"]])
    kernel.mount("proc", str(root / "proc"), "proc")
    kernel.change_root(str(root))
    _show_profile_cpus(node["cpus"])


def _mount_cgroups(root: Path, folders: Sequence[Path]) -> None:
    """Mount each cgroup of the node at the path where the machine mounts the root of the same hierarchy."""
    base = Path("/sys/fs/cgroup")
    if folders[0].parent != base:  # version 1: one hierarchy in each folder of `base`
        kernel.mount("tmpfs", str(root / "sys/fs/cgroup"), "tmpfs", options="mode=755,size=1m")
        for entry in os.scandir(base):
            if entry.is_symlink():
                (root / "sys/fs/cgroup" / entry.name).symlink_to(Path(entry.path).readlink())
    for folder in folders:
        _bind(str(folder), root / folder.parent.relative_to("/"))


def _bind(source: str, target: Path) -> None:
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    kernel.mount(source, str(target), flags=kernel.MS_BIND | kernel.MS_REC)


def _show_profile_cpus(cpus: int) -> None:
    """Show the kubelet the CPUs of the node's profile, the kernel settings that it wants, and a new boot id."""
    shown = Path("/run/lab")
    shown.mkdir()
    # by the boot id, DRA drivers detect that a restart of the node has deleted their files in /run
    boot = {"kernel/random/boot_id": str(uuid.uuid4())}
    for name, value in {**_KERNEL_SETTINGS, **boot}.items():
        setting = Path("/proc/sys") / name
        if setting.exists():
            file = shown / name.replace("/", ".")
            file.write_text(f"{value}\n")
            kernel.mount(str(file), str(setting), flags=kernel.MS_BIND)
    memory = Path("/sys/devices/system/node/node0/meminfo")
    text = memory.read_text() if memory.exists() else "Node 0 MemTotal: 0 kB\n"
    cpu_nodes = Path("/sys/devices/system/node")
    if not cpu_nodes.is_dir():
        return
    kernel.mount("tmpfs", str(cpu_nodes), "tmpfs", options="mode=755,size=16m")
    for number in range(cpus):
        topology = cpu_nodes / "node0" / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{number}\n")
        (topology / "physical_package_id").write_text("0\n")
    (cpu_nodes / "node0" / "meminfo").write_text(text)
    (cpu_nodes / "node0" / "distance").write_text("10\n")
    (cpu_nodes / "node0" / "hugepages").mkdir()
    online = shown / "online"
    online.write_text(f"0-{cpus - 1}\n")
    kernel.mount(str(online), "/sys/devices/system/cpu/online", flags=kernel.MS_BIND)


def _run(node: dict[str, Any], log: int) -> int:
    if reason := inotify.wait_for_instances():
        print(reason, file=sys.stderr, flush=True)
        return 1
    environment = {
        "PATH": f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/run",
    }
    containerd = subprocess.Popen(["containerd"], env=environment, stdin=subprocess.DEVNULL)
    if _listens(CONTAINERD_SOCKET, containerd):
        command = ["kubelet", *node["kubelet"]]
        kubelet = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        if node["gpus"]:
            driver.start_plugin(node["gpus"]["plugin"], log)
        restarts = 0
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == kubelet.pid and (os.WIFSIGNALED(status) or restarts < _KUBELET_RESTARTS):
                restarts += not os.WIFSIGNALED(status)
                print(f"{_ended('kubelet', status)}, and is started again", file=sys.stderr, flush=True)
                if reason := inotify.wait_for_instances(inotify.KUBELET_INSTANCES):
                    print(reason, file=sys.stderr, flush=True)
                    break
                kubelet = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
            elif pid in (kubelet.pid, containerd.pid):
                name = "kubelet" if pid == kubelet.pid else "containerd"
                print(_ended(name, status), file=sys.stderr, flush=True)
                break
    return 1


def _ended(name: str, status: int) -> str:
    return f"{name} ended with status {os.waitstatus_to_exitcode(status)}"


def _listens(path: str, process: "subprocess.Popen[bytes]") -> bool:
    deadline = time.monotonic() + _SOCKET_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                return True
        time.sleep(_POLL_SECONDS)
    print(f"containerd does not answer on {path}", file=sys.stderr, flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
