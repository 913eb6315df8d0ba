"""A lab with real nodes as the target: kubelets, containers, a test double of NVML, volumes, and the operator's image.

The orchestrator is installed as on every site. Then the lab is a cluster like any other.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from musterlab import binaries, build, ingress, kube_scheduler, oci
from musterlab.cluster import Lab
from musterlab.gpus import built, duty
from musterlab.gpus.models import Gpus
from musterlab.realnodes import requirements
from musterlab.storage import driver, recipe, serving
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import NODES, PODS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.distribution import installed_version
from orchestrator.errors import UsageError
from orchestrator.manifests.render import default_image
from orchestrator.names import SYSTEM_NAMESPACE
from orchestrator.progress import Reporter, as_reporter
from validation.errors import TargetError
from validation.scenario.scaling import Size
from validation.scenario.schema import Cluster
from validation.targets.cluster import ClusterTarget
from validation.targets.installation import install
from validation.targets.kinds import REAL_LAB
from validation.targets.operator_process import OPERATOR_PYTHONPATH
from validation.targets.process import ENTRY, end, start_with_pdeathsig
from validation.witness.urls import Opened, open_url

BUILD_IT: Final = "build it with `make image` in a checkout, or name one with --image"
SITE: Final = "lab-real-nodes"
"""The site file by which the orchestrator is installed."""
INGRESS_CLASS: Final = "traefik"
INGRESS_DOMAIN: Final = "gpus.example.com"
"""The class and the domain of the site file."""
_PRESENT: Final = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
"""The label of feature discovery by which muster's agent finds the nodes with GPUs."""
_SELECTOR: Final = {"labelSelector": "app.kubernetes.io/name=muster-operator"}
_STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class OperatorImage:
    """The image that the Deployment of this version names: its full name, its digest, and the OCI archive with the
    image.
    """

    name: str
    digest: str
    archive: Path


@dataclass(frozen=True, slots=True)
class RealNodes:
    """The number of real nodes, the GPUs of each, and the image of the operator."""

    count: int
    gpus: Gpus
    image: OperatorImage

    @property
    def size(self) -> Size:
        """The size that the scenarios are scaled to."""
        return Size(self.count, self.gpus.count)

    def prepare(self, reporter: Reporter) -> None:
        """Find all programs, and build missing ones. Raises BinariesError."""
        needs = (
            build.REAL_NODES, build.KUBE_SCHEDULER, built.GPU_PROGRAMS, recipe.STORAGE_PROGRAMS,
            build.INGRESS_CONTROLLER,
        )  # fmt: skip
        for needed in needs:
            binaries.find(reporter, needed)


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


class RealLabTarget(ClusterTarget):
    """Starts a lab with real nodes once, for all scenarios, and stops it at the end."""

    kind = REAL_LAB
    disposable = True

    def __init__(
        self,
        nodes: RealNodes,
        projects: frozenset[str],
        run_directory: Path,
        progress: Callable[[str], None],
    ) -> None:
        super().__init__(None, projects, progress)
        self._nodes = nodes
        self._run_directory = run_directory
        self._lab: Lab | None = None
        self._operators: list[str] = []
        self._times: dict[str, str] = {}

    async def start(self, cluster: Cluster) -> bool:
        """Start the lab with everything in it, unless it runs already. Then check it like any cluster."""
        if self._lab is None:
            begin = time.monotonic()
            lab = await self._start_lab()
            self._times["lab ready after"] = f"{time.monotonic() - begin:.1f} s"
            await self._serve_volumes(lab)
            await self._serve_urls(lab)
            self._stack.push_async_callback(self._write_log, lab)
            self._progress("installing the orchestrator")
            await install(SITE, lab.kubeconfig, self._run_directory / "install", self._progress)
            self._times["orchestrator installed after"] = f"{time.monotonic() - begin:.1f} s"
        opened = await super().start(cluster)
        if opened:
            await self._check_image()
        return opened

    def describe(self) -> dict[str, str]:
        """Return the description of the lab for the report, with the names of its simulated parts."""
        image, where = self._nodes.image, ", ".join(self._operators)
        replicas = f"{len(self._operators)} replicas on {where}" if where else "not started"
        return {
            **super().describe(),
            "nodes are": "real (kubelet and containerd); containers run",
            "operator": f"the image {image.name}@{image.digest} as a Deployment, {replicas}",
            "GPUs": f"{self._nodes.gpus}, which compute nothing",
            "load of GPUs": f"injected: {duty.UTILIZATION_PERCENT} % and a process while a container has the GPU",
            "storage": "muster's CSI driver for labs: folders of the machine, without ONTAP and Trident",
            "ingress": "Traefik in the network of the nodes, without DNS",
            "images": "stand-ins of the lab, without TensorFlow and CUDA",
        }

    def timings(self) -> dict[str, str]:
        """Return when each part of the lab was ready, from its start."""
        return dict(self._times)

    async def open_url(self, url: str) -> Opened:
        """Return the answer of the ingress controller of the lab, as if the domain led to it."""
        lab = self._lab
        if lab is None:
            return Opened(0, "the lab is not started")
        return await asyncio.to_thread(open_url, url, lambda: ingress.connect(lab))

    async def problem(self) -> str:
        """Return a line if a pod of the operator or a process of the lab has ended, or ""."""
        try:
            pods = await _operator_pods(self.transport)
        except ClusterError as error:
            return f"the operator's pods cannot be read: {error}"
        for pod in pods:
            for status in pod["status"].get("containerStatuses", ()):
                if status["restartCount"] or "running" not in status["state"]:
                    return f"the operator in pod {pod['metadata']['name']} has ended: see operator.log"
        ended = [process.name for process in self._lab.status().ended] if self._lab is not None else []
        if ended:
            return f"the lab lost {', '.join(ended)}"
        return "" if pods else "the operator's pods have ended"

    async def stop(self) -> None:
        """Stop the operator and the lab."""
        await super().stop()
        self._lab = None

    async def _start_lab(self) -> Lab:
        """Run the lab, and Kubernetes' own scheduler for pods that are not muster's."""
        gpus = self._nodes.gpus
        program = await kube_scheduler.find(as_reporter(self._progress))
        attached = Lab.attached(
            nodes=((gpus.node_profile, 0),), real_nodes=self._nodes.count, gpus=gpus,
            image_archives=[self._nodes.image.archive], progress=self._progress,
        )  # fmt: skip
        self._lab = lab = await self._stack.enter_async_context(attached)
        self._given = lab.kubeconfig
        self._run_directory.mkdir(parents=True, exist_ok=True)
        private = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-validate-"))
        await self._run(kube_scheduler.NAME, kube_scheduler.configure(lab, Path(private), program))
        async with Transport(load_access(lab.kubeconfig)) as transport:
            for name in await _node_names(transport):
                await transport.patch(NODES.path(name=name), _PRESENT, content_type=MERGE_PATCH)
            self._stack.enter_context(duty.duty(lab, await _node_names(transport)))
        return lab

    async def _serve_volumes(self, lab: Lab) -> None:
        """Run `muster lab storage`, and wait until each kubelet knows its driver. Raises StartError."""
        labs = ("--name", lab.name, "--state-dir", str(lab.state_directory.parent))
        await self._run("storage", (sys.executable, *ENTRY, "lab", "storage", *labs))
        async with Transport(load_access(lab.kubeconfig)) as transport:
            nodes = await _node_names(transport)
        await serving.until_registered(lab, driver.NAME, nodes, {}, self._run_directory)

    async def _serve_urls(self, lab: Lab) -> None:
        """Run Traefik for the class and the domain of the site file."""
        program = await ingress.find(as_reporter(self._progress))
        private = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-validate-"))
        async with Transport(load_access(lab.kubeconfig)) as transport:
            await ingress.permit(transport, INGRESS_CLASS)
        command = ingress.configure(
            lab, Path(private), program, ingress_class=INGRESS_CLASS, domain=INGRESS_DOMAIN
        )
        await self._run(ingress.NAME, tuple(command))

    async def _run(self, name: str, command: tuple[str, ...]) -> None:
        """Run a program until the lab is stopped. Its output goes to NAME.log in the directory of the run."""
        process = await start_with_pdeathsig(
            command, log=self._run_directory / f"{name}.log", environment=os.environ
        )
        self._stack.push_async_callback(end, process, grace_seconds=_STOP_SECONDS)

    async def _check_image(self) -> None:
        """Check the image of the pods of the Deployment. Raises TargetError."""
        pods = await _operator_pods(self.transport)
        images = {status["imageID"] for pod in pods for status in pod["status"]["containerStatuses"]}
        digest = self._nodes.image.digest
        other = sorted(image for image in images if not image.endswith(f"@{digest}"))
        if other or not pods:
            raise TargetError(f"the operator runs {', '.join(other) or 'nowhere'}, not {digest}")
        self._operators = sorted(pod["spec"]["nodeName"] for pod in pods)

    async def _write_log(self, lab: Lab) -> None:
        """Write the output of the operator's pods to operator.log."""
        with contextlib.suppress(ClusterError):
            async with Transport(load_access(lab.kubeconfig)) as transport:
                with (self._run_directory / "operator.log").open("w") as log:
                    for pod in await _operator_pods(transport):
                        name = pod["metadata"]["name"]
                        log.write(f"--- {name} on {pod['spec'].get('nodeName')}\n")
                        log.write(await transport.text(PODS.path(SYSTEM_NAMESPACE, name, "log")))


async def _node_names(transport: Transport) -> list[str]:
    answer: dict[str, Any] = await transport.get(NODES.path())
    return sorted(node["metadata"]["name"] for node in answer["items"])


async def _operator_pods(transport: Transport) -> list[dict[str, Any]]:
    answer = await transport.get(PODS.path(SYSTEM_NAMESPACE), params=_SELECTOR)
    pods: list[dict[str, Any]] = answer["items"]
    return pods
