"""A validated request to run a workload: what `submit` was asked for, free of flags and of Kubernetes.

The parsers turn the text of one flag into a value and name that flag when they refuse it. `Submission`
then checks what no single flag can know: whether the values fit together. Both raise `UsageError` with one line.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.names import INTERACTIVE, TRAIN

SERVICE_TYPES: Final = ("portforward", "ingress", "nodeport", "loadbalancer")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MAX_NAME_LENGTH: Final = 52
"""A StatefulSet adds a revision hash of 11 characters to a label of at most 63."""
SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - the container's, not ours
DEVICES_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"

_NAME_RULE: Final = (
    f"use at most {MAX_NAME_LENGTH} lower case letters, digits and '-', "
    "starting with a letter and not ending with '-'"
)
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_GPU = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?|\.[0-9]{1,3}")
_VARIABLE_NAME = re.compile(r"[._a-zA-Z][-._a-zA-Z0-9]*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_LABEL_VALUE = re.compile(r"[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_SIZE = re.compile(r"[0-9.]+([EPTGMk]i?)?B?")
_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)h)?(?:([0-9]+(?:\.[0-9]+)?)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?")


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the workload's service. `external` is the service's (for nodeport: the node's) port."""

    external: int
    internal: int

    @property
    def pinned(self) -> bool:
        """Whether the two numbers were given apart."""
        return self.external != self.internal


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable: a literal value, or the key of a secret."""

    name: str
    value: str = ""
    secret: str = ""
    secret_key: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of the node (`source` is a path) or a volume claim (its name) inside the container."""

    source: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """One workload to create. `gpu_milli` is per pod: a multiple of 1000, or less than 1000, or 0 for none.

    CPU and memory keep the text that Kubernetes understands ("500m", "4Gi"); empty means not asked for.
    Raises UsageError when the values contradict each other.
    """

    name: str
    image: str
    user: str
    gpu_milli: int = 0
    interactive: bool = False
    preemptible: bool | None = None
    service_type: str | None = None
    ports: tuple[Port, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    environment: tuple[Variable, ...] = ()
    volumes: tuple[Mount, ...] = ()
    claims: tuple[Mount, ...] = ()
    large_shm: bool = False
    image_pull_policy: str | None = None
    working_dir: str | None = None
    cpu: str = ""
    cpu_limit: str = ""
    memory: str = ""
    memory_limit: str = ""
    node_type: str | None = None
    completions: int | None = None
    parallelism: int | None = None
    min_member: int | None = None
    backoff_limit: int | None = None
    ttl_seconds: int | None = None
    host_ipc: bool = False
    host_network: bool = False
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
        """Whether it asks for a part of one GPU."""
        return 0 < self.gpu_milli < 1000


def parse_name(text: str | None) -> str:
    """Return the name of a workload; it becomes part of DNS names (DNS-1035, at most 52 characters)."""
    if not text:
        raise UsageError("a name is missing: muster submit NAME -i IMAGE")
    if len(text) > MAX_NAME_LENGTH or not _DNS_LABEL.fullmatch(text):
        raise UsageError(f"the name {text!r} is not possible: {_NAME_RULE}")
    return text


def parse_image(text: str | None) -> str:
    """Return the image; it is the one thing without a default."""
    if not text or text != text.strip() or any(character.isspace() for character in text):
        raise UsageError("-i, --image must be set to the name of a container image")
    return text


def parse_gpu(text: str | None) -> int:
    """Return GPUs per pod in thousandths: whole devices, or a part of one."""
    if text is None:
        return 0
    if _GPU.fullmatch(text):
        whole, _, places = text.partition(".")
        gpu_milli = int(whole or 0) * 1000 + int(places.ljust(3, "0"))
        if gpu_milli and (gpu_milli < 1000 or gpu_milli % 1000 == 0):
            return gpu_milli
    raise UsageError(
        f"-g/--gpu {text} is not possible: ask for a whole number of GPUs (1, 2, ...) "
        "or for a part of one GPU, above 0 and below 1, with at most three decimals (0.5)"
    )


def parse_port(text: str) -> Port:
    """Return the port of `8888` or `30080:8888` (external:internal)."""
    external, separator, internal = text.partition(":")
    numbers = [external, internal] if separator else [external, external]
    if all(re.fullmatch(r"[0-9]{1,5}", number) and 0 < int(number) < 65536 for number in numbers):
        return Port(external=int(numbers[0]), internal=int(numbers[1]))
    raise UsageError(f"--port {text} is not possible: give PORT or EXTERNAL:INTERNAL, each from 1 to 65535")


def parse_variable(text: str) -> Variable:
    """Return the variable of `NAME=VALUE` or `NAME=SECRET:secret,key`; the value may contain `=`."""
    name, separator, value = text.partition("=")
    if not separator or not _VARIABLE_NAME.fullmatch(name):
        raise UsageError(f"-e/--environment {text!r} is not possible: give NAME=VALUE")
    if not value.startswith("SECRET:"):
        return Variable(name, value)
    secret, _, key = value.removeprefix("SECRET:").partition(",")
    if not _OBJECT_NAME.fullmatch(secret) or not _SECRET_KEY.fullmatch(key):
        raise UsageError(f"-e/--environment {text!r} is not possible: give {name}=SECRET:SECRET-NAME,KEY")
    return Variable(name, secret=secret, secret_key=key)


def parse_volume(text: str) -> Mount:
    """Return the mount of `/host/directory:/container/directory[:ro|rw]`."""
    mount = _mount(text)
    if mount is None or not mount.source.startswith("/"):
        raise UsageError(f"-v/--volume {text!r} is not possible: give /HOST/PATH:/CONTAINER/PATH[:ro|rw]")
    return mount


def parse_claim(text: str) -> Mount:
    """Return the mount of an existing volume claim, `NAME:/container/directory[:ro|rw]`."""
    parts = text.split(":")
    if len(parts) == 4 or (len(parts) == 3 and (not parts[0] or _SIZE.fullmatch(parts[1]))):
        raise UsageError(
            f"--pvc {text!r} would create a claim, which is not supported yet: create it and give NAME:PATH"
        )
    mount = _mount(text)
    if mount is None or not _OBJECT_NAME.fullmatch(mount.source):
        raise UsageError(f"--pvc {text!r} is not possible: give CLAIM-NAME:/CONTAINER/PATH[:ro|rw]")
    return mount


def _mount(text: str) -> Mount | None:
    source, separator, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not separator or not source or not path.startswith("/") or mode not in ("", "ro", "rw"):
        return None
    return Mount(source, path.rstrip("/") or "/", read_only=mode == "ro")


def parse_quantity(flag: str, text: str | None, convert: Callable[[str], int]) -> str:
    """Return the text of a CPU or memory amount that `convert` can read; an amount of nothing is refused."""
    if text is None:
        return ""
    try:
        amount = convert(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not an amount: give a number such as 2, 500m or 4Gi") from error
    if amount <= 0:
        raise UsageError(f"{flag} {text!r} is not possible: it must be above 0")
    return text


def parse_count(flag: str, number: int | None, minimum: int) -> int | None:
    """Return the number when Kubernetes can hold it and it is at least `minimum`."""
    if number is not None and not minimum <= number < 2**31:
        raise UsageError(f"{flag} {number} is not possible: give a whole number from {minimum} up")
    return number


def parse_duration_seconds(flag: str, text: str | None) -> int | None:
    """Return the seconds of `90s`, `5m`, `1h30m`, rounded to whole seconds."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if not text or match is None or len(text) > 32:
        raise UsageError(f"{flag} {text!r} is not a duration: give one such as 5s, 2m, 3h or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = round(hours * 3600 + minutes * 60 + seconds)
    parse_count(f"{flag} (in seconds)", total, 0)
    return total


def parse_node_type(flag: str, text: str | None) -> str | None:
    """Return the value of the label of the nodes that are meant."""
    if text is not None and not _LABEL_VALUE.fullmatch(text):
        raise UsageError(f"{flag} {text!r} is not possible: give the value of a node's type label")
    return text


def is_object_name(text: str) -> bool:
    """Whether an object could have this name; what could not must never become part of a path or a selector."""
    return _OBJECT_NAME.fullmatch(text) is not None


def parse_project_name(text: str) -> str:
    """Return the name of a project; with the prefix it must still make a namespace name."""
    if len(text) > MAX_NAME_LENGTH or not _DNS_LABEL.fullmatch(text):
        raise UsageError(f"the project name {text!r} is not possible: {_NAME_RULE}")
    return text


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
    paths = [mount.path for mount in (*asked.volumes, *asked.claims)]
    if asked.large_shm:
        paths.append(SHARED_MEMORY_PATH)
    twice = sorted({path for path in paths if paths.count(path) > 1})
    return (
        f"{twice[0]} is mounted twice: --volume, --pvc and --large-shm need paths of their own"
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


_CHECKS: Final[tuple[Callable[[Submission], str | None], ...]] = (
    _service_needs_ports,
    _ports_differ,
    _mounts_differ,
    _interactive_is_one_pod,
    _counts_agree,
    _devices_are_ours,
)
