"""A registry that serves one directory of images to the nodes, with the requests that a pull needs.

`?ns=gcr.io` in a request is the name of the original registry, as containerd sends it to a mirror.
https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

import http.server
import json
import re
import socket
import urllib.parse
from http import HTTPStatus
from pathlib import Path
from typing import Any

from musterlab import oci

DEFAULT_REGISTRY = "docker.io"

_REQUEST = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class Images:
    """The images in a directory: an OCI layout whose index names each image in full."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        index = json.loads((directory / oci.INDEX).read_text())
        self._named = {
            manifest["annotations"][oci.NAME]: manifest["digest"] for manifest in index["manifests"]
        }
        self._types = {manifest["digest"]: manifest["mediaType"] for manifest in index["manifests"]}

    def find(self, registry: str, name: str, kind: str, reference: str) -> tuple[str, str, bytes] | None:
        """Return digest, media type and content of a manifest or blob; None if there is none."""
        digest = reference
        if kind == "manifests" and not _DIGEST.fullmatch(reference):
            digest = self._named.get(f"{registry}/{name}:{reference}", "")
        match = _DIGEST.fullmatch(digest)
        path = self._directory / oci.BLOBS / match[1] if match else None
        if path is None or not path.is_file():
            return None
        return digest, self._types.get(digest, "application/octet-stream"), path.read_bytes()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    images: Images

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def _answer(self, *, with_content: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        registry = urllib.parse.parse_qs(url.query).get("ns", [DEFAULT_REGISTRY])[0]
        match = _REQUEST.fullmatch(urllib.parse.unquote(url.path))
        blob = self.images.find(registry, match["name"], match["kind"], match["reference"]) if match else None
        if blob is not None:
            digest, media_type, content = blob
            headers = {"Content-Type": media_type, "Docker-Content-Digest": digest}
            self._send(HTTPStatus.OK, headers, content, with_content)
        elif url.path == "/v2/":
            self._send(HTTPStatus.OK, {}, b"", with_content)
        else:
            content = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "the lab has no such image"}]}'
            self._send(HTTPStatus.NOT_FOUND, {"Content-Type": "application/json"}, content, with_content)

    def _send(self, status: HTTPStatus, headers: dict[str, str], content: bytes, with_content: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Write nothing for a request."""


def serve(listening: socket.socket, directory: Path) -> None:
    """Serve the images in `directory` on a socket that listens already, forever."""
    handler = type("Handler", (_Handler,), {"images": Images(directory)})
    address = listening.getsockname()
    with http.server.ThreadingHTTPServer(address, handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listening
        server.serve_forever()
