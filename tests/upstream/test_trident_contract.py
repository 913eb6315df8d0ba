"""What the role `trident` and the matrix name is in each release of Trident: files, kinds, fields, images.

The names are read from the role's tasks and templates and from the matrix; none is listed here.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment.matrix import tables, within
from tests.upstream import trees

ROLE = Path(__file__).parents[2] / "roles" / "trident"
ROWS = list(tables()["trident"])


@pytest.fixture(scope="session")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `deploy` folders of all releases, by release."""
    return trees.unpack(trees.TRIDENT_DEPLOY, tmp_path_factory.mktemp("trident")) / "trident"


def releases(deploy: Path, row: dict[str, Any]) -> list[str]:
    """The releases of a row that have been published."""
    names = [path.name.removeprefix("v") for path in deploy.iterdir() if re.fullmatch(r"v[\d.]+", path.name)]
    return sorted(name for name in names if within(name, row["release"]))


def tasks() -> Iterator[dict[str, Any]]:
    for path in sorted((ROLE / "tasks").glob("*.yml")):
        yield from yaml.safe_load(path.read_text())


@cache
def role_text() -> str:
    return "\n".join(path.read_text() for path in sorted((ROLE / "tasks").glob("*.yml")))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["release"]))
def test_every_file_of_the_archive_is_in_every_release_of_the_row(deploy: Path, row: dict[str, Any]) -> None:
    names = set(re.findall(r"trident-installer/(deploy/[\w./-]+\.yaml)", role_text()))
    assert len(names) > 1
    assert role_text().count("trident-installer/deploy/") == len(names), (
        "a name that is put together cannot be checked"
    )
    found = releases(deploy, row)
    assert found, f"no release of {row['release']} has been published"
    for release in found:
        for name in names:
            assert (deploy / f"v{release}" / name).is_file(), f"{name} is not in Trident {release}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["release"]))
def test_the_operator_obeys_the_kind_and_is_of_the_release(deploy: Path, row: dict[str, Any]) -> None:
    kinds = set(re.findall(r"kind: (Trident\w+)", role_text())) - {"TridentBackendConfig"}
    namespace = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())["trident_namespace"]
    for release in releases(deploy, row):
        folder = deploy / f"v{release}" / "deploy"
        path = folder / "crds" / "trident.netapp.io_tridentorchestrators_crd_post1.16.yaml"
        definition = yaml.safe_load(path.read_text())
        assert kinds == {definition["spec"]["names"]["kind"]}
        assert definition["metadata"]["name"] in role_text()
        assert definition["spec"]["scope"] == "Cluster"
        assert [version["name"] for version in definition["spec"]["versions"]] == ["v1"]
        documents = [
            document for document in yaml.safe_load_all((folder / "bundle.yaml").read_text()) if document
        ]
        (operator,) = (document for document in documents if document["kind"] == "Deployment")
        assert operator["metadata"]["namespace"] == namespace
        assert operator["metadata"]["name"] in role_text()
        (container,) = operator["spec"]["template"]["spec"]["containers"]
        assert container["image"].endswith(f":{release}")


@pytest.mark.parametrize("release", sorted(trees.TRIDENT_SOURCES))
def test_fields_are_fields_of_the_sources(release: str) -> None:
    archive = trees.TRIDENT_SOURCES[release]
    orchestrator = trees.read_file(archive, "operator/crd/apis/netapp/v1/types.go")
    fields = {"debug", "namespace", "imageRegistry", "uninstall", "wipeout"}
    text = re.search(r"- name: Ask the operator for Trident\n.*?spec: (.*?)\n  when", role_text(), re.DOTALL)
    assert text
    fields |= set(re.findall(r"'(\w+)':", text[1]))
    for task in tasks():
        definition = task.get("kubernetes.core.k8s", {}).get("definition")
        if (
            isinstance(definition, dict)
            and definition.get("kind") == "TridentOrchestrator"
            and isinstance(definition["spec"], dict)
        ):
            fields |= set(definition["spec"])
    assert [name for name in sorted(fields) if f'json:"{name}' not in orchestrator] == []
    drivers = trees.read_file(archive, "storage_drivers/types.go")
    objects = trees.read_file(archive, "persistent_store/crd/apis/netapp/v1/types.go")
    template = (ROLE / "templates" / "backend.yml.j2").read_text().partition("spec:\n")[2]
    named = set(re.findall(r"(?m)^  (\w+):", template)) | set(re.findall(r'"(\w+)":', template))
    assert len(named) > 10
    assert [name for name in sorted(named) if f'json:"{name}' not in drivers + objects] == []


@pytest.mark.parametrize("release", sorted(trees.TRIDENT_SOURCES))
def test_the_row_promises_the_kubernetes_that_the_release_takes(release: str) -> None:
    config = trees.read_file(trees.TRIDENT_SOURCES[release], "config/config.go")
    (row,) = (row for row in ROWS if within(release, row["release"]))
    low, high = (re.search(rf'KubernetesVersion{end}\s*= "v(\d+)\.(\d+)"', config) for end in ("Min", "Max"))
    assert low
    assert high
    assert row["kubernetes"] == f">={low[1]}.{low[2]},<{high[1]}.{int(high[2]) + 1}"


@pytest.mark.parametrize(
    "row", [row for row in tables()["images"] if row["of"] == "trident"], ids=lambda row: str(row["release"])
)
def test_the_images_are_those_of_the_sources(row: dict[str, Any]) -> None:
    found = [release for release in trees.TRIDENT_SOURCES if within(release, row["release"])]
    assert found, f"no sources of {row['release']} are at hand"
    for release in found:
        config = trees.read_file(trees.TRIDENT_SOURCES[release], "config/config.go")
        registry = re.search(r'KubernetesCSISidecarRegistry\s*= "([^"]+)"', config)
        assert registry
        tags = set(re.findall(r'CSISidecar\w+ImageTag\s*= "([^"]+)"', config))
        sidecars = {image for image in row["images"] if image.startswith(registry[1])}
        assert sidecars == {f"{registry[1]}/{tag}" for tag in tags}
