"""The types of values in a submission, independent of flags and Kubernetes objects.

`parsing` turns text into these values; `manifest` and the modules beside it render them as objects.
"""

from dataclasses import dataclass
from typing import Final

DEVICES_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
SERVICE_TYPES: Final = ("portforward", "ingress", "nodeport", "loadbalancer")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
FRAMEWORKS: Final = ("pytorch", "mpi", "tf")
MASTER_PORT: Final = 29500
MAX_ID: Final = 2**31 - 1
"""The largest number of a user or a group."""
MIN_GPU_MEMORY_BYTES: Final = 100_000_000
MIN_SEEN_TTL_SECONDS: Final = 60
"""Minimum `ttl_seconds` of a job with snapshots or dependents, because the operator must see the end of the job."""
SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - the container's, not ours
HOME_PATH: Final = "/home/runai-home"
"""The path of the home directory, which scripts for the older command line use."""
GIT_TARGET: Final = "/code"
CODE_PATH: Final = "/code"
"""The directory of a submission's working tree in the container."""
FUNCTION_PATH: Final = "/muster-function"
"""The directory of the program that runs a function of `Client.map`."""
FUNCTION_FILE: Final = "function.pyz"
MAX_CODE_BYTES: Final = 1 << 20
"""The limit of Kubernetes for the data of a Secret, which holds the archive of a working tree."""
GIT_IMAGE: Final = "docker.io/alpine/git:v2.49.1"


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the workload's Service. `internal` is the container's port; `external` is the Service's port or, for a
    nodeport, the node's.
    """

    external: int
    internal: int

    @property
    def pinned(self) -> bool:
        """Whether the user chose the external port: it differs from the internal port."""
        return self.external != self.internal


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the container: a literal value, or the key of a secret of the project."""

    name: str
    value: str = ""
    secret: str = ""
    secret_key: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """An existing directory or PVC that the container mounts at `path`.

    `source` is a directory of the node or of `nfs_server`, or the name of a PVC.
    """

    source: str
    path: str
    read_only: bool = False
    nfs_server: str = ""


@dataclass(frozen=True, slots=True)
class NewClaim:
    """A PVC of `size_bytes`, mounted at `path`, that is created and deleted with the workload.

    A storage class of "" is the cluster's default. `access_mode` is a mode of Kubernetes, such as ReadWriteMany. If
    `clone_of` names a volume of the project, the PVC is a clone of it. The submission then copies size, class and
    access mode from that volume.
    """

    size_bytes: int
    path: str
    storage_class: str = ""
    read_only: bool = False
    access_mode: str = "ReadWriteOnce"
    clone_of: str = ""


@dataclass(frozen=True, slots=True)
class GitSource:
    """A Git repository that is cloned before the container starts, and its path `target` in the container.

    A branch of "" is the default branch of the repository. `secret` is an existing secret with the keys `username` and
    `password`; a password in clear text becomes a secret that belongs to the workload. `image` needs git and a shell.
    """

    source: str
    branch: str = ""
    rev: str = ""
    target: str = GIT_TARGET
    secret: str = ""
    username: str = ""
    password: str = ""
    image: str = GIT_IMAGE


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint of nodes that the workload tolerates. A value of None is any value, an effect of "" every effect."""

    key: str
    value: str | None = None
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The rendezvous of a distributed workload: one of `FRAMEWORKS`, and the master's port."""

    framework: str
    master_port: int = MASTER_PORT


@dataclass(frozen=True, slots=True)
class RunAs:
    """The ids of the user, the group and more groups of the container's processes; None: the image's."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


def is_image(text: str) -> bool:
    """Return whether the text can be the name of a container image.

    Example: `is_image("my image")` returns `False`.
    """
    return bool(text) and not any(character.isspace() for character in text)


def is_gpu_milli(gpu_milli: int) -> bool:
    """Return whether a pod can request this number of thousandths of a GPU: whole devices, or a fraction of one.

    Example: `is_gpu_milli(1500)` returns `False`.
    """
    return 0 < gpu_milli < 1000 or (gpu_milli > 0 and gpu_milli % 1000 == 0)
