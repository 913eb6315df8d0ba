"""The operator's image, built once."""

import shutil
from pathlib import Path

import pytest

from image import build


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap (the name in Debian) is not installed: it makes the image's root file system")
    if build.find_uv() is None:
        pytest.skip(
            "uv is neither on the PATH nor beside this Python: it installs the image's Python packages"
        )
    return build.build(tmp_path_factory.mktemp("image"))
