"""An API server in memory, on loopback, in a thread of its own: it stores objects, as the real one does.

    with serving() as server:
        server.add(node("dgx1-1", gpus=8))
        server.serve(Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"))
    server.refuse("POST", "/api/v1/namespaces/muster-a/services", 403, "Forbidden")

Objects get a uid, a version and a creation time. Deleting an object also deletes the objects that it owns. While
`operator_runs` is true, a new project gets its namespace immediately. Label selectors know `key` and `key=value`.
Collections can be watched. All requests come from `user`, who may send all requests except those in `forbidden`.
Kubelets answer with their entries in `summaries`. `admit` is called with the bearer token, method, path and body of
each request; if its result is not None, that is the answer.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from orchestrator.cluster.resources import ALL, VOLUME_SNAPSHOTS, Resource
from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JSON = dict[str, Any]
Key = tuple[str, str, str]


class MemoryApiServer:
    """An API server in memory; see the module."""

    def __init__(self) -> None:
        self.url = ""
        self.operator_runs = True
        self.requests: list[tuple[str, str]] = []
        # tests that need the definitions of snapshots, which are not Kubernetes' own, add them
        self._resources = [resource for resource in ALL if resource is not VOLUME_SNAPSHOTS]
        self._objects: dict[Key, JSON] = {}
        self._scripted_errors: dict[tuple[str, str], tuple[int, str]] = {}
        self.user: JSON = {"username": "ann", "uid": "uid-of-ann", "groups": ["team", "system:authenticated"]}
        self.forbidden: set[tuple[str, str, str]] = set()
        self.summaries: dict[str, JSON] = {}
        self.headers: list[dict[str, str]] = []
        self.admit: Callable[[str, str, str, JSON | None], tuple[int, JSON] | None] = lambda *_: None
        self.closed = threading.Event()
        self._requested = threading.Condition()
        self._watches: list[tuple[Resource, str, str, queue.Queue[JSON]]] = []
        self._count = 0
        self._lock = threading.RLock()

    def serve(self, resource: Resource) -> None:
        """Serve one more kind, as after its definition was applied."""
        self._resources.append(resource)

    def refuse(self, method: str, path: str, code: int, reason: str) -> None:
        """Answer every request with this method and path with a failure."""
        self._scripted_errors[method, path] = (code, reason)

    def allow(self, method: str, path: str) -> None:
        """Withdraw a refusal."""
        del self._scripted_errors[method, path]

    def add(self, *objects: JSON) -> None:
        """Store objects as if another client had created them."""
        for each in objects:
            group = each["apiVersion"].rpartition("/")[0]
            resource = next(one for one in self._resources if one.group == group and one.kind == each["kind"])
            metadata = each.setdefault("metadata", {})
            namespace = metadata.get("namespace", "") if resource.namespaced else ""
            self._keep(resource, namespace, each)

    def find(self, plural: str, name: str, namespace: str = "") -> JSON | None:
        """Return the object; None if there is none."""
        return self._objects.get((plural, namespace, name))

    def all(self, plural: str) -> list[JSON]:
        """Return all objects of a kind, in the order in which they were added."""
        return [each for key, each in self._objects.items() if key[0] == plural]

    def until(self, condition: Callable[[], object], *, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait until a condition is true. It is checked after each request. Fails at the deadline."""
        with self._requested:
            assert self._requested.wait_for(condition, timeout=seconds), "it did not come to that in time"

    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that change objects."""
        return [
            each for each in self.requests if each[0] not in ("GET", "WATCH") and "selfsubject" not in each[1]
        ]

    def watch(self, target: str) -> queue.Queue[JSON]:
        """Return a queue with the events of a collection from now on."""
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        place = self._place(url.path)
        assert place is not None
        events: queue.Queue[JSON] = queue.Queue()
        with self._lock:
            self._watches.append((place[0], place[1], query.get("labelSelector", ""), events))
        with self._requested:
            self.requests.append(("WATCH", url.path))
            self._requested.notify_all()
        return events

    def answer(self, method: str, target: str, body: JSON | None, accept: str = "") -> tuple[int, JSON]:
        """Answer one request."""
        code, answer = self._answer(method, target, body)
        if "as=Table" in accept and "items" in answer:
            return code, {"kind": "Table", "rows": [{"cells": [_name(each)]} for each in answer["items"]]}
        return code, answer

    def _answer(self, method: str, target: str, body: JSON | None) -> tuple[int, JSON]:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        with self._lock:
            self.requests.append((method, url.path))
            if (method, url.path) in self._scripted_errors:
                return _failure(*self._scripted_errors[method, url.path], "refused by the test")
            if url.path == "/version":
                return 200, {"gitVersion": "v1.33.0"}
            special = self._special(url.path, body or {})
            if special is not None:
                return special
            place = self._place(url.path)
            if place is None:
                return _failure(404, "NotFound", "the server could not find the requested resource")
            return self._act(method, place, query, body or {})

    def _special(self, path: str, body: JSON) -> tuple[int, JSON] | None:
        """Answer requests that are not about stored objects: reviews, and requests to kubelets."""
        if len(path.split("/")) == 3 and path.startswith("/apis/"):
            versions = {each.version: None for each in self._resources if f"/apis/{each.group}" == path}
            group = {"kind": "APIGroup", "versions": [{"version": version} for version in versions]}
            return (200, group) if versions else _failure(404, "NotFound", "no such group")
        if len(path.split("/")) == 4 and path.startswith("/apis/"):
            served = [each for each in self._resources if f"/apis/{each.api_version}" == path]
            answer = {"kind": "APIResourceList", "resources": [_served(each) for each in served]}
            return (200, answer) if served else _failure(404, "NotFound", "no such group and version")
        if path.endswith("/selfsubjectreviews"):
            return 201, {**body, "status": {"userInfo": self.user}}
        if path.endswith("/selfsubjectaccessreviews"):
            attributes = body["spec"]["resourceAttributes"]
            right = (attributes["verb"], attributes["resource"], attributes.get("namespace", ""))
            return 201, {**body, "status": {"allowed": right not in self.forbidden}}
        if path.endswith("/proxy/stats/summary"):
            summary = self.summaries.get(path.split("/")[4])
            return (200, summary) if summary else _failure(503, "ServiceUnavailable", "no kubelet there")
        return None

    def _act(
        self, method: str, place: tuple[Resource, str, str], query: dict[str, str], body: JSON
    ) -> tuple[int, JSON]:
        resource, namespace, name = place
        if not name:
            return (
                self._list(resource, namespace, query)
                if method == "GET"
                else self._create(resource, namespace, body, is_dry="dryRun" in query)
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
            if not body.get("dryRun"):  # the API server ignores the query of a request with a body
                self._delete(key)
        elif method == "PATCH" and "dryRun" in query:
            return 200, _merged(found, body)
        elif method == "PATCH":
            self._objects[key] = found = _merged(found, body)
            self._count += 1
            found["metadata"]["resourceVersion"] = str(self._count)
            self._tell("MODIFIED", resource, found)
        return 200, found

    def _list(self, resource: Resource, namespace: str, query: dict[str, str]) -> tuple[int, JSON]:
        items = [
            each
            for (plural, where, _), each in self._objects.items()
            if plural == resource.plural
            and namespace in ("", where)
            and _selected(each, query.get("labelSelector", ""))
            and _has_fields(each, query.get("fieldSelector", ""))
        ]
        return 200, {"kind": f"{resource.kind}List", "metadata": {"resourceVersion": "1"}, "items": items}

    def _create(
        self, resource: Resource, namespace: str, body: JSON, *, is_dry: bool = False
    ) -> tuple[int, JSON]:
        name = body["metadata"]["name"]
        if (resource.plural, namespace, name) in self._objects:
            return _failure(409, "AlreadyExists", f'{resource.plural} "{name}" already exists')
        if is_dry:
            return 201, {**body, "metadata": {"uid": "", **body["metadata"]}}
        if resource.kind == "Project":
            body["metadata"]["uid"] = f"uid-of-{name}"
        body["metadata"]["managedFields"] = [{"manager": "muster", "operation": "Update"}]
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
        body["metadata"]["resourceVersion"] = str(self._count)
        self._objects[resource.plural, namespace, body["metadata"]["name"]] = body
        self._tell("ADDED", resource, body)

    def _tell(self, kind: str, resource: Resource, found: JSON) -> None:
        for watched, namespace, selector, events in self._watches:
            where = namespace in ("", found["metadata"].get("namespace", ""))
            if watched is resource and where and _selected(found, selector):
                events.put({"type": kind, "object": found})

    def _delete(self, key: Key) -> None:
        gone = self._objects.pop(key)
        uid = gone["metadata"]["uid"]
        self._tell("DELETED", next(each for each in self._resources if each.plural == key[0]), gone)
        for other, each in list(self._objects.items()):
            owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences", [])}
            present = {stored["metadata"]["uid"] for stored in self._objects.values()}
            if uid in owners and owners.isdisjoint(present):
                self._delete(other)

    def _place(self, path: str) -> tuple[Resource, str, str] | None:
        parts = path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        place = group, rest[0]
        resource = next((each for each in self._resources if (each.group, each.plural) == place), None)
        return (resource, namespace, rest[1] if len(rest) > 1 else "") if resource else None


def _served(resource: Resource) -> JSON:
    """Return an entry of an `APIResourceList`."""
    return {
        "name": resource.plural,
        "kind": resource.kind,
        "namespaced": resource.namespaced,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    }


def _name(each: JSON) -> str:
    name: str = each["metadata"]["name"]
    return name


def _has_fields(each: JSON, selector: str) -> bool:
    """Return whether an object matches a field selector on the node of pods or the type of events."""
    node, kind = (selector.partition(f"{field}=")[2] for field in ("spec.nodeName", "type"))
    return (not node or each["spec"].get("nodeName") == node) and (not kind or each.get("type") == kind)


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


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # with the default of five, the sixth connection of a burst waits for a second or more
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error if a client disconnects during an answer: commands end when they have their result."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving() -> Iterator[MemoryApiServer]:
    """Run a server on a free port of 127.0.0.1."""
    server = MemoryApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            server.headers.append(dict(self.headers))
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            sent = json.loads(text) if text else None
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            refused = server.admit(token, self.command, urlsplit(self.path).path, sent)
            if refused is None and "watch=true" in self.path:
                self._stream(server.watch(self.path))
                return
            code, answer = refused or server.answer(
                self.command, self.path, sent, self.headers.get("Accept", "")
            )
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, events: queue.Queue[JSON]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            while not server.closed.is_set():
                try:
                    event = events.get(timeout=0.05)
                except queue.Empty:
                    continue
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _handle  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing for a request."""

    listener = _Listener(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.closed.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


def namespace_of(project: str, name: str = "", **labels: str) -> JSON:
    """Return the namespace of a project."""
    labels["muster.dev/project"] = project
    owner = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "name": project,
        "uid": f"uid-of-{project}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name or f"muster-{project}", "labels": labels, "ownerReferences": [owner]},
    }


def claim_of(name: str, namespace: str) -> JSON:
    """Return a PersistentVolumeClaim."""
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
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"gpu": {"quota": quota}, **spec},
    }


def node(name: str, gpus: int) -> JSON:
    """Return a node with GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}},
        "status": {
            "capacity": {"nvidia.com/gpu": str(gpus)},
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "80", "memory": "512Gi"},
        },
    }


def pod_of(owner: JSON, name: str, *, phase: str = "Pending", node_name: str = "", **status: Any) -> JSON:
    """Return a pod that is owned by a workload."""
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
