"""A validated request to run a workload: what `submit` was asked for, free of flags and of Kubernetes.

Parsers (in `values`, `storage`, `network`, `environment`, `security`, `git_sync`) turn the text of one flag into a
value. `Submission` then checks what no single flag can know: whether the values fit together. Both raise
`UsageError` with one line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.names import INTERACTIVE, TRAIN
from orchestrator.workloads.environment import DEVICES_VARIABLE, Variable, problem_of_strings
from orchestrator.workloads.git_sync import GitSource
from orchestrator.workloads.network import SERVICE_TYPES, Port
from orchestrator.workloads.rendezvous import Rendezvous
from orchestrator.workloads.security import Identity
from orchestrator.workloads.storage import Mount, NewClaim, mount_paths
from orchestrator.workloads.values import Toleration

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MOST_ANNOTATION_BYTES: Final = 256 << 10
"""Kubernetes' limit for all annotations of an object; muster's own need a part of it."""
_OUR_ANNOTATION_BYTES: Final = 24 << 10


@dataclass(frozen=True, slots=True)
class Submission:
    """One workload to create. `gpu_milli` is per pod: a multiple of 1000, or less than 1000, or 0 for none.

    CPU, memory and GPU memory keep the text that Kubernetes understands ("500m", "4Gi"); empty means not asked for.
    `stdin_once`: the standard input ends when the first who attaches leaves.
    `gpu_devices` is the number of GPUs of which a part is wanted. `privilege_escalation` None: as the cluster says.
    Raises UsageError when the values contradict each other.
    """

    name: str
    image: str
    user: str
    gpu_milli: int = 0
    gpu_memory: str = ""
    gpu_devices: int | None = None
    interactive: bool = False
    preemptible: bool | None = None
    service_type: str | None = None
    ports: tuple[Port, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    environment: tuple[Variable, ...] = ()
    volumes: tuple[Mount, ...] = ()
    claims: tuple[Mount, ...] = ()
    new_claims: tuple[NewClaim, ...] = ()
    large_shm: bool = False
    home_directory: bool = False
    mount_propagation: bool = False
    git: GitSource | None = None
    image_pull_policy: str | None = None
    working_dir: str | None = None
    cpu: str = ""
    cpu_limit: str = ""
    memory: str = ""
    memory_limit: str = ""
    extended_resources: tuple[tuple[str, str], ...] = ()
    node_type: str | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_required: str | None = None
    topology_preferred: str | None = None
    completions: int | None = None
    parallelism: int | None = None
    min_member: int | None = None
    backoff_limit: int | None = None
    ttl_seconds: int | None = None
    rendezvous: Rendezvous | None = None
    host_ipc: bool = False
    host_network: bool = False
    identity: Identity | None = None
    privilege_escalation: bool | None = None
    capabilities: tuple[str, ...] = ()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    command_line: str = ""

    def __post_init__(self) -> None:
        for check in _CHECKS:
            problem = check(self)
            if problem is not None:
                raise UsageError(problem)

    @property
    def type(self) -> str:
        """`train` or `interactive`."""
        return INTERACTIVE if self.interactive else TRAIN

    @property
    def is_preemptible(self) -> bool:
        """Whether the scheduler may stop it for others: by default train yes, interactive no."""
        return (not self.interactive) if self.preemptible is None else self.preemptible

    @property
    def is_fraction(self) -> bool:
        """Whether it asks for a part of one GPU, or of each of several."""
        return 0 < self.gpu_milli < 1000

    @property
    def wants_gpu(self) -> bool:
        """Whether it asks for GPUs in any way."""
        return bool(self.gpu_milli or self.gpu_memory)


def _one_way_to_ask_for_gpus(asked: Submission) -> str | None:
    if asked.gpu_milli and asked.gpu_memory:
        return "-g/--gpu and --gpu-memory both ask for GPUs: use one of them"
    if asked.gpu_devices is not None and not (asked.is_fraction or asked.gpu_memory):
        return (
            "--gpu-devices says of how many GPUs a part is wanted: give the part, -g 0.5 or --gpu-memory 4G"
        )
    return None


def _service_needs_ports(asked: Submission) -> str | None:
    if asked.service_type and not asked.ports:
        return f"--service-type {asked.service_type} needs --port, the port on which the container listens"
    if asked.ports and not asked.service_type:
        return f"--port needs --service-type, one of {', '.join(SERVICE_TYPES)}"
    return None


def _ports_differ(asked: Submission) -> str | None:
    externals = [port.external for port in asked.ports]
    internals = [port.internal for port in asked.ports]
    if len(set(externals)) < len(externals) or len(set(internals)) < len(internals):
        return "--port is given twice for one port: name every port once"
    return None


def _mounts_differ(asked: Submission) -> str | None:
    paths = mount_paths(asked)
    twice = sorted({path for path in paths if paths.count(path) > 1})
    return (
        f"{twice[0]} is mounted twice: --volume, --pvc, --git-sync, --large-shm and --create-home-dir "
        "need paths of their own"
        if twice
        else None
    )


def _interactive_is_one_pod(asked: Submission) -> str | None:
    if not asked.interactive:
        return None
    several = {
        "--completions": (asked.completions or 1) > 1,
        "--parallelism": (asked.parallelism or 1) > 1,
        "--min-member": (asked.min_member or 1) > 1,
    }
    wrong = [flag for flag, given in several.items() if given]
    if wrong:
        return f"{wrong[0]} does not go with --interactive: an interactive workload is one pod"
    if asked.backoff_limit or asked.ttl_seconds is not None:
        flag = "--backoff-limit" if asked.backoff_limit else "--ttl-after-finish"
        return f"{flag} does not go with --interactive: an interactive workload has no end"
    return None


def _working_dir_is_a_path(asked: Submission) -> str | None:
    if asked.working_dir is None or asked.working_dir.startswith("/"):
        return None
    return f"--working-dir {asked.working_dir} must begin with /: it is a directory of the container"


def _counts_agree(asked: Submission) -> str | None:
    pods = asked.parallelism or 1
    if pods > 1 and asked.completions is None:
        return f"--parallelism {pods} needs --completions, the number of pods that must succeed"
    if (asked.min_member or 1) > pods:
        return f"--min-member {asked.min_member} is more than the {pods} pods of --parallelism"
    if (asked.min_member or 1) > (asked.completions or 1):
        return f"--min-member {asked.min_member} is more than --completions {asked.completions}"
    return None


def _devices_are_ours(asked: Submission) -> str | None:
    if any(variable.name == DEVICES_VARIABLE for variable in asked.environment):
        return f"-e/--environment {DEVICES_VARIABLE} is set by muster: use -g/--gpu to ask for GPUs"
    return None


def _terminal_needs_input(asked: Submission) -> str | None:
    if asked.tty and not asked.stdin:
        return "-t/--tty needs --stdin: a terminal is for typing"
    return None


def _annotations_fit(asked: Submission) -> str | None:
    for flag, pairs in (("-l/--label", asked.labels), ("-a/--annotation", asked.annotations)):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            return f"{flag} {twice[0]} is given twice: give it once"
    total = sum(len(key.encode()) + len(value.encode()) for key, value in asked.annotations)
    allowed = MOST_ANNOTATION_BYTES - _OUR_ANNOTATION_BYTES
    if total > allowed:
        return f"-a/--annotation: all annotations together have {total} bytes, and at most {allowed} are possible"
    return None


_CHECKS: Final[tuple[Callable[[Submission], str | None], ...]] = (
    _one_way_to_ask_for_gpus,
    _service_needs_ports,
    _ports_differ,
    _mounts_differ,
    _interactive_is_one_pod,
    _counts_agree,
    _working_dir_is_a_path,
    _devices_are_ours,
    _terminal_needs_input,
    _annotations_fit,
    problem_of_strings,
)
