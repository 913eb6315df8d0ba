"""Finds the pod and the container of a process from its `/proc/PID/cgroup`. Pure except for `owner_of`.

The kubelet names the folders of pods, the runtime those of the containers in them:

    cgroupfs   /kubepods/burstable/pod8d9d9b5e-…/0f3a…
    systemd    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8d9d9b5e_….slice/crio-0f3a….scope
    both       /system.slice/containerd.service/kubepods-burstable-pod8d9d9b5e_….slice:cri-containerd:0f3a…

containerd writes `cri-containerd-`, and a process may be in a folder below its container's. Version 1 has a line for
each controller, version 2 one line `0::PATH`. A reader in its own cgroup namespace, such as the agent's container with
version 2, sees paths relative to its own cgroup: `/../../pod8d9d9b5e-…/0f3a…`.
"""

import re
from pathlib import Path
from typing import Final

from orchestrator.agent.model import Owner

NO_OWNER: Final = Owner()
_MAX_CHARACTERS: Final = 64 * 1024

_HEX: Final = "[0-9a-f]"
_UID: Final = (
    rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|{_HEX}{{8}}(?:_{_HEX}{{4}}){{3}}_{_HEX}{{12}}"
    rf"|{_HEX}{{32}}"  # a static pod: the digest of its file
)
_POD: Final = re.compile(rf"/(?P<slice>kubepods(?:-[a-z]+)?-)?pod(?P<uid>{_UID})(?:\.slice)?(?=[/:]|$)")
_CONTAINER: Final = re.compile(rf"(?:/(?:[a-z][a-z-]*-)?|:[a-z-]+:)(?P<id>{_HEX}{{64}})(?:\.scope)?(?=/|$)")
_ALONE: Final = re.compile(rf"/(?:[a-z][a-z-]*-)?(?P<id>{_HEX}{{64}})(?:\.scope)?(?=/|$)")
"""A container outside the folder of a pod: its kubelet runs without `cgroupsPerQOS`, or it belongs to no pod."""
_OURS: Final = re.compile(r"/kubepods(?:\.slice)?/|^/\.\./")


def parse_cgroup(text: str) -> Owner:
    """Return the pod and container in the lines of a process's cgroups, or a container alone, or neither."""
    alone = NO_OWNER
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod = _POD.search(path)
        if pod is None or not (pod["slice"] or _OURS.search(path[: pod.start() + 1])):
            if container := _ALONE.search(path):
                alone = Owner("", container["id"])
            continue
        container = _CONTAINER.match(path, pod.end())
        return Owner(pod["uid"].replace("_", "-"), container["id"] if container else "")
    return alone


def owner_of(pid: int, proc: Path = Path("/proc")) -> Owner:
    """Return the pod and container of the process; neither if it has ended or is invisible."""
    try:
        with (proc / str(pid) / "cgroup").open(encoding="utf-8", errors="replace") as file:
            return parse_cgroup(file.read(_MAX_CHARACTERS))
    except OSError:
        return NO_OWNER
