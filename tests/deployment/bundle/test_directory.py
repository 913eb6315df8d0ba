"""A directory that cannot hold a bundle is named, before anything is fetched: `deployment.bundle.build`."""

from pathlib import Path

import pytest

from orchestrator.cli.main import main
from tests.deployment.conftest import SiteUnderTest


def _of_a_file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file" / "bundle"


def _of_a_broken_link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nowhere")
    return folder / "link"


def _of_the_kernel(folder: Path) -> Path:
    return Path("/proc/bundle")


@pytest.mark.parametrize("place", [_of_a_file, _of_a_broken_link, _of_the_kernel])
def test_a_directory_that_cannot_be_made_is_named(
    site: SiteUnderTest, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: object
) -> None:
    assert callable(place)
    directory = place(tmp_path)
    assert main(["bundle", "build", "-i", str(site.directory), str(directory)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"Error: {directory}")
    assert said.endswith("name a directory that can be written")
