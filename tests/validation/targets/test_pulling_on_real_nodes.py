"""Real kubelets pull the images of a map before the clock starts: one with a shell, one without, and a missing one."""

import asyncio
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from musterlab import oci
from musterlab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Namespace
from orchestrator.cluster.resources import NAMESPACES
from orchestrator.cluster.transport import Transport
from validation.targets.pulling import NAMESPACE, Pull, pull_images

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

SHELL = "runai.jfrog.io/demo/quickstart"
BARE = "registry.site.example/bare:1"
NOWHERE = "registry.site.example/nowhere:1"
NODES = ["dgx1-real-1", "dgx1-real-2"]


def bare_image(directory: Path) -> tuple[Path, str]:
    """Write an archive with an image that contains no program; return the archive and the image's digest."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        layer.addfile(tarfile.TarInfo("only-a-file"))
    layout = oci.Layout(directory / "layout")
    content = buffer.getvalue()
    descriptor = layout.add_image({"config": {}}, [(oci.sha256(content), content)])
    layout.write_index({BARE: descriptor})
    oci.write_archive(directory / "layout", directory / "bare.oci.tar", 0)
    return directory / "bare.oci.tar", str(descriptor["digest"])


@pytest.fixture
def image(tmp_path: Path) -> tuple[Path, str]:
    return bare_image(tmp_path)


@pytest.fixture
def lab(tmp_path: Path, image: tuple[Path, str]) -> Iterator[Lab]:
    running = start(
        "pulling", nodes=0, real_nodes=2, detach=False, state_dir=tmp_path / "l", image_archives=[image[0]]
    )
    try:
        yield running
    finally:
        running.stop()


def test_both_nodes_have_each_image_with_its_digest_or_say_why_not(lab: Lab, image: tuple[Path, str]) -> None:
    async def pull() -> tuple[list[Pull], list[Namespace]]:
        async with Transport(load_access(lab.kubeconfig)) as transport:
            pulls = await pull_images(transport, NODES, [SHELL, BARE, NOWHERE])
            return pulls, (await transport.list(NAMESPACES.path(), Namespace)).items

    pulls, namespaces = asyncio.run(pull())
    by_image = {name: [one for one in pulls if one.image == name] for name in (SHELL, BARE, NOWHERE)}
    assert all([one.node for one in of_image] == NODES for of_image in by_image.values())
    for one in by_image[SHELL] + by_image[BARE]:
        assert not one.problem
        assert one.message.startswith("Successfully pulled image"), one
        assert one.took_ms > 0
    assert {one.digest for one in by_image[BARE]} == {image[1]}
    (digest,) = {one.digest for one in by_image[SHELL]}
    assert digest.startswith("sha256:")
    assert all("nowhere" in one.problem and not one.digest for one in by_image[NOWHERE]), by_image[NOWHERE]
    going = [one for one in namespaces if one.metadata.deletion_timestamp is not None]
    assert NAMESPACE not in {one.metadata.name for one in namespaces if one not in going}
