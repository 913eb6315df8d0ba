"""`Client.map`: runs a Python function for each of some parameters, as one indexed Job.

A Secret of the job has the function and its parameters as an executable archive, with the caller's cloudpickle.
Each pod runs `function_worker` from it.

The results come back as JSON in the termination messages of the containers. They are no pickles, because other members
of the project can write into these pods. A pickle of theirs would run code on the caller's machine.

FunctionFailed   a function raised an error, or its container ended without a result
PythonDiffers    the image has another Python, for which the function cannot be unpickled
"""

from __future__ import annotations

import io
import json
import sys
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.resources import PODS
from orchestrator.distribution import require_extra
from orchestrator.errors import InvalidField, MusterError, UsageError
from orchestrator.names import COMPLETION_INDEX_ANNOTATION, WORKLOAD_LABEL
from orchestrator.progress import printable
from orchestrator.submit.values import FUNCTION_FILE, FUNCTION_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.client.jobs import Scope, Submitted
    from orchestrator.cluster.transport import Transport
    from orchestrator.submit.submission import Submission
    from orchestrator.views.jobs import WorkloadView

MESSAGE_PATH: Final = "/dev/termination-log"
"""The file of the termination message, by Kubernetes' default."""
_SET_BY_MAP: Final = (
    "command",
    "args",
    "completions",
    "parallelism",
    "min_member",
    "rendezvous",
    "ttl_seconds",
    "function",
)
_MAX_PARAMETERS: Final = 100_000
"""The limit of Kubernetes for the indices of a Job."""
_CALLERS_PYTHON: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"


class FunctionFailed(MusterError):
    """A function of `map` raised an error, or its container ended without a result.

    `index` is the number of its parameter, from 0. `traceback` is the end of the traceback in the container, or "".
    """

    def __init__(self, message: str, index: int, traceback: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.traceback = traceback


class PythonDiffers(MusterError):
    """The Python of the image is not that of the caller."""


class Operations(Protocol):
    """The operations of `AsyncClient` that `map` needs, which are described there."""

    transport: Transport

    async def submit(self, submission: Submission, *, project: Scope) -> Submitted:
        """Create a job."""

    async def wait_for_jobs(
        self, *names: str, until: str, timeout_seconds: float | None, project: Scope
    ) -> list[WorkloadView]:
        """Wait."""

    async def delete_job(self, name: str, *, project: Scope) -> None:
        """Delete the job."""


async def map_function(
    client: Operations,
    function: Callable[[Any], Any],
    parameters: Sequence[Any],
    job: Submission,
    *,
    scope: Scope,
    parallelism: int | None,
    timeout_seconds: float | None,
) -> list[Any]:
    """Return the results in the order of the parameters; see `AsyncClient.map`."""
    for field in _SET_BY_MAP:
        if getattr(job, field) not in (None, ()):
            raise InvalidField(f"{{{field}}} does not go with `map`: leave it out")
    if job.interactive:
        raise InvalidField("{interactive} does not go with `map`: an interactive workload has no end")
    if not parameters:
        return []
    if len(parameters) > _MAX_PARAMETERS:
        raise InvalidField("`map` takes at most {limit} parameters", limit=_MAX_PARAMETERS)
    count = len(parameters)
    submission = replace(
        job,
        command=("python3", f"{FUNCTION_PATH}/{FUNCTION_FILE}", MESSAGE_PATH),
        function=program(function, parameters),
        completions=count,
        parallelism=count if parallelism is None else min(parallelism, count),
        indexed=True,
        backoff_limit=job.backoff_limit or 0,
    )
    made = await client.submit(submission, project=scope)
    await client.wait_for_jobs(made.name, until="ended", timeout_seconds=timeout_seconds, project=scope)
    messages = await _messages(client, scope, made.name, str(made.objects[0]["metadata"]["uid"]))
    results = [_result(made.name, index, messages.get(index)) for index in range(count)]
    try:
        await client.delete_job(made.name, project=scope)
    except MusterError as error:
        warnings.warn(f"the results are there, and the job {made.name} is not deleted: {error}", stacklevel=2)
    return results


def program(function: Callable[[Any], Any], parameters: Sequence[Any]) -> bytes:
    """Return the executable archive with the function and its parameters. Raises UsageError, ConfigurationError."""
    require_extra("functions")
    import cloudpickle

    def pickled(value: Any, subject: str) -> bytes:
        try:
            content: bytes = cloudpickle.dumps(value)
        except Exception as error:  # of any class: the objects pickle themselves
            raise UsageError(f"{subject} cannot be pickled: {type(error).__name__}: {error}") from error
        return content

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", Path(__file__).with_name("function_worker.py").read_bytes())
        archive.writestr("python.json", json.dumps(sys.version_info[:2]))
        archive.writestr("function.pickle", pickled(function, "the function"))
        pickles = [pickled(parameter, f"parameter {index}") for index, parameter in enumerate(parameters)]
        archive.writestr("parameters.pickles", b"".join(pickles))
        archive.writestr("lengths.json", json.dumps([len(content) for content in pickles]))
        package = Path(cloudpickle.__file__).parent
        for module in sorted(package.glob("*.py")):
            archive.writestr(f"{package.name}/{module.name}", module.read_bytes())
    return buffer.getvalue()


async def _messages(client: Operations, scope: Scope, name: str, uid: str) -> dict[int, Mapping[str, Any]]:
    """Return the end of the container by index: of the pod that succeeded, else of the newest one."""
    page = await client.transport.list(
        PODS.path(scope.namespace), dict, params={"labelSelector": f"{WORKLOAD_LABEL}={name}"}
    )
    ended: dict[int, tuple[tuple[bool, str], Mapping[str, Any]]] = {}
    for pod in page.items:
        metadata, status = pod["metadata"], pod.get("status", {})
        index = whole_number(metadata.get("annotations", {}).get(COMPLETION_INDEX_ANNOTATION, ""))
        if index is None or all(owner["uid"] != uid for owner in metadata.get("ownerReferences", [])):
            continue
        for container in status.get("containerStatuses", []):
            terminated = container.get("state", {}).get("terminated")
            rank = status.get("phase") == "Succeeded", metadata.get("creationTimestamp", "")
            if terminated is not None and (index not in ended or ended[index][0] < rank):
                ended[index] = rank, terminated
    return {index: terminated for index, (_, terminated) in ended.items()}


def _result(name: str, index: int, terminated: Mapping[str, Any] | None) -> Any:
    if terminated is None:
        raise FunctionFailed(f"index {index} has no result: see 'muster get {name}'", index)
    message = terminated.get("message", "")
    try:
        outcome = json.loads(message)
    except (ValueError, RecursionError):
        outcome = None
    if isinstance(outcome, dict):
        if "result" in outcome:
            return outcome["result"]
        if "python" in outcome:
            raise PythonDiffers(
                f"the image has Python {_shown(outcome['python'])}, and this is Python {_CALLERS_PYTHON}: use an image "
                f"with Python {_CALLERS_PYTHON}; 'muster delete {name}' deletes the job"
            )
        if "error" in outcome:
            said = _shown(": ".join(str(outcome[key]) for key in ("error", "message") if outcome.get(key)))
            lines = str(outcome.get("traceback", "")).split("\n")
            raise FunctionFailed(f"index {index}: {said}", index, "\n".join(map(printable, lines)))
    why = _shown(f"{terminated.get('reason', '')} {message}")[:300]
    raise FunctionFailed(
        f"index {index} ended with exit code {terminated.get('exitCode')} and without a result: {why}; see "
        f"'muster logs {name} --index {index}'",
        index,
    )


def _shown(text: object) -> str:
    """Return text of a container as one line of printable characters."""
    return printable(" ".join(str(text).split()))
