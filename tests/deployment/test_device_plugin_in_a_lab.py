"""The role device_plugin on a real API server, with Helm and a chart of the layout of NVIDIA's from loopback."""

import asyncio
import functools
import hashlib
import http.server
import json
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import musterlab.cluster
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import NAMESPACES, NODES, Resource
from orchestrator.cluster.transport import Transport
from tests.chart import helm_program
from tests.deployment.conftest import SiteUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.rare]  # takes more than a minute; `make test-installer` runs it

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SPACE = "nvidia-device-plugin"
GPUS = "nvidia.com/gpu"
SITE = """schema: 1
name: here
versions:
  kubernetes: "1.36.3"
  driver: "580"
  dra: "off"
  device_plugin: "0.19.3"
not_applicable:
  driver: the nodes are objects
  orchestrator: this test is about devices
vars:
  preflight_kubernetes: ""
  helm_program: {helm}
  device_plugin_chart: {url}/nvidia-device-plugin.tgz
  device_plugin_sha256: {sha256}
  device_plugin_nodes: [{node}]
  device_plugin_ready_seconds: 6
"""
CHART = "apiVersion: v2\nname: {}\nversion: {}\n"
TEMPLATE = """apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec:
      nodeSelector: {{ toJson .Values.nodeSelector }}
      containers: [{name: plugin, image: plugin}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: values, namespace: {{ .Release.Namespace }}}
data: {values: {{ toJson .Values | quote }}}
"""

ENDLESS = """---
apiVersion: batch/v1
kind: Job
metadata: {name: endless, annotations: {helm.sh/hook: pre-install}}
spec:
  template:
    spec: {restartPolicy: Never, nodeSelector: {no: node}, containers: [{name: endless, image: endless}]}
"""
"""A hook whose pod never runs."""


def packed(version: str, chart: str = SPACE, more: str = "") -> bytes:
    """Return a chart as the file that Helm installs."""
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in (
            ("Chart.yaml", CHART.format(chart, version)),
            ("templates/all.yaml", TEMPLATE + more),
        ):
            member = tarfile.TarInfo(f"{chart}/{name}")
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))
    return content.getvalue()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[musterlab.cluster.Lab]:
    state = tmp_path_factory.mktemp("labs")
    started = musterlab.cluster.start("plugin", nodes=1, detach=False, state_dir=state)
    yield started
    started.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serve the folder `charts`, and return its URL."""
    (tmp_path / "charts").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "charts")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


async def call(kubeconfig: Path, verb: str, path: str, *arguments: Any) -> Any:
    async with Transport(load_access(kubeconfig)) as transport:
        return await getattr(transport, verb)(path, *arguments)


async def remove_space(kubeconfig: Path) -> None:
    """Delete the namespace of the plugin, and wait until it is gone."""
    await call(kubeconfig, "delete", NAMESPACES.path(None, SPACE))
    deadline = time.monotonic() + 300
    with suppress(NotFound):
        while await call(kubeconfig, "get", NAMESPACES.path(None, SPACE)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)


async def announce(kubeconfig: Path, node: str, gpus: str, product: str | None) -> None:
    """Set the GPUs that a node announces, and its model as feature discovery does."""
    path = NODES.path(None, node)
    await call(kubeconfig, "patch", path, {"metadata": {"labels": {f"{GPUS}.product": product}}})
    amounts = {"capacity": {GPUS: gpus}, "allocatable": {GPUS: gpus}}
    await call(kubeconfig, "patch", f"{path}/status", {"status": amounts})


def config_map(name: str, *finalizers: str) -> dict[str, Any]:
    metadata = {"name": name, "finalizers": list(finalizers)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def daemon_set(name: str) -> dict[str, Any]:
    pod = {"metadata": {"labels": {"app": "p"}}, "spec": {"containers": [{"name": "p", "image": "p"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "p"}}, "template": pod},
    }


@pytest.fixture
async def node(running: musterlab.cluster.Lab) -> str:
    name: str = (await call(running.kubeconfig, "get", NODES.path()))["items"][0]["metadata"]["name"]
    return name


@pytest.fixture
def text(site: SiteUnderTest, running: musterlab.cluster.Lab, server: str, node: str, tmp_path: Path) -> str:
    """Serve the chart and return the site file, which is written already."""
    file = tmp_path / "charts" / "nvidia-device-plugin.tgz"
    file.write_bytes(packed("0.19.3"))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    written = SITE.format(node=node, helm=helm_program.program(), url=server, sha256=sha256)
    site.write(written)
    site.environment |= {"KUBECONFIG": str(running.kubeconfig), "HOME": str(tmp_path)}
    return written


async def test_the_plugin_is_refused_beside_another_and_with_another_digest(
    site: SiteUnderTest, running: musterlab.cluster.Lab, text: str
) -> None:
    kubeconfig = running.kubeconfig
    await call(kubeconfig, "create", DAEMON_SETS.path("default"), daemon_set(SPACE))
    refused = site.muster("install")
    assert refused.returncode == 1
    assert "default/nvidia-device-plugin announces GPUs already" in refused.stderr
    assert "helm uninstall nvidia-device-plugin gpu-feature-discovery --namespace default" in refused.stderr
    await call(kubeconfig, "delete", DAEMON_SETS.path("default", SPACE))

    digest = text.partition("device_plugin_sha256: ")[2].partition("\n")[0]
    site.write(text.replace(digest, "a" * 64))
    other = site.muster("install")
    assert other.returncode == 1
    assert "checksum" in other.stderr
    with pytest.raises(NotFound):
        await call(kubeconfig, "get", NAMESPACES.path(None, SPACE))


@pytest.mark.usefixtures("text")
async def test_the_plugin_is_proven_then_upgraded_and_removed(
    site: SiteUnderTest, running: musterlab.cluster.Lab, node: str, tmp_path: Path
) -> None:
    kubeconfig = running.kubeconfig
    await announce(kubeconfig, node, "0", None)
    silent = site.muster("install")
    assert silent.returncode == 1
    assert f"{node} announces no GPU: look at the pods in {SPACE}" in silent.stderr
    labels = (await call(kubeconfig, "get", NODES.path(None, node)))["metadata"]["labels"]
    assert labels["nvidia.com/gpu.present"] == "true"
    given = json.loads((await call(kubeconfig, "get", CONFIG_MAPS.path(SPACE, "values")))["data"]["values"])
    assert given["compatWithCPUManager"] is True, "the kubelet passes the device files"
    assert given["nodeSelector"] == {"nvidia.com/gpu.present": "true"}

    await announce(kubeconfig, node, "8", None)
    bare = site.muster("install")
    assert bare.returncode == 1
    assert f"{node} has no label nvidia.com/gpu.product" in bare.stderr

    await announce(kubeconfig, node, "8", "NVIDIA-H100-80GB-HBM3")
    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    again = site.muster("install", "--from", "device_plugin", "--until", "device_plugin")
    assert again.returncode == 0, again.stderr
    assert ", 0 changed" in again.stderr

    older = tmp_path / "older.tgz"
    older.write_bytes(packed("0.19.2"))
    words = ("upgrade", SPACE, str(older), "--namespace", SPACE, "--kubeconfig", str(kubeconfig))
    assert helm_program.helm(tmp_path, *words).returncode == 0
    planned = site.muster("upgrade", "--plan", "--from", "device_plugin")
    assert "device plugin 0.19.2 -> 0.19.3\n" in planned.stdout
    upgraded = site.muster("upgrade", "--from", "device_plugin", "--until", "device_plugin")
    assert upgraded.returncode == 0, upgraded.stderr
    listed = helm_program.helm(tmp_path, "list", "--namespace", SPACE, "--kubeconfig", str(kubeconfig))
    assert "nvidia-device-plugin-0.19.3" in listed.stdout

    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
    with pytest.raises(NotFound):
        await call(kubeconfig, "get", NAMESPACES.path(None, SPACE))


class Helm:
    """The real Helm, on the cluster of the test and in the namespace of the plugin."""

    def __init__(self, home: Path, kubeconfig: Path) -> None:
        self._home = home
        self._access = {"KUBECONFIG": str(kubeconfig), "HELM_NAMESPACE": SPACE}

    def run(self, *words: str) -> str:
        return helm_program.helm(self._home, *words, environment=self._access).stdout

    def status(self) -> dict[str, str]:
        return {each["name"]: each["status"] for each in json.loads(self.run("list", "--all", "-o", "json"))}

    def kill_while_it_installs(self, chart: Path) -> None:
        """Start an installation that does not end, and kill it once the cluster has its record."""
        words = [str(helm_program.program()), "upgrade", "-i", SPACE, str(chart), "--create-namespace"]
        environment = {"HOME": str(self._home), "PATH": os.environ["PATH"], **self._access}
        with subprocess.Popen(words, env=environment) as process:
            deadline = time.monotonic() + 120
            while SPACE not in self.status():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.kill()
        assert self.status() == {SPACE: "pending-install"}


@pytest.fixture
async def ready(running: musterlab.cluster.Lab, node: str) -> None:
    """Let the node announce and describe GPUs, as with a plugin that runs."""
    await announce(running.kubeconfig, node, "8", "NVIDIA-H100-80GB-HBM3")


@pytest.mark.usefixtures("ready")
async def test_releases_of_others_are_refused_and_their_objects_kept(
    site: SiteUnderTest, running: musterlab.cluster.Lab, text: str, tmp_path: Path
) -> None:
    kubeconfig, helm = running.kubeconfig, Helm(tmp_path, running.kubeconfig)
    other = tmp_path / "other.tgz"
    other.write_bytes(packed("1.0.0", "monitor"))
    helm.run("install", SPACE, str(other), "--create-namespace", "--set", "nodeSelector=null")
    foreign = site.muster("install")
    assert foreign.returncode == 1
    assert (
        f"the release {SPACE} in the namespace {SPACE} is of the chart monitor-1.0.0, not of"
        in foreign.stderr
    )
    assert helm.status() == {SPACE: "deployed"}
    helm.run("uninstall", SPACE, "--wait")

    # NVIDIA's instructions name the release nvdp, in the same namespace.
    theirs = tmp_path / "charts" / "nvidia-device-plugin.tgz"
    helm.run("install", "nvdp-nvidia-device-plugin", str(theirs), "--set", "nodeSelector=null")
    beside = site.muster("install")
    assert beside.returncode == 1
    assert f"{SPACE}/nvdp-nvidia-device-plugin announces GPUs already" in beside.stderr
    helm.run("uninstall", "nvdp-nvidia-device-plugin", "--wait")

    helm.run("install", SPACE, str(theirs), "--set", "nodeSelector=null")
    same = site.muster("install")
    assert same.returncode == 1
    assert f"muster did not install the release {SPACE} in the namespace {SPACE}: remove it" in same.stderr
    left = site.muster("teardown", "--yes")
    assert left.returncode == 0, left.stderr
    assert (
        f"device_plugin: the namespace {SPACE} is kept, because it has release {SPACE}, DaemonSet {SPACE}, "
        f"ConfigMap values. muster did not install the release {SPACE}\n" in left.stdout
    )
    assert helm.status() == {SPACE: "deployed"}
    site.write(f"{text}  helm_adopted_releases: [{SPACE}]\n")
    adopted = site.muster("install")
    assert adopted.returncode == 0, adopted.stderr
    site.write(text)
    again = site.muster("install", "--from", "device_plugin", "--until", "device_plugin")
    assert again.returncode == 0, again.stderr
    assert ", 0 changed" in again.stderr

    await call(kubeconfig, "create", CONFIG_MAPS.path(SPACE), config_map("mine"))
    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert helm.status() == {}
    message = f"the namespace {SPACE} is kept, because it has ConfigMap mine\n"
    assert f"device_plugin: {message}" in removed.stdout
    space = await call(kubeconfig, "get", NAMESPACES.path(None, SPACE))
    assert f"muster.dev/helm.{SPACE}" not in space["metadata"].get("annotations", {})
    assert (await call(kubeconfig, "get", CONFIG_MAPS.path(SPACE, "mine")))["metadata"]["name"] == "mine"
    await remove_space(kubeconfig)


@pytest.mark.usefixtures("ready")
async def test_an_interrupted_or_failed_release_is_completed_by_the_next_run(
    site: SiteUnderTest, running: musterlab.cluster.Lab, text: str, tmp_path: Path
) -> None:
    kubeconfig, helm = running.kubeconfig, Helm(tmp_path, running.kubeconfig)
    slow = tmp_path / "slow.tgz"
    slow.write_bytes(packed("0.19.3", more=ENDLESS))
    mark = {"name": SPACE, "annotations": {f"muster.dev/helm.{SPACE}": "installed"}}
    await call(kubeconfig, "create", NAMESPACES.path(None), {"metadata": mark})
    helm.kill_while_it_installs(slow)
    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    assert helm.status() == {SPACE: "deployed"}

    values = tmp_path / "values.yaml"
    values.write_text(helm.run("get", "values", SPACE, "-o", "yaml"))
    broken = tmp_path / "broken.tgz"
    broken.write_bytes(
        packed("0.19.3", more="---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n")
    )
    helm.run("upgrade", SPACE, str(broken), "-f", str(values))
    assert helm.status() == {SPACE: "failed"}
    await call(kubeconfig, "delete", CONFIG_MAPS.path(SPACE, "values"))
    again = site.muster("install", "--from", "device_plugin", "--until", "device_plugin")
    assert again.returncode == 0, again.stderr
    assert helm.status() == {SPACE: "deployed"}
    await call(kubeconfig, "get", CONFIG_MAPS.path(SPACE, "values"))

    await call(kubeconfig, "create", CONFIG_MAPS.path(SPACE), config_map("held", "example.com/hold"))
    await call(kubeconfig, "delete", NAMESPACES.path(None, SPACE))
    site.write(f"{text}  helm_deletion_seconds: 4\n")
    stuck = site.muster("install", "--from", "device_plugin", "--until", "device_plugin")
    assert stuck.returncode == 1
    assert f"the namespace {SPACE} is being deleted and does not end" in stuck.stderr
    await call(kubeconfig, "patch", CONFIG_MAPS.path(SPACE, "held"), {"metadata": {"finalizers": None}})
    site.write(text)
    resumed = site.muster("resume")
    assert resumed.returncode == 0, resumed.stderr
    assert helm.status() == {SPACE: "deployed"}
    assert site.muster("teardown", "--yes").returncode == 0
