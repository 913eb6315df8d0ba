"""The failures of the Kubernetes API, as exceptions.

    ClusterError              an answer other than success, or no answer
    ├── Unreachable           no connection, TLS failed, or no answer in time
    ├── Unauthorized  401
    ├── Forbidden     403
    ├── NotFound      404
    ├── AlreadyExists 409     reason AlreadyExists
    ├── Conflict      409     any other reason: a stale resourceVersion, another uid, a pod bound already
    ├── Gone          410     a resourceVersion or a continue token that the server has dropped
    ├── Invalid       400, 422
    ├── TooManyRequests 429
    ├── EvictionBlocked 429   a PodDisruptionBudget forbids an eviction
    ├── ServerFault   5xx
    ├── Undecodable           an answer in another form than the caller expects
    ├── StreamBroken          the streams of a container ended before its command
    ├── NotExecutable         the container has no such command
    └── LeaseLost             leadership passed to another replica

Callers catch only the errors that they can handle.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator.errors import MusterError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClusterError(MusterError):
    """The Kubernetes API refused a request, or did not answer.

    `status` is the HTTP status (0 without an answer). `reason` is the machine-readable reason of the answer's `Status`
    object ("" without one). `message` is one line for people. `retry_after_seconds` is the delay that the server asks
    for, or None. `request` is the method and the path, as in `GET /api/v1/nodes` ("" if unknown).
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_seconds: float | None = None,
        request: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.request = request


class Unreachable(ClusterError):
    """No connection, no TLS, or no answer in time. A write may or may not have happened."""


class Unauthorized(ClusterError):
    """The server does not know the user (401)."""


class Forbidden(ClusterError):
    """The server knows the user and refuses the request (403)."""


class NotFound(ClusterError):
    """There is no such object, or the server does not serve that kind (404)."""


class AlreadyExists(ClusterError):
    """An object of that name exists (409)."""


class Conflict(ClusterError):
    """The object, or its version, is not the one that the request names (409)."""


class QuotaOvertaken(Conflict):
    """Another request changed the use of a ResourceQuota at the same moment (409). This request was not carried out."""


class Gone(ClusterError):
    """The resourceVersion or continue token is too old for the server (410)."""


class Invalid(ClusterError):
    """The server understood the object and refuses it (400, 422)."""


class TooManyRequests(ClusterError):
    """The server is shedding load (429)."""


class EvictionBlocked(ClusterError):
    """A PodDisruptionBudget does not allow the eviction now (429)."""


class ServerFault(ClusterError):
    """The server failed (5xx)."""


class Undecodable(ClusterError):
    """The server's answer is not JSON, or not the object that was asked for."""


class StreamBroken(ClusterError):
    """The streams of a container ended, or failed, before the process in it did."""


class NotExecutable(ClusterError):
    """The container has no such command, or may not run it. The exit code is 127, as in a shell."""

    exit_code = 127


class LeaseLost(ClusterError):
    """This replica is no longer the leader and must stop the leader's work."""


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    kind: str = ""
    retry_after_seconds: int = 0
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct, rename="camel"):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_BY_STATUS: Final[Mapping[int, type[ClusterError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_STATUS_DECODER = msgspec.json.Decoder(_Status)
_MESSAGE_LIMIT = 500


def error_of(
    body: bytes | msgspec.Raw, *, status: int = 0, retry_after: str = "", subject: str = ""
) -> ClusterError:
    """Return the leaf for an answer. Its message is from the `Status` object in `body`, or else the text of `body`.

    `status` 0 means that the code is in the body, as in the ERROR event of a watch. `retry_after` is the
    header's value. `subject` is put before the message, for instance the method and the path.
    """
    try:
        answer = _STATUS_DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        answer = _Status(message=bytes(body[:_MESSAGE_LIMIT]).decode("utf-8", "replace"))
    status = status or answer.code
    kind = _BY_STATUS.get(status, ServerFault if status >= 500 else ClusterError)
    if status == 409 and answer.reason == "AlreadyExists":
        kind = AlreadyExists
    if status == 409 and answer.details and answer.details.kind == "resourcequotas":
        kind = QuotaOvertaken
    causes = (answer.details.causes if answer.details else None) or ()
    if status == 429 and any(cause.reason == "DisruptionBudget" for cause in causes):
        kind = EvictionBlocked
    text = " ".join(answer.message.split())[:_MESSAGE_LIMIT] or answer.reason or "no message"
    message = f"{subject}: {status} {text}" if subject else text
    return kind(
        message,
        status=status,
        reason=answer.reason,
        retry_after_seconds=_retry_after(retry_after, answer),
        request=subject,
    )


def _retry_after(header: str, answer: _Status) -> float | None:
    try:
        seconds = float(header)
    except ValueError:  # absent, or an HTTP date, which the API server never sends
        seconds = float(answer.details.retry_after_seconds) if answer.details else 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else None
