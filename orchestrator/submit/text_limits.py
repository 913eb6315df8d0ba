"""The limits of Linux and Kubernetes for the texts of a submission."""

from collections.abc import Iterable
from typing import Final

from orchestrator.errors import InvalidField
from orchestrator.submit.values import Variable

Pairs = tuple[tuple[str, str], ...]

MAX_STRING_BYTES: Final = (128 << 10) - 1
"""The length limit of Linux for one argument or variable of a program."""
MAX_STRINGS_BYTES: Final = 1 << 20
"""The limit for variables and arguments together: etcd accepts no object above 1.5 MiB."""
MAX_ANNOTATION_BYTES: Final = 256 << 10
"""Kubernetes' limit for all annotations of an object, including those of muster."""
_OUR_ANNOTATION_BYTES: Final = 24 << 10


def annotations_fit(labels: Pairs, annotations: Pairs) -> InvalidField | None:
    """Return a problem if a label or annotation is given twice, or if all annotations are too large."""
    for field, pairs in (("labels", labels), ("annotations", annotations)):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            return InvalidField(f"{{{field}}} {{key}} is given twice: give it once", key=twice[0])
    total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations)
    allowed = MAX_ANNOTATION_BYTES - _OUR_ANNOTATION_BYTES
    if total <= allowed:
        return None
    return InvalidField(
        "{annotations}: all annotations together have {total} bytes, and at most {allowed} are possible",
        total=total,
        allowed=allowed,
    )


def strings_arrive(
    environment: Iterable[Variable], command: Iterable[str], args: Iterable[str]
) -> InvalidField | None:
    """Return the problem of the first string that Linux or Kubernetes cannot pass to the program, or None."""
    strings = [
        ("environment", f"{variable.name}={variable.value}", f" {variable.name}") for variable in environment
    ]
    strings += [("command", word, "") for word in command]
    strings += [("args", word, "") for word in args]
    total = 0
    for field, text, variable in strings:
        length = len(text.encode())
        total += length
        if "\0" in text:
            return InvalidField(
                f"{{{field}}}{{variable}} has a NUL character in it, which no program can be given: "
                "use a file or a secret",
                variable=variable,
            )
        if length > MAX_STRING_BYTES:
            return InvalidField(
                f"{{{field}}}{{variable}} is {{length}} bytes long, and Linux gives a program at most "
                f"{MAX_STRING_BYTES} in one string: use a file or a volume",
                variable=variable,
                length=length,
            )
    if total <= MAX_STRINGS_BYTES:
        return None
    return InvalidField(
        "{environment}, {command} and {args} have {total} bytes together, and Kubernetes keeps at most "
        f"{MAX_STRINGS_BYTES}: use a file or a volume",
        total=total,
    )
