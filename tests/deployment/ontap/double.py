"""A double of an ONTAP cluster's REST interface on loopback: TLS, accounts, stored records, jobs, faults.

Like a cluster, it refuses unknown ports, aggregates and SVMs, and names that exist already. So invalid requests of a
role fail here too. `records` has the collections, and this module the interface to them.
"""

import json
import re
import ssl
import tempfile
import threading
import urllib.parse
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.cluster.certificates import Authority
from tests.deployment.ontap.bodies import Record, Refused, matches, nested
from tests.deployment.ontap.records import Store
from tests.deployment.ontap.rights import check, endpoint

RESERVED = {
    *("fields", "return_timeout", "return_records", "max_records", "order_by", "new_index", "force"),
    "ignore_unknown_fields",
}


@dataclass
class Request:
    """One received request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any

    @property
    def changes(self) -> bool:
        """Whether the request would change the cluster."""
        return self.method in {"POST", "PATCH", "DELETE"}


@dataclass
class JobFault:
    """The next job of this kind fails after half of its work."""

    method: str
    path: str
    message: str
    lost: tuple[str, ...] = ()


@dataclass
class Double:
    """A running cluster. `requests` has all received requests, `store` the records."""

    authority: Authority
    username: str = "admin"
    password: str = "correct horse battery staple"
    version: tuple[int, int, int] = (9, 16, 1)
    store: Store = field(default_factory=Store)
    requests: list[Request] = field(default_factory=list)
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Method and endpoint of the requests that were refused for a missing right."""
    job_fault: JobFault | None = None
    jobs: dict[str, Record] = field(default_factory=dict)
    port: int = 0
    _servers: list[ThreadingHTTPServer] = field(default_factory=list)

    def start(self) -> None:
        """Listen at its port of loopback, or a free one, in the network namespace of the calling thread.

        A second call in another network namespace also listens there.
        """
        double = self

        class Handler(_Handler):
            cluster = double

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate, key = self.authority.issue("a800", host="127.0.0.1")
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.write_bytes(certificate + key)
            context.load_cert_chain(pair)
        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(server.server_address[1])
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        """Stop listening; later connections are refused."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def changes(self) -> list[Request]:
        """Return the requests that would change the cluster."""
        return [request for request in self.requests if request.changes]

    def answer(self, request: Request) -> tuple[int, Any]:
        """Return status and body for one request."""
        self.requests.append(request)
        try:
            match request.method:
                case "GET":
                    return self._get(request)
                case "POST":
                    return self._post(request)
                case "PATCH":
                    return self._patch(request)
                case "DELETE":
                    return self._delete(request)
        except Refused as refused:
            return refused.status, {"error": {"message": str(refused), "code": refused.code}}
        return 405, {"error": {"message": f"{request.method} is not allowed", "code": "3"}}

    def _get(self, request: Request) -> tuple[int, Any]:
        path = request.path
        if path == "cluster":
            return 200, self._cluster()
        if path.startswith("cluster/jobs/"):
            return 200, self.jobs[path.rpartition("/")[2]]
        query = {key: value for key, value in request.query.items() if key not in RESERVED}
        collection = self.store.collection(path)
        if collection is not None:
            found = [record for record in collection if all(matches(record, k, v) for k, v in query.items())]
            return 200, {"records": [_shown(record) for record in found], "num_records": len(found)}
        return 200, _shown(self.store.item(path))

    def _cluster(self) -> Record:
        generation, major, minor = self.version
        full = f"NetApp Release {generation}.{major}.{minor}"
        version = {"full": full, "generation": generation, "major": major, "minor": minor}
        return {"name": "a800", "uuid": "9d3c", "version": version}

    def _post(self, request: Request) -> tuple[int, Any]:
        record = self.store.create(request.path, nested(request.body))
        fault = self._fault(request)
        if fault is not None:
            for key in fault.lost:
                record[key] = [] if isinstance(record.get(key), list) else None
        if self.store.is_slow(request.path) or fault is not None:
            return 202, self._job(request, fault)
        return 201, {"num_records": 1, "records": [_shown(record)]}

    def _patch(self, request: Request) -> tuple[int, Any]:
        self.store.change(request.path, nested(request.body), request.query)
        fault = self._fault(request)
        if self.store.is_slow(request.path.rpartition("/")[0]) or fault is not None:
            return 202, self._job(request, fault)
        return 200, {}

    def _delete(self, request: Request) -> tuple[int, Any]:
        self.store.delete(request.path)
        if self.store.is_slow(request.path.rpartition("/")[0]):
            return 202, self._job(request, None)
        return 200, {}

    def _fault(self, request: Request) -> JobFault | None:
        fault = self.job_fault
        if fault is not None and fault.method == request.method and re.fullmatch(fault.path, request.path):
            self.job_fault = None
            return fault
        return None

    def _job(self, request: Request, fault: JobFault | None) -> Record:
        job = {"uuid": str(uuid.uuid4()), "description": f"{request.method} /api/{request.path}"}
        self.jobs[job["uuid"]] = job | (
            {"state": "failure", "code": 2621706, "message": fault.message} if fault else {"state": "success"}
        )
        links = {"self": {"href": f"/api/cluster/jobs/{job['uuid']}"}}
        return {"job": {"uuid": job["uuid"], "_links": links}}


def _shown(record: Record) -> Record:
    """Return a record without passwords, as ONTAP returns it."""
    return {key: value for key, value in record.items() if key != "password"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    cluster: Double

    def log_message(self, *_: object) -> None:
        """Print nothing, because `requests` has all requests."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        parts = urllib.parse.urlsplit(self.path)
        path = parts.path.removeprefix("/api/").strip("/")
        administrator = f"{self.cluster.username}:{self.cluster.password}"
        try:
            authorization = self.headers.get("Authorization", "")
            check(self.cluster.store, authorization, administrator, self.command, path)
        except Refused as refused:
            self.cluster.refused.add((self.command, endpoint(path)))
            self._send(refused.status, {"error": {"message": str(refused), "code": refused.code}})
            return
        query = dict(urllib.parse.parse_qsl(parts.query))
        self._send(*self.cluster.answer(Request(self.command, path, query, json.loads(raw) if raw else {})))

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/hal+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
