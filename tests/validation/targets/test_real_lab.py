"""validation.targets.real_lab: the image of a lab's operator."""

from pathlib import Path

import pytest

from musterlab import oci
from orchestrator.errors import UsageError
from validation.targets.operator_process import OPERATOR_PYTHONPATH
from validation.targets.real_lab import find_image


def archive(directory: Path, name: str) -> Path:
    layout = oci.Layout(directory / "layout")
    layout.write_index({name: layout.add_image({}, [])})
    oci.write_archive(directory / "layout", directory / "image.tar", 0)
    return directory / "image.tar"


def test_an_image_of_another_version_is_not_the_one_of_the_deployment(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has .*/muster:0.0.1, not .*: build it with `make image`"):
        find_image(archive(tmp_path, "docker.io/library/muster:0.0.1"))


def test_a_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_text("text")
    with pytest.raises(UsageError, match="no OCI archive"):
        find_image(tmp_path / "image.tar")


def test_an_operator_of_an_image_cannot_be_replaced_through_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPERATOR_PYTHONPATH, str(tmp_path))
    with pytest.raises(UsageError, match=OPERATOR_PYTHONPATH):
        find_image(None)
