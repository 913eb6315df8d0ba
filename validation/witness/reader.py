"""Lists and watches one kind of object in a thread of its own, and reports when changes may have been missed.

The `kubernetes` package is imported where it is used: its import takes 0.3 s, and a run without a cluster does not need
it.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import urllib3.exceptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import kubernetes.client

Json = dict[str, Any]

PAGE: Final = 500
RETRY_SECONDS: Final = 0.5
_CONNECT_SECONDS: Final = 5
_WATCH_SECONDS: Final = 240
"""The time after which the API server ends a watch. The reader then continues from the same version."""


class ReadFailed(Exception):
    """Something cannot be read: the API server or a page refuses or does not answer, or the kubeconfig is invalid.

    The message is one line.
    """


class _Expired(Exception):
    """The API server no longer has the version from which to watch, so the changes since that version cannot be
    read.
    """


class _Lost(Exception):
    """The API server cannot be reached, or its answer is a temporary error."""


class _Absent(Exception):
    """The API server does not know the kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The objects to read: their `name` in events, and the `path` of all objects.

    If `optional`, the kind may not exist.

    `older` are paths of other versions, which are read if the API server does not know `path`.
    """

    name: str
    path: str
    optional: bool = False
    older: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Handlers:
    """The callbacks of a reader, called from the reader's thread."""

    changed: Callable[[Kind, str, Json], object]
    """Takes the kind; `added`, `modified` or `deleted`; and the object."""
    watched: Callable[[Kind, str, str], object]
    """Takes the kind; `listed`, `lost`, `resumed`, `relisted` or `absent`; and the resource version, empty for
    `resumed` and `absent`.
    """
    failed: Callable[[Exception], object]
    """Takes the error that ended the reader."""


def connect(kubeconfig: Path | None) -> kubernetes.client.ApiClient:
    """Return a client with the access of the kubeconfig, by default of the file that KUBECONFIG names, else of
    ~/.kube/config.

    Raises ReadFailed.
    """
    import kubernetes.config

    try:
        client: kubernetes.client.ApiClient = kubernetes.config.new_client_from_config(  # type: ignore[no-untyped-call]
            config_file=None if kubeconfig is None else str(kubeconfig), persist_config=False
        )
    except (kubernetes.config.ConfigException, OSError, ValueError) as error:
        raise ReadFailed(f"the kubeconfig cannot be used: {error}") from error
    return client


def ca_sha256(client: kubernetes.client.ApiClient) -> str:
    """Return the SHA-256 of the CA certificate in the kubeconfig.

    If there are several certificates, return the SHA-256 of their digests.

    If the kubeconfig has no CA certificate, return the SHA-256 of the certificate that the API server presents. If no
    certificate can be read, for example without TLS, return "".
    """
    path = client.configuration.ssl_ca_cert
    try:
        text = Path(path).read_text(encoding="ascii") if path else _presented(client.configuration.host)
        blocks = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
        digests = sorted({hashlib.sha256(ssl.PEM_cert_to_DER_cert(block)).hexdigest() for block in blocks})
    except (OSError, ValueError):
        return ""
    if len(digests) < 2:
        return "".join(digests)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _presented(address: str) -> str:
    """Return the certificate (PEM) that the server at the address presents; empty without TLS. Raises OSError."""
    url = urlsplit(address)
    if url.scheme != "https" or url.hostname is None:
        return ""
    return ssl.get_server_certificate((url.hostname, url.port or 443), timeout=_CONNECT_SECONDS)


class Reader:
    """Reads one kind until `stop`. It passes each change to the handlers once, including missed deletions.

    It keeps and passes on only the result of `slim`.
    """

    def __init__(
        self,
        client: kubernetes.client.ApiClient,
        kind: Kind,
        handlers: Handlers,
        slim: Callable[[Json], Json] = dict,
    ) -> None:
        self._client = client
        self._kind = kind
        self._paths = [kind.path, *kind.older]
        self._handlers = handlers
        self._slim = slim
        self._objects: dict[str, Json] = {}
        self._stopped = threading.Event()
        self._lost = False
        self._version = ""
        self._response: urllib3.BaseHTTPResponse | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"read {kind.name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read nothing more, and wait until the thread has ended."""
        with self._lock:
            self._stopped.set()
            if self._response is not None:
                self._response.shutdown()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:
            if not self._stopped.is_set():
                self._handlers.failed(error)

    def _read(self) -> None:
        change = "listed"
        while not self._stopped.is_set():
            try:
                if change:
                    self._list()
                    self._handlers.watched(self._kind, change, self._version)
                    change = ""
                self._watch()
            except _Expired:
                change = "relisted"
            except _Absent:
                if len(self._paths) > 1:
                    del self._paths[0]
                    continue
                self._handlers.watched(self._kind, "absent", "")
                return
            except _Lost:
                if not self._lost and change != "listed" and not self._stopped.is_set():
                    self._lost = True
                    self._handlers.watched(self._kind, "lost", self._version)
                self._stopped.wait(RETRY_SECONDS)

    def _list(self) -> None:
        """Read all objects, and pass their differences from the known objects to the handlers."""
        current: dict[str, Json] = {}
        version, token = "", ""
        while True:
            page = json.loads(b"".join(self._get({"limit": str(PAGE), "continue": token})))
            version = page["metadata"]["resourceVersion"]
            current.update({_uid(entry): self._slim(entry) for entry in page["items"]})
            token = page["metadata"].get("continue", "")
            if not token:
                break
        before, self._objects = self._objects, current
        for uid, entry in before.items():
            if uid not in current:
                self._handlers.changed(self._kind, "deleted", entry)
        for uid, entry in current.items():
            if uid not in before:
                self._handlers.changed(self._kind, "added", entry)
            elif before[uid]["metadata"]["resourceVersion"] != entry["metadata"]["resourceVersion"]:
                self._handlers.changed(self._kind, "modified", entry)
        self._version = version

    def _watch(self) -> None:
        """Pass all changes after the known version to the handlers, until the API server ends the watch."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        rest = b""
        for chunk in self._get(query):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, change: Json) -> None:
        entry: Json = change["object"]
        if change["type"] == "ERROR":
            if entry.get("code") == HTTPStatus.GONE:
                raise _Expired
            raise _Lost(str(entry.get("message", "")))
        self._version = entry["metadata"]["resourceVersion"]
        if change["type"] == "BOOKMARK":
            return
        entry = self._slim(entry)
        if change["type"] == "DELETED":
            self._objects.pop(_uid(entry), None)
        else:
            self._objects[_uid(entry)] = entry
        self._handlers.changed(self._kind, change["type"].lower(), entry)

    def _get(self, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the parts of the answer's body as they arrive. Raises _Lost, _Expired, _Absent or ReadFailed."""
        parameters = self._client.param_serialize(
            method="GET",
            resource_path=self._paths[0],
            query_params=[(name, value) for name, value in query.items() if value],
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            timeout = (_CONNECT_SECONDS, _WATCH_SECONDS + 2 * _CONNECT_SECONDS)
            response = self._client.call_api(*parameters, _request_timeout=timeout).response
        except urllib3.exceptions.HTTPError as error:
            raise _Lost(str(error)) from error
        try:
            with self._lock:
                if self._stopped.is_set():
                    return
                self._response = response
            self._check(response)
            yield from response.stream(amt=None, decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _Lost(str(error)) from error
        finally:
            with self._lock:
                self._response = None
            response.close()

    def _check(self, response: urllib3.BaseHTTPResponse) -> None:
        status = response.status
        if status == HTTPStatus.OK:
            if self._lost:
                self._handlers.watched(self._kind, "resumed", "")
            self._lost = False
            return
        if status == HTTPStatus.GONE:
            raise _Expired
        if status == HTTPStatus.NOT_FOUND and (self._kind.optional or len(self._paths) > 1):
            raise _Absent
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            raise ReadFailed(f"{self._kind.name} cannot be read: {status} {response.reason}")
        raise _Lost(f"{status} {response.reason}")


def _uid(entry: Json) -> str:
    uid: str = entry["metadata"]["uid"]
    return uid
