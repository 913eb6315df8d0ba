"""Errors that keep a request from being answered, in the words of the pages.

WebError            root
├── SignInNeeded        the cookie belongs to no session, or the session has ended
│   └── NotBegun        an identity provider's answer does not belong to a sign-in of this browser
├── Refused             the request itself is invalid: from another site, too large, without the form's token
├── TooMany             the maximum number of users or pages is reached
├── NotThere            nothing has this name, or its content cannot be read
├── HistoryAway         the store of the history does not answer
└── ProviderAway        the identity provider does not answer, or its answer is invalid
"""

from orchestrator.client.jobs import NoSuchWorkload
from orchestrator.client.projects import NoSuchProject
from orchestrator.cluster.errors import ClusterError
from orchestrator.errors import MusterError, UsageError


class WebError(MusterError):
    """Root of the errors of the pages."""

    status = 400


class SignInNeeded(WebError):
    """The cookie belongs to no session, or the session has ended; the message says why."""

    status = 401


class NotBegun(SignInNeeded):
    """An identity provider's answer does not belong to a sign-in that this browser began."""


class Refused(WebError):
    """The request is not one that a page of ours makes."""

    status = 403


class TooMany(WebError):
    """A limit is reached; the message names it."""

    status = 503


class HistoryAway(WebError):
    """The store of the history gives no figures; the message says why."""

    status = 502


class ProviderAway(WebError):
    """The identity provider does not answer, or its answer is invalid; the message names the problem."""

    status = 502


class NotThere(WebError):
    """Nothing has this name, or its content cannot be read; the message names the problem."""

    status = 404


def status_of(error: Exception) -> int:
    """Return the HTTP status for this kind of error."""
    if isinstance(error, WebError):
        return error.status
    if isinstance(error, (NoSuchWorkload, NoSuchProject)):
        return 404
    if isinstance(error, UsageError):
        return 400
    status = error.status if isinstance(error, ClusterError) else 0
    return status if status in (403, 404, 409) else 502
