"""The role device_plugin on a real API server, with Helm and a chart of the layout of NVIDIA's from loopback."""

import functools
import hashlib
import http.server
import json
import tarfile
import threading
from collections.abc import Iterator
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
CHART = "apiVersion: v2\nname: nvidia-device-plugin\nversion: {}\n"
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


def packed(version: str) -> bytes:
    """Return a chart as the file that Helm installs."""
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in (("Chart.yaml", CHART.format(version)), ("templates/all.yaml", TEMPLATE)):
            member = tarfile.TarInfo(f"nvidia-device-plugin/{name}")
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


async def announce(kubeconfig: Path, node: str, gpus: str, product: str | None) -> None:
    """Set the GPUs that a node announces, and its model as feature discovery does."""
    path = NODES.path(None, node)
    await call(kubeconfig, "patch", path, {"metadata": {"labels": {f"{GPUS}.product": product}}})
    amounts = {"capacity": {GPUS: gpus}, "allocatable": {GPUS: gpus}}
    await call(kubeconfig, "patch", f"{path}/status", {"status": amounts})


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
    site.write(text.replace(digest, "0" * 64))
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
