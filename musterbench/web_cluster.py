"""The cluster that `musterbench web` shows: an API server on loopback that answers immediately, and lets jobs start.

Its nodes have eight GPUs each, used by running jobs of one GPU; other jobs are pending. Objects have the size of
those of a real server. Lists are made once, so that the time of this server does not count.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

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
from orchestrator.names import ADMITTED_ANNOTATION, GPU_DEVICES_ANNOTATION, NAMESPACE_PREFIX, PROJECT_LABEL
from orchestrator.submit.manifest import Placement, workload_manifest
from orchestrator.submit.submission import Submission

JSON = dict[str, Any]

_CREATED: Final = "2026-01-01T00:00:00Z"
_MANAGED_FIELDS_BYTES: Final = 2800
"""The size of `managedFields`, which the API server adds to a pod."""
_POD_CONDITIONS: Final = "PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled".split()  # noqa: SIM905
GPUS_OF_NODE: Final = 8
PROJECT_COUNT: Final = 40
WAITING_PART: Final = 10
"""One of this number of jobs is pending."""
RECORDER: Final = "recorder"
VERSION: Final = "1"
_IMAGES_OF_NODE: Final = 50
_OBSERVED_AT: Final = "2099-01-01T00:00:00Z"
_WHY: Final = "the project has 100 of its 100 GPUs, and no others are free: wait, or ask for fewer GPUs"


class WebCluster:
    """The objects of the cluster, and their watches.

    `url` is set while the cluster serves; `waiting` are the jobs that can start.
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
        """Serve over TLS on a free port of loopback, and yield the file of the CA certificate.

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
        """Let the next job start on a free GPU, and send the events; return its name."""
        job = self.waiting.pop(0)
        node, device = self._free.pop()
        project = job["metadata"]["namespace"].removeprefix(NAMESPACE_PREFIX)
        pod = _running_pod(job, node, str(device))
        self._tell(PODS, pod)
        self._tell(JOBS, {**job, "status": {"active": 1, "startTime": _CREATED}})
        gpus = self._objects[GPU_NODES][node]
        states = list(gpus["spec"]["gpus"])
        states[device] = _gpu_state(node, device, pod)
        self._tell(GPU_NODES, {**gpus, "spec": {**gpus["spec"], "gpus": states}})
        one = self._objects[PROJECTS][project]
        status = {**one["status"], "allocatedGpu": one["status"]["allocatedGpu"] + 1}
        self._tell(PROJECTS, {**one, "status": status})
        return str(job["metadata"]["name"])

    def _fill(self, nodes: int, jobs: int) -> None:
        profile = load(DEFAULT_PROFILE)
        names = [f"{profile.prefix}-{number:04d}" for number in range(nodes)]
        # the last free GPUs are on the first nodes, which the page of nodes shows first
        free_devices = [(name, device) for device in range(GPUS_OF_NODE) for name in reversed(names)]
        waiting = max(1, jobs // WAITING_PART)
        running = min(jobs - waiting, len(free_devices) - waiting)
        holders: dict[tuple[str, int], JSON] = {}
        for number in range(jobs):
            job = _job(number)
            self._keep(JOBS, job)
            if number < running:
                node, device = free_devices[number]
                holders[node, device] = _running_pod(job, node, str(device))
                self._keep(PODS, holders[node, device])
            else:
                self.waiting.append(job)
                self._keep(PODS, _waiting_pod(job, _WHY))
        self._free = free_devices[running:]
        for name in names:
            self._keep(NODES, _node(node_manifest(name, profile)))
            self._keep(GPU_NODES, _gpu_node(name, holders))
        for number in range(PROJECT_COUNT):
            name = _project(number)
            held = len(range(number, running, PROJECT_COUNT))
            self._keep(PROJECTS, _project_object(name, nodes * GPUS_OF_NODE // PROJECT_COUNT, held))
            namespace = {"name": NAMESPACE_PREFIX + name, "labels": {PROJECT_LABEL: name}}
            self._keep(NAMESPACES, {"metadata": {**_server_side(f"namespace-{name}"), **namespace}})

    def _keep(self, kind: Resource, item: JSON) -> None:
        self._objects[kind][item["metadata"]["name"]] = item

    def _tell(self, kind: Resource, item: JSON) -> None:
        self._version += 1
        item["metadata"] = {**item["metadata"], "resourceVersion": str(self._version)}
        self._keep(kind, item)
        line = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
        for events in self._watches.get(kind.path(), ()):
            events.put_nowait(line)

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
        # later changes are not in the lists: no client lists again while jobs start
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
    job["metadata"] |= _server_side(f"job-{number}")
    job["status"] = {"active": 1, "startTime": _CREATED}
    return job


def _node(manifest: JSON) -> JSON:
    conditions = [
        {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": f"Kubelet{kind}",
         "message": f"kubelet says {kind}", "lastHeartbeatTime": _CREATED, "lastTransitionTime": _CREATED}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]  # fmt: skip
    images = [
        {"names": [f"nvcr.io/nvidia/image-{number}@sha256:{'0' * 64}"], "sizeBytes": 10**9}
        for number in range(_IMAGES_OF_NODE)
    ]
    name = manifest["metadata"]["name"]
    return {
        **manifest,
        "metadata": {**manifest["metadata"], **_server_side(f"node-{name}")},
        "status": {**manifest["status"], "conditions": conditions, "images": images},
    }


def _gpu_node(name: str, holders: Mapping[tuple[str, int], JSON]) -> JSON:
    states = [_gpu_state(name, device, holders.get((name, device))) for device in range(GPUS_OF_NODE)]
    return {
        "apiVersion": GPU_NODES.api_version,
        "kind": GPU_NODES.kind,
        "metadata": {"name": name, **_server_side(f"gpus-{name}")},
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
        "metadata": {"name": name, **_server_side(f"project-{name}")},
        "spec": {"gpu": {"quota": quota}, "namespace": NAMESPACE_PREFIX + name},
        "status": {"allocatedGpu": held, "fairShareGpu": quota, "pendingWorkloads": 10},
    }


def _server_side(uid: str) -> JSON:
    """Return the metadata that the API server adds to an object."""
    return {
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": _CREATED,
        "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": "x" * _MANAGED_FIELDS_BYTES}}],
    }


def _running_pod(job: JSON, node: str, devices: str) -> JSON:
    """Return the pod of a job that runs on a node and holds its devices."""
    template = job["spec"]["template"]
    name, uid = job["metadata"]["name"], f"pod-of-{job['metadata']['uid']}"
    annotations = template["metadata"]["annotations"] | {GPU_DEVICES_ANNOTATION: devices}
    annotations[ADMITTED_ANNOTATION] = uid
    pod = _pod(job, uid)
    return {
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": template["spec"] | {"nodeName": node},
        "status": {
            "phase": "Running",
            "hostIP": "10.61.218.152",
            "podIP": "10.233.64.17",
            "startTime": _CREATED,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": _CREATED} for kind in _POD_CONDITIONS
            ],
            "containerStatuses": [
                {"name": name, "ready": True, "state": {"running": {"startedAt": _CREATED}}}
            ],
        },
    }


def _waiting_pod(job: JSON, why: str) -> JSON:
    """Return the pod of a pending job, with the reason."""
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastTransitionTime": _CREATED,
    }  # fmt: skip
    pod = _pod(job, f"pod-of-{job['metadata']['uid']}")
    return {**pod, "status": {"phase": "Pending", "conditions": [condition]}}


def _pod(job: JSON, uid: str) -> JSON:
    template, metadata = job["spec"]["template"], job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner |= {key: metadata[key] for key in ("name", "uid")}
    return {
        "metadata": {
            **template["metadata"],
            **_server_side(uid),
            "name": f"{metadata['name']}-x7x7x",
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
