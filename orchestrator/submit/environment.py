"""The environment variables in a container's manifest. The container gets each value unchanged.

Kubernetes expands `$(NAME)` and `$$` in values and arguments. Values are escaped here so that it expands nothing.
"""

import re
from collections.abc import Iterable
from typing import Any

from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.names import GPU_UUIDS_ANNOTATION
from orchestrator.submit.submission import Submission
from orchestrator.submit.values import DEVICES_VARIABLE, Variable

Manifest = dict[str, Any]

_EXPANDED = re.compile(r"\$(?=[$(]|[^\x00-\x7f])")


def escaped(text: str) -> str:
    """Return `text` with `$` escaped, so that Kubernetes expands the result to `text`.

    A `$` before a character outside ASCII is escaped too: older versions of Kubernetes garble that character.

    Example: `escaped("$(HOME)")` returns `'$$(HOME)'`.
    """
    return _EXPANDED.sub("$$", text)


def environment(submission: Submission, more: Iterable[Manifest] = ()) -> list[Manifest]:
    """Return the variables of the container: muster's own, `more`, and the user's, which have precedence."""
    variables: dict[str, Manifest] = {"JOB_NAME": {"value": submission.name}}
    if submission.is_fraction or submission.gpu_memory_bytes:
        # For a fraction, only this variable names the GPU to the runtime. For whole GPUs it must not be set:
        # it would override the device plugin's value, and the container could see GPUs of other pods.
        field = f"metadata.annotations['{GPU_UUIDS_ANNOTATION}']"
        variables[DEVICES_VARIABLE] = {"valueFrom": {"fieldRef": {"fieldPath": field}}}
    elif not submission.gpu_milli:
        # CUDA images set the variable to "all". On a GPU node the NVIDIA runtime would then add all GPUs.
        variables[DEVICES_VARIABLE] = {"value": "void"}
    if submission.gpu_milli:
        variables["RUNAI_NUM_OF_GPUS"] = {"value": format_gpu(submission.gpu_milli)}
    for other in more:
        variables[other["name"]] = {key: value for key, value in other.items() if key != "name"}
    variables.update((variable.name, _value(variable)) for variable in submission.environment)
    return [{"name": name} | value for name, value in variables.items()]


def _value(variable: Variable) -> Manifest:
    if variable.secret:
        return {"valueFrom": {"secretKeyRef": {"name": variable.secret, "key": variable.secret_key}}}
    return {"value": escaped(variable.value)}
