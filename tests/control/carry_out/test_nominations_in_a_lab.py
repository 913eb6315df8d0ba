"""Nominations on a real API server: accepted fields, the output of kubectl, and the state after a change of leader."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.binding import bind
from orchestrator.cluster.errors import Invalid
from orchestrator.cluster.eviction import evict
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.nomination import nominate
from orchestrator.cluster.objects import FINISHED, Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import JOBS, NAMESPACES, PODS, PROJECTS
from orchestrator.cluster.transport import Transport
from orchestrator.names import (
    DISRUPTED_CONDITION,
    EVICTION_REASON_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    GPU_RESOURCE,
    NOMINATED_DEVICES_ANNOTATION,
    PRIORITY_CLASSES,
    PROJECT_LABEL,
    SCHEDULER_NAME,
    SUCCESSOR_NOMINATION_ANNOTATION,
    TRAIN,
    TYPE_LABEL,
)
from orchestrator.observe.nominations import (
    bound_annotations,
    eviction_annotations,
    nomination_of,
    waiting_annotations,
)
from orchestrator.planner.placements import Placement
from tests.cluster.waiting import DEADLINE_SECONDS, running, until
from tests.control.operators import operator, prepare

pytestmark = pytest.mark.lab

NODE = "dgx1-1"
GOES_ON = {"muster.dev/lab-stop-seconds": "1000"}
"""Annotations of a pod whose containers take 1,000 seconds to stop. A test changes the annotation to let the pod
end.
"""


@pytest.fixture
def own_lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """Yield a lab for this test, with one node or the requested number."""
    lab = start("own", nodes=getattr(request, "param", 1), detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def admin(own_lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        yield transport


def bare(name: str, **annotations: str) -> dict[str, Any]:
    """Return a pod for muster's scheduler."""
    container = {"name": "main", "image": "job", "resources": {"limits": {GPU_RESOURCE: 2}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container]},
    }


async def test_the_api_server_takes_node_and_devices_in_one_write_and_ends_both_with_the_binding(
    own_lab: Lab,
) -> None:
    place = Placement(NODE, (4, 5))
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        made = await transport.create(PODS.path("default"), bare("job"), Pod)
        whom = {"namespace": "default", "name": "job", "uid": made.metadata.uid}

        async def write(node: str | None, place: Placement | None, **other: str) -> Pod:
            await nominate(transport, **{**whom, **other}, node=node, annotations=waiting_annotations(place))
            return await transport.get(PODS.path("default", "job"), Pod)

        assert nomination_of(await write(NODE, place)) == place
        assert _nominated_node(own_lab, "default", "job") == NODE
        with pytest.raises(Invalid):
            await write(NODE, place, uid="another")
        assert nomination_of(await write(None, None)) is None
        ended = await transport.get(PODS.path("default", "job"), Pod)
        assert NOMINATED_DEVICES_ANNOTATION not in ended.metadata.annotations

        waits = await write(NODE, place)
        annotations = {**bound_annotations(waits, None), GPU_DEVICES_ANNOTATION: "4,5"}
        await bind(transport, **whom, node=NODE, annotations=annotations)
        bound = await transport.get(PODS.path("default", "job"), Pod)
        assert bound.status.nominated_node_name == "", "the API server ends it, from Kubernetes 1.35"
        assert bound.metadata.annotations[NOMINATED_DEVICES_ANNOTATION] == ""
        with pytest.raises(Invalid):
            await write(NODE, place)


async def test_the_place_of_a_successor_is_read_off_a_pod_that_was_evicted_and_off_no_other(
    own_lab: Lab,
) -> None:
    place = Placement("dgx1-9", (6, 7))
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        for name in ("evicted", "deleted"):
            made = await transport.create(PODS.path("default"), bare(name, **GOES_ON), Pod)
            uid = made.metadata.uid
            await bind(transport, namespace="default", name=name, uid=uid, node=NODE, annotations={})
        pods = Reflector(transport, PODS, Pod)
        async with running(pods.run()):

            def find(name: str) -> Pod:
                return next(pod for pod in pods.objects.values() if pod.metadata.name == name)

            await until(lambda: pods.objects and find("evicted").status.phase == "Running")
            await until(lambda: find("deleted").status.phase == "Running")
            said = {EVICTION_REASON_ANNOTATION: "why", **eviction_annotations(place)}
            text = {key: value for key, value in said.items() if value is not None}
            await transport.patch(PODS.path("default", "deleted"), {"metadata": {"annotations": text}})
            await transport.delete(PODS.path("default", "deleted"))
            uid = find("evicted").metadata.uid
            await evict(transport, namespace="default", name="evicted", uid=uid, annotations=said)
            await until(
                lambda: all(find(name).metadata.deletion_timestamp for name in ("evicted", "deleted"))
            )
            assert nomination_of(find("evicted")) == place
            assert nomination_of(find("deleted")) is None


class Site:
    """Jobs of two projects, one entitled to the whole cluster and one that borrows it, and the pods on a watch.

    `on_event` is called with every event, before anything else happens.
    """

    def __init__(self, lab: Lab, account: Path, transport: Transport) -> None:
        self.lab = lab
        self.account = account
        self.transport = transport
        self.pods = Reflector(transport, PODS, Pod, on_change=self._see)
        self.on_event: Callable[[], object] = lambda: None
        self.nominated: dict[str, list[str]] = {}
        self.successors: dict[str, list[str]] = {}

    def _see(self, change: Change[Pod]) -> None:
        pod = change.object
        if change.type != "deleted" and pod.metadata.namespace in ("muster-owner", "muster-guest"):
            name, successor = job_of(pod), pod.metadata.annotations.get(SUCCESSOR_NOMINATION_ANNOTATION, "")
            for values, value in (
                (self.nominated, pod.status.nominated_node_name if not pod.spec.node_name else "bound"),
                (self.successors, successor),
            ):
                history = values.setdefault(name, [])
                if history[-1:] != [value]:
                    history.append(value)
        self.on_event()

    async def project(self, name: str, quota: int) -> None:
        body = {
            "apiVersion": PROJECTS.api_version,
            "kind": "Project",
            "metadata": {"name": name},
            "spec": {"gpu": {"quota": quota}, "namespace": f"muster-{name}"},
        }
        await self.transport.create(PROJECTS.path(), body)
        labels = {PROJECT_LABEL: name}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"muster-{name}", "labels": labels},
        }
        await self.transport.create(NAMESPACES.path(), namespace)

    async def submit(self, project: str, name: str, gpus: int, **annotations: str) -> None:
        """Create a job of one pod, whose controller replaces an evicted pod."""
        container = {"name": "main", "image": "job", "resources": {"limits": {GPU_RESOURCE: gpus}}}
        spec = {
            "schedulerName": SCHEDULER_NAME,
            "priorityClassName": next(iter(PRIORITY_CLASSES)),
            "restartPolicy": "Never",
            "containers": [container],
        }
        template = {
            "metadata": {"labels": {TYPE_LABEL: TRAIN}, "annotations": {**GOES_ON, **annotations}},
            "spec": spec,
        }
        condition = {"type": DISRUPTED_CONDITION, "status": "True"}
        policy = {"rules": [{"action": "Ignore", "onPodConditions": [condition]}]}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": template, "backoffLimit": 0, "podFailurePolicy": policy},
        }
        await self.transport.create(JOBS.path(f"muster-{project}"), body)

    def of(self, name: str) -> list[Pod]:
        """Return the pods of a job that have not ended, first those that are not terminating."""
        pods = [
            pod
            for pod in self.pods.objects.values()
            if job_of(pod) == name and pod.status.phase not in FINISHED
        ]
        return sorted(pods, key=lambda pod: pod.metadata.deletion_timestamp is not None)

    def node_of(self, name: str) -> str:
        """Return the node on which the job runs without terminating."""
        pods = [pod for pod in self.of(name) if pod.metadata.deletion_timestamp is None]
        return pods[0].spec.node_name if pods else ""

    async def runs(self, name: str) -> None:
        await until(lambda: self.node_of(name))

    def tells(self, name: str) -> bool:
        """Return whether the job's pod has a reason for being pending."""
        return any(condition.message for pod in self.of(name) for condition in pod.status.conditions)

    def leaves(self, name: str) -> bool:
        return any(pod.metadata.deletion_timestamp for pod in self.of(name))

    async def end(self, name: str) -> None:
        """Let the terminating pods of the job end."""
        for pod in self.of(name):
            if pod.metadata.deletion_timestamp:
                text = {"metadata": {"annotations": dict.fromkeys(GOES_ON, "0")}}
                await self.transport.patch(PODS.path(pod.metadata.namespace, pod.metadata.name), text)


def job_of(pod: Pod) -> str:
    return pod.metadata.labels.get("batch.kubernetes.io/job-name", "")


@pytest.fixture
async def site(own_lab: Lab, admin: Transport, tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(own_lab, await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig"), admin)
    async with running(site.pods.run()):
        await site.pods.synced()
        yield site


MOMENTS: dict[str, Callable[[Site, str, str], object]] = {
    "when the job comes": lambda site, gains, _loses: site.of(gains),
    "when it is nominated": lambda site, gains, _loses: any(site.nominated.get(gains, [])),
    "when the other one is told": lambda site, _gains, loses: any(
        EVICTION_REASON_ANNOTATION in pod.metadata.annotations for pod in site.of(loses)
    ),
    "when the other one leaves": lambda site, _gains, loses: site.leaves(loses),
}


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("when the job comes", marks=pytest.mark.rare),
        pytest.param("when it is nominated", marks=pytest.mark.rare),
        "when the other one is told",
        pytest.param("when the other one leaves", marks=pytest.mark.rare),
    ],
)
async def test_gpus_freed_for_a_job_are_its_own_whenever_the_operator_is_killed(
    site: Site, tmp_path: Path, moment: str
) -> None:
    log = tmp_path / "operator.log"
    await site.project("owner", 8)
    await site.project("guest", 0)
    with operator(site.account, log) as first:
        await site.submit("guest", "borrows", 8)
        await until(lambda: site.node_of("borrows"))

        def kill_at_the_moment() -> None:
            if MOMENTS[moment](site, "owns", "borrows"):
                first.kill()

        site.on_event = kill_at_the_moment
        await site.submit("owner", "owns", 8)
        await asyncio.to_thread(first.wait, DEADLINE_SECONDS)
        site.on_event = lambda: None
    assert first.returncode == -signal.SIGKILL
    await site.submit("owner", "younger", 8)
    with operator(site.account, log) as second:
        await until(lambda: site.leaves("borrows") and site.nominated["owns"][-1] == NODE)
        (waits,) = site.of("owns")
        assert _nominated_node(site.lab, "muster-owner", waits.metadata.name) == NODE
        assert nomination_of(waits) == Placement(NODE, tuple(range(8)))
        second.kill()
        await asyncio.to_thread(second.wait, DEADLINE_SECONDS)
    await site.end("borrows")
    await until(lambda: not site.of("borrows") or not site.leaves("borrows"))
    with operator(site.account, log):
        await until(lambda: site.node_of("owns") == NODE)
    assert site.nominated["owns"] == ["", NODE, "bound"]
    assert "bound" not in site.nominated["younger"]


@pytest.mark.parametrize("own_lab", [2], indirect=True)
async def test_the_place_of_a_job_that_is_moved_is_its_own_although_it_has_no_pod_there_yet(
    site: Site, tmp_path: Path
) -> None:
    """The job frees a node for a larger one, and is nominated to GPUs that a younger job could use now."""
    log = tmp_path / "operator.log"
    await site.project("owner", 16)
    with operator(site.account, log) as first:
        for name in ("ends", "moves", "stays"):
            await site.submit("owner", name, 4)
            await site.runs(name)
        await site.transport.delete(JOBS.path("muster-owner", "ends"))
        await until(lambda: site.leaves("ends"))
        await site.end("ends")
        await until(lambda: not site.of("ends"))

        def kill_at_the_moment() -> None:
            if site.leaves("moves") or site.leaves("stays"):
                first.kill()

        site.on_event = kill_at_the_moment
        await site.submit("owner", "large", 8)
        await asyncio.to_thread(first.wait, DEADLINE_SECONDS)
        site.on_event = lambda: None
    await site.submit("owner", "younger", 4)
    with operator(site.account, log):
        moving, staying = ("moves", "stays") if site.leaves("moves") else ("stays", "moves")
        node, freed = site.node_of(staying), site.of(moving)[0].spec.node_name
        await until(lambda: site.nominated["large"][-1] == freed and site.tells("younger"))
        assert site.successors[moving][-1].startswith(f"{node}:")
        await site.end(moving)
        await until(lambda: site.node_of("large") == freed and site.node_of(moving) == node)
    assert site.nominated["large"] == ["", freed, "bound"]
    assert "bound" not in site.nominated["younger"]
    places = {place.partition(":")[0] for place in site.successors[moving] if place}
    assert places == {node}


def _nominated_node(lab: Lab, namespace: str, pod: str) -> str:
    """Return the value under NOMINATED NODE in `kubectl get pod -o wide`."""
    kubectl = [str(lab.kubectl_directory / "kubectl"), "--kubeconfig", str(lab.kubeconfig)]
    get = [*kubectl, "-n", namespace, "get", "pod", pod, "-o", "wide"]
    done = subprocess.run(get, check=True, capture_output=True, text=True)
    header, row = done.stdout.splitlines()
    column = header.index("NOMINATED NODE")
    return row[column:].split()[0]
