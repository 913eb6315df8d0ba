"""The operator's image, built once."""

import shutil
from pathlib import Path

import pytest

from image import build

PROGRAMS = ("mmdebstrap", "uv")


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        pytest.skip(f"the image cannot be built: {', '.join(lacking)} not found")
    return build.build(tmp_path_factory.mktemp("image"))
