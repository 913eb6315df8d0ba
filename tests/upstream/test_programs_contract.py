"""The programs that a user provides are in the images that the lab names, in published versions."""

import re
from typing import Any

import pytest

from deployment.matrix import tables
from musterlab.programs import PROGRAMS, Program
from tests.upstream.names import found

Facts = dict[str, Any]


@pytest.fixture
def images(dra_driver: Facts, mock_nvml: Facts, trident: Facts) -> dict[str, list[str] | None]:
    """Return the programs that each project copies into its image; None if the facts do not list them."""
    ((_, sources),) = trident["sources"].items()
    return {
        **{
            project["chart"]["values"]["image.repository"]: project["programs_of_image"]
            for project in (dra_driver, mock_nvml)
        },
        f"docker.io/netapp/{sources['constants']['OrchestratorName']}": None,
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.file))
def test_a_program_is_in_its_image(images: dict[str, list[str] | None], program: Program) -> None:
    image, folder = program.origin.removeprefix("image ").split(", ")
    assert image in images
    copied = images[image]
    assert copied is None or {f"{folder}/{program.file}", f"{folder}/"} & set(copied)


@pytest.mark.versions
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.file))
def test_a_program_was_tried_in_a_version_of_the_facts(
    dra_driver: Facts, mock_nvml: Facts, trident: Facts, program: Program
) -> None:
    commits = [project["source"]["commit"][:7] for project in (dra_driver, mock_nvml)]
    for tried in program.tried:
        assert set(re.findall(r"[\w.]+", tried)) & {*commits, *trident["releases"]}, tried


def test_an_image_of_these_projects_is_one_of_theirs(
    images: dict[str, list[str] | None], trident: Facts, kubespray: Facts
) -> None:
    """The test covers every image in the product but those that kubespray fetches, which the
    test of downloads covers. Kubespray names the image of node feature discovery too.
    """
    ((_, sources),) = trident["sources"].items()
    constants = sources["constants"]
    sidecars = {
        f"{constants['KubernetesCSISidecarRegistry']}/{value.partition(':')[0]}"
        for name, value in constants.items()
        if name.endswith("ImageTag")
    }
    named = found(r"(?<![\w./-])(?:registry\.k8s\.io|ghcr\.io)/[\w./-]*\w")
    assert named
    # a chart is published in the same registry, and is no image
    charts = {name for name in named if "/charts/" in name}
    fetched = {image.rpartition(":")[0] for row in tables()["downloads"] for image in row["images"]}
    downloads = kubespray["roles"]["kubespray_defaults"]["variables"]["defaults/main/download.yml"]
    discovery = downloads["node_feature_discovery_image_repo"].replace(
        "{{ kube_image_repo }}", downloads["kube_image_repo"]
    )
    assert named.keys() - charts - fetched <= sidecars | images.keys() | {discovery}
