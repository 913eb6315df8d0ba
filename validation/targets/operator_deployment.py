"""muster's operator as it is shipped: the image of `make image`, in the Deployment that `muster operator-yaml` renders.

The operator runs on real nodes, beside the jobs. As on every cluster, Kubernetes' own scheduler binds its pods.
"""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musterlab import kube_scheduler, oci
from musterlab.cluster import Lab
from musterlab.realnodes import requirements
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.distribution import installed_version
from orchestrator.errors import UsageError
from orchestrator.manifests.render import default_image
from orchestrator.names import SYSTEM_NAMESPACE
from orchestrator.progress import as_reporter
from validation.errors import TargetError
from validation.scenario.schema import Cluster
from validation.targets.operator_process import OPERATOR_PYTHONPATH
from validation.targets.process import end, start_with_pdeathsig
from validation.targets.sized_profile import profile_of
from validation.targets.upkeep import kill_leading_pod, until_another_leads

BUILD_IT = "build it with `make image` in a checkout, or name one with --image"
_SELECTOR = {"labelSelector": "app.kubernetes.io/name=muster-operator"}
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class OperatorImage:
    """The image that the Deployment of this version names: its full name, its digest, and the OCI archive with the
    image.
    """

    name: str
    digest: str
    archive: Path


def find_image(archive: Path | None) -> OperatorImage:
    """Return the operator's image from an archive, by default from the archive of `make image`. This starts nothing.

    Raises:
        UsageError: there is no such archive, or it has another version than the Deployment; or
            MUSTER_OPERATOR_PYTHONPATH is set.
        RealNodesUnavailable: this machine cannot run containers; names the missing programs.
    """
    if os.environ.get(OPERATOR_PYTHONPATH):
        raise UsageError(
            f"{OPERATOR_PYTHONPATH} replaces the operator that is a process, not that of an image"
        )
    archive = archive or Path("dist") / f"muster-{installed_version()}.oci.tar"
    if not archive.is_file():
        raise UsageError(f"there is no image {archive}: {BUILD_IT}")
    try:
        images = oci.read_index(archive)
    except ValueError as error:
        raise UsageError(f"{error}: {BUILD_IT}") from error
    name = f"docker.io/library/{default_image()}"
    if name not in images:
        raise UsageError(f"{archive} has {', '.join(images)}, not {name}: {BUILD_IT}")
    requirements.find()
    return OperatorImage(name, images[name]["digest"], archive)


class OperatorDeployment:
    """The operator of an image. When the lab stops, the output of its pods is written to operator.log."""

    site = "lab-real-nodes"

    def __init__(self, image: OperatorImage, run_directory: Path, progress: Callable[[str], None]) -> None:
        self._image = image
        self._run_directory = run_directory
        self._progress = progress
        self._transport: Transport | None = None
        self._nodes: list[str] = []

    @contextlib.asynccontextmanager
    async def lab(self, cluster: Cluster) -> AsyncIterator[Lab]:
        """Run a lab with real nodes and Kubernetes' own scheduler. The nodes can pull the operator's image."""
        program = await kube_scheduler.find(as_reporter(self._progress))
        profile = profile_of(cluster, self._run_directory)
        attached = Lab.attached(
            nodes=((profile, 0),), real_nodes=cluster.nodes, image_archives=[self._image.archive],
            progress=self._progress,
        )  # fmt: skip
        async with attached as lab:
            with tempfile.TemporaryDirectory(prefix="muster-validate-") as private:
                self._run_directory.mkdir(parents=True, exist_ok=True)
                scheduler = await start_with_pdeathsig(
                    kube_scheduler.configure(lab, Path(private), program),
                    log=self._run_directory / "kube-scheduler.log",
                    environment=os.environ,
                )
                try:
                    yield lab
                finally:
                    await end(scheduler, grace_seconds=_STOP_SECONDS)

    @contextlib.asynccontextmanager
    async def running(self, _lab: Lab, transport: Transport) -> AsyncIterator[None]:
        """Check that the pods of the installed Deployment run the image. Raises TargetError."""
        pods = await _operator_pods(transport)
        images = {status["imageID"] for pod in pods for status in pod["status"]["containerStatuses"]}
        other = sorted(image for image in images if not image.endswith(f"@{self._image.digest}"))
        if other or not pods:
            raise TargetError(f"the operator runs {', '.join(other) or 'nowhere'}, not {self._image.digest}")
        self._nodes = sorted(pod["spec"]["nodeName"] for pod in pods)
        self._transport = transport
        try:
            yield
        finally:
            self._transport = None
            with contextlib.suppress(ClusterError):
                await self._write_log(transport)

    async def kill(self, holder: str) -> str:
        """Delete the pod of the leader, without a grace period; return why that is not possible, else "".

        Raises TargetError.
        """
        return await kill_leading_pod(self._transport, holder)

    async def start_again(self, killed: str) -> None:
        """Wait until another pod than the killed one leads. Raises TargetError."""
        await until_another_leads(self._transport, killed)

    async def problem(self) -> str:
        """Return the problem if a container of the operator has ended or was restarted; else ""."""
        if self._transport is None:
            return ""
        try:
            pods = await _operator_pods(self._transport)
        except ClusterError as error:
            return f"the operator's pods cannot be read: {error}"
        for pod in pods:
            for status in pod["status"].get("containerStatuses", ()):
                if status["restartCount"] or "running" not in status["state"]:
                    return f"the operator in pod {pod['metadata']['name']} has ended: see operator.log"
        return "" if pods else "the operator's pods have ended"

    def describe(self) -> dict[str, str]:
        """Return the description of the operator and its cluster for the report."""
        replicas = (
            f"{len(self._nodes)} replicas on {', '.join(self._nodes)}" if self._nodes else "not started"
        )
        return {
            "nodes are": "real (kubelet and containerd); containers run",
            "operator": f"the image {self._image.name}@{self._image.digest} as a Deployment, {replicas}",
        }

    async def _write_log(self, transport: Transport) -> None:
        with (self._run_directory / "operator.log").open("w") as log:
            for pod in await _operator_pods(transport):
                name = pod["metadata"]["name"]
                log.write(f"--- {name} on {pod['spec'].get('nodeName')}\n")
                log.write(await transport.text(PODS.path(SYSTEM_NAMESPACE, name, "log")))


async def _operator_pods(transport: Transport) -> list[dict[str, Any]]:
    answer = await transport.get(PODS.path(SYSTEM_NAMESPACE), params=_SELECTOR)
    pods: list[dict[str, Any]] = answer["items"]
    return pods
