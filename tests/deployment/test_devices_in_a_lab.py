"""The role dra on a real API server, with a chart of the layout of NVIDIA's; the real Helm is used if there is one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import musterlab.cluster
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import NODES, Resource
from orchestrator.cluster.transport import Transport
from tests.deployment import helm_double
from tests.deployment.conftest import SiteUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.rare]  # takes more than a minute; `make test-installer` runs it

DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
SITE = """schema: 1
name: here
versions:
  kubernetes: "1.36.3"
  driver: "580"
  dra: {release}
not_applicable:
  driver: the nodes are objects
  orchestrator: this test is about devices
vars:
  preflight_kubernetes: ""
  helm_program: {helm}
  dra_chart: {chart}
  dra_nodes: [{node}]
  dra_ready_seconds: 6
"""
CHART = """apiVersion: v2
name: dra-driver-nvidia-gpu
version: 0.5.0
"""
TEMPLATE = """{{- if not .Values.gpuResourcesEnabledOverride }}
{{ fail "gpuResourcesEnabledOverride must be set" }}
{{- end }}
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors:
    - cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: values}
data: {values: {{ toJson .Values | quote }}}
"""
SELECTOR = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
OBJECTS = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": SELECTOR}}]},
    }
]
"""The objects of the chart for a Helm without templates."""


def helm(directory: Path) -> str:
    double = directory / "helm"
    double.write_text(f"#!{sys.executable}\n" + Path(helm_double.__file__).read_text())
    double.chmod(0o755)
    return shutil.which("helm") or str(double)


def deploy_older(chart: Path, kubeconfig: Path, directory: Path) -> None:
    """Install an older release with Helm, as a user could have done."""
    (chart / "Chart.yaml").write_text(CHART.replace("0.5.0", "0.4.1"))
    (directory / "values.yaml").write_text("gpuResourcesEnabledOverride: true\n")
    values = f"--values={directory}/values.yaml"
    words = [helm(directory), "upgrade", "-i", values, "dra-driver-nvidia-gpu", str(chart)]
    place = {"KUBECONFIG": str(kubeconfig), "HELM_NAMESPACE": "dra-driver-nvidia-gpu", "HOME": str(directory)}
    subprocess.run(words, env={**os.environ, **place}, check=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[musterlab.cluster.Lab]:
    state = tmp_path_factory.mktemp("labs")
    started = musterlab.cluster.start("devices", nodes=1, detach=False, state_dir=state)
    yield started
    started.stop()


async def call(kubeconfig: Path, verb: str, path: str, *arguments: Any) -> Any:
    async with Transport(load_access(kubeconfig)) as transport:
        return await getattr(transport, verb)(path, *arguments)


async def test_a_driver_is_refused_beside_a_device_plugin_then_installed_and_removed(
    site: SiteUnderTest, running: musterlab.cluster.Lab, tmp_path: Path
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(CHART)
    (chart / "templates" / "all.yaml").write_text(TEMPLATE)
    (chart / "objects.json").write_text(json.dumps(OBJECTS))
    kubeconfig = running.kubeconfig
    node = (await call(kubeconfig, "get", NODES.path()))["items"][0]["metadata"]["name"]

    def of_release(release: str, shares: str = "") -> str:
        site_file = SITE.format(chart=chart, node=node, helm=helm(tmp_path), release=release)
        return f"{site_file}  dra_consumable_shares: {shares}\n" if shares else site_file

    site.write(of_release("auto"))
    site.environment |= {"KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}

    pod = {"metadata": {"labels": {"app": "p"}}, "spec": {"containers": [{"name": "p", "image": "p"}]}}
    plugin = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": {"app": "p"}}, "template": pod},
    }
    await call(kubeconfig, "create", DAEMON_SETS.path("kube-system"), plugin)
    refused = site.muster("install")
    assert refused.returncode == 1
    assert "nvidia-device-plugin-daemonset announces GPUs already" in refused.stderr
    await call(kubeconfig, "delete", DAEMON_SETS.path("kube-system", "nvidia-device-plugin-daemonset"))

    site.write(of_release('"0.4.1"', shares="memory"))
    too_early = site.muster("install")
    assert too_early.returncode == 1
    assert "release 0.4.1 of the DRA driver cannot share out memory of a GPU, 0.5 can" in too_early.stderr
    site.write(of_release("auto"))

    silent = site.muster("install")
    assert silent.returncode == 1
    assert f"{node} announces no GPU" in silent.stderr

    announced = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-gpu"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }
    await call(kubeconfig, "create", SLICES.path(), announced)
    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    labels = (await call(kubeconfig, "get", NODES.path(None, node)))["metadata"]["labels"]
    assert labels["nvidia.com/gpu.present"] == "true"

    again = site.muster("install", "--from", "dra", "--until", "dra")
    assert again.returncode == 0, again.stderr
    assert ", 0 changed" in again.stderr

    deploy_older(chart, kubeconfig, tmp_path)
    unasked = site.muster("install", "--from", "dra")
    assert unasked.returncode == 2
    assert "DRA driver 0.4.1 runs, the site file names 0.5.0: that is an upgrade" in unasked.stderr
    planned = site.muster("upgrade", "--plan", "--from", "dra")
    assert "DRA driver 0.4.1 -> 0.5.0, cannot be undone: the driver keeps checkpoints" in planned.stdout

    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
    with pytest.raises(NotFound):
        await call(kubeconfig, "get", DEVICE_CLASSES.path(None, "gpu.nvidia.com"))
