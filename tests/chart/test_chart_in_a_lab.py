"""The Helm chart on a real API server: installed, upgraded and uninstalled by Helm; projects stay."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from orchestrator.names import SYSTEM_NAMESPACE, WEB_ACCOUNT
from tests.chart.helm_program import helm, program
from tests.control.operators import must

pytestmark = pytest.mark.lab


PROJECT = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "Project",
    "metadata": {"name": "team-a"},
    "spec": {"gpu": {"quota": 1}},
}


@dataclass
class Site:
    lab: Lab
    directory: Path
    chart: Path

    def helm(self, *arguments: str) -> str:
        environment = {"KUBECONFIG": str(self.lab.kubeconfig)}
        done = helm(self.directory, *arguments, "--namespace", "kube-system", environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *arguments: str, given: str | None = None, codes: tuple[int, ...] = (0,)) -> str:
        command = [
            str(self.lab.kubectl_directory / "kubectl"), f"--kubeconfig={self.lab.kubeconfig}", *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def read(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def operators_arguments(self) -> list[str]:
        deployment = self.read("deployment/muster-operator", "-n", SYSTEM_NAMESPACE)
        arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        return arguments


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    program()
    lab = start("chart", nodes=1, detach=False, state_dir=tmp_path / "labs")
    try:
        must(lab.kubeconfig, "operator-yaml", "--cluster", "here", "--helm", str(tmp_path / "muster"))
        yield Site(lab, tmp_path, tmp_path / "muster")
    finally:
        lab.stop()


def test_helm_installs_upgrades_and_uninstalls_and_projects_remain(site: Site) -> None:
    site.helm("install", "muster", str(site.chart))
    assert site.read("namespace", SYSTEM_NAMESPACE)["metadata"]["labels"]["muster.dev/cluster"] == "here"
    site.kubectl("wait", "--for=condition=Established", "crd/projects.muster.dev", "--timeout=60s")
    rendered = must(site.lab.kubeconfig, "operator-yaml", "--cluster", "here")
    assert site.kubectl("diff", "-f", "-", given=rendered) == ""
    site.kubectl("apply", "-f", "-", given=json.dumps(PROJECT))

    notes = site.helm("upgrade", "muster", str(site.chart), "--set", "web=true,spread=true")
    assert "kubectl create secret tls muster-web-tls -n muster-system" in notes
    assert site.operators_arguments() == ["operator", "--health-port=8080", "--spread"]
    deployment = ("deployment", WEB_ACCOUNT, "-n", SYSTEM_NAMESPACE)
    site.read(*deployment)

    site.helm("upgrade", "muster", str(site.chart), "--set", "web=false")
    assert site.kubectl("get", *deployment, "--ignore-not-found") == ""
    assert site.operators_arguments() == ["operator", "--health-port=8080"]

    site.helm("uninstall", "muster", "--wait")
    assert site.kubectl("get", "deployments", "-A", "-o", "name") == ""
    assert [item["metadata"]["name"] for item in site.read("projects")["items"]] == ["team-a"]
    site.helm("install", "muster", str(site.chart))
    assert site.operators_arguments() == ["operator", "--health-port=8080"]
