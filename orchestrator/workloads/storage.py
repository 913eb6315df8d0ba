"""What a workload mounts: directories of the node, NFS exports, volume claims that exist, and claims of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.quantity import memory_bytes
from orchestrator.cluster.resources import CLAIMS
from orchestrator.errors import UsageError
from orchestrator.workloads.values import is_object_name, parse_fields

if TYPE_CHECKING:
    from orchestrator.workloads.submission import Submission

Manifest = dict[str, Any]

SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - the container's, not ours
HOME_PATH: Final = "/home/runai-home"
"""The path that scripts written for the older command line rely on."""

_ACCESS_MODES: Final = {
    "accessmode-rwo": "ReadWriteOnce",
    "accessmode-rom": "ReadOnlyMany",
    "accessmode-rwm": "ReadWriteMany",
}
_CLAIM_USAGE: Final = (
    "CLAIM-NAME:/CONTAINER/PATH[:ro|rw] for a claim that exists, "
    "or [STORAGE-CLASS]:SIZE:/CONTAINER/PATH[:ro|rw] for a new one"
)
_EXISTING_USAGE: Final = "claimname=NAME,path=/CONTAINER/PATH[,readonly]"
_NEW_USAGE: Final = (
    "size=SIZE,path=/CONTAINER/PATH[,storageclass=NAME][,accessmode-rwo|accessmode-rom|accessmode-rwm]"
    "[,ro][,ephemeral]"
)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([EPTGMk]i?)?B?")


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the node (`source` is a path), of an NFS server, or a volume claim (its name) in the container."""

    source: str
    path: str
    read_only: bool = False
    nfs_server: str = ""


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A volume claim that is made with the workload and deleted with it. No storage class: the cluster's default."""

    size: str
    path: str
    storage_class: str = ""
    read_only: bool = False
    access_mode: str = "ReadWriteOnce"


def parse_volume(text: str, nfs_server: str | None = None) -> Mount:
    """Return the mount of `/host/directory:/container/directory[:ro|rw][:nfs-server]`."""
    parts = text.split(":", 3)
    server = parts.pop() if len(parts) == 4 else nfs_server or ""
    mount = _mount(":".join(parts))
    if mount is None or not mount.source.startswith("/") or any(character.isspace() for character in server):
        raise UsageError(
            f"-v/--volume {text!r} is not possible: give /HOST/PATH:/CONTAINER/PATH[:ro|rw][:NFS-SERVER]"
        )
    return replace(mount, nfs_server=server)


def parse_claim(text: str) -> Mount | NewClaim:
    """Return the claim of `NAME:/path[:ro|rw]` (it exists) or `[CLASS]:SIZE:/path[:ro|rw]` (it is made).

    Four parts are a new claim, two are one that exists; three are a new one if the first is empty or the second
    is a size.
    """
    parts = text.split(":")
    if len(parts) == 4 or (len(parts) == 3 and (not parts[0] or _SIZE.fullmatch(parts[1]))):
        made = _new_claim(parts)
        if made is None:
            raise UsageError(f"--pvc {text!r} is not possible: give {_CLAIM_USAGE}")
        return made
    mount = _mount(text)
    if mount is None or not is_object_name(mount.source):
        raise UsageError(f"--pvc {text!r} is not possible: give {_CLAIM_USAGE}")
    return mount


def parse_existing_claim(text: str) -> Mount:
    """Return the claim of `claimname=NAME,path=/path[,readonly]`."""
    fields = parse_fields("--pvc-exists", text, ("claimname", "path", "readonly", "ro"), _EXISTING_USAGE)
    name, path = fields.get("claimname", ""), fields.get("path", "")
    if not is_object_name(name) or not _is_path(path):
        raise UsageError(f"--pvc-exists {text!r} is not possible: give {_EXISTING_USAGE}")
    return Mount(name, _normal(path), read_only=_is_set(fields, "readonly", "ro"))


def parse_new_claim(text: str) -> NewClaim:
    """Return the claim of `size=SIZE,path=/path[,storageclass=NAME][,accessmode-rwm][,ro]`."""
    allowed = ("claimname", "size", "path", "storageclass", *_ACCESS_MODES, "ro", "readonly", "ephemeral")
    fields = parse_fields("--pvc-new", text, allowed, _NEW_USAGE)
    if "claimname" in fields:
        raise UsageError(
            "--pvc-new claimname= is not possible: a new claim belongs to its job and is named after it"
        )
    mode = "ro" if _is_set(fields, "readonly", "ro") else ""
    made = _new_claim([fields.get("storageclass", ""), fields.get("size", ""), fields.get("path", ""), mode])
    modes = [mode for field, mode in _ACCESS_MODES.items() if field in fields]
    if made is None or len(modes) > 1:
        raise UsageError(f"--pvc-new {text!r} is not possible: give {_NEW_USAGE}")
    return replace(made, access_mode=modes[0]) if modes else made


def _new_claim(parts: list[str]) -> NewClaim | None:
    storage_class, size, path, mode = [*parts, ""][:4]
    amount = _SIZE.fullmatch(size)
    if amount is None or not _is_path(path) or mode not in ("", "ro", "rw"):
        return None
    quantity = "".join(part or "" for part in amount.groups())
    if memory_bytes(quantity) <= 0 or (storage_class and not is_object_name(storage_class)):
        return None
    return NewClaim(quantity, _normal(path), storage_class, read_only=mode == "ro")


def _mount(text: str) -> Mount | None:
    source, separator, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not separator or not source or not _is_path(path) or mode not in ("", "ro", "rw"):
        return None
    return Mount(source, _normal(path), read_only=mode == "ro")


def _is_path(text: str) -> bool:
    return text.startswith("/") and ":" not in text


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"


def _is_set(fields: Mapping[str, str], *names: str) -> bool:
    return any(fields.get(name, "false") != "false" for name in names)


def mount_paths(asked: "Submission") -> list[str]:
    """Return where something is mounted, once for every time."""
    mounts: list[Mount | NewClaim] = [*asked.volumes, *asked.claims, *asked.new_claims]
    paths = [each.path for each in mounts]
    if asked.large_shm:
        paths.append(SHARED_MEMORY_PATH)
    if asked.home_directory:
        paths.append(HOME_PATH)
    if asked.git is not None:
        paths.append(asked.git.target)
    return paths


def claim_name(asked: "Submission", index: int) -> str:
    """Return the name of the workload's own claim of that index."""
    return f"pvc-{asked.name}-{index}"


def claim_manifests(asked: "Submission", metadata: Manifest) -> list[Manifest]:
    """Return the claims that are made with the workload; `metadata` is theirs but for the name."""
    manifests = []
    for index, claim in enumerate(asked.new_claims):
        spec: Manifest = {
            "accessModes": [claim.access_mode],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": claim.size}},
        }
        if claim.storage_class:
            spec["storageClassName"] = claim.storage_class
        manifests.append(
            {
                "apiVersion": CLAIMS.api_version,
                "kind": CLAIMS.kind,
                "metadata": metadata | {"name": claim_name(asked, index)},
                "spec": spec,
            }
        )
    return manifests


def volumes_and_mounts(asked: "Submission") -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes of the pod, and where the container mounts them."""
    sources: list[tuple[Manifest, Mount]] = [
        *((_directory(mount), mount) for mount in asked.volumes),
        *((_claim(mount.source), mount) for mount in asked.claims),
        *(
            (_claim(claim_name(asked, index)), Mount("", claim.path, read_only=claim.read_only))
            for index, claim in enumerate(asked.new_claims)
        ),
    ]
    if asked.large_shm:
        sources.append(({"emptyDir": {"medium": "Memory"}}, Mount("", SHARED_MEMORY_PATH)))
    if asked.home_directory:
        sources.append(({"emptyDir": {}}, Mount("", HOME_PATH)))
    volumes, mounts = [], []
    for index, (source, mount) in enumerate(sources):
        volume_name = f"volume-{index}"
        volumes.append({"name": volume_name} | source)
        found: Manifest = {"name": volume_name, "mountPath": mount.path}
        if mount.read_only:
            found["readOnly"] = True
        if asked.mount_propagation and "hostPath" in source:
            found["mountPropagation"] = "HostToContainer"
        mounts.append(found)
    return volumes, mounts


def _directory(mount: Mount) -> Manifest:
    if mount.nfs_server:
        return {"nfs": {"server": mount.nfs_server, "path": mount.source}}
    return {"hostPath": {"path": mount.source}}


def _claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}
