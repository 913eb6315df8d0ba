"""Parses the notations in which people write names, amounts, durations, labels and variables.

`mount_parsing` has the notations of ports, volumes, PVCs and repositories.

Each parser returns a value or raises InvalidField with the name of the field of `Submission`. A parser that several
fields use gets the name as argument `field`.
"""

import re
from collections.abc import Callable
from typing import Final

from orchestrator.cluster.gpu_fraction import gpu_milli
from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.errors import InvalidField
from orchestrator.names import GPU_RESOURCE, GROUP, LAB_ANNOTATIONS
from orchestrator.submit.name_rules import (
    MAX_NAME_LENGTH,
    NAME_RULE,
    is_label_value,
    is_object_name,
    is_qualified_name,
    is_workload_name,
)
from orchestrator.submit.values import (
    MAX_ID,
    MIN_GPU_MEMORY_BYTES,
    Toleration,
    Variable,
    is_gpu_milli,
    is_image,
)

_NUMBER_LENGTH: Final = 6
"""The number of characters that a name prefix must leave free for `-` and a number."""

_GPU = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?|\.[0-9]{1,3}")
_BYTES = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kKmMgGtTpP])i?[bB]")
"""Amounts with the unit `B`, such as `4GB`, which is not valid in Kubernetes."""
_ARRAY = re.compile(r"0-([0-9]{1,5})(?:%([1-9][0-9]{0,5}))?")
_CAPABILITY = re.compile(r"[A-Z][A-Z_]{0,62}")
_VARIABLE_NAME = re.compile(r"[._a-zA-Z][-._a-zA-Z0-9]*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_RESERVED_KEY: Final = re.compile(rf"([-.a-z0-9]+\.)?({re.escape(GROUP)}|kubernetes\.io|k8s\.io)/.*")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


# --- names --------------------------------------------------------------------------------------------


def parse_name(text: str) -> str:
    """Return the name of a workload; it becomes part of DNS names (DNS-1035, at most 52 characters)."""
    if not is_workload_name(text):
        raise InvalidField("the {name} {text!r} is not possible: {rule}", text=text, rule=NAME_RULE)
    return text


def parse_name_prefix(text: str) -> str:
    """Return the prefix of numbered job names. It is short enough that `-` and a number can follow."""
    max_length = MAX_NAME_LENGTH - _NUMBER_LENGTH
    if len(text) > max_length or not is_workload_name(text):
        rule = NAME_RULE.replace(str(MAX_NAME_LENGTH), str(max_length))
        raise InvalidField("{name_prefix} {text!r} is not possible: {rule}", text=text, rule=rule)
    return text


def parse_project_name(text: str) -> str:
    """Return the name of a project. With the namespace prefix it must be a valid namespace name."""
    if not is_workload_name(text):
        raise InvalidField("the project name {text!r} is not possible: {rule}", text=text, rule=NAME_RULE)
    return text


def parse_image(text: str | None) -> str:
    """Return the image. Raises InvalidField for None: an image has no default."""
    if text is None or not is_image(text):
        raise InvalidField("{image} must be set to the name of a container image")
    return text


# --- amounts ------------------------------------------------------------------------------------------


def parse_gpu(text: str | None) -> int:
    """Return GPUs per pod in thousandths: whole devices, or a fraction of one device.

    Example: `parse_gpu("0.5")` returns `500`.
    """
    if text is None:
        return 0
    if _GPU.fullmatch(text):
        amount = gpu_milli(text)
        if is_gpu_milli(amount):
            return amount
    raise InvalidField(
        "{gpu_milli} {text} is not possible: ask for a whole number of GPUs (1, 2, ...) "
        "or for a part of one GPU, above 0 and below 1, with at most three decimals (0.5)",
        text=text,
    )


def parse_gpu_memory(text: str | None) -> int:
    """Return the GPU memory in bytes of a text such as `4G`, `500M` or `2Gi`: at least 100 MB, or 0 for None.

    Example: `parse_gpu_memory("4G")` returns `4000000000`.
    """
    size_bytes = parse_memory("gpu_memory_bytes", text)
    if text is not None and size_bytes < MIN_GPU_MEMORY_BYTES:
        raise InvalidField(
            "{gpu_memory_bytes} {text} is not possible: ask for at least 100M, such as 500M or 4G", text=text
        )
    return size_bytes


def parse_cpu(field: str, text: str | None) -> int:
    """Return thousandths of a CPU for a text such as `500m` or `2`; 0 for None.

    Example: `parse_cpu("cpu", "1500m")` returns `1500`.
    """
    return _quantity(field, text, cpu_milli)


def parse_memory(field: str, text: str | None) -> int:
    """Return bytes for a text such as `512Mi` or `4G`; 0 for None.

    Example: `parse_memory("memory", "2Ki")` returns `2048`.
    """
    if text is not None and (match := _BYTES.fullmatch(text)):
        number, prefix = match[1], match[2].upper()
        raise InvalidField(
            f"{{{field}}} {{text!r}} is not an amount: write {{decimal}} (powers of 1000) or {{binary}}i (of 1024)",
            text=text,
            decimal=f"{number}{'k' if prefix == 'K' else prefix}",
            binary=f"{number}{prefix}",
        )
    return _quantity(field, text, memory_bytes)


def _quantity(field: str, text: str | None, convert: Callable[[str], int]) -> int:
    if text is None:
        return 0
    try:
        amount = convert(text)
    except ValueError as error:
        raise InvalidField(
            f"{{{field}}} {{text!r}} is not an amount: give a number such as 2, 500m or 4Gi", text=text
        ) from error
    if amount <= 0:
        raise InvalidField(f"{{{field}}} {{text!r}} is not possible: it must be above 0", text=text)
    return amount


def parse_count(field: str, number: int | None, minimum: int) -> int | None:
    """Return the number. Raises InvalidField if it is below `minimum` or too large for Kubernetes."""
    if number is not None and not minimum <= number < 2**31:
        raise InvalidField(
            f"{{{field}}} {{number}} is not possible: give a whole number from {{minimum}} up",
            number=number,
            minimum=minimum,
        )
    return number


def parse_array(text: str) -> tuple[int, int]:
    """Parse `0-LAST` or `0-LAST%AT_ONCE`: return the number of indexes, and the maximum number of pods that run at the
    same time.

    Example: `parse_array("0-99%10")` returns `(100, 10)`.
    """
    match = _ARRAY.fullmatch(text)
    if match is None:
        raise InvalidField(
            "{indexed} {text!r} is not possible: give 0-LAST or 0-LAST%AT_ONCE, such as 0-99%10, with LAST up to "
            "99999; a sweep has every index from 0, so calculate other numbers from JOB_COMPLETION_INDEX",
            text=text,
        )
    count = int(match[1]) + 1
    return count, min(count, int(match[2] or count))


def parse_extended_resource(text: str) -> tuple[str, int]:
    """Return the resource name and the count of `NAME=COUNT`.

    Example: `parse_extended_resource("rdma/hca=1")` returns `('rdma/hca', 1)`.
    """
    name, separator, count = text.partition("=")
    if not separator or "/" not in name or not is_qualified_name(name):
        raise InvalidField(
            "{extended_resources} {text!r} is not possible: give NAME=COUNT, such as rdma/hca=1", text=text
        )
    if name == GPU_RESOURCE:
        raise InvalidField(
            "{extended_resources} {resource} is not possible: use {gpu_milli} to ask for GPUs", resource=name
        )
    if not (count.isascii() and count.isdecimal() and int(count[:10]) > 0) or len(count) > 9:
        raise InvalidField(
            "{extended_resources} {text!r} is not possible: COUNT is a whole number from 1 up", text=text
        )
    return name, int(count)


# --- where and how it runs ----------------------------------------------------------------------------


def parse_node_type(field: str, text: str | None) -> str | None:
    """Return the required value of the nodes' type label, or None."""
    if text is not None and not (text and is_label_value(text)):
        raise InvalidField(
            f"{{{field}}} {{text!r}} is not possible: give the value of a node's type label", text=text
        )
    return text


def parse_topology_key(field: str, text: str | None) -> str | None:
    """Return the key of the node label for a topology level, or the name after the `/` of such a key; or None."""
    if text is not None and not is_qualified_name(text):
        raise InvalidField(
            f"{{{field}}} {{text!r}} is not possible: give the key of a node label, such as example.com/rack",
            text=text,
        )
    return text


def parse_toleration(text: str) -> Toleration:
    """Return the toleration of `KEY[=VALUE][:EFFECT]`; `operator=Exists,key=…,effect=…` is understood too."""
    if "," in text or text.startswith(("key=", "operator=")):
        parts = parse_parts("tolerations", text, ("key", "operator", "value", "effect", "seconds"))
        key, effect = parts.get("key", ""), parts.get("effect", "")
        value = None if parts.get("operator", "Equal") == "Exists" else parts.get("value")
    else:
        taint, _, effect = text.partition(":")
        key, equals, after = taint.partition("=")
        value = after if equals else None
    if not is_qualified_name(key) or effect not in ("", *_EFFECTS):
        raise InvalidField(
            "{tolerations} {text!r} is not possible: give KEY[=VALUE][:EFFECT], where EFFECT is {effects}",
            text=text,
            effects=", ".join(_EFFECTS),
        )
    return Toleration(key, value, effect)


def parse_capability(text: str) -> str:
    """Return a capability of Linux, without the prefix `CAP_`.

    Example: `parse_capability("CAP_NET_ADMIN")` returns `'NET_ADMIN'`.
    """
    capability = text.removeprefix("CAP_")
    if not _CAPABILITY.fullmatch(capability):
        raise InvalidField("{capabilities} {text!r} is not possible: give one such as NET_ADMIN", text=text)
    return capability


def parse_id(field: str, text: str | None) -> int | None:
    """Return the id of a user or group, or None."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MAX_ID:
        return int(text)
    raise InvalidField(f"{{{field}}} {{text!r}} is not possible: give a number from 0 to {MAX_ID}", text=text)


def parse_groups(text: str | None) -> tuple[int, ...]:
    """Return the group ids of `10,20`.

    Example: `parse_groups("10, 20")` returns `(10, 20)`.
    """
    if text is None:
        return ()
    return tuple(parse_id("groups", part.strip()) or 0 for part in text.split(","))


# --- labels and variables -----------------------------------------------------------------------------


def parse_label(text: str) -> tuple[str, str]:
    """Return the key and the value of `KEY=VALUE`.

    Example: `parse_label("team=vision")` returns `('team', 'vision')`.
    """
    key, value = _pair("labels", text)
    if not is_label_value(value):
        raise InvalidField(
            "{labels} {text!r} is not possible: a value is up to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit",
            text=text,
        )
    return key, value


def parse_annotation(text: str) -> tuple[str, str]:
    """Return the key and the value of `KEY=VALUE`; the value may be any text.

    Example: `parse_annotation("note=a=b")` returns `('note', 'a=b')`.

    The three annotations for the simulated nodes of a lab take numbers only: the lab would ignore any other value.
    """
    key, _, value = text.partition("=")
    pattern = LAB_ANNOTATIONS.get(key)
    if pattern is None:
        return _pair("annotations", text)
    if not re.fullmatch(pattern, value, re.ASCII):
        raise InvalidField(
            "{annotations} {text} is not possible: give a number, such as {key}=1", text=_short(text), key=key
        )
    return key, value


def _pair(field: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not is_qualified_name(key):
        raise InvalidField(
            f"{{{field}}} {{text}} is not possible: give KEY=VALUE, such as example.com/stage=test",
            text=_short(text),
        )
    if _RESERVED_KEY.fullmatch(key):
        raise InvalidField(
            f"{{{field}}} {{key}} is not possible: {{owner}} is not yours, choose another",
            key=key,
            owner=key.partition("/")[0],
        )
    return key, value


def parse_variable(text: str) -> Variable:
    """Return the variable of `NAME=VALUE` or `NAME=SECRET:secret,key`; the value may contain `=`."""
    name, separator, value = text.partition("=")
    if not separator or not _VARIABLE_NAME.fullmatch(name):
        raise InvalidField("{environment} {text} is not possible: give NAME=VALUE", text=_short(text))
    if not value.startswith("SECRET:"):
        return Variable(name, value)
    secret, _, key = value.removeprefix("SECRET:").partition(",")
    if not is_object_name(secret) or not _SECRET_KEY.fullmatch(key):
        raise InvalidField(
            "{environment} {text!r} is not possible: give {variable}=SECRET:SECRET-NAME,KEY",
            text=text,
            variable=name,
        )
    return Variable(name, secret=secret, secret_key=key)


def parse_variables(content: bytes, file: str) -> tuple[Variable, ...]:
    """Return the variables of a file with NAME=VALUE on each line. Values are unchanged; `#` begins a comment."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line_number = error.object[: error.start].count(b"\n") + 1
        raise InvalidField(
            "{environment_file} {file}, line {line_number}: is no valid UTF-8",
            file=file,
            line_number=line_number,
        ) from error
    variables = []
    for line_number, line in enumerate(text.split("\n"), start=1):
        stripped = line.removesuffix("\r").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            variables.append(parse_variable(stripped))
        except InvalidField as error:
            raise InvalidField(
                "{environment_file} {file}, line {line_number}: give NAME=VALUE",
                file=file,
                line_number=line_number,
            ) from error
    return tuple(variables)


# --- notations made of parts --------------------------------------------------------------------------


def parse_parts(field: str, text: str, allowed: tuple[str, ...], usage: str = "") -> dict[str, str]:
    """Return the parts of `a=1,b=2,c`; a part without a value is `true`."""
    parts: dict[str, str] = {}
    for word in text.split(","):
        key, separator, value = word.strip().partition("=")
        if key not in allowed or key in parts:
            problem = "has an unknown field {key!r}" if key not in allowed else "has the field {key!r} twice"
            raise InvalidField(
                f"{{{field}}} {{text}} {problem}{{hint}}",
                text=_short(text),
                key=key,
                hint=f": give {usage}" if usage else "",
            )
        parts[key] = value if separator else "true"
    return parts


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
