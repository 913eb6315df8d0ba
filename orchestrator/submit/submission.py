"""A validated request to run a workload, independent of command line flags and Kubernetes objects.

`parsing` makes the values from text. `Submission` checks each value and their combinations; `manifest` renders it. An
error is an InvalidField with the names of the fields.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

from orchestrator.errors import InvalidField
from orchestrator.names import INTERACTIVE, TRAIN
from orchestrator.submit.dependencies import Dependency, dependency_problem
from orchestrator.submit.name_rules import NAME_RULE, is_object_name, is_workload_name
from orchestrator.submit.text_limits import annotations_fit, strings_arrive
from orchestrator.submit.values import (
    CODE_PATH,
    DEVICES_VARIABLE,
    FRAMEWORKS,
    HOME_PATH,
    MAX_CODE_BYTES,
    MIN_GPU_MEMORY_BYTES,
    MIN_SEEN_TTL_SECONDS,
    PULL_POLICIES,
    SERVICE_TYPES,
    SHARED_MEMORY_PATH,
    GitSource,
    Mount,
    NewClaim,
    Port,
    Rendezvous,
    RunAs,
    Toleration,
    Variable,
    is_gpu_milli,
    is_image,
)


@dataclass(frozen=True, slots=True)
class Submission:
    """One workload to create. Amounts are per pod and exact; 0, None and () are unset values.

    Raises InvalidField if a value is invalid, or if values contradict each other.
    """

    name: str
    """The job's name, at most 52 characters; it becomes part of DNS names."""
    image: str
    """The container image."""
    user: str
    """The submitting user, for display."""
    gpu_milli: int = 0
    """GPUs in thousandths: a multiple of 1000, or less than 1000 for a fraction of one GPU."""
    gpu_memory_bytes: int = 0
    """Memory of a GPU in bytes, at least 100 MB, instead of `gpu_milli`."""
    gpu_devices: int | None = None
    """The number of GPUs. The pod gets the fraction, or the GPU memory, of each of them. None: one."""
    interactive: bool = False
    """Whether the workload is one pod without an end. Otherwise its pods run until they succeed."""
    preemptible: bool | None = None
    """Whether the scheduler may evict its pods for other workloads. None: true for train, false for interactive."""
    service_type: str | None = None
    """How the ports are reached: one of `portforward`, `ingress`, `nodeport`, `loadbalancer`."""
    ports: tuple[Port, ...] = ()
    """The ports of the workload's Service; they need a `service_type`."""
    command: tuple[str, ...] = ()
    """Replaces the image's entry point, word by word."""
    args: tuple[str, ...] = ()
    """The arguments of the command, or of the image's entry point."""
    python: str | None = None
    """Run the command by the `uv run` of the image with this version of Python, such as `3.12`; None: as it is."""
    environment: tuple[Variable, ...] = ()
    """Variables of the container. If two have the same name, the later one is used."""
    volumes: tuple[Mount, ...] = ()
    """Directories of the node, or of an NFS server."""
    claims: tuple[Mount, ...] = ()
    """PVCs that exist; `source` is the name of the PVC."""
    new_claims: tuple[NewClaim, ...] = ()
    """PVCs that are created and deleted with the workload."""
    large_shm: bool = False
    """Shared memory (/dev/shm) as large as the container's memory."""
    snapshot_on_success: bool = False
    """Take a snapshot of each mounted PVC when the job has succeeded."""
    home_directory: bool = False
    """An empty home directory, and HOME set to it."""
    mount_propagation: bool = False
    """Later mounts of the node below a directory of `volumes` appear in the container."""
    git: GitSource | None = None
    """A repository that is cloned before the container starts."""
    code: bytes | None = dataclass_field(default=None, repr=False)
    """A working tree, the result of `pack_code`. It is unpacked into /code."""
    function: bytes | None = dataclass_field(default=None, repr=False)
    """The program with a function and its parameters, which `Client.map` sets."""
    image_pull_policy: str | None = None
    """`Always`, `IfNotPresent` or `Never`; None: as Kubernetes decides by the image's tag."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of secrets of the project with the credentials of registries, of type `kubernetes.io/dockerconfigjson`."""
    working_dir: str | None = None
    """The working directory in the container, an absolute path; None: /code with `code`, else the image's."""
    cpu_milli: int = 0
    """CPU to reserve, in thousandths of a core; 0: one core for each GPU."""
    cpu_limit_milli: int = 0
    """Maximum CPU in thousandths of a core; 0: no limit."""
    memory_bytes: int = 0
    """Memory to reserve, in bytes; 0: 100 MiB for each GPU."""
    memory_limit_bytes: int = 0
    """Maximum memory in bytes; 0: no limit."""
    extended_resources: tuple[tuple[str, int], ...] = ()
    """Other devices by their resource name, with their number: `("rdma/hca", 1)`."""
    node_type: str | None = None
    """Only nodes whose label `run.ai/type` has this value."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of nodes that the pods tolerate."""
    topology_required: str | None = None
    """The key of a node label: all pods run on nodes with the same value of it."""
    topology_preferred: str | None = None
    """Like `topology_required`, but the pods run on any nodes if they do not fit on such nodes."""
    completions: int | None = None
    """The number of pods that must succeed; None: one."""
    parallelism: int | None = None
    """The number of pods that run at the same time; None: one. More than one needs `completions`."""
    min_member: int | None = None
    """The gang: no pod starts before this number of pods can run together; None: one."""
    indexed: bool = False
    """A sweep: pod I of `completions` has the variable JOB_COMPLETION_INDEX=I, and attempts of its own."""
    backoff_limit: int | None = None
    """The number of retries after failures, for a sweep of each index; None: 6."""
    time_limit_seconds: int | None = None
    """Seconds that a pod runs at most.

    A pod that reaches it has failed and counts as an attempt. None: no limit.
    """
    after: tuple[Dependency, ...] = ()
    """Jobs of the project that must reach a state before this one may start."""
    ttl_seconds: int | None = None
    """Seconds from the end of the job to its deletion; None: it is not deleted."""
    rendezvous: Rendezvous | None = None
    """Makes the workload a distributed job: its pods get stable names and the variables of a framework."""
    host_ipc: bool = False
    """Share the node's interprocess communication."""
    host_network: bool = False
    """Share the node's network."""
    run_as: RunAs | None = None
    """User and groups of the container; None: the image's."""
    privilege_escalation: bool | None = None
    """Whether a process may gain more privileges than its parent; None: the cluster's default."""
    capabilities: tuple[str, ...] = ()
    """Capabilities of Linux to add, without the prefix `CAP_`."""
    stdin: bool = False
    """Keep the standard input open for `attach`."""
    stdin_once: bool = False
    """The standard input ends when the first attached client disconnects; needs `stdin`."""
    tty: bool = False
    """Give the container a terminal; needs `stdin`."""
    labels: tuple[tuple[str, str], ...] = ()
    """More labels of the job and its pods."""
    annotations: tuple[tuple[str, str], ...] = ()
    """More annotations of the job and its pods, at most 232 KiB together."""
    command_line: str = ""
    """The command line of the submission, for display."""

    def __post_init__(self) -> None:
        for check in _CHECKS:
            if (problem := check(self)) is not None:
                raise problem

    @property
    def type(self) -> str:
        """`train` or `interactive`."""
        return INTERACTIVE if self.interactive else TRAIN

    @property
    def is_preemptible(self) -> bool:
        """Whether the scheduler may evict its pods for other workloads: by default true for train only."""
        return (not self.interactive) if self.preemptible is None else self.preemptible

    @property
    def is_fraction(self) -> bool:
        """Whether a pod requests a fraction of a GPU, or of each of several GPUs."""
        return 0 < self.gpu_milli < 1000

    @property
    def wants_gpu(self) -> bool:
        """Whether a pod requests GPUs, fractions or GPU memory."""
        return bool(self.gpu_milli or self.gpu_memory_bytes)


# --- each value for itself ----------------------------------------------------------------------------


def _names_are_possible(submission: Submission) -> InvalidField | None:
    if not is_workload_name(submission.name):
        return InvalidField(
            "the {name} {text!r} is not possible: {rule}", text=submission.name, rule=NAME_RULE
        )
    if not is_image(submission.image):
        return InvalidField("{image} must be set to the name of a container image")
    for secret in submission.image_pull_secrets:
        if not is_object_name(secret):
            return InvalidField("{image_pull_secrets} {secret!r} is not the name of a secret", secret=secret)
    return None


def _gpus_are_possible(submission: Submission) -> InvalidField | None:
    if submission.gpu_milli and not is_gpu_milli(submission.gpu_milli):
        return InvalidField(
            "{gpu_milli} {number} is not possible: ask for 1 to 999 thousandths of a GPU, or a multiple of 1000",
            number=submission.gpu_milli,
        )
    if submission.gpu_memory_bytes and submission.gpu_memory_bytes < MIN_GPU_MEMORY_BYTES:
        return InvalidField(
            "{gpu_memory_bytes} {number} is not possible: ask for at least {minimum}",
            number=submission.gpu_memory_bytes,
            minimum=MIN_GPU_MEMORY_BYTES,
        )
    return None


_PYTHON_VERSION: Final = re.compile(r"3\.[0-9]{1,3}(\.[0-9]{1,3})?")
_MINIMA: Final = {
    **dict.fromkeys(("gpu_devices", "completions", "parallelism", "min_member", "time_limit_seconds"), 1),
    **dict.fromkeys(("backoff_limit", "ttl_seconds"), 0),
    **dict.fromkeys(("cpu_milli", "cpu_limit_milli", "memory_bytes", "memory_limit_bytes"), 0),
}


def _numbers_are_possible(submission: Submission) -> InvalidField | None:
    for field, minimum in _MINIMA.items():
        number = getattr(submission, field)
        if number is not None and number < minimum:
            return InvalidField(
                f"{{{field}}} {{number}} is not possible: give a whole number from {{minimum}} up",
                number=number,
                minimum=minimum,
            )
    return None


def _words_are_possible(submission: Submission) -> InvalidField | None:
    framework = submission.rendezvous.framework if submission.rendezvous else None
    for field, word, words in (
        ("service_type", submission.service_type, SERVICE_TYPES),
        ("image_pull_policy", submission.image_pull_policy, PULL_POLICIES),
        ("rendezvous", framework, FRAMEWORKS),
    ):
        if word is not None and word not in words:
            return InvalidField(
                f"{{{field}}} {{word!r}} is not possible: use one of {{words}}",
                word=word,
                words=", ".join(words),
            )
    return None


# --- values together ----------------------------------------------------------------------------------


def _one_way_to_request_gpus(submission: Submission) -> InvalidField | None:
    if submission.gpu_milli and submission.gpu_memory_bytes:
        return InvalidField("{gpu_milli} and {gpu_memory_bytes} exclude each other: give one of them")
    if submission.gpu_devices is not None and not (submission.is_fraction or submission.gpu_memory_bytes):
        return InvalidField(
            "{gpu_devices} says of how many GPUs a part is wanted: give the part, "
            "by {gpu_milli} below 1 or by {gpu_memory_bytes}"
        )
    return None


def _service_needs_ports(submission: Submission) -> InvalidField | None:
    if submission.service_type and not submission.ports:
        return InvalidField(
            "{service_type} {word} needs {ports}, the port on which the container listens",
            word=submission.service_type,
        )
    if submission.ports and not submission.service_type:
        return InvalidField("{ports} needs {service_type}, one of {words}", words=", ".join(SERVICE_TYPES))
    return None


def _ports_differ(submission: Submission) -> InvalidField | None:
    externals = [port.external for port in submission.ports]
    internals = [port.internal for port in submission.ports]
    if len(set(externals)) < len(externals) or len(set(internals)) < len(internals):
        return InvalidField("{ports} is given twice for one port: name every port once")
    return None


def _mounts_differ(submission: Submission) -> InvalidField | None:
    mounts: list[Mount | NewClaim] = [*submission.volumes, *submission.claims, *submission.new_claims]
    paths = [mount.path for mount in mounts]
    paths += [SHARED_MEMORY_PATH] if submission.large_shm else []
    paths += [HOME_PATH] if submission.home_directory else []
    paths += [submission.git.target] if submission.git else []
    paths += [CODE_PATH] if submission.code is not None else []
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if not twice:
        return None
    return InvalidField(
        "{path} is mounted twice: {volumes}, {claims}, {clones}, {git}, {code}, {large_shm} and {home_directory} "
        "need paths of their own",
        path=twice[0],
    )


def _snapshots_are_possible(submission: Submission) -> InvalidField | None:
    if not submission.snapshot_on_success:
        return None
    if submission.interactive:
        return InvalidField(
            "{snapshot_on_success} does not go with {interactive}: an interactive workload has no end"
        )
    if not (submission.claims or submission.new_claims):
        return InvalidField("{snapshot_on_success} needs volumes to keep: {claims}, {new_claims} or {clones}")
    if submission.ttl_seconds is not None and submission.ttl_seconds < MIN_SEEN_TTL_SECONDS:
        return InvalidField(
            "{ttl_seconds} {seconds} is too short for {snapshot_on_success}: let the job stay for {minimum} seconds, "
            "so that its end is seen before its volumes go",
            seconds=submission.ttl_seconds,
            minimum=MIN_SEEN_TTL_SECONDS,
        )
    return None


def _interactive_is_one_pod(submission: Submission) -> InvalidField | None:
    if not submission.interactive:
        return None
    for field in ("completions", "parallelism", "min_member"):
        if (getattr(submission, field) or 1) > 1:
            return InvalidField(
                f"{{{field}}} does not go with {{interactive}}: an interactive workload is one pod"
            )
    for field in ("backoff_limit", "ttl_seconds", "time_limit_seconds"):
        if getattr(submission, field) is not None and (field, getattr(submission, field)) != (
            "backoff_limit",
            0,
        ):
            return InvalidField(
                f"{{{field}}} does not go with {{interactive}}: an interactive workload has no end"
            )
    return None


def _indexes_are_counted(submission: Submission) -> InvalidField | None:
    if submission.indexed and submission.completions is None:
        return InvalidField("{indexed} needs {completions}, the number of indexes")
    for field in ("min_member", "rendezvous"):
        if submission.indexed and getattr(submission, field) is not None:
            return InvalidField(f"{{indexed}} does not go with {{{field}}}: each index runs by itself")
    return None


def _working_dir_is_a_path(submission: Submission) -> InvalidField | None:
    if submission.working_dir is None or submission.working_dir.startswith("/"):
        return None
    return InvalidField(
        "{working_dir} {path} must begin with /: it is a directory of the container",
        path=submission.working_dir,
    )


def _python_is_a_version(submission: Submission) -> InvalidField | None:
    if submission.python is None:
        return None
    if not _PYTHON_VERSION.fullmatch(submission.python):
        return InvalidField(
            "{python} {word!r} is not possible: give a version such as 3.12", word=submission.python
        )
    if not (submission.command or submission.args):
        return InvalidField("{python} needs a command, such as: -- python train.py")
    return None


def _code_fits(submission: Submission) -> InvalidField | None:
    size = len(submission.code or b"") + len(submission.function or b"")
    if size <= MAX_CODE_BYTES:
        return None
    field = "the function with its parameters" if submission.code is None else "{code}: the archive"
    return InvalidField(
        f"{field} has {{size}} bytes, and at most {{allowed}} are possible: read large data from a volume",
        size=size,
        allowed=MAX_CODE_BYTES,
    )


def _counts_agree(submission: Submission) -> InvalidField | None:
    pods = submission.parallelism or 1
    counts = {"pods": pods, "members": submission.min_member, "successes": submission.completions}
    if pods > 1 and submission.completions is None:
        return InvalidField(
            "{parallelism} {pods} needs {completions}, the number of pods that must succeed", **counts
        )
    if (submission.min_member or 1) > pods:
        return InvalidField("{min_member} {members} is more than the {pods} pods of {parallelism}", **counts)
    if (submission.min_member or 1) > (submission.completions or 1):
        return InvalidField("{min_member} {members} is more than {completions} {successes}", **counts)
    return None


def _devices_are_ours(submission: Submission) -> InvalidField | None:
    if any(variable.name == DEVICES_VARIABLE for variable in submission.environment):
        return InvalidField(
            "{environment} {variable} is set by muster: use {gpu_milli} to ask for GPUs",
            variable=DEVICES_VARIABLE,
        )
    return None


def _terminal_needs_input(submission: Submission) -> InvalidField | None:
    if submission.tty and not submission.stdin:
        return InvalidField("{tty} needs {stdin}: a terminal reads the standard input")
    return None


_CHECKS: Final[tuple[Callable[[Submission], InvalidField | None], ...]] = (
    _names_are_possible,
    _gpus_are_possible,
    _numbers_are_possible,
    _words_are_possible,
    _one_way_to_request_gpus,
    _service_needs_ports,
    _ports_differ,
    _mounts_differ,
    _interactive_is_one_pod,
    _snapshots_are_possible,
    _counts_agree,
    _indexes_are_counted,
    lambda submission: dependency_problem(submission.after, interactive=submission.interactive),
    _working_dir_is_a_path,
    _python_is_a_version,
    _code_fits,
    _devices_are_ours,
    _terminal_needs_input,
    lambda submission: annotations_fit(submission.labels, submission.annotations),
    lambda submission: strings_arrive(submission.environment, submission.command, submission.args),
)
