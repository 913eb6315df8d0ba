"""Statements of the matrix about Kubernetes agree with its sources: the served kinds, and the feature gates on by
default.

The sources are those of the lab's Go modules k8s.io/kubernetes and k8s.io/api, or of a checkout.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import site_file, variables
from deployment.matrix import tables
from tests.deployment.conftest import MUSTER, SiteUnderTest

Sources = Callable[[str], Path]
ROOT = Path(__file__).parents[2]
SITES = sorted(path.parent.name for path in (ROOT / "inventories").glob("*/site.yml"))
MINORS = [f"1.{minor}" for minor in range(33, 37)]


@pytest.fixture
def site(tmp_path: Path) -> SiteUnderTest:
    directory = tmp_path / "site"
    directory.mkdir()
    return SiteUnderTest(directory, tmp_path / "state")


def on_since(kubernetes: Sources, gate: str) -> str:
    """Return the minor release since which a feature gate is on by default."""
    text = (kubernetes("k8s.io/kubernetes") / "pkg" / "features" / "kube_features.go").read_text()
    (block,) = re.findall(rf"(?ms)^\t{gate}: {{\n(.*?)^\t}},", text)
    # later entries of a gate are its next stages
    return str(re.findall(r'MustParse\("([\d.]+)"\), Default: true', block)[0])


def number(minor: str) -> int:
    return int(minor.partition(".")[2])


@pytest.mark.versions
@pytest.mark.parametrize(
    ("key", "gate"), [("whole", "DRAExtendedResource"), ("shares", "DRAConsumableCapacity")]
)
def test_claims_for_jobs_are_enabled_in_the_kubernetes_of_the_row(
    kubernetes: Sources, key: str, gate: str
) -> None:
    named = {row[key] for row in tables()["dra"] if key in row}
    assert named == {f">={on_since(kubernetes, gate)}"}


@pytest.mark.parametrize("minor", MINORS)
def test_gpus_are_announced_by_the_default_of_this_kubernetes(
    kubernetes: Sources, site: SiteUnderTest, minor: str
) -> None:
    since = on_since(kubernetes, "DRAExtendedResource")
    row = next(
        each for each in tables()["deepops"][-1]["kubernetes"] + [">=1.36.0,<=1.36.3"] if f"={minor}." in each
    )
    release = row.rpartition("=")[2]
    site.write(f'schema: 1\nname: here\nversions:\n  kubernetes: "{release}"\n  dra: auto\n')
    stages = {each["stage"]: each for each in json.loads(site.call("plan", "--json").stdout)["stages"]}
    by_claims = stages["dra"]["decision"] != "not applicable"
    assert by_claims == (number(minor) >= number(since))


@pytest.mark.parametrize("name", SITES)
def test_a_site_that_comes_with_muster_has_something_that_announces_its_gpus(
    kubernetes: Sources, name: str
) -> None:
    """A site has the device plugin if its DRA driver gives jobs no GPUs, and never both."""
    since = on_since(kubernetes, "DRAExtendedResource")
    loaded = site_file.load(ROOT / "inventories" / name)
    of_roles = variables.of_roles(loaded)
    minor = ".".join(str(loaded.versions["kubernetes"]).split(".")[:2])
    by_claims = bool(of_roles.get("dra_version"))
    assert not by_claims or number(minor) >= number(since)
    if loaded.versions.get("deepops") and any("gpu" in host["roles"] for host in loaded.hosts.values()):
        assert by_claims != bool(of_roles.get("device_plugin_version"))


def kinds() -> set[tuple[str, str]]:
    """Return version and kind of each object in the operator's manifests."""
    command = [*MUSTER, "operator-yaml", "--cluster", "here", "--image", "registry.example.com/muster:1"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(printed) if each]
    return {(each["apiVersion"], each["kind"]) for each in documents}


def introduced(kubernetes: Sources, version: str, kind: str) -> str:
    """Return the first minor release that served the kind in this version, or an empty text if the sources do not say
    so.
    """
    group, _, name = version.rpartition("/")
    path = kubernetes("k8s.io/api") / (group.partition(".")[0] or "core") / name / "types.go"
    if not path.is_file():
        return ""
    before, found, _ = path.read_text().partition(f"\ntype {kind} struct ")
    assert found, f"{path} has no {kind}"
    comment = (
        before.rpartition("\n\n")[2]
        if "introduced=" in before.rpartition("\n\n")[2]
        else before[-1500:].rpartition("\n}\n")[2]
    )
    since = re.findall(r"prerelease-lifecycle-gen:introduced=([\d.]+)", comment)
    return str(since[-1]) if since else ""


@pytest.mark.versions
def test_the_orchestrator_is_supported_where_every_kind_of_its_manifests_is_served(
    kubernetes: Sources,
) -> None:
    since = {kind: minor for version, kind in kinds() if (minor := introduced(kubernetes, version, kind))}
    assert "ValidatingAdmissionPolicy" in since
    (row,) = tables()["orchestrator"]
    assert row["kubernetes"] == f">={max(since.values(), key=number)}"


@pytest.mark.parametrize("name", ["current", "dgx-b200", "dgx-h100", "example", "tr4858"])
def test_an_image_of_the_orchestrator_that_no_registry_has_is_missed(site: SiteUnderTest, name: str) -> None:
    """An image name without a registry would mean docker.io/library, where the orchestrator is not published."""
    site.directory = ROOT / "inventories" / name
    image = str(variables.of_roles(site_file.load(site.directory)).get("orchestrator_image") or "")
    missed = "orchestrator.image is missing" in site.call("plan").stdout
    assert missed == ("/" not in image)
