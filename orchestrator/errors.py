"""The error tree of muster.

    MusterError
    ├── UsageError            the command or a file has an invalid value
    ├── ConfigurationError    kubeconfig, state directory or environment cannot be used
    ├── TimedOut              the time limit of the user passed; the operation continues
    ├── ClusterError          the Kubernetes API refused or did not answer (leaves in orchestrator.cluster.errors)
    ├── LabError              the lab cannot be built, started or stopped (leaves in musterlab.errors)
    └── ValidationError       a scenario or report cannot be read (leaves in validation.errors)

Only the command line turns an error into an exit code. Every message is one line with the problem and, if it is
known, the remedy.
"""

from collections.abc import Mapping
from string import Formatter
from typing import Any, Self


class MusterError(Exception):
    """Root of all errors that muster raises on purpose."""

    exit_code = 1


class UsageError(MusterError):
    """The command line or an input file has an invalid value."""

    exit_code = 2


class TimedOut(MusterError):
    """The time limit that the user gave has passed. The awaited operation continues."""

    exit_code = 124  # the exit code of `timeout` of GNU coreutils


class ConfigurationError(MusterError):
    """The kubeconfig, a directory or the environment cannot be used as it is."""


class FieldProblem(MusterError):
    """Something is wrong with fields of a request, such as a submission.

    `text` has names in braces. The names of `values` are replaced by their values; all others are fields. The message
    has the names of the fields. Callers with other names, such as the flags of a command line, use `with_names`.
    """

    def __init__(self, text: str, /, **values: object) -> None:
        super().__init__(_FieldFormatter({}).vformat(text, (), values))
        self._text = text
        self._values = values

    def with_names(self, names: Mapping[str, str]) -> Self:
        """Return the same error with these names for fields in its message.

        A field that is not in `names` keeps its own name.
        """
        error = type(self)(self._text, **self._values)
        error.args = (_FieldFormatter(names).vformat(self._text, (), self._values),)
        return error


class InvalidField(FieldProblem, UsageError):
    """A field has an invalid value, or one that contradicts another field."""


class _FieldFormatter(Formatter):
    """Fills in values by their key; a key without a value is a field, which is replaced by its name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return kwargs[str(key)] if key in kwargs else self._names.get(str(key), key)
