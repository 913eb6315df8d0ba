"""An API server in memory, on loopback, in a thread of its own: it keeps what it is given, as the real one would.

    with serving() as server:
        server.add(node("dgx1-1", gpus=8))
        server.refuse("POST", "/api/v1/namespaces/muster-a/services", 403, "Forbidden")

Objects get a uid and a creation time. Deleting an object deletes what belongs to it. A project gets its namespace
at once while `operator_runs`. Label selectors know `key` and `key=value`.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from orchestrator.cluster.resources import ALL, Resource

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]
Key = tuple[str, str, str]

_BY_PLACE = {(resource.group, resource.plural): resource for resource in ALL}


class MemoryApiServer:
    """See the module."""

    def __init__(self) -> None:
        self.url = ""
        self.operator_runs = True
        self.requests: list[tuple[str, str]] = []
        self._objects: dict[Key, JSON] = {}
        self._refusals: dict[tuple[str, str], tuple[int, str]] = {}
        self._count = 0
        self._lock = threading.RLock()

    def refuse(self, method: str, path: str, code: int, reason: str) -> None:
        """Answer every request of that method and path with a failure."""
        self._refusals[method, path] = (code, reason)

    def allow(self, method: str, path: str) -> None:
        """Take a refusal back."""
        del self._refusals[method, path]

    def add(self, *objects: JSON) -> None:
        """Keep objects as if somebody else had created them."""
        for each in objects:
            group = each["apiVersion"].rpartition("/")[0]
            resource = next(one for one in ALL if one.group == group and one.kind == each["kind"])
            metadata = each.setdefault("metadata", {})
            namespace = metadata.get("namespace", "") if resource.namespaced else ""
            self._keep(resource, namespace, each)

    def find(self, plural: str, name: str, namespace: str = "") -> JSON | None:
        """Return the object, or None."""
        return self._objects.get((plural, namespace, name))

    def all(self, plural: str) -> list[JSON]:
        """Return all objects of a kind, as they were added."""
        return [each for key, each in self._objects.items() if key[0] == plural]

    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that change something."""
        return [each for each in self.requests if each[0] != "GET"]

    def answer(self, method: str, target: str, body: JSON | None) -> tuple[int, JSON]:
        """Answer one request."""
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        with self._lock:
            self.requests.append((method, url.path))
            if (method, url.path) in self._refusals:
                return _failure(*self._refusals[method, url.path], "refused by the test")
            place = _place(url.path)
            if place is None:
                return _failure(404, "NotFound", "the server could not find the requested resource")
            return self._act(method, place, query, body or {})

    def _act(
        self, method: str, place: tuple[Resource, str, str], query: dict[str, str], body: JSON
    ) -> tuple[int, JSON]:
        resource, namespace, name = place
        if not name:
            return (
                self._list(resource, namespace, query)
                if method == "GET"
                else self._create(resource, namespace, body)
            )
        key = (resource.plural, namespace, name)
        found = self._objects.get(key)
        if found is None and method == "PATCH" and "fieldManager" in query:
            return self._create(resource, namespace, body)
        if found is None:
            return _failure(404, "NotFound", f'{resource.plural} "{name}" not found')
        if method == "DELETE":
            uid = body.get("preconditions", {}).get("uid")
            if uid not in (None, found["metadata"]["uid"]):
                return _failure(409, "Conflict", "the uid does not match")
            self._delete(key)
        elif method == "PATCH":
            self._objects[key] = found = _merged(found, body)
        return 200, found

    def _list(self, resource: Resource, namespace: str, query: dict[str, str]) -> tuple[int, JSON]:
        items = [
            each
            for (plural, where, _), each in self._objects.items()
            if plural == resource.plural
            and namespace in ("", where)
            and _selected(each, query.get("labelSelector", ""))
        ]
        return 200, {"kind": f"{resource.kind}List", "metadata": {"resourceVersion": "1"}, "items": items}

    def _create(self, resource: Resource, namespace: str, body: JSON) -> tuple[int, JSON]:
        name = body["metadata"]["name"]
        if (resource.plural, namespace, name) in self._objects:
            return _failure(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        self._keep(resource, namespace, body)
        if resource.kind == "Project" and self.operator_runs:
            self.add(namespace_of(name))
        return 201, body

    def _keep(self, resource: Resource, namespace: str, body: JSON) -> None:
        self._count += 1
        body["metadata"].setdefault("uid", f"uid-{self._count}")
        body["metadata"].setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        if namespace:
            body["metadata"]["namespace"] = namespace
        self._objects[resource.plural, namespace, body["metadata"]["name"]] = body

    def _delete(self, key: Key) -> None:
        uid = self._objects.pop(key)["metadata"]["uid"]
        for other, each in list(self._objects.items()):
            if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", [])):
                self._delete(other)


def _place(path: str) -> tuple[Resource, str, str] | None:
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource = _BY_PLACE.get((group, rest[0]))
    return (resource, namespace, rest[1] if len(rest) > 1 else "") if resource else None


def _selected(each: JSON, selector: str) -> bool:
    labels = each["metadata"].get("labels", {})
    key, equals, value = selector.partition("=")
    return not selector or (labels.get(key) == value if equals else key in labels)


def _merged(old: JSON, patch: JSON) -> JSON:
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


def _failure(code: int, reason: str, message: str) -> tuple[int, JSON]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


@contextmanager
def serving() -> Iterator[MemoryApiServer]:
    """Run a server on a free port of 127.0.0.1."""
    server = MemoryApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, answer = server.answer(self.command, self.path, json.loads(text) if text else None)
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _handle  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def namespace_of(project: str, name: str = "", **labels: str) -> JSON:
    """Return the namespace of a project."""
    labels["muster.dev/project"] = project
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name or f"muster-{project}", "labels": labels},
    }


def claim_of(name: str, namespace: str) -> JSON:
    """Return a volume claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
    }


def secret_of(name: str, namespace: str, **data: str) -> JSON:
    """Return a secret; the values are base64."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def project_of(name: str, quota: float, **spec: Any) -> JSON:
    """Return a project with a quota of GPUs."""
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": name},
        "spec": {"gpu": {"quota": quota}, **spec},
    }


def node(name: str, gpus: int) -> JSON:
    """Return a node with GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}},
        "status": {"capacity": {"nvidia.com/gpu": str(gpus)}},
    }


def pod_of(owner: JSON, name: str, *, phase: str = "Pending", node_name: str = "", **status: Any) -> JSON:
    """Return a pod that a workload has made."""
    template = owner["spec"]["template"]
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "ownerReferences": [reference],
            **template["metadata"],
        },
        "spec": {**template["spec"], **({"nodeName": node_name} if node_name else {})},
        "status": {"phase": phase, **status},
    }
