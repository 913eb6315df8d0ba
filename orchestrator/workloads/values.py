"""The text of one flag as a value. Every parser names the flag, and what it allows, when it refuses: UsageError."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from orchestrator.cluster.quantity import memory_bytes
from orchestrator.errors import UsageError
from orchestrator.names import GPU_RESOURCE, GROUP

MAX_NAME_LENGTH: Final = 52
"""A StatefulSet adds a revision hash of 11 characters to a label of at most 63."""
LEAST_GPU_MEMORY_BYTES: Final = 100_000_000

_NAME_RULE: Final = (
    f"use at most {MAX_NAME_LENGTH} lower case letters, digits and '-', "
    "starting with a letter and not ending with '-'"
)
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_GPU = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?|\.[0-9]{1,3}")
_LABEL_VALUE = re.compile(r"([a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?")
_QUALIFIED_NAME = re.compile(
    r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
)
_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_CAPABILITY = re.compile(r"[A-Z][A-Z_]{0,62}")
_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)h)?(?:([0-9]+(?:\.[0-9]+)?)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OURS: Final = re.compile(rf"([-.a-z0-9]+\.)?({re.escape(GROUP)}|kubernetes\.io|k8s\.io)/.*")


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint of nodes that the workload does not mind. No value: whatever value it has; no effect: every effect."""

    key: str
    value: str | None = None
    effect: str = ""


def parse_name(text: str | None) -> str:
    """Return the name of a workload; it becomes part of DNS names (DNS-1035, at most 52 characters)."""
    if not text:
        raise UsageError("a name is missing: muster submit NAME -i IMAGE")
    if len(text) > MAX_NAME_LENGTH or not _DNS_LABEL.fullmatch(text):
        raise UsageError(f"the name {text!r} is not possible: {_NAME_RULE}")
    return text


def parse_name_prefix(text: str) -> str:
    """Return what the names of jobs begin with that are numbered; there is room for a number behind it."""
    if len(text) > MAX_NAME_LENGTH - 6 or not _DNS_LABEL.fullmatch(text):
        raise UsageError(
            f"--job-name-prefix {text!r} is not possible: {_NAME_RULE.replace('52', str(MAX_NAME_LENGTH - 6))}"
        )
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


def parse_gpu_memory(text: str | None) -> str:
    """Return the GPU memory per pod as Kubernetes writes it: `4G`, `500M`, `2Gi`; at least 100 MB."""
    if text is None:
        return ""
    amount = parse_quantity("--gpu-memory", text, memory_bytes)
    if memory_bytes(amount) < LEAST_GPU_MEMORY_BYTES:
        raise UsageError(f"--gpu-memory {text} is not possible: ask for at least 100M, such as 500M or 4G")
    return amount


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
    hours, minutes, seconds = (Decimal(part or 0) for part in match.groups())
    total = round(hours * 3600 + minutes * 60 + seconds)
    parse_count(f"{flag} (in seconds)", total, 0)
    return total


def parse_node_type(flag: str, text: str | None) -> str | None:
    """Return the value of the label of the nodes that are meant."""
    if text is not None and not (text and _LABEL_VALUE.fullmatch(text)):
        raise UsageError(f"{flag} {text!r} is not possible: give the value of a node's type label")
    return text


def parse_topology_key(flag: str, text: str | None) -> str | None:
    """Return the key of the label of nodes that names a level of the topology, or the last part of such a key."""
    if text is not None and not _QUALIFIED_NAME.fullmatch(text):
        raise UsageError(
            f"{flag} {text!r} is not possible: give the key of a node label, such as example.com/rack"
        )
    return text


def parse_label(text: str) -> tuple[str, str]:
    """Return the label of `KEY=VALUE`."""
    key, value = _pair("-l/--label", text)
    if not _LABEL_VALUE.fullmatch(value):
        raise UsageError(
            f"-l/--label {text!r} is not possible: a value is up to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    return key, value


def parse_annotation(text: str) -> tuple[str, str]:
    """Return the annotation of `KEY=VALUE`; the value may be any text."""
    return _pair("-a/--annotation", text)


def _pair(flag: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not _QUALIFIED_NAME.fullmatch(key):
        raise UsageError(
            f"{flag} {_short(text)} is not possible: give KEY=VALUE, such as example.com/stage=test"
        )
    if _OURS.fullmatch(key):
        raise UsageError(
            f"{flag} {key} is not possible: {key.partition('/')[0]} is not yours, choose another"
        )
    return key, value


def parse_toleration(text: str) -> Toleration:
    """Return the toleration of `KEY[=VALUE][:EFFECT]`; `operator=Exists,key=…,effect=…` is understood too."""
    if "," in text or text.startswith(("key=", "operator=")):
        fields = _fields("--toleration", text, ("key", "operator", "value", "effect", "seconds"))
        key, effect = fields.get("key", ""), fields.get("effect", "")
        value = None if fields.get("operator", "Equal") == "Exists" else fields.get("value")
    else:
        left, _, effect = text.partition(":")
        key, equals, after = left.partition("=")
        value = after if equals else None
    if not _QUALIFIED_NAME.fullmatch(key) or effect not in ("", *_EFFECTS):
        raise UsageError(
            f"--toleration {text!r} is not possible: give KEY[=VALUE][:EFFECT], "
            f"where EFFECT is {', '.join(_EFFECTS)}"
        )
    return Toleration(key, value, effect)


def parse_extended_resource(text: str) -> tuple[str, str]:
    """Return the resource of `NAME=COUNT`, for instance `rdma/hca=1`."""
    name, separator, count = text.partition("=")
    if not separator or "/" not in name or not _QUALIFIED_NAME.fullmatch(name):
        raise UsageError(f"--extended-resource {text!r} is not possible: give NAME=COUNT, such as rdma/hca=1")
    if name == GPU_RESOURCE:
        raise UsageError(f"--extended-resource {GPU_RESOURCE} is not possible: use -g/--gpu to ask for GPUs")
    if not (count.isascii() and count.isdecimal() and int(count[:10]) > 0) or len(count) > 9:
        raise UsageError(f"--extended-resource {text!r} is not possible: COUNT is a whole number from 1 up")
    return name, count


def parse_capability(text: str) -> str:
    """Return a capability of Linux, without the prefix `CAP_`."""
    capability = text.removeprefix("CAP_")
    if not _CAPABILITY.fullmatch(capability):
        raise UsageError(f"--add-capability {text!r} is not possible: give one such as NET_ADMIN")
    return capability


def parse_fields(flag: str, text: str, allowed: tuple[str, ...], usage: str) -> Mapping[str, str]:
    """Return the fields of `a=1,b=2,c`; a field without a value is `true`."""
    try:
        return _fields(flag, text, allowed)
    except UsageError as error:
        raise UsageError(f"{error}: give {usage}") from error


def _fields(flag: str, text: str, allowed: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        key, separator, value = part.strip().partition("=")
        if key not in allowed:
            raise UsageError(f"{flag} {_short(text)} has an unknown field {key!r}")
        if key in found:
            raise UsageError(f"{flag} {_short(text)} has the field {key!r} twice")
        found[key] = value if separator else "true"
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def is_object_name(text: str) -> bool:
    """Whether an object could have this name; what could not must never become part of a path or a selector."""
    return _OBJECT_NAME.fullmatch(text) is not None


def parse_project_name(text: str) -> str:
    """Return the name of a project; with the prefix it must still make a namespace name."""
    if len(text) > MAX_NAME_LENGTH or not _DNS_LABEL.fullmatch(text):
        raise UsageError(f"the project name {text!r} is not possible: {_NAME_RULE}")
    return text
