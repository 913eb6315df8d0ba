"""Sends single requests to the API server, with the access of the user."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import urllib3.exceptions

from validation.witness.reader import ReadFailed

if TYPE_CHECKING:
    import kubernetes.client

MAX_BYTES: Final = 4 << 20
_SECONDS: Final = 15
Sender = Callable[[str, str, str], tuple[int, str]]
"""Takes method, path and body; returns the status and the body of the answer. Raises ReadFailed."""


def send(client: kubernetes.client.ApiClient, method: str, path: str, body: str) -> tuple[int, str]:
    """Send the request once, and return status and body of the answer, even if it is an error.

    The path may have a query. Raises ReadFailed.
    """
    place, _, query = path.partition("?")
    headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
    parameters = client.param_serialize(
        method=method,
        resource_path=place,
        query_params=parse_qsl(query),
        header_params=headers,
        body=json.loads(body) if body else None,
        auth_settings=["BearerToken"],
    )
    try:
        response = client.call_api(*parameters, _request_timeout=_SECONDS).response
        content = response.read(MAX_BYTES + 1)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ReadFailed(str(error)) from error
    if len(content) > MAX_BYTES:
        raise ReadFailed(f"the answer is longer than {MAX_BYTES} bytes")
    return response.status, _without_managers(content.decode(errors="replace"))


def _without_managers(text: str) -> str:
    """Return the answer without `managedFields`, which are longer than the rest of an object."""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(document, dict):
        return text
    items = document.get("items")
    for entry in (document, *(items if isinstance(items, list) else ())):
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        if isinstance(metadata, dict):
            metadata.pop("managedFields", None)
    return json.dumps(document)
