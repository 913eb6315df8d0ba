"""The cluster that `muster bench web` shows: an API server on loopback that answers at once, and lets jobs start.

Its nodes have eight GPUs each, which running jobs of one GPU hold; a part of the jobs waits. Objects are as long as
those of a real server. Lists are made once, so that the time of this server is not that of the pages.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web

from musterbench.wire_objects import CREATED, JSON, running_pod, server_side, waiting_pod
from musterlab import pki
from musterlab.nodes import node as node_manifest
from musterlab.profiles import DEFAULT_PROFILE, load
from orchestrator.cluster.resources import (
    GPU_NODES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PROJECTS,
    Resource,
)
from orchestrator.cluster.transport import PAGE_SIZE
from orchestrator.names import NAMESPACE_PREFIX, PROJECT_LABEL
from orchestrator.submit.manifest import Placement, workload_manifest
from orchestrator.submit.submission import Submission

GPUS_OF_NODE: Final = 8
PROJECT_COUNT: Final = 40
WAITING_PART: Final = 10
"""One of so many jobs waits."""
RECORDER: Final = "recorder"
VERSION: Final = "1"
_IMAGES_OF_NODE: Final = 50
_OBSERVED_AT: Final = "2099-01-01T00:00:00Z"
_WHY: Final = "the project has 100 of its 100 GPUs, and no others are free: wait, or ask for fewer GPUs"


class WebCluster:
    """The objects, how many there are, and who watches them.

    `url` is there while it serves; `waiting` are the jobs that can start.
    """

    def __init__(self, nodes: int, jobs: int) -> None:
        self.url = ""
        self.nodes = nodes
        self.jobs = jobs
        self.waiting: list[JSON] = []
        self._free: list[tuple[str, int]] = []
        self._objects: dict[Resource, dict[str, JSON]] = {
            kind: {} for kind in (NODES, GPU_NODES, NAMESPACES, PROJECTS, JOBS, PODS)
        }
        self._watches: dict[str, set[asyncio.Queue[bytes]]] = {}
        self._version = int(VERSION)
        self._fill(nodes, jobs)
        self._pages = {
            (kind.path(), start): page
            for kind, objects in self._objects.items()
            for start, page in _pages(list(objects.values()))
        }

    @asynccontextmanager
    async def serving(self, directory: Path) -> AsyncIterator[Path]:
        """Serve on a free port of loopback, by TLS as every API server does; yields the file of its authority.

        Keys and certificates are written into `directory`.
        """
        pki.Authority.create(directory, "ca").issue("server", user="kube-apiserver", server=True)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(directory / "server.crt", directory / "server.key")
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            port = runner.addresses[0][1]
            self.url = f"https://127.0.0.1:{port}"
            yield directory / "ca.crt"
        finally:
            await runner.cleanup()

    def start_a_job(self) -> str:
        """Let the next job start on a free GPU, and tell everybody; return its name."""
        job = self.waiting.pop(0)
        node, device = self._free.pop()
        project = job["metadata"]["namespace"].removeprefix(NAMESPACE_PREFIX)
        pod = running_pod(job, node, str(device))
        self._tell(PODS, pod)
        self._tell(JOBS, {**job, "status": {"active": 1, "startTime": CREATED}})
        gpus = self._objects[GPU_NODES][node]
        states = list(gpus["spec"]["gpus"])
        states[device] = _gpu_state(node, device, pod)
        self._tell(GPU_NODES, {**gpus, "spec": {**gpus["spec"], "gpus": states}})
        one = self._objects[PROJECTS][project]
        status = {**one["status"], "allocatedGpu": one["status"]["allocatedGpu"] + 1}
        self._tell(PROJECTS, {**one, "status": status})
        return str(job["metadata"]["name"])

    # --- objects ----------------------------------------------------------------------------------------

    def _fill(self, nodes: int, jobs: int) -> None:
        profile = load(DEFAULT_PROFILE)
        names = [f"{profile.prefix}-{number:04d}" for number in range(nodes)]
        # so that the last that are free are of the first nodes, which the page of nodes shows first
        places = [(name, device) for device in range(GPUS_OF_NODE) for name in reversed(names)]
        waiting = max(1, jobs // WAITING_PART)
        running = min(jobs - waiting, len(places) - waiting)
        holders: dict[tuple[str, int], JSON] = {}
        for number in range(jobs):
            job = _job(number)
            self._keep(JOBS, job)
            if number < running:
                node, device = places[number]
                holders[node, device] = running_pod(job, node, str(device))
                self._keep(PODS, holders[node, device])
            else:
                self.waiting.append(job)
                self._keep(PODS, waiting_pod(job, _WHY))
        self._free = places[running:]
        for name in names:
            self._keep(NODES, _node(node_manifest(name, profile)))
            self._keep(GPU_NODES, _gpu_node(name, holders))
        for number in range(PROJECT_COUNT):
            name = _project(number)
            held = len(range(number, running, PROJECT_COUNT))
            self._keep(PROJECTS, _project_object(name, nodes * GPUS_OF_NODE // PROJECT_COUNT, held))
            namespace = {"name": NAMESPACE_PREFIX + name, "labels": {PROJECT_LABEL: name}}
            self._keep(NAMESPACES, {"metadata": {**server_side(f"namespace-{name}"), **namespace}})

    def _keep(self, kind: Resource, item: JSON) -> None:
        self._objects[kind][item["metadata"]["name"]] = item

    def _tell(self, kind: Resource, item: JSON) -> None:
        self._version += 1
        item["metadata"] = {**item["metadata"], "resourceVersion": str(self._version)}
        self._keep(kind, item)
        line = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
        for events in self._watches.get(kind.path(), ()):
            events.put_nowait(line)

    # --- answers ----------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, request.query
        if path.endswith("/selfsubjectreviews"):
            user = {"username": request.headers["Authorization"].removeprefix("Bearer "), "groups": []}
            return web.json_response({"status": {"userInfo": user}}, status=201)
        if path.endswith("/selfsubjectaccessreviews"):
            wanted = (await request.json())["spec"]["resourceAttributes"]
            return web.json_response({"status": {"allowed": wanted["verb"] == "list"}}, status=201)
        if "watch" in query:
            return await self._watch(request)
        if path.startswith("/apis/") and path.count("/") == 2:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        # what has changed since is not in the lists: nobody lists anew while jobs start
        body = self._pages.get((path, query.get("continue", "")))
        return web.Response(body=body or _page([], ""), content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        events: asyncio.Queue[bytes] = asyncio.Queue()
        watches = self._watches.setdefault(request.path, set())
        watches.add(events)
        try:
            while True:
                await response.write(await events.get())
        except ConnectionError:
            return response
        finally:
            watches.discard(events)


def _pages(items: list[JSON]) -> list[tuple[str, bytes]]:
    starts = range(0, max(1, len(items)), PAGE_SIZE)
    return [
        (
            str(start) if start else "",
            _page(items[start : start + PAGE_SIZE], str(start + PAGE_SIZE) if start != starts[-1] else ""),
        )
        for start in starts
    ]


def _page(items: list[JSON], following: str) -> bytes:
    return json.dumps(
        {"metadata": {"resourceVersion": VERSION, "continue": following}, "items": items}
    ).encode()


def _project(number: int) -> str:
    return f"team-{number % PROJECT_COUNT:02d}"


def _job(number: int) -> JSON:
    project, name = _project(number), f"train-{number:05d}"
    submission = Submission(
        name=name,
        image="nvcr.io/nvidia/pytorch:24.05-py3",
        user=f"user-{number % 100}",
        gpu_milli=1000,
        command=("python", "train.py"),
        command_line=f"muster submit {name} -i nvcr.io/nvidia/pytorch:24.05-py3 -g 1 -- python train.py",
    )
    placement = Placement(project, NAMESPACE_PREFIX + project, "2026-01-01T00:00:00.000000Z")
    job = workload_manifest(submission, placement)
    job["metadata"] |= server_side(f"job-{number}")
    job["status"] = {"active": 1, "startTime": CREATED}
    return job


def _node(manifest: JSON) -> JSON:
    conditions = [
        {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": f"Kubelet{kind}",
         "message": f"kubelet says {kind}", "lastHeartbeatTime": CREATED, "lastTransitionTime": CREATED}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]  # fmt: skip
    images = [
        {"names": [f"nvcr.io/nvidia/image-{number}@sha256:{'0' * 64}"], "sizeBytes": 10**9}
        for number in range(_IMAGES_OF_NODE)
    ]
    name = manifest["metadata"]["name"]
    return {
        **manifest,
        "metadata": {**manifest["metadata"], **server_side(f"node-{name}")},
        "status": {**manifest["status"], "conditions": conditions, "images": images},
    }


def _gpu_node(name: str, holders: Mapping[tuple[str, int], JSON]) -> JSON:
    states = [_gpu_state(name, device, holders.get((name, device))) for device in range(GPUS_OF_NODE)]
    return {
        "apiVersion": GPU_NODES.api_version,
        "kind": GPU_NODES.kind,
        "metadata": {"name": name, **server_side(f"gpus-{name}")},
        "spec": {"observedAt": _OBSERVED_AT, "driverVersion": "580.95.05", "gpus": states},
    }


def _gpu_state(node: str, device: int, pod: JSON | None) -> JSON:
    state = {
        "index": device, "uuid": f"GPU-{node}-{device}", "model": "Tesla V100-SXM2-32GB", "memoryMib": 32768,
        "memoryUsedMib": 0, "utilizationPercent": 0,
    }  # fmt: skip
    if pod is None:
        return state
    metadata = pod["metadata"]
    holder = {"namespace": metadata["namespace"], "pod": metadata["name"], "container": "main"}
    return {**state, "memoryUsedMib": 30000, "utilizationPercent": 90, "holders": [holder]}


def _project_object(name: str, quota: int, held: int) -> JSON:
    return {
        "apiVersion": PROJECTS.api_version,
        "kind": PROJECTS.kind,
        "metadata": {"name": name, **server_side(f"project-{name}")},
        "spec": {"gpu": {"quota": quota}, "namespace": NAMESPACE_PREFIX + name},
        "status": {"allocatedGpu": held, "fairShareGpu": quota, "pendingWorkloads": 10},
    }
