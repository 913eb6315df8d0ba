"""musterlab.oci: layouts and archives of images."""

import json
import tarfile
from pathlib import Path

import pytest

from musterlab import oci

LAYER = b"a layer"
NAME = "docker.io/library/muster:0.1.0"


def archive(directory: Path) -> Path:
    layout = oci.Layout(directory / "layout")
    descriptor = layout.add_image({"config": {"User": "65532:65532"}}, [(oci.sha256(LAYER), LAYER)])
    layout.write_index({NAME: descriptor})
    oci.write_archive(directory / "layout", directory / "image.tar", 1_580_601_600)
    return directory / "image.tar"


def test_the_images_of_an_archive_are_added_to_a_layout_by_name(tmp_path: Path) -> None:
    images = oci.Layout(tmp_path / "images").add_archive(archive(tmp_path))
    digest = images[NAME]["digest"].removeprefix("sha256:")
    manifest = json.loads((tmp_path / "images" / oci.BLOBS / digest).read_text())
    config = manifest["config"]["digest"].removeprefix("sha256:")
    stored = json.loads((tmp_path / "images" / oci.BLOBS / config).read_text())
    assert stored["config"] == {"User": "65532:65532"}
    assert stored["rootfs"]["diff_ids"] == [oci.sha256(LAYER)]


def test_the_same_layout_gives_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    assert archive(tmp_path / "one").read_bytes() == archive(tmp_path / "other").read_bytes()


def test_a_file_that_is_no_archive_of_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    with tarfile.open(tmp_path / "other.tar", "w") as other:
        other.add(tmp_path / "text", "text")
    for name in ("text", "other.tar"):
        with pytest.raises(ValueError, match=f"{name}: no OCI archive"):
            oci.Layout(tmp_path / "images").add_archive(tmp_path / name)
