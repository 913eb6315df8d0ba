"""The variables and arguments of a container: what was given arrives byte for byte, or is refused.

Kubernetes expands `$(NAME)` in values and arguments, and takes `$$` for `$`; what is written here is escaped so that
nothing is expanded. Linux takes no string longer than 128 KiB, and no program gets a NUL into one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.quantity import format_gpu
from orchestrator.errors import UsageError
from orchestrator.names import GPU_DEVICES_ANNOTATION
from orchestrator.workloads.values import is_object_name

if TYPE_CHECKING:
    from orchestrator.workloads.submission import Submission

Manifest = dict[str, Any]

DEVICES_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
LONGEST_STRING_BYTES: Final = (128 << 10) - 1
MOST_BYTES: Final = 1 << 20
"""Of variables and arguments together: etcd takes no object above 1.5 MiB."""

_VARIABLE_NAME = re.compile(r"[._a-zA-Z][-._a-zA-Z0-9]*")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_EXPANDED = re.compile(r"\$(?=[$(]|[^\x00-\x7f])")


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable: a literal value, or the key of a secret."""

    name: str
    value: str = ""
    secret: str = ""
    secret_key: str = ""


def parse_variable(text: str) -> Variable:
    """Return the variable of `NAME=VALUE` or `NAME=SECRET:secret,key`; the value may contain `=`."""
    name, separator, value = text.partition("=")
    if not separator or not _VARIABLE_NAME.fullmatch(name):
        shown = repr(text if len(text) <= 60 else text[:57] + "...")
        raise UsageError(f"-e/--environment {shown} is not possible: give NAME=VALUE")
    if not value.startswith("SECRET:"):
        return Variable(name, value)
    secret, _, key = value.removeprefix("SECRET:").partition(",")
    if not is_object_name(secret) or not _SECRET_KEY.fullmatch(key):
        raise UsageError(f"-e/--environment {text!r} is not possible: give {name}=SECRET:SECRET-NAME,KEY")
    return Variable(name, secret=secret, secret_key=key)


def read_variables(file: Path) -> list[Variable]:
    """Return the variables of a file with one NAME=VALUE on each line, taken as it is; `#` begins a comment line."""
    try:
        text = file.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"--env-file {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"--env-file {file}, line {number}: is no valid UTF-8") from error
    variables = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.removesuffix("\r").lstrip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            variables.append(parse_variable(stripped))
        except UsageError as error:
            raise UsageError(f"--env-file {file}, line {number}: give NAME=VALUE") from error
    return variables


def escaped(text: str) -> str:
    """Return what Kubernetes expands to `text`.

    A `$` before a character outside ASCII is escaped too: older versions of Kubernetes garble that character.
    """
    return _EXPANDED.sub("$$", text)


def problem_of_strings(asked: "Submission") -> str | None:
    """Return why the variables or arguments cannot arrive as they are, or None."""
    named = [(f"-e/--environment {each.name}", f"{each.name}={each.value}") for each in asked.environment]
    named += [("--command", word) for word in asked.command]
    named += [("--args", word) for word in asked.args]
    total = 0
    for flag, text in named:
        length = len(text.encode())
        total += length
        if "\0" in text:
            return f"{flag} has a NUL character in it, which no program can be given: use a file or a secret"
        if length > LONGEST_STRING_BYTES:
            return (
                f"{flag} is {length} bytes long, and Linux gives a program at most {LONGEST_STRING_BYTES} "
                "in one string: use a file or a volume"
            )
    if total > MOST_BYTES:
        return (
            f"-e/--environment, --command and --args have {total} bytes together, and Kubernetes keeps at most "
            f"{MOST_BYTES}: use a file or a volume"
        )
    return None


def environment(asked: "Submission", more: Iterable[Manifest] = ()) -> list[Manifest]:
    """Return the variables of the container: those of muster, `more`, and those of the user, who wins."""
    variables: dict[str, Manifest] = {"JOB_NAME": {"value": asked.name}}
    if asked.gpu_milli or asked.gpu_memory:
        field = f"metadata.annotations['{GPU_DEVICES_ANNOTATION}']"
        variables[DEVICES_VARIABLE] = {"valueFrom": {"fieldRef": {"fieldPath": field}}}
        if asked.gpu_milli:
            variables["RUNAI_NUM_OF_GPUS"] = {"value": format_gpu(asked.gpu_milli)}
    else:
        # CUDA images say "all", which the NVIDIA runtime would obey on a GPU node.
        variables[DEVICES_VARIABLE] = {"value": "void"}
    for each in more:
        variables[each["name"]] = {key: value for key, value in each.items() if key != "name"}
    variables.update((variable.name, _value(variable)) for variable in asked.environment)
    return [{"name": name} | value for name, value in variables.items()]


def _value(variable: Variable) -> Manifest:
    if variable.secret:
        return {"valueFrom": {"secretKeyRef": {"name": variable.secret, "key": variable.secret_key}}}
    return {"value": escaped(variable.value)}
